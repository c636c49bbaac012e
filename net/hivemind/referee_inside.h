/* referee_inside.h - what the two halves of BTARD's verification share: who says what when
 * (referee.c), and what comes of it (referee_judge.c). */
#ifndef PL_REFEREE_INSIDE_H
#define PL_REFEREE_INSIDE_H

#include "referee.h"

#define REFEREE_HEAD (DHT_ID_BYTES + 1) /* group id, phase */

/* Of a part, in a report. */
struct told {
    double s, norm, length; /* a norm of REFEREE_ABSENT: nothing of mine went in */
};
#define REFEREE_ABSENT (-1.0)

/* What a reducer says of a sender. */
enum accusation {
    ACCUSES_NOBODY,
    ACCUSES_REPORT, /* it has reported falsely of this part */
    ACCUSES_VALUES  /* we have received something else than it says to have sent */
};

void referee_sha256(uint8_t hash[PL_HASH_BYTES], const void *data, size_t n);
/* A message without its head. */
const uint8_t *referee_said(const struct referee *r, int phase, size_t peer);
const uint8_t *referee_part_hash(const struct referee *r, size_t peer, size_t part);
struct referee_claim referee_claim_of(const struct referee *r, size_t peer);
struct told referee_told(const struct referee *r, size_t peer, size_t part);
enum accusation referee_accusation(const struct referee *r, size_t by, size_t of, size_t *part);

void referee_give_up(struct referee *r, int status, const char *why);
void referee_ban(struct referee *r, size_t peer, const char *why);

/* Of values x, NULL: none, beside the aggregate. */
struct told referee_measure(const float *x, const float *a, double tau, const double *z, size_t d);
/* A part's direction; its aggregate, and radius. */
const float *referee_part(const struct referee *r, size_t part, double *z, double *tau);
/* Appends what a part of ours has travelled as; its hash, zeros if nothing did. */
int referee_sent(const struct referee *r, size_t part, struct bytes *out,
                 uint8_t hash[PL_HASH_BYTES]);

/* --- judging ---------------------------------------------------------------------------------- */

/* With what everybody has drawn: who validates whom. */
void referee_draw(struct referee *r);
/* Into our own message: who has reported falsely of the parts that we have reduced; as a validator,
 * what we find. */
void referee_accuse(struct referee *r, struct bytes *out);
/* What was accused: which part to open, and our own opinions. */
void referee_hear_accusations(struct referee *r);
/* The opened part, votes, and everybody's sums. */
void referee_judge(struct referee *r);

#endif
