/* tls_cert.h - libp2p's certificates: made for us, checked for others. [spec libp2p-wire 6] */
#ifndef PL_TLS_CERT_H
#define PL_TLS_CERT_H

#include "net/libp2p/peer/identity.h"

#include <openssl/types.h>
#include <time.h>

/* A fresh key (P-256) and a self-signed certificate that carries our identity's signature over it.
 * The caller frees both. */
int tls_cert_make(X509 **cert, EVP_PKEY **key, const struct identity *me);

/* Checks whether a certificate proves an identity at `now`: which one, or a sentence why not. */
int tls_cert_check(struct peer_id *id, X509 *cert, time_t now, struct pl_err *err);

/* The extension's value: SignedKey ::= SEQUENCE { publicKey, signature OCTET STRING }. spki: the
 * certificate's own SubjectPublicKeyInfo. */
int tls_signed_key(struct bytes *out, const struct identity *me, const uint8_t *spki, size_t n);

#endif
