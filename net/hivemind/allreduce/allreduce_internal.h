/* allreduce_internal.h - one all-reduce as its parts see it: what they share, and the state of
 * each.
 *
 *   allreduce.c           phases, events; cuts the tensors into parts, applies the result
 *   allreduce_send.c      our parts to their reducers, and their answers
 *   allreduce_receive.c   senders, and their parts on the way to us
 *   allreduce_reduce.c    sums and answers of the parts that we reduce
 *   allreduce_robust.c    the same with CenteredClip in place of a mean
 *   allreduce_notes.c     what is reported about groupmates
 *   allreduce_verify.c    BTARD between the last answer and the result's being applied
 *   allreduce_jobs.c      work on helper threads, and the end of a round; all of these call it
 *   allreduce_wait.c      silence: who has brought nothing for too long
 *   allreduce_parts.c     one part: its place, its values, its compression
 *   allreduce_buffers.c   memory that is used again
 *
 * Calls go down this list only, but for the reducing half, which calls the receiving one. */
#ifndef PL_ALLREDUCE_INTERNAL_H
#define PL_ALLREDUCE_INTERNAL_H

#include "allreduce.h"
#include "allreduce_buffers.h"
#include "net/bytes.h"
#include "net/hivemind/messages/part_message.h"
#include "runtime/reducer.h"

struct allreduce_job_of;

/* --- silence ---------------------------------------------------------------------------------- */

struct allreduce_wait {
    double since;   /* s: its last progress */
    double checked; /* s: when enough of a message had moved to wait on */
};

struct allreduce_deadline {
    double at;    /* s; INFINITY: none */
    int is_early; /* by patience, before the timeout: unless something moves */
};

/* --- our parts, and their answers ------------------------------------------------------------- */

/* Faults of a reducer that no healthy one shows. */
enum reducer_fault {
    FAULT_NONE,
    FAULT_LEFT,    /* BAD_GROUP_ID before anything else: it is in no group with us any more */
    FAULT_REFUSED, /* it reports an error: its own trouble, or our parts came too late */
    FAULT_FALSE    /* an answer that no honest reducer gives: a proof against it */
};

enum out_state {
    OUT_CLOSED, /* it reduces nothing, or its stream has done its work */
    OUT_OPEN,
    OUT_LOST /* it will not answer in full: the round has no result */
};
struct out_peer {
    enum out_state state;
    size_t *part, parts;   /* its parts, as numbers into allreduce.parts; owned */
    size_t encoding;       /* the next to be encoded */
    size_t sent, answered; /* parts */
    struct allreduce_job_of *job;
    struct bytes ready; /* encoded, waits for the last message to have left */
    int is_ready;       /* `ready` holds a message */
    enum reducer_fault fault;
    struct allreduce_wait wait; /* for its answer */
};

struct answer {    /* a reducer's answer for one of its parts */
    uint8_t *data; /* its place in the block of all answers, or `other` */
    size_t n, capacity;
    uint8_t *other; /* owned: of an answer that is longer than our method makes it */
    enum pl_compression method;
    double weight; /* in a verified round: the radius */
};

struct allreduce_sending {
    struct out_peer *peer;  /* (group) */
    struct answer *answers; /* (parts); none for our own */
    size_t asked, answered; /* parts that others reduce; how many of them are answered */
    double first_answer;    /* s: when the first was */
};

/* --- senders ---------------------------------------------------------------------------------- */

enum in_state {
    IN_AWAITED, /* no stream yet */
    IN_SENDING,
    IN_COMPLETE, /* all its parts are here, or it has none to send */
    IN_OVER      /* lost, or answered in full: the stream is closed */
};
enum in_fault {
    IN_FAULT_NONE,
    IN_FAULT_LOST, /* counted as one whose values are missing */
    IN_FAULT_FALSE /* and in a verified round it has sent a message that no honest peer sends */
};
struct in_peer {
    enum in_state state;
    size_t next; /* the part of ours that it sends next */
    enum in_fault fault;
    int holds;          /* it reduces nothing: answers wait until it has sent everything */
    struct bytes *held; /* (own parts): those answers */
    size_t held_count, answered;
    struct allreduce_wait wait; /* for its next part */
    double latest;              /* s that its slowest part took */
};

struct allreduce_receiving {
    struct in_peer *peer; /* (group) */
    double slowest;       /* s that the slowest part took to come to us */
};

/* --- parts that we reduce --------------------------------------------------------------------- */

/* A sender's values of one part. */
struct contribution {
    size_t peer;
    struct bytes message;     /* unless it lies in kept_bytes */
    struct part_message part; /* a view of it */
    struct bytes reply;
    int bad;      /* not finite, or of an impossible weight: left out */
    int is_blank; /* it has no values, and wants the mean */
};

/* One part that is open. */
struct slot {
    size_t k;                  /* the k-th of our parts; SIZE_MAX: not in use */
    struct contribution *from; /* (group) in the order of arrival */
    size_t arrived;
    double first_at; /* s: when the first of them came */
    double weight;   /* sum of the weights in the mean */
    int replied;
    struct allreduce_job_of *job;
};

struct allreduce_reducing {
    size_t *own, own_count; /* numbers of the parts that we reduce */
    size_t *own_at;         /* (own): where its differences begin in own_delta */
    size_t own_done;        /* parts that are reduced and answered */
    /* Our own differences. NULL where the messages that they are made of take less memory: then
     * those are kept, and everything is added up once more at the end, in the same order. */
    float *own_delta;
    struct contribution *
        *kept;          /* (own): the messages received, in the order of arrival; NULL: released */
    size_t *kept_count; /* (own) */
    /* Where messages lie until then, each of a group's in its place; NULL: each in memory of its
     * own. */
    uint8_t *kept_bytes;
    size_t *kept_at; /* (own): the first peer's, others' behind */
    struct slot slot[ALLREDUCE_WINDOW];
    /* Scratch of open parts: the last one used is lent first, while it is in the caches. */
    struct pl_reducer idle[ALLREDUCE_WINDOW];
    size_t idle_count;
};

/* --- sentences for the report ----------------------------------------------------------------- */

struct allreduce_notes { /* an empty text: none */
    struct pl_err
        mismatch; /* a peer whose parts are cut differently from ours, and the likely reason */
    struct pl_err refusal;  /* a reducer that refuses our further parts */
    struct pl_err lost;     /* the first reducer that was lost, and why */
    struct pl_err differs;  /* a peer that only uses another compression */
    struct pl_err left_out; /* a peer whose values are not finite, or whose weight is too large */
};

/* --- jobs for helper threads ------------------------------------------------------------------ */

enum job_kind { JOB_ENCODE, JOB_REDUCE, JOB_APPLY, JOB_VERIFY };
struct allreduce_job_of {
    struct allreduce_job job; /* first */
    struct allreduce *x;
    enum job_kind kind;
    size_t peer, part;         /* ENCODE */
    struct slot *slot;         /* REDUCE */
    struct pl_reducer reducer; /* REDUCE: lent; APPLY: its own */
    size_t begin, end;         /* APPLY: parts */
    float *scratch;            /* APPLY: (values_max) if an answer has to be decoded; else NULL */
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
    float *
        *again; /* (tensors): the values that a peer should have sent; NULL until they are needed */
};

/* --- the whole -------------------------------------------------------------------------------- */

/*   REDUCING -----all answered---> APPLYING ----+
 *       |                                       +---no job left---> ENDED
 *       +------given up-----------> CANCELLED --+ */
enum allreduce_phase {
    ALLREDUCE_REDUCING,
    ALLREDUCE_APPLYING,  /* can no longer be given up */
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
    size_t count, self;                               /* of the group */
    uint8_t name[DHT_ID_BYTES + ALLREDUCE_PHASE_MAX]; /* the group's id, and the phase */
    size_t name_n;
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
    struct allreduce_memory own_memory, *memory; /* the latter is used */
    struct allreduce_sending sending;
    struct allreduce_receiving receiving;
    struct allreduce_reducing reducing;
    struct allreduce_verify verify;
};

/* No result: the jobs on helper threads finish first, and the event in which the last one does
 * closes the streams. */
void allreduce_give_up(struct allreduce *x, int status, const char *why);
/* `run` is called on a helper thread. NULL: no memory. */
struct allreduce_job_of *allreduce_job_new(struct allreduce *x, enum job_kind kind,
                                           void (*run)(struct allreduce_job *job));
void allreduce_job_start(struct allreduce *x, struct allreduce_job_of *job);
/* Sends it; the memory that the callback leaves in *message goes to the pool. */
void allreduce_send(struct allreduce *x, size_t peer, enum allreduce_way way,
                    struct bytes *message);
/* Our own values of a part, in the caller's tensor. */
float *allreduce_values(const struct allreduce *x, const struct pl_part *part);
/* How a part of ours travels. */
enum pl_compression allreduce_method(const struct allreduce *x, const struct pl_part *part);
/* 1: this part of ours goes blank. */
int allreduce_is_blank(const struct allreduce *x, size_t part);
/* Bytes of a part's values as they travel. */
size_t allreduce_part_bytes(const struct allreduce *x, const struct pl_part *part);
/* The slot of our k-th part, if it is within the window: compare its k. */
struct slot *allreduce_slot(struct allreduce *x, size_t k);
/* The most bytes that a message of our k-th part takes there, by our own compression. */
size_t allreduce_kept_max(const struct allreduce *x, size_t k);
/* Where a peer's message of our k-th part stays; NULL: it needs memory of its own. */
uint8_t *allreduce_kept_place(const struct allreduce *x, size_t k, size_t peer, size_t n);
/* When a groupmate that is silent since `wait` is given up: by the timeout, or by its patience,
 * counted from `others_at` when the others have done the same. patience: INFINITY for none. */
struct allreduce_deadline allreduce_deadline(const struct allreduce *x,
                                             const struct allreduce_wait *wait, double timeout,
                                             double others_at, double patience);
/* 1: it is given another term, since enough of the part's message has moved. */
int allreduce_may_wait(const struct allreduce *x, double now, struct allreduce_wait *wait,
                       struct allreduce_deadline d, size_t peer, enum allreduce_way way,
                       size_t part, double timeout);

#endif
