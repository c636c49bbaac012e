/* verifier_internal.h - shared by the parts of BTARD's verification: the order of stages
 * (verifier.c), the first two stages (verifier_commit.c), the checks of the others
 * (verifier_judge.c), the consequences of a finding (verifier_verdict.c), and the evidence in the
 * peers' messages and parts (verifier_evidence.c). Calls go down this list only. */
#ifndef PL_VERIFIER_INTERNAL_H
#define PL_VERIFIER_INTERNAL_H

#include "verifier.h"

/* The values of one part in a report. */
struct part_report {
    double s, norm, length; /* a norm of VERIFIER_ABSENT: nothing of mine went in */
};
#define VERIFIER_ABSENT (-1.0)
#define REPORT_BYTES sizeof(struct part_report)

/* A reducer's finding about a sender. */
enum accusation {
    ACCUSES_NOBODY,
    ACCUSES_REPORT /* it has reported falsely of this part */
};
#define ACCUSATION_BYTES 5 /* the kind, and the part */

/* The layout of a COMMIT. */
#define COMMIT_LOT PL_HASH_BYTES          /* its random number's hash, after its aggregates' hash */
#define COMMIT_CLAIM (2 * PL_HASH_BYTES)  /* epoch, samples */
#define COMMIT_DENIED (COMMIT_CLAIM + 16) /* (count): 1, its SENT is missing or does not fit */
#define COMMIT_DIGESTS(count) (COMMIT_DENIED + (count)) /* (count, PL_HASH_BYTES) */
#define COMMIT_BYTES(count) (COMMIT_DIGESTS(count) + (count)*PL_HASH_BYTES)
#define SENT_BYTES (2 * PL_HASH_BYTES) /* digests of the parts sent, and of the aggregates */

/* A message without its head. */
const uint8_t *verifier_message(const struct verifier *r, int phase, size_t peer);
struct verifier_claim verifier_claim_of(const struct verifier *r, size_t peer);
struct part_report verifier_report(const struct verifier *r, size_t peer, size_t part);
enum accusation verifier_accusation(const struct verifier *r, size_t by, size_t of, size_t *part);

/* Byzantine peers that a group of n can bear: fewer than a third, and one of three. */
size_t verifier_faults(const struct verifier *r);

void verifier_give_up(struct verifier *r, int status, const char *why);
void verifier_ban(struct verifier *r, size_t peer, const char *why);
void verifier_charge(struct verifier *r, size_t peer, const char *why);
/* edge (count, count): 1: a peer (row) denies another. */
void verifier_charge_pairs(struct verifier *r, uint8_t *edge, const char *why);

/* If more peers are at fault than can be Byzantine, the fault is the network's or our own, and no
 * peer is charged. */
void verifier_charge_if_few(struct verifier *r, const uint8_t *faulty, const char *why);

/* Charges the peers whose messages of the stage we lack, or whose lists differ from ours. */
void verifier_charge_silent(struct verifier *r);

/* --- SENT and COMMIT -------------------------------------------------------------------------- */

void verifier_send_pairs(struct verifier *r);
int verifier_has_all_pairs(const struct verifier *r);
void verifier_commit(struct verifier *r, struct bytes *out);
/* If a peer has committed to other values than it has sent us, sends the proof to all. */
void verifier_compare_commitments(struct verifier *r);
void verifier_judge_commitments(struct verifier *r);

/* --- REPORT ----------------------------------------------------------------------------------- */

/* The report on values x (NULL: none) against the aggregate a. */
struct part_report verifier_measure(const float *x, const float *a, double tau, const double *z,
                                    size_t d);
/* A part's direction; its aggregate, and radius. */
const float *verifier_part(const struct verifier *r, size_t part, double *z, double *tau);
/* The place of a part among its reducer's; how many that one has. */
size_t verifier_place(const struct verifier *r, size_t part, size_t *of);

/* --- judging ---------------------------------------------------------------------------------- */

/* From everybody's random numbers: which peer validates which. */
void verifier_draw(struct verifier *r);
/* Fills our own message: the peers whose reports about parts that we reduced are false; as a
 * validator, our findings. */
void verifier_accuse(struct verifier *r, struct bytes *out);
/* The accusations decide which part to open. */
void verifier_receive_accusations(struct verifier *r);
/* Our own opinions of those that validators doubt. */
void verifier_vote(struct verifier *r);
/* Bans peers that have sent values but claim no samples. */
void verifier_check_claims(struct verifier *r);
/* Judges the opened part, the votes, and all parts' sums. */
void verifier_judge(struct verifier *r);

#endif
