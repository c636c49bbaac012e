/* allreduce_reduce.h - the reducing half of an all-reduce: the parts that are ours, their sums,
 * and the answers. */
#ifndef PL_ALLREDUCE_REDUCE_H
#define PL_ALLREDUCE_REDUCE_H

#include "allreduce_internal.h"

/* Opens the receiving side, too. PL_OK or PL_ENOMEM. */
int allreduce_reduce_open(struct allreduce *x);
void allreduce_reduce_close(struct allreduce *x);
void allreduce_reduce_go(struct allreduce *x); /* starts every step that is ready */
/* JOB_REDUCE is back. */
void allreduce_reduce_done(struct allreduce *x, double now, struct allreduce_job_of *job);
/* Once all is there, on a helper thread: our own values of our k-th part become the mean's. */
int allreduce_reduce_again(struct allreduce *x, struct pl_reducer *r, size_t k);

/* In place of the sum, on a helper thread (allreduce_robust.c). PL_OK or an error. */
int allreduce_clip(struct allreduce *x, const struct slot *s, struct pl_reducer *r);
/* The same for a verified round: the aggregate itself, and its radius. */
int allreduce_aggregate(struct allreduce *x, const struct slot *s, struct pl_reducer *r,
                        float *aggregate, double *tau);

#endif
