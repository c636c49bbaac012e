/* owner_proof.h - which peer does a record's owner belong to? A record is signed by an RSA key that
 * anybody can make; a signature by a peer's identity over this key shows that it is the peer's.
 *
 *   signature = sign(identity's private key, tag + subkey + text)
 *
 * The subkey names the owner, so nobody else can publish the proof again. The tag keeps it from
 * being taken for one of another kind of message.
 *
 * Each peer that trains stores such a proof, without any text, under RUN_identity. hivemind 1.1.12
 * stores and forwards it like any signed record and never reads it; a progress record itself may
 * have no further field. Nodes check the proof with the record, so who reads one relies on it. */
#ifndef PL_OWNER_PROOF_H
#define PL_OWNER_PROOF_H

#include "net/libp2p/peer/identity.h"
#include "schema.h"

#define IDENTITY_LIFE 600.0  /* s */
#define IDENTITY_RENEW 120.0 /* s; four of five renewals may be lost */

/* signature: of SIGNATURE_MAX bytes. */
int owner_proof_sign(uint8_t *signature, size_t *signature_n, const struct identity *me,
                     const char *tag, const struct bytes *subkey, const void *text, size_t n);
/* key: a serialised public key. PL_OK, or PL_EPROTO: the signature is not by it. */
int owner_proof_check(const struct mp_value *key, const struct mp_value *signature, const char *tag,
                      const uint8_t *subkey, size_t subkey_n, const void *text, size_t n);

/* Appends the value of a record under RUN_identity. */
int identity_record_write(struct bytes *out, const struct bytes *subkey, const struct identity *me);
/* The proof of a value that has the schema's form. PL_OK or PL_EPROTO. */
int identity_record_check(const struct mp_value *value, const uint8_t *subkey, size_t subkey_n,
                          struct pl_err *err);
/* The peer that a checked record names. PL_EPROTO: it is none. */
int identity_record_read(struct peer_id *peer, const uint8_t *value, size_t n);

#endif
