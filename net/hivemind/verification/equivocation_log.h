/* equivocation_log.h - the last verified rounds, for proofs of equivocation that arrive late.
 *
 * Honest peers end a void round at different times: one may give up while another one is about to
 * receive the second of two contradicting messages. The round's state is freed by then, but a proof
 * needs none of it (equivocation.h). So every verified round is logged when it begins: its hash and
 * its peers, at most 20 KiB. Each packet of verification is shown to the log, which reads only the
 * proofs in it; so honest peers ban the same peers, no matter when each of them has given up.
 *
 * Pure functions, no socket, no clock. */
#ifndef PL_EQUIVOCATION_LOG_H
#define PL_EQUIVOCATION_LOG_H

#include "equivocation.h"

/* rounds: those of several minutes, as each is preceded by a matchmaking; the oldest is
 * forgotten */
#define EQUIVOCATION_ROUNDS_MAX 8
/* s from the round's begin: longer than any verification lasts; a ban would be over by then */
#define EQUIVOCATION_TIME 600.0

struct logged_round {
    struct equivocation_scope scope;
    uint8_t *convicted; /* (count): a proof against it has been seen */
    /* (count): it has sent an invalid proof. Honest peers send none, so such a peer costs two
     * signature checks a round */
    uint8_t *ignored;
    double until; /* s */
};

struct equivocation_log {
    struct logged_round rounds[EQUIVOCATION_ROUNDS_MAX]; /* the oldest first */
    size_t count;
};

/* A peer is convicted for the first time in that round. `proof` is to be passed on to all other
 * peers of the round, because its sender may have shown it only to us. */
typedef void equivocation_convicted(void *context, const struct logged_round *round, size_t peer,
                                    const uint8_t *packet, size_t n);

/* PL_OK or PL_ENOMEM; after the latter, late proofs of this round are ignored. */
int equivocation_log_add(struct equivocation_log *l, double now,
                         const struct equivocation_rules *rules, const struct group *g,
                         const uint8_t round[PL_HASH_BYTES]);
/* A packet (broadcast.h) from a peer; a peer that was in none of these rounds is ignored.
 * Returns how many frames of logged rounds were in it. */
size_t equivocation_log_receive(struct equivocation_log *l, double now, const struct peer_id *from,
                                const uint8_t *packet, size_t n, equivocation_convicted *convicted,
                                void *context);
void equivocation_log_clear(struct equivocation_log *l); /* zeros may be cleared */

#endif
