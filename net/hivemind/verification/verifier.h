/* verifier.h - BTARD's verification of one all-reduce, between its last answer and its being
 * applied: a peer whose reduction differs from CenteredClip's, or whose values do not follow from
 * its data, is found and banned. [TTT 2.1, security] [BTARD 3, appendix] ref/btard.h has the checks
 * themselves, broadcast.h brings the messages to all.
 *
 * Every peer has by now each part's aggregate a, its own values x of it, and the radius tau that
 * the reducer names. The messages, each signed, in this order:
 *
 *   SENT     to each peer alone: hashes of the parts that I have sent it, and of my aggregates. It
 *            has to fit what has arrived; so its receiver can show later what it was sent
 *   COMMIT   to all from here on: the same hashes of all pairs, and of a number to draw by;
 *            how many samples my values are of, in which epoch; the peers whose SENT I
 *            lack or don't accept
 *   REVEAL   that number. No peer knew what is drawn while it could still change its values
 *   REPORT   of each part: s = <z, x - a> min(1, tau / |x - a|), |x - a|, and |x|
 *   ACCUSE   reducers know x: which reports are false? Validators, drawn by lot, have computed
 *            their target's values again from its data: are they as reported?
 *   OPEN     my x of one part: of one that was accused, else one whose aggregate more than half
 *            find too far away, else one drawn by lot. And votes: each peer has computed again
 *            what a validator reports to be false
 *   AGREE    that the round holds
 *
 * At CenteredClip's fixed point a part's s sum to 0; an aggregate that was moved gives another sum,
 * whatever z may be. Of the opened part each peer recomputes all of it: reports and aggregate.
 *
 * A peer is banned only by a proof, which is a function of messages that all honest peers hold:
 *
 *   two signed messages of one stage; a COMMIT other than its SENT; another number than committed
 *   to; a false report, or a false accusation, of the opened part; values other than committed to;
 *   sums, a radius or an aggregate that aren't CenteredClip's; values other than its data give, or
 *   a validator that accuses falsely, by votes
 *
 * So honest peers ban the same peers, and never one another. What can't be proven voids the
 * round and is charged: to a peer that is silent, and to both of a pair where one reports that
 * the other has not sent it what it signs. A charge is a back-off that doubles (reliability.h),
 * never a ban. */
#ifndef PL_VERIFIER_H
#define PL_VERIFIER_H

#include "ref/btard.h"
#include "ref/partition.h"
#include "net/bytes.h"
#include "net/random_source.h"
#include "broadcast.h"
#include "net/hivemind/records/dht_id.h"

enum verifier_phase {
    VERIFIER_SENT,
    VERIFIER_COMMIT,
    VERIFIER_REVEAL,
    VERIFIER_REPORT,
    VERIFIER_ACCUSE,
    VERIFIER_OPEN,
    VERIFIER_AGREE,
    VERIFIER_PHASES
};

/* Whether a peer's values follow from its data. */
enum verifier_opinion { VERIFIER_UNKNOWN, VERIFIER_HOLDS, VERIFIER_FALSE };

#define VERIFIER_PEERS_MAX 256 /* each sends to each: 65,536 messages a stage are enough */
/* bytes of a part that is opened, with its hashes: a unary call takes 4 MiB. The run's
 * parts take up to 2 MiB */
#define VERIFIER_SHOWN_MAX (3u << 20)
#define VERIFIER_PARTS_MAX 90000u /* a hash of each has to fit into as much */
/* bytes of a peer's packets that wait for the helper thread, in addition to four of the longest:
 * it may be computing a gradient */
#define VERIFIER_WAITING_MAX (1u << 20)

/* A peer's claim about its values: they are the mean gradient of this many samples, computed with
 * the epoch's parameters, in the order of its own data in that epoch. */
struct verifier_claim {
    int64_t epoch;
    uint64_t samples;
};

/* The all-reduce that is verified: owned by it, read on a helper thread while nothing changes. */
struct verifier_view {
    const struct group *group; /* borrowed */
    const struct identity *me; /* borrowed: signs */
    size_t count, self;        /* the group's */
    const struct pl_part *parts;
    size_t part_count;
    struct verifier_claim claim; /* of ours */
    double limit;                /* s without anything new until a round is given up; 0: none */
    /* validators per round, on average; at most half of the peers with samples */
    double validators;
    uint64_t samples_max;        /* the most that a peer may claim; 0: any number */
    struct random_source random; /* of the random numbers, and of the salts that hide them */
    void *context;
    /* A part's aggregate and radius. */
    const float *(*aggregate)(void *context, size_t part, double *tau);
    /* Appends our values of a part as they have travelled. 1: done; 0: none did. Negative: an
     * error. */
    int (*sent)(void *context, size_t part, struct bytes *out);
    /* The same of another peer, for a part of our own. */
    int (*received)(void *context, size_t part, size_t peer, struct bytes *out);
    /* The values of that part as they were sent. NULL: invalid. */
    const float *(*decode)(void *context, size_t part, const uint8_t *data, size_t n,
                           float *decoded);
    /* The values of a part after compression and decoding. NULL: no memory. */
    const float *(*travel)(void *context, size_t part, const float *values, float *decoded);
    /* Recomputes all tensors that a peer should have sent, by its claim; valid until the next call.
     * PL_OK; any error: unknown. May take as long as its gradient did. NULL: not possible here. */
    int (*recompute)(void *context, size_t peer, const struct verifier_claim *claim,
                     float *const **tensor);
};

struct verifier {
    struct verifier_view v;
    struct broadcast b;
    struct packet *inbox, **inbox_end, *batch; /* packets from peers: `to` is the sender's place */
    size_t *waiting;                           /* (count): bytes of a peer's packets in the inbox */
    double now;                                /* s, of the step under way */
    int phase, phase_before; /* ours, -1 before the first message; at the step's begin */
    struct bytes body;       /* of the message that is being made */
    uint8_t nonce[PL_HASH_BYTES], salt[PL_HASH_BYTES], seed[PL_HASH_BYTES];
    uint8_t *own_hash;            /* (count, PL_HASH_BYTES): of each reducer's aggregates */
    uint8_t *sent_hash;           /* (parts, PL_HASH_BYTES): of the values that we have sent */
    uint8_t *sent_digest;         /* (count, PL_HASH_BYTES): over those for each reducer */
    size_t longest, longest_sent; /* values of a part; bytes that one can travel as */
    int *order;             /* (drawable): order[k] validates order[drawable / 2 + k], k < drawn */
    size_t drawable, drawn; /* peers with samples; of these, validators */
    uint8_t *opinion;       /* (count): ours of each, enum verifier_opinion */
    size_t opened;          /* the part of OPEN */
    uint8_t *banned;        /* (count): by a proof, whatever comes of the round */
    uint8_t *charged;       /* (count): has cost us the round, without a proof */
    int over, status;       /* PL_OK: the round holds. PL_EIO: void */
    struct pl_err err;      /* with the reason */
};

/* The stages above, for proofs of equivocation that are checked without a verifier. */
extern const struct equivocation_rules verifier_rules;

int verifier_open(struct verifier **r, const struct verifier_view *v, struct pl_err *err);
void verifier_close(struct verifier *r); /* NULL may be closed */

/* On the loop's thread, before a step: hands over the packets that have come. */
void verifier_take(struct verifier *r, double now);
/* When the next step is due: at once after packets, else in time. Not during a step. */
double verifier_wake(const struct verifier *r);
/* On any thread: checks the packets, and goes on as far as it can, or ends it: `over`. Packets to
 * others are in r->b.out; the caller takes them. */
void verifier_step(struct verifier *r);
/* On the loop's thread, after it. The step may have taken long: time counts from here. */
void verifier_stepped(struct verifier *r, double now);
/* 1: others may be computing a gradient: their silence means nothing. */
int verifier_is_slow(const struct verifier *r);
/* The all-reduce's own time limit has passed: silent peers are charged. Not during a step. */
void verifier_expire(struct verifier *r, double now);
/* A packet from a peer; one that is early is kept. PL_EPROTO: none, PL_ELIMIT: too many wait. */
int verifier_receive(struct verifier *r, size_t peer, const uint8_t *data, size_t n);

#endif
