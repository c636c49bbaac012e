/* allreduce_internal.h - one all-reduce as its parts see it: what they share, and the state of
 * each.
 *
 *   allreduce.c           phases, events, jobs; cuts the tensors into parts, applies the result
 *   allreduce_send.c      our parts to their reducers, and their answers
 *   allreduce_receive.c   senders, and their parts on the way to us
 *   allreduce_reduce.c    sums and answers of the parts that we reduce; allreduce_robust.c in place of a mean
 *   allreduce_notes.c     what is reported about groupmates
 *   allreduce_buffers.c   memory that is used again
 *   allreduce_verify.c    BTARD between the last answer and the result's being applied */
#ifndef PL_ALLREDUCE_INTERNAL_H
#define PL_ALLREDUCE_INTERNAL_H

#include "allreduce.h"
#include "allreduce_notes.h"
#include "allreduce_receive.h"
#include "allreduce_reduce.h"
#include "allreduce_send.h"

/* --- jobs for helper threads ------------------------------------------------------------------ */

enum job_kind { JOB_ENCODE, JOB_REDUCE, JOB_APPLY, JOB_VERIFY };
struct allreduce_job_of {
    struct allreduce_job job; /* first */
    struct allreduce *x;
    enum job_kind kind;
    size_t peer, part;         /* ENCODE */
    struct slot *slot;         /* REDUCE */
    struct pl_reducer reducer; /* REDUCE: lent */
    size_t begin, end;         /* APPLY: parts */
    struct bytes message;
    int status;
};

/* --- verification ----------------------------------------------------------------------------- */

enum verify_state {
    VERIFY_NOT_BEGUN, /* or the round is not verified */
    VERIFY_WAITING,   /* for packets, or for time */
    VERIFY_STEPPING,  /* a helper thread has the verifier */
    VERIFY_HOLDS      /* all agree: the round may be applied */
};
struct allreduce_verify {
    enum verify_state state;
    struct verifier *verifier; /* NULL: the round is not verified */
    double *own_tau;           /* (own): the radius; reducing.own_delta holds the aggregates */
    float **again; /* (tensors): what a peer should have sent; NULL until it is needed */
};

/* --- the whole -------------------------------------------------------------------------------- */

/*   EXCHANGING ---all answered---> APPLYING ----+
 *       |                                       +---no job left---> ENDED
 *       +------given up-----------> CANCELLED --+ */
enum allreduce_phase {
    ALLREDUCE_EXCHANGING,
    ALLREDUCE_APPLYING,  /* can't be given up any more */
    ALLREDUCE_CANCELLED, /* without a result; tensors stay as they are */
    ALLREDUCE_ENDED      /* `over` has been called */
};

/* Why groupmates have no answer, if it is not their doing alone. */
enum allreduce_cause {
    CAUSE_THEIRS,
    CAUSE_TIME, /* the time limit has ended the round */
    CAUSE_OURS  /* we have had no memory: no groupmate is to blame */
};

struct allreduce {
    struct allreduce_options o;
    const struct allreduce_callbacks *callbacks;
    void *context;
    size_t count, self; /* of the group */
    struct pl_part *parts;
    size_t part_count, values, values_max; /* of all parts; of the longest */
    enum allreduce_phase phase;
    double began; /* s */
    size_t jobs;  /* with helper threads */
    enum allreduce_cause cause;
    int status;
    struct pl_err err;
    struct allreduce_report report;
    struct allreduce_notes notes;

    struct buffer_pool pool;
    struct allreduce_memory own_memory, *memory; /* the latter is what is used */
    struct allreduce_sending sending;
    struct allreduce_receiving receiving;
    struct allreduce_reducing reducing;
    struct allreduce_verify verify;
};

/* No result: what is under way on helper threads comes back first. */
void allreduce_give_up(struct allreduce *x, int status, const char *why);
/* NULL: no memory. */
struct allreduce_job_of *allreduce_job_new(struct allreduce *x, enum job_kind kind);
void allreduce_job_start(struct allreduce *x, struct allreduce_job_of *job);
/* Sends it; the memory that the callback leaves in *message goes to the pool. */
void allreduce_send(struct allreduce *x, size_t peer, enum allreduce_way way,
                    struct bytes *message);
/* Our own values of a part, in the caller's tensor. */
float *allreduce_values(const struct allreduce *x, const struct pl_part *part);
/* How a part of ours travels. */
enum pl_compression allreduce_method(const struct allreduce *x, const struct pl_part *part);
/* Bytes of a part's values as they travel. */
size_t allreduce_part_bytes(const struct allreduce *x, const struct pl_part *part);
/* When a groupmate that is silent since `wait` is given up: by the timeout, or by its patience,
 * counted from `others_at` when the others have done the same. patience: INFINITY for none. */
struct allreduce_deadline allreduce_deadline(const struct allreduce *x,
                                             const struct allreduce_wait *wait, double timeout,
                                             double others_at, double patience);
/* 1: it is given another term, since enough of the part's message has moved. */
int allreduce_may_wait(const struct allreduce *x, double now, struct allreduce_wait *wait,
                       struct allreduce_deadline d, size_t peer, enum allreduce_way way,
                       size_t part, double timeout);

int allreduce_verify_open(struct allreduce *x, struct pl_err *err);
void allreduce_verify_close(struct allreduce *x);
/* Goes on with it if it is due. */
void allreduce_verify_go(struct allreduce *x, double now);
double allreduce_verify_wake(const struct allreduce *x);
/* The round's time limit has passed. */
void allreduce_verify_expire(struct allreduce *x, double now);
void allreduce_verify_done(struct allreduce *x, double now, struct allreduce_job_of *job);

#endif
