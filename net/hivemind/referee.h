/* referee.h - BTARD's verification of one all-reduce, between its last answer and its being
 * applied: who has reduced otherwise than CenteredClip does, or has sent what its data don't
 * give, is found and banned. [TTT 2.1, security] [BTARD 3, appendix] ref/btard.h has the checks
 * themselves.
 *
 * Everybody knows by now every part's aggregate a, what it has itself sent of it, x, and the
 * radius tau that the reducer names. Each tells each, in this order:
 *
 *   COMMIT   hashes of each reducer's aggregates, of each part that it has sent, and of a number to
 *            draw by; of how many samples, in which epoch, its values are
 *   REVEAL   that number. Nobody could know what is drawn while its values could still be changed
 *   REPORT   of each part: s = <z, x - a> min(1, tau / |x - a|), |x - a|, and |x|
 *   ACCUSE   reducers know x: whose reports are false? Validators, drawn by lot, have computed their
 *            target's values again from its data: are they as reported?
 *   OPEN     everybody's x of one part: of one that was accused, else one whose aggregate more than half
 *            find too far away, else one drawn by lot. And votes: everybody has computed again what a
 *            validator says to be false
 *   AGREE    that all have heard the same
 *
 * At CenteredClip's fixed point a part's s sum to 0; an aggregate that was moved gives another sum,
 * whatever z may be. Of the opened part everybody recomputes all of it: reports and aggregate.
 *
 * Who is found is banned, alone: a reducer with such a sum, or with hashes or a radius that don't
 * fit; who reported falsely, or says so of somebody who did not; whose data give other values, or
 * the validator who says so wrongly. Only where a reducer says to have received something else
 * than its sender says to have sent, nobody can tell: both are banned, so that it costs the liars
 * at least as many as the honest. A round with anything found is void. */
#ifndef PL_REFEREE_H
#define PL_REFEREE_H

#include "../../ref/btard.h"
#include "../../ref/partition.h"
#include "../bytes.h"
#include "../chance.h"
#include "dht_id.h"

enum referee_phase {
    REFEREE_COMMIT,
    REFEREE_REVEAL,
    REFEREE_REPORT,
    REFEREE_ACCUSE,
    REFEREE_OPEN,
    REFEREE_AGREE,
    REFEREE_PHASES
};

/* Of a peer's values, by its data. */
enum referee_opinion { REFEREE_UNKNOWN, REFEREE_HOLDS, REFEREE_FALSE };

#define REFEREE_PEERS_MAX 256      /* each of whom hears each: 65,536 messages a phase are enough */
#define REFEREE_SHOWN_MAX (3u << 20) /* bytes of a part that is opened; the run's take up to 2 MiB */
#define REFEREE_PARTS_MAX 100000u  /* a hash and a report of each have to fit into 4 MiB */

/* What somebody's values are the mean over: from the epoch's parameters, and its own data's order
 * of that epoch, so many samples. */
struct referee_claim {
    int64_t epoch;
    uint64_t samples;
};

/* What was exchanged, owned by the exchange; read on a helper thread while nothing changes. */
struct referee_view {
    const uint8_t *group_id;       /* (DHT_ID_BYTES) */
    size_t count, self;
    const struct pl_part *parts;
    size_t part_count;
    struct referee_claim claim;    /* of ours */
    /* how many are drawn in a round, on average; at most half of those who have samples */
    double validators;
    uint64_t samples_max;          /* nobody may claim more; 0: any number */
    struct chance chance;          /* of the number that everybody draws by, and of what hides it */
    void *context;
    /* A part's aggregate and radius. */
    const float *(*aggregate)(void *context, size_t part, double *tau);
    /* Appends our values of a part as they have travelled. 1: done; 0: none did. Negative: an
     * error. */
    int (*sent)(void *context, size_t part, struct bytes *out);
    /* The same of another peer, for a part of our own. */
    int (*received)(void *context, size_t part, size_t peer, struct bytes *out);
    /* What travelled, as values of that part. NULL: it is none. */
    const float *(*decode)(void *context, size_t part, const uint8_t *data, size_t n, float *room);
    /* What is left of values of a part on their way to its reducer. NULL: no memory. */
    const float *(*travel)(void *context, size_t part, const float *values, float *room);
    /* Computes what a peer should have sent, by its claim: all its tensors, valid until the next
     * call. PL_OK; whatever else: we can't tell. May take as long as its gradient did. NULL:
     * never. */
    int (*recompute)(void *context, size_t peer, const struct referee_claim *claim,
                     float *const **tensor);
};

struct referee {
    struct referee_view v;
    int phase;                     /* the next of ours to be made */
    struct bytes *said[REFEREE_PHASES]; /* (count): everybody's messages; ours too */
    uint8_t lot[PL_HASH_BYTES], salt[PL_HASH_BYTES], seed[PL_HASH_BYTES];
    uint8_t *own_hash;             /* (count, PL_HASH_BYTES) */
    size_t longest, longest_sent;  /* values of a part; bytes that one can travel as */
    int *order;                    /* (drawable): order[k] validates order[drawable / 2 + k], k < drawn */
    size_t drawable, drawn;        /* who has samples; of them, validators */
    uint8_t *opinion;              /* (count): ours of each, enum referee_opinion */
    size_t opened;                 /* the part of OPEN */
    uint8_t *banned;               /* (count): found out */
    int over, status;              /* PL_OK: the round holds. PL_EIO: void */
    struct pl_err err;             /* with the reason */
};

int referee_open(struct referee **r, const struct referee_view *v, struct pl_err *err);
void referee_close(struct referee *r); /* NULL may be closed */

/* 1: everything is there for the next step. */
int referee_is_ready(const struct referee *r);
/* 1: others may be computing a gradient: their silence says nothing. */
int referee_is_slow(const struct referee *r);
/* On any thread: checks what was said, and makes our next message, referee_own, or ends it:
 * `over`. */
void referee_step(struct referee *r);
const struct bytes *referee_own(const struct referee *r);
/* A message from a peer; one that is early is kept. PL_EPROTO: none of this round, or a second
 * one of its phase. */
int referee_hear(struct referee *r, size_t peer, const uint8_t *data, size_t n);

#endif
