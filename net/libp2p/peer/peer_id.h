/* peer_id.h - a peer's identity: the multihash of its public key. [spec libp2p-wire 2] */
#ifndef PL_PEER_ID_H
#define PL_PEER_ID_H

#include "ref/base.h"

#define PEER_ID_MAX 44      /* identity multihash of a key of at most 42 bytes */
#define PEER_ID_TEXT_MAX 64 /* base58 text, the zero byte included */

struct peer_id {
    uint8_t length; /* 0: none */
    uint8_t bytes[PEER_ID_MAX];
};

/* The ID of a serialised PublicKey: the key itself up to 42 bytes, else its SHA-256. */
void peer_id_of_key(struct peer_id *id, const uint8_t *key, size_t n);
/* Checks that the bytes are one of the two multihashes. PL_EFORMAT otherwise. */
int peer_id_parse(struct peer_id *id, const uint8_t *bytes, size_t n);
/* Base58 ("12D3Koo...", "Qm...") or CIDv1 in base32 ("bafz..."). */
int peer_id_from_text(struct peer_id *id, const char *text, size_t n);
void peer_id_text(char text[PEER_ID_TEXT_MAX], const struct peer_id *id);
/* The key inside an identity multihash, or NULL where only its hash is known. */
const uint8_t *peer_id_key(const struct peer_id *id, size_t *n);
int peer_id_equal(const struct peer_id *a, const struct peer_id *b);
/* By bytes, as matchmaking orders peers: <0, 0, >0. */
int peer_id_compare(const struct peer_id *a, const struct peer_id *b);

#endif
