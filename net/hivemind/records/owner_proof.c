/* owner_proof.c - a peer's identity signs for the key that signs its records.
 *
 *   record     signed by the owner's RSA key, as hivemind has it
 *   proof      {identity: public key, signature: by it, over tag + subkey + text}, in such a record
 *
 * Two signatures, one of each key over the other: neither can be published without the other's
 * owner. */
#include "owner_proof.h"

#include <string.h>

#define IDENTITY_TAG "potluck record owner:"

/* No lengths between the pieces: a tag ends with its only colon, and an owner's subkey has one
 * form. */
static int signed_part(struct bytes *out, const char *tag, const void *subkey, size_t subkey_n,
                       const void *text, size_t n)
{
    bytes_add(out, tag, strlen(tag));
    bytes_add(out, subkey, subkey_n);
    return bytes_add(out, text, n);
}

int owner_proof_sign(uint8_t *signature, size_t *signature_n, const struct identity *me,
                     const char *tag, const struct bytes *subkey, const void *text, size_t n)
{
    struct bytes message = { 0 };
    int rc = signed_part(&message, tag, bytes_at(subkey), bytes_length(subkey), text, n);
    if (!rc)
        rc = identity_sign(me, signature, signature_n, bytes_at(&message), bytes_length(&message));
    bytes_clear(&message);
    return rc;
}

int owner_proof_check(const struct mp_value *key, const struct mp_value *signature, const char *tag,
                      const uint8_t *subkey, size_t subkey_n, const void *text, size_t n)
{
    struct bytes message = { 0 };
    int rc = PL_EPROTO;
    /* A stranger chose both lengths: they are checked before anything is computed. */
    if (key->n > PUBLIC_KEY_MAX || signature->n > SIGNATURE_MAX) return rc;
    rc = signed_part(&message, tag, subkey, subkey_n, text, n);
    if (!rc && public_key_verify(key->bytes, key->n, bytes_at(&message), bytes_length(&message),
                                 signature->bytes, signature->n))
        rc = PL_EPROTO;
    bytes_clear(&message);
    return rc;
}

/* The key and the signature, in the schema's order. The text is empty: who a peer is depends on
 * nothing else. */
int identity_record_write(struct bytes *out, const struct bytes *subkey, const struct identity *me)
{
    uint8_t signature[SIGNATURE_MAX];
    size_t n = 0;
    int rc = owner_proof_sign(signature, &n, me, IDENTITY_TAG, subkey, "", 0);
    return rc ? rc
              : schema_write(out, &schema_identity, bytes_at(&me->public_key),
                             bytes_length(&me->public_key), signature, n);
}

int identity_record_check(const struct mp_value *value, const uint8_t *subkey, size_t subkey_n,
                          struct pl_err *err)
{
    int rc = owner_proof_check(mp_get(value, schema_identity.fields[0].name),
                               mp_get(value, schema_identity.fields[1].name), IDENTITY_TAG, subkey,
                               subkey_n, "", 0);
    return rc == PL_EPROTO ? pl_fail(err, rc, "_identity: the signature is not its peer's") : rc;
}

int identity_record_read(struct peer_id *peer, const uint8_t *value, size_t n)
{
    struct mp_value *map;
    int rc = schema_read(&map, &schema_identity, value, n, NULL);
    if (!rc) {
        /* The signature was checked with the record (validate.c). */
        const struct mp_value *key = mp_get(map, schema_identity.fields[0].name);
        peer_id_of_key(peer, key->bytes, key->n);
    }
    mp_free(map);
    return rc;
}
