/* verifier_internal.h - what the parts of BTARD's verification share: the order of stages (referee.c),
 * its first two stages (referee_commit.c), and what comes of the others (referee_judge.c). */
#ifndef PL_REFEREE_INSIDE_H
#define PL_REFEREE_INSIDE_H

#include "verifier.h"

/* Of a part, in a report. */
struct told {
    double s, norm, length; /* a norm of REFEREE_ABSENT: nothing of mine went in */
};
#define REFEREE_ABSENT (-1.0)

/* What a reducer says of a sender. */
enum accusation {
    ACCUSES_NOBODY,
    ACCUSES_REPORT /* it has reported falsely of this part */
};
#define ACCUSATION_BYTES 5 /* what, and of which part */

/* Where a COMMIT holds what. */
#define COMMIT_LOT PL_HASH_BYTES             /* behind the hash of its own aggregates */
#define COMMIT_CLAIM (2 * PL_HASH_BYTES)     /* epoch, samples */
#define COMMIT_DENIED (COMMIT_CLAIM + 16)    /* (count): 1, its SENT is missing or does not fit */
#define COMMIT_DIGESTS(count) (COMMIT_DENIED + (count)) /* (count, PL_HASH_BYTES) */

/* A message without its head. */
const uint8_t *referee_said(const struct referee *r, int phase, size_t peer);
struct referee_claim referee_claim_of(const struct referee *r, size_t peer);
struct told referee_told(const struct referee *r, size_t peer, size_t part);
enum accusation referee_accusation(const struct referee *r, size_t by, size_t of, size_t *part);

/* Byzantine peers that a group of n can bear: fewer than a third, and one of three. */
size_t referee_faults(const struct referee *r);

void referee_give_up(struct referee *r, int status, const char *why);
void referee_ban(struct referee *r, size_t peer, const char *why);
void referee_charge(struct referee *r, size_t peer, const char *why);
/* edge (count, count): 1: a peer (row) denies another. */
void referee_charge_pairs(struct referee *r, uint8_t *edge, const char *why);

/* Of more peers than can be Byzantine a fault is the network's, or our own: then nobody is. */
void referee_charge_if_few(struct referee *r, const uint8_t *faulty, const char *why);

/* --- SENT and COMMIT -------------------------------------------------------------------------- */

void referee_send_pairs(struct referee *r);
int referee_has_all_pairs(const struct referee *r);
void referee_commit(struct referee *r, struct bytes *out);
/* For broadcast.h: the stage of a COMMIT that contradicts a SENT to another peer, or -1. */
int referee_contradicts(void *context, const struct signed_message *m);
/* A peer that has committed to something else than it has told us: all are shown both. */
void referee_compare_commitments(struct referee *r);
void referee_judge_commitments(struct referee *r);

/* --- REPORT ----------------------------------------------------------------------------------- */

/* Of values x, NULL: none, beside the aggregate. */
struct told referee_measure(const float *x, const float *a, double tau, const double *z, size_t d);
/* A part's direction; its aggregate, and radius. */
const float *referee_part(const struct referee *r, size_t part, double *z, double *tau);
/* The place of a part among its reducer's; how many that one has. */
size_t referee_place(const struct referee *r, size_t part, size_t *of);

/* --- judging ---------------------------------------------------------------------------------- */

/* With what everybody has drawn: who validates whom. */
void referee_draw(struct referee *r);
/* Into our own message: who has reported falsely of the parts that we have reduced; as a validator,
 * what we find. */
void referee_accuse(struct referee *r, struct bytes *out);
/* What was accused: which part to open. */
void referee_hear_accusations(struct referee *r);
/* Our own opinions of those that validators doubt. */
void referee_vote(struct referee *r);
/* Claims that nobody may make. */
void referee_check_claims(struct referee *r);
/* The opened part, votes, and everybody's sums. */
void referee_judge(struct referee *r);

#endif
