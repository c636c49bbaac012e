/* rsa_key.h - the keys that sign DHT records and tokens: RSA, OpenSSH text, PSS signatures in
 * base64. They are not the libp2p identity. [spec hivemind-protocol 2.1] */
#ifndef PL_RSA_KEY_H
#define PL_RSA_KEY_H

#include "net/bytes.h"

#include <openssl/types.h>

#define RSA_BITS 2048
#define RSA_BITS_MAX 8192 /* of others: checking such a signature takes half a millisecond */
#define RSA_TEXT_MAX 1500 /* OpenSSH text of RSA_BITS_MAX, and a comment */

struct rsa_key {
    EVP_PKEY *key;
    struct bytes text; /* "ssh-rsa AAAA...", no comment, no zero */
};

/* A fresh pair; takes some 50 ms. */
int rsa_key_make(struct rsa_key *k, struct pl_err *err);
/* A private key in DER (PKCS#1 or PKCS#8) or PEM. */
int rsa_key_parse(struct rsa_key *k, const uint8_t *data, size_t n, struct pl_err *err);
/* PKCS#8 in PEM, for a file. */
int rsa_key_write(struct bytes *pem, const struct rsa_key *k);
void rsa_key_clear(struct rsa_key *k);

/* Appends a signature in base64; about a millisecond. */
int rsa_key_sign(struct bytes *out, const struct rsa_key *k, const void *data, size_t n);

/* From OpenSSH text. PL_EFORMAT for anything but RSA of RSA_BITS to RSA_BITS_MAX. The caller frees
 * *key with EVP_PKEY_free. */
int rsa_public_parse(EVP_PKEY **key, const void *text, size_t n);
/* 1: the text is the one that hivemind writes for the key: no comment, exponent 65537. Otherwise
 * one key could have many texts. */
int rsa_public_is_canonical(EVP_PKEY *key, const void *text, size_t n);
/* PL_OK, or PL_EPROTO for a signature (base64) that is not the key's over data. */
int rsa_public_verify(EVP_PKEY *key, const void *data, size_t n, const void *signature,
                      size_t signature_n);

#endif
