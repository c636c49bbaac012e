/* key_file.c - identity files of libp2p, and RSA keys that sign records: the content of a
 * file or of a stranger's record is a usable key, or is refused. */
#include "net/hivemind/records/rsa_key.h"
#include "net/libp2p/peer/identity.h"

#include <assert.h>
#include <openssl/evp.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

/* A key that was read is written as the same key, and its signature is valid. */
static void use(struct identity *me)
{
    struct bytes out = { 0 };
    struct identity again;
    uint8_t signature[SIGNATURE_MAX];
    size_t length;
    if (!identity_serialize(me, &out)) {
        assert(!identity_parse(&again, bytes_at(&out), bytes_length(&out), NULL));
        assert(peer_id_equal(&me->id, &again.id));
        identity_clear(&again);
    }
    /* a key may be well-formed and no key at all */
    if (!identity_sign(me, signature, &length, "x", 1))
        public_key_verify(bytes_at(&me->public_key), bytes_length(&me->public_key), "x", 1,
                          signature, length);
    bytes_clear(&out);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    struct identity me;
    struct rsa_key rsa;
    struct bytes out = { 0 };
    enum key_type type;
    EVP_PKEY *key;
    if (!identity_parse(&me, data, n, NULL)) {
        use(&me);
        identity_clear(&me);
    }
    if (!public_key_parse(&key, &type, &me.id, data, n)) EVP_PKEY_free(key);
    if (!rsa_key_parse(&rsa, data, n, NULL)) {
        if (!rsa_key_sign(&out, &rsa, "x", 1)) assert(bytes_length(&out));
        rsa_key_clear(&rsa);
    }
    if (!rsa_public_parse(&key, data, n)) {
        assert(rsa_public_verify(key, "x", 1, "AA==", 4));
        EVP_PKEY_free(key);
    }
    bytes_clear(&out);
    return 0;
}
