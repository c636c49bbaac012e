/* equivocation.h - proofs that a peer has signed two messages of a round that contradict each
 * other. [BTARD 3.1]
 *
 * A proof is the two messages, as their author has signed them. Any peer that knows the round's
 * hash and members can check it at any time, without trust in others and without the state of the
 * round. So a peer whose own part in the round has ended still checks a proof that reaches it later
 * (equivocation_log.h). There are two kinds:
 *
 *   1. two heads of the same stage and receiver with different hashes; bodies are not needed
 *   2. a message to one peer (a stage of pairs) and the same author's message to all that states
 *      something else about this pair; both with their bodies
 *
 * On the wire: be32 length of the first message; the first message; the second one. */
#ifndef PL_EQUIVOCATION_H
#define PL_EQUIVOCATION_H

#include "net/hivemind/matchmaking/group.h"
#include "net/hivemind/messages/signed_message.h"

/* The definition of a protocol of signed stages. Stages 0..pairs-1 go from each peer to each other
 * one, stages pairs..stages-1 to all; stage + stages is the list of hashes of that stage. */
struct equivocation_rules {
    int stages, pairs;
    /* 1: the bodies contradict each other. `pair` is for pair->to < count, `common` is to all; both
     * hashes have been compared with the bodies, the lengths have not been checked. */
    int (*contradicts)(const struct signed_message *pair, const struct signed_message *common,
                       size_t count);
};

/* A round, as far as a proof needs it. */
struct equivocation_scope {
    const struct equivocation_rules *rules; /* borrowed, static */
    uint8_t round[PL_HASH_BYTES];
    struct peer_id *peers; /* (count), owned */
    size_t count;
};

/* Copies the group's peer IDs. PL_OK or PL_ENOMEM; the caller ends it with
 * equivocation_scope_clear, which takes zeros, too. */
int equivocation_scope_init(struct equivocation_scope *s, const struct equivocation_rules *rules,
                            const struct group *g, const uint8_t round[PL_HASH_BYTES]);
void equivocation_scope_clear(struct equivocation_scope *s);

/* Checks a proof of n bytes. PL_OK: *peer is its author's place in the group. PL_EPROTO: it proves
 * nothing. */
int equivocation_check(size_t *peer, const struct equivocation_scope *s, const uint8_t *proof,
                       size_t n);
/* Appends a proof of two messages. PL_OK or PL_ENOMEM. */
int equivocation_write(struct bytes *out, const uint8_t *x, size_t x_n, const uint8_t *y,
                       size_t y_n);

#endif
