/* allreduce_reduce.h - the reducing half of an all-reduce: the parts that are ours, their sums,
 * and the answers. */
#ifndef PL_ALLREDUCE_REDUCE_H
#define PL_ALLREDUCE_REDUCE_H

#include "allreduce_buffers.h"
#include "runtime/reducer.h"
#include "net/hivemind/messages/part_message.h"

struct allreduce;
struct allreduce_job_of;

/* parts of ours that are open at once: what a fast sender may be ahead */
#define ALLREDUCE_WINDOW 4

/* A sender's values of one part. */
struct contribution {
    size_t peer;
    struct bytes message;     /* unless it lies in kept_bytes */
    struct part_message part; /* a view of it */
    struct bytes reply;
    int bad; /* not finite, or of an impossible weight: left out */
};

/* One part that is open. */
struct slot {
    size_t k;                  /* the k-th of our parts; SIZE_MAX: not in use */
    struct contribution *from; /* (group) in the order of arrival */
    size_t arrived;
    double first_at; /* s: when the first of them came */
    double weight;   /* of what the mean is over */
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
    struct contribution **kept; /* (own): what came, in the order of arrival; NULL: forgotten */
    size_t *kept_count;         /* (own) */
    /* Where messages lie until then, each of a group's in its place; NULL: each in memory of its
     * own. */
    uint8_t *kept_bytes;
    size_t *kept_at; /* (own): the first peer's, others' behind */
    struct slot slot[ALLREDUCE_WINDOW];
    /* Scratch of open parts: the last one used is lent first, while it is in the caches. */
    struct pl_reducer idle[ALLREDUCE_WINDOW];
    size_t idle_count;
};

/* Opens the receiving side, too. PL_OK or PL_ENOMEM. */
int allreduce_reduce_open(struct allreduce *x, struct pl_err *err);
void allreduce_reduce_close(struct allreduce *x);
void allreduce_reduce_go(struct allreduce *x); /* starts what can be started */
/* JOB_REDUCE: on a helper thread, and back on the loop's. */
void allreduce_reduce_run(struct allreduce_job_of *job);
void allreduce_reduce_done(struct allreduce *x, double now, struct allreduce_job_of *job);
/* Once all is there, on a helper thread: our own values of our k-th part become the mean's. */
int allreduce_reduce_again(struct allreduce *x, struct pl_reducer *r, size_t k);

/* The slot of our k-th part, if it is within the window: compare its k. */
struct slot *allreduce_slot(struct allreduce *x, size_t k);
/* Where a peer's message of our k-th part stays; NULL: it needs memory of its own. */
uint8_t *allreduce_kept_place(const struct allreduce *x, size_t k, size_t peer, size_t n);

/* In place of the sum, on a helper thread (allreduce_robust.c). PL_OK or an error. */
int allreduce_clip(struct allreduce *x, const struct slot *s, struct pl_reducer *r);
/* The same for a verified round: the aggregate itself, and its radius. */
int allreduce_aggregate(struct allreduce *x, const struct slot *s, struct pl_reducer *r,
                        float *aggregate, double *tau);

#endif
