/* identity.h - the key pair behind a peer ID: made, stored, signing, verifying. All four libp2p key
 * types are verified; Ed25519 (default) and RSA-2048 are made. [spec libp2p-wire 2] */
#ifndef PL_IDENTITY_H
#define PL_IDENTITY_H

#include "net/bytes.h"
#include "peer_id.h"

#include <openssl/types.h>

enum key_type { KEY_RSA = 0, KEY_ED25519 = 1, KEY_SECP256K1 = 2, KEY_ECDSA = 3 };

#define PUBLIC_KEY_MAX 2048 /* serialised; RSA of 8192 bits takes about 1,100 */
#define SIGNATURE_MAX 1024  /* RSA of 8192 bits */

struct identity {
    enum key_type type;
    EVP_PKEY *key;
    struct bytes public_key; /* serialised PublicKey */
    struct peer_id id;
    /* its certificate, made by tls.c with the first connection that asks */
    _Atomic(SSL_CTX *) tls;
};

/* A fresh pair; KEY_ED25519 or KEY_RSA (2048 bits). */
int identity_make(struct identity *me, enum key_type type, struct pl_err *err);
/* One serialised PrivateKey, as in an identity file. */
int identity_parse(struct identity *me, const uint8_t *data, size_t n, struct pl_err *err);
int identity_serialize(const struct identity *me, struct bytes *out);
/* Reads the file; if there is none, makes an Ed25519 pair and stores it with mode 0400. */
int identity_file(struct identity *me, const char *path, struct pl_err *err);
void identity_clear(struct identity *me);

/* signature holds SIGNATURE_MAX bytes. PL_ENOMEM when the library fails. */
int identity_sign(const struct identity *me, uint8_t *signature, size_t *n, const void *data,
                  size_t bytes);

/* A stranger's serialised PublicKey: PL_EFORMAT for a broken one, an unknown type, or RSA outside
 * 2048 to 8192 bits. id may be NULL. The caller frees *key with EVP_PKEY_free. */
int public_key_parse(EVP_PKEY **key, enum key_type *type, struct peer_id *id, const uint8_t *data,
                     size_t n);
/* PL_OK if the signature over data is the serialised key's, else PL_EPROTO or PL_EFORMAT. */
int public_key_verify(const uint8_t *key, size_t key_bytes, const void *data, size_t n,
                      const uint8_t *signature, size_t signature_bytes);

#endif
