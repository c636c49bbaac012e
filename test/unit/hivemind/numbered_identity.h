/* numbered_identity.h - keys that are the same in every run, so that peers keep their order. */
#ifndef PL_TEST_NUMBERED_IDENTITY_H
#define PL_TEST_NUMBERED_IDENTITY_H

#include "net/libp2p/peer/identity.h"
#include "test/unit/unit.h"

#include <openssl/evp.h>

/* The Ed25519 key of that number, as a file of it. */
static inline void numbered_identity(struct identity *me, size_t number)
{
    uint8_t file[68] = { 0x08, 0x01, 0x12, 0x40 };
    size_t n = 32;
    EVP_PKEY *key;
    memset(file + 4, (int)number + 1, 32);
    key = EVP_PKEY_new_raw_private_key(EVP_PKEY_ED25519, NULL, file + 4, 32);
    assert_int_equal(EVP_PKEY_get_raw_public_key(key, file + 36, &n), 1);
    EVP_PKEY_free(key);
    assert_int_equal(identity_parse(me, file, sizeof file, NULL), PL_OK);
}

#endif
