/* signed_message.h - one message of BTARD's verification, signed by its sender's peer key, so that
 * any peer can check its author. [BTARD 3.1: every broadcast is signed]
 *
 * The signature is over (protocol, round, stage, sender, receiver, SHA-256 of the body). Two of
 * them by one sender for the same stage and receiver, with different hashes, prove equivocation:
 * an honest peer never signs both. The body itself isn't needed for that. */
#ifndef PL_SIGNED_MESSAGE_H
#define PL_SIGNED_MESSAGE_H

#include "ref/btard.h"
#include "net/libp2p/peer/identity.h"

#define SIGNED_TO_ALL 0xFFFFu

/* A view of received bytes. */
struct signed_message {
    uint8_t stage;
    uint16_t from, to; /* places in the group; SIGNED_TO_ALL */
    uint8_t hash[PL_HASH_BYTES];
    const uint8_t *key; /* serialised; of length 0 where the peer ID holds it */
    const uint8_t *signature;
    const uint8_t *body; /* all that follows; none where only the head is sent */
    size_t key_n, signature_n, head_n, n;
};

void signed_hash(uint8_t hash[PL_HASH_BYTES], const void *data, size_t n);

/* Appends a message: m's stage, from, to, body and n; fills m->hash. `round` is the hash that all
 * honest peers of a round share. */
int signed_message_write(struct bytes *out, struct signed_message *m, const struct identity *me,
                         const uint8_t round[PL_HASH_BYTES]);
/* PL_OK or PL_EFORMAT; checks neither hash nor signature. */
int signed_message_read(struct signed_message *m, const uint8_t *data, size_t n);
/* PL_OK if `peer` has signed the head. */
int signed_message_check(const struct signed_message *m, const uint8_t round[PL_HASH_BYTES],
                         const struct peer_id *peer);

#endif
