/* validate.c - see validate.h. */
#include "validate.h"

#include <openssl/evp.h>
#include <stdio.h>
#include <string.h>

static const char owner_tag[] = "[owner:", signature_tag[] = "[signature:";

/* The next "[name:...]" at or after c: at least one byte inside, none of them a newline, the
 * shortest that fits. Moves c behind it. */
static int next_tag(struct cursor *c, const char *name, const uint8_t **inside, size_t *n)
{
    size_t length = strlen(name);
    const uint8_t *at, *end = c->at + c->left, *stop;
    for (at = c->at; (at = memmem(at, (size_t)(end - at), name, length)); at++) {
        *inside = at + length;
        for (stop = *inside; stop < end && *stop != '\n'; stop++)
            if (*stop == ']' && stop > *inside) {
                *n = (size_t)(stop - *inside);
                c->at = stop + 1;
                c->left = (size_t)(end - c->at);
                return 1;
            }
    }
    return 0;
}

/* The owner named in the key and the subkey. PL_ENOTFOUND: none; PL_EPROTO: two different ones. */
static int find_owner(const struct record *r, const uint8_t **owner, size_t *n)
{
    struct cursor parts[2] = { { r->key, r->key_n }, { r->subkey, r->subkey_n } };
    const uint8_t *tag;
    size_t tag_n;
    *owner = NULL;
    for (int i = 0; i < 2; i++)
        while (next_tag(&parts[i], owner_tag, &tag, &tag_n)) {
            if (*owner && (*n != tag_n || memcmp(*owner, tag, tag_n))) return PL_EPROTO;
            *owner = tag;
            *n = tag_n;
        }
    return *owner ? PL_OK : PL_ENOTFOUND;
}

int record_message(struct bytes *out, const struct record *r)
{
    struct bytes inside = { 0 };
    mp_list(&inside, 4);
    mp_bin(&inside, r->key, r->key_n);
    mp_bin(&inside, r->subkey, r->subkey_n);
    mp_bin(&inside, r->value, r->n);
    mp_float(&inside, r->expiration);
    if (inside.failed) out->failed = inside.failed;
    else mp_ext(out, MP_TUPLE_CODE, bytes_at(&inside), bytes_length(&inside));
    bytes_clear(&inside);
    return out->failed;
}

int record_strip(struct bytes *out, const uint8_t *value, size_t n)
{
    struct cursor c = { value, n };
    const uint8_t *inside, *from = value;
    size_t length;
    while (next_tag(&c, signature_tag, &inside, &length)) {
        const uint8_t *tag = inside - strlen(signature_tag);
        bytes_add(out, from, (size_t)(tag - from));
        from = c.at;
    }
    return bytes_add(out, from, (size_t)(value + n - from));
}

static int check_signature(const struct record *r, const struct bytes *stripped, struct pl_err *err)
{
    struct record plain = *r;
    struct cursor c = { r->value, r->n };
    struct bytes message = { 0 };
    const uint8_t *owner, *signature, *second;
    size_t owner_n, signature_n, second_n;
    EVP_PKEY *key;
    int rc = find_owner(r, &owner, &owner_n);
    if (rc == PL_ENOTFOUND) return PL_OK; /* anybody's */
    if (rc) return pl_fail(err, rc, "record: two owners");
    if (!next_tag(&c, signature_tag, &signature, &signature_n))
        return pl_fail(err, PL_EPROTO, "record: has an owner but no signature");
    if (next_tag(&c, signature_tag, &second, &second_n))
        return pl_fail(err, PL_EPROTO, "record: two signatures");
    if (rsa_public_parse(&key, owner, owner_n))
        return pl_fail(err, PL_EPROTO, "record: its owner is no RSA key");
    plain.value = bytes_at(stripped);
    plain.n = bytes_length(stripped);
    rc = record_message(&message, &plain);
    if (!rc) rc = rsa_public_verify(key, bytes_at(&message), bytes_length(&message), signature,
                                    signature_n);
    EVP_PKEY_free(key);
    bytes_clear(&message);
    return rc == PL_EPROTO ? pl_fail(err, rc, "record: the signature is not its owner's") : rc;
}

static const struct schema *guard_of(const struct validators *v, const struct record *r)
{
    for (size_t i = 0; i < v->count; i++)
        if (r->key_n == DHT_ID_BYTES && !memcmp(r->key, v->guards[i].key.bytes, DHT_ID_BYTES))
            return v->guards[i].schema;
    return NULL;
}

static int check_schema(const struct schema *s, const struct record *r,
                        const struct bytes *stripped, struct pl_err *err)
{
    struct mp_value *subkey = NULL, *value = NULL;
    const uint8_t *owner;
    size_t owner_n;
    int rc = mp_read(&subkey, r->subkey, r->subkey_n, err);
    if (!rc && subkey->kind != MP_BIN) /* nil included: a regular value is no dictionary entry */
        rc = pl_fail(err, PL_EPROTO, "%s: the subkey is not bytes", s->suffix);
    if (!rc && find_owner(r, &owner, &owner_n))
        rc = pl_fail(err, PL_EPROTO, "%s: the subkey names no owner", s->suffix);
    if (!rc) rc = mp_read(&value, bytes_at(stripped), bytes_length(stripped), err);
    if (!rc) rc = schema_check(s, value, err);
    mp_free(subkey);
    mp_free(value);
    return rc == PL_ENOMEM ? rc : rc ? PL_EPROTO : PL_OK;
}

int record_check(const struct validators *v, const struct record *r, struct pl_err *err)
{
    const struct schema *s = guard_of(v, r);
    struct bytes stripped = { 0 };
    int rc = record_strip(&stripped, r->value, r->n);
    if (!rc) rc = check_signature(r, &stripped, err);
    if (!rc && s) rc = check_schema(s, r, &stripped, err);
    bytes_clear(&stripped);
    return rc;
}

int record_sign(struct bytes *out, const struct validators *v, const struct record *r)
{
    const struct bytes *mine = v->key ? &v->key->text : NULL;
    struct bytes message = { 0 };
    const uint8_t *owner;
    size_t n;
    bytes_add(out, r->value, r->n);
    if (!mine || find_owner(r, &owner, &n) || n != bytes_length(mine) ||
        memcmp(owner, bytes_at(mine), n))
        return out->failed;
    record_message(&message, r);
    bytes_add(out, signature_tag, strlen(signature_tag));
    if (message.failed) out->failed = message.failed;
    else if (rsa_key_sign(out, v->key, bytes_at(&message), bytes_length(&message)))
        out->failed = PL_ENOMEM;
    bytes_u8(out, ']');
    bytes_clear(&message);
    return out->failed;
}

int record_own_subkey(struct bytes *out, const struct rsa_key *key)
{
    struct bytes tag = { 0 };
    bytes_add(&tag, owner_tag, strlen(owner_tag));
    bytes_add(&tag, bytes_at(&key->text), bytes_length(&key->text));
    bytes_u8(&tag, ']');
    if (tag.failed) out->failed = tag.failed;
    else mp_bin(out, bytes_at(&tag), bytes_length(&tag));
    bytes_clear(&tag);
    return out->failed;
}

int validators_add_run(struct validators *v, const char *prefix)
{
    const struct schema *const schemas[] = { &schema_progress, &schema_metrics, &schema_report };
    for (size_t i = 0; i < PL_COUNT(schemas); i++) {
        char key[1024];
        int n = snprintf(key, sizeof key, "%s%s", prefix, schemas[i]->suffix);
        if (v->count == VALIDATORS_GUARDS_MAX || n < 0 || (size_t)n >= sizeof key ||
            dht_id_of_text(&v->guards[v->count].key, key))
            return PL_ELIMIT;
        v->guards[v->count++].schema = schemas[i];
    }
    return PL_OK;
}
