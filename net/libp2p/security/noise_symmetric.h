/* noise_symmetric.h - hash, chaining key and cipher of a Noise handshake, and the transport cipher.
 * [Noise protocol framework, revision 34, 5.1, 5.2] */
#ifndef PL_NOISE_SYMMETRIC_H
#define PL_NOISE_SYMMETRIC_H

#include "net/bytes.h"

#include <openssl/evp.h>

#define NOISE_TAG 16 /* bytes of Poly1305 behind each cipher text */

struct noise_cipher {
    uint8_t k[32];
    int has_key;
    uint64_t n; /* messages so far; the nonce */
};

struct noise_symmetric {
    uint8_t h[32], ck[32];
    struct noise_cipher cipher;
    EVP_CIPHER_CTX *seal,
        *open;  /* keyed once; a message only brings its nonce. Owned by the caller */
    int failed; /* 1: OpenSSL had no memory; the handshake must not be used */
};

void noise_mix_hash(struct noise_symmetric *s, const uint8_t *data, size_t n);
/* PL_EPROTO: the other side's key is not a valid point for the key agreement. */
int noise_mix_dh(struct noise_symmetric *s, EVP_PKEY *mine, const uint8_t theirs[32]);
/* Appends n plain bytes to out: sealed (n + NOISE_TAG bytes) once there is a key. */
int noise_encrypt_and_hash(struct noise_symmetric *s, struct bytes *out, const uint8_t *plain,
                           size_t n);
/* Takes n + NOISE_TAG sealed bytes from c, and writes n plain ones. PL_EPROTO: altered. */
int noise_decrypt_and_hash(struct noise_symmetric *s, struct cursor *c, uint8_t *out, size_t n);

/* Two keys from a chaining key and `in`, which may be empty. */
void noise_derive(uint8_t first[32], uint8_t second[32], const uint8_t ck[32], const uint8_t *in,
                  size_t n);
int noise_set_key(EVP_CIPHER_CTX *ctx, const uint8_t key[32], int sealing);
/* One message with c's next nonce: out has space for n + NOISE_TAG bytes, or for n. ad may be NULL.
 * PL_ENOMEM, PL_ELIMIT (the nonces are used up), PL_EPROTO (altered). */
int noise_seal(EVP_CIPHER_CTX *ctx, struct noise_cipher *c, uint8_t *out, const uint8_t *plain,
               size_t n, const uint8_t *ad, size_t ad_bytes);
int noise_unseal(EVP_CIPHER_CTX *ctx, struct noise_cipher *c, uint8_t *out, const uint8_t *sealed,
                 size_t n, const uint8_t *ad, size_t ad_bytes);

#endif
