/* validate.c - was a record written by its owner? Anyone may store anything in a DHT, so a record
 * carries its proof [spec hivemind-protocol 2]. For a record with key K, subkey S, value V and
 * expiration E:
 *
 *   S = c5 hi lo "[owner:ssh-rsa AAAA...]"           the subkey names the owner's public key
 *   V = msgpack value, then "[signature:base64]"     by that key, over the tuple (K, S, V', E)
 *                                                    with V' = V without the signature
 *
 * The signature covers K and E, too: a record cannot be moved to another key, nor its life
 * prolonged. Checks go from cheap to expensive: lengths, life, owner tag, signature, and last
 * the fields against a schema. */
#include "validate.h"
#include "hash_index.h"
#include "owner_proof.h"

#include <math.h>
#include <openssl/evp.h>
#include <stdio.h>
#include <string.h>

static const char owner_tag[] = "[owner:", signature_tag[] = "[signature:";

/* The rules of the table in validate.h for records without a schema. Declarations and announcements
 * are one value of msgpack, true, false or a float64, so 16 bytes are more than they need. A run's
 * manifest is the longest signed record, also under its peer's key, which no other node guards. */
static const struct limits {
    double life_s;
    size_t value_max;
} plain_record = { 3600, 1u << 20 }, signed_record = { 3600, 1u << 14 },
  group_declaration = { 3600, 16 }, announcement = { 120, 16 };

/* The next place of the text `name`, or NULL. memchr skips to a possible beginning. */
static const uint8_t *find_tag(const uint8_t *at, const uint8_t *end, const char *name,
                               size_t length)
{
    while ((at = memchr(at, name[0], (size_t)(end - at)))) {
        if ((size_t)(end - at) < length) return NULL;
        if (!memcmp(at, name, length)) return at;
        at++;
    }
    return NULL;
}

/* The next "[name:...]" at or after c: at least one byte inside, none of them a newline, the
 * shortest that fits. Moves c behind it. Linear: a tag that a newline or the end breaks off has no
 * "]" behind its first byte, so every later tag up to there is broken off by the same. */
static int next_tag(struct cursor *c, const char *name, const uint8_t **inside, size_t *n)
{
    size_t length = strlen(name);
    const uint8_t *at = c->at, *end = c->at + c->left, *stop;
    while ((at = find_tag(at, end, name, length))) {
        /* The first byte inside may be anything but a newline, even "]": Python's .+? needs one. */
        *inside = at + length;
        for (stop = *inside; stop < end && *stop != '\n'; stop++)
            if (*stop == ']' && stop > *inside) {
                *n = (size_t)(stop - *inside);
                c->at = stop + 1;
                c->left = (size_t)(end - c->at);
                return 1;
            }
        at = stop;
    }
    return 0;
}

/* The owner named in the key and the subkey. PL_ENOTFOUND: none; PL_EPROTO: two different ones.
 * hivemind searches key and subkey for the pattern \[owner:(.+?)\], inside of the msgpack framing,
 * too [spec hivemind-protocol 2.1]. Two different owners make a record invalid; the same one twice
 * does not. */
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

/* The signed message is msgpack of a Python tuple: extension 0x40 around a list of four. K, S
 * and V are bytes, E is a float64: the same number as in the record, bit for bit. */
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

/* Everything but the signature tags: both the value to read and the value that was signed. Values
 * of records without an owner lose such tags, too, as in hivemind. */
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

/* A schema guards the hash of RUN + "_progress" and so on: keys arrive as hashes, so hashes are
 * compared. */
static const struct schema *guard_of(const struct validators *v, const struct record *r)
{
    for (size_t i = 0; i < v->count; i++)
        if (r->key_n == DHT_ID_BYTES && !memcmp(r->key, v->guards[i].key.bytes, DHT_ID_BYTES))
            return v->guards[i].schema;
    return NULL;
}

/* A declaration ("this averager looks for a group") has a peer ID as its subkey: c4, length,
 * bytes. */
int record_declarer(struct peer_id *peer, const struct record *r)
{
    static const uint8_t bin8 = 0xc4; /* in our one way of writing */
    if (r->subkey_n < 2 || r->subkey[0] != bin8 || r->subkey[1] != r->subkey_n - 2 ||
        peer_id_parse(peer, r->subkey + 2, r->subkey_n - 2))
        return PL_ENOTFOUND;
    return PL_OK;
}

/* The table of validate.h: which row a record is in follows from key and subkey, not from its
 * value, except for declarations: c2 and c3 (false, true) say that a peer is in a group, an
 * announcement of a state is a number. */
static struct limits limits_of(const struct validators *v, const struct record *r)
{
    const struct schema *s = guard_of(v, r);
    const uint8_t *owner;
    struct peer_id peer;
    size_t n;
    if (s) return (struct limits){ s->life_s, s->value_max };
    if (find_owner(r, &owner, &n) != PL_ENOTFOUND) return signed_record;
    if (record_declarer(&peer, r)) return plain_record;
    return r->n == 1 && (r->value[0] == 0xc2 || r->value[0] == 0xc3) ? group_declaration
                                                                     : announcement;
}

/* Classes for the store (dht_share.h), by form alone: whether the signature is right is checked
 * before storing. */
void record_origin(struct dht_origin *from, const struct record *r)
{
    const uint8_t *owner = NULL;
    struct peer_id peer;
    size_t n = 0;
    from->owner = 0;
    from->class = DHT_PLAIN;
    if (!find_owner(r, &owner, &n)) {
        from->owner = hash_bytes(owner, n);
        from->class = DHT_SIGNED;
    } else if (!record_declarer(&peer, r)) {
        from->class = DHT_DECLARATION;
    }
}

int record_check_life(const struct validators *v, const struct record *r, double now)
{
    /* No lower limit: a record that is about to expire is as good as it says. */
    const double most = limits_of(v, r).life_s + RECORD_CLOCK_SLACK;
    return r->expiration - now <= most ? PL_OK : PL_EPROTO; /* never PL_OK for NaN */
}

/* Cheap refusals first, the RSA check last. Only for a record that has an owner. exact: the subkey
 * is its tag, in the one way of writing it, so that one key has one record. */
static int check_signature(const struct record *r, const struct bytes *stripped,
                           const uint8_t *owner, size_t owner_n, int exact, struct pl_err *err)
{
    struct record plain = *r;
    struct cursor c = { r->value, r->n };
    struct bytes message = { 0 };
    const uint8_t *signature, *second;
    size_t signature_n, second_n;
    EVP_PKEY *key;
    int rc;
    if (!next_tag(&c, signature_tag, &signature, &signature_n))
        return pl_fail(err, PL_EPROTO, "record: has an owner but no signature");
    if (next_tag(&c, signature_tag, &second, &second_n))
        return pl_fail(err, PL_EPROTO, "record: two signatures");
    if (rsa_public_parse(&key, owner, owner_n))
        return pl_fail(err, PL_EPROTO, "record: its owner is not an RSA key");
    /* The value without its signature is the signed text. */
    plain.value = bytes_at(stripped);
    plain.n = bytes_length(stripped);
    /* base64 and SSH's numbers have several spellings of one key: each would be an owner of its
     * own, and one key pair could count as many peers. */
    rc = exact && !rsa_public_is_canonical(key, owner, owner_n) ? PL_EPROTO : PL_OK;
    if (!rc) rc = record_message(&message, &plain);
    if (!rc)
        rc = rsa_public_verify(key, bytes_at(&message), bytes_length(&message), signature,
                               signature_n);
    EVP_PKEY_free(key);
    bytes_clear(&message);
    return rc == PL_EPROTO ? pl_fail(err, rc, "record: the signature is not its owner's") : rc;
}

/* The subkey of a guarded record: bytes, and they are the owner's tag alone. hivemind only asks
 * that a tag is in them, so "a[owner:...]" and "b[owner:...]" would be two records of one key
 * pair. */
static int check_subkey(const struct schema *s, const struct record *r, const uint8_t *owner,
                        size_t owner_n, struct pl_err *err)
{
    struct mp_value *subkey = NULL;
    int rc = mp_read(&subkey, r->subkey, r->subkey_n, err);
    if (!rc && subkey->kind != MP_BIN) /* nil included: a regular value is not a dictionary entry */
        rc = pl_fail(err, PL_EPROTO, "%s: the subkey is not bytes", s->suffix);
    if (!rc && (!owner || subkey->bytes + strlen(owner_tag) != owner ||
                subkey->n != strlen(owner_tag) + owner_n + 1))
        rc = pl_fail(err, PL_EPROTO, "%s: the subkey is not its owner's tag", s->suffix);
    mp_free(subkey);
    return rc == PL_ENOMEM ? rc : rc ? PL_EPROTO : PL_OK;
}

/* The value as its reader will see it: stripped and unpacked. */
static int check_schema(const struct schema *s, const struct record *r,
                        const struct bytes *stripped, struct pl_err *err)
{
    struct mp_value *value = NULL;
    int rc = mp_read(&value, bytes_at(stripped), bytes_length(stripped), err);
    if (!rc) rc = schema_check(s, value, err);
    if (!rc && s == &schema_identity)
        rc = identity_record_check(value, r->subkey, r->subkey_n, err);
    mp_free(value);
    return rc == PL_ENOMEM ? rc : rc ? PL_EPROTO : PL_OK;
}

/* Verifying s^e mod n takes O(bits^2) for a small e, and the owner's text is proportional to
 * bits. */
double record_check_cost(const struct record *r)
{
    const double text_2048 = 372; /* characters of an RSA_BITS key: "ssh-rsa " and base64 */
    const uint8_t *owner;
    size_t n;
    if (find_owner(r, &owner, &n)) return 0;
    return fmax(1, (double)n / text_2048 * ((double)n / text_2048));
}

/* All checks of one record. Work is linear in its bytes plus two signatures at most. */
int record_check(const struct validators *v, const struct record *r, struct pl_err *err)
{
    const struct schema *s = guard_of(v, r);
    struct bytes stripped = { 0 };
    const uint8_t *owner = NULL;
    size_t owner_n = 0;
    int rc;
    if (r->subkey_n > RECORD_SUBKEY_MAX)
        return pl_fail(err, PL_EPROTO, "record: a subkey of %zu bytes", r->subkey_n);
    if (r->n > limits_of(v, r).value_max)
        return pl_fail(err, PL_EPROTO, "record: a value of %zu bytes", r->n);
    rc = find_owner(r, &owner, &owner_n);
    if (rc == PL_EPROTO) return pl_fail(err, rc, "record: two owners");
    if (s && (rc = check_subkey(s, r, owner, owner_n, err))) return rc;
    /* Without an owner every value is valid; a guarded record has been refused by its subkey
     * then. */
    if (!owner) return PL_OK;
    rc = record_strip(&stripped, r->value, r->n);
    if (!rc) rc = check_signature(r, &stripped, owner, owner_n, s != NULL, err);
    if (!rc && s) rc = check_schema(s, r, &stripped, err);
    bytes_clear(&stripped);
    return rc;
}

/* Signs our own records only: those whose owner tag is our public key. */
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
    /* Value, then "[signature:" and so on: hivemind writes it at the end, and finds it anywhere. */
    record_message(&message, r);
    bytes_add(out, signature_tag, strlen(signature_tag));
    if (message.failed) out->failed = message.failed;
    else if (rsa_key_sign(out, v->key, bytes_at(&message), bytes_length(&message)))
        out->failed = PL_ENOMEM;
    bytes_u8(out, ']');
    bytes_clear(&message);
    return out->failed;
}

/* "[owner:ssh-rsa AAAA...]" as msgpack bytes: c5 and two bytes of length, as it is longer than
 * 255. */
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

/* hivemind's key of a run's progress is the text RUN_progress, hashed as any text key. A part's has
 * its bits behind it, as a group's key has: no run has such a name, with a dot in it. */
int record_part_key(struct dht_id *key, const char *prefix, const struct dht_id *owner,
                    size_t level)
{
    char text[1024], bits[RECORD_PART_BITS * RECORD_PART_LEVELS + 1] = "";
    const size_t count = level * RECORD_PART_BITS;
    int n;
    for (size_t i = 0; i < count; i++) bits[i] = owner->bytes[i / 8] >> (7 - i % 8) & 1 ? '1' : '0';
    bits[count] = 0;
    n = snprintf(text, sizeof text, "%s%s%s%s", prefix, schema_progress.suffix, level ? ".0b" : "",
                 bits);
    return n < 0 || (size_t)n >= sizeof text ? PL_ELIMIT : dht_id_of_text(key, text);
}

static int add_guard(struct validators *v, const struct schema *s)
{
    if (v->count == VALIDATORS_GUARDS_MAX) return PL_ELIMIT;
    v->guards[v->count++].schema = s;
    return PL_OK;
}

static int add_parts(struct validators *v, const char *prefix)
{
    struct bytes subkey = { 0 };
    struct dht_id owner;
    int rc = v->key ? record_own_subkey(&subkey, v->key) : PL_OK;
    dht_id_of(&owner, bytes_at(&subkey), bytes_length(&subkey));
    for (size_t level = 1; !rc && v->key && level < RECORD_PART_LEVELS; level++)
        if (!(rc = add_guard(v, &schema_progress)))
            rc = record_part_key(&v->guards[v->count - 1].key, prefix, &owner, level);
    bytes_clear(&subkey);
    return rc;
}

int validators_add_run(struct validators *v, const char *prefix)
{
    const struct schema *const schemas[] = { &schema_progress, &schema_metrics, &schema_report,
                                             &schema_manifest, &schema_identity };
    for (size_t i = 0; i < PL_COUNT(schemas); i++) {
        char key[1024];
        int n = snprintf(key, sizeof key, "%s%s", prefix, schemas[i]->suffix);
        if (n < 0 || (size_t)n >= sizeof key || add_guard(v, schemas[i]) ||
            dht_id_of_text(&v->guards[v->count - 1].key, key))
            return PL_ELIMIT;
    }
    return add_parts(v, prefix);
}
