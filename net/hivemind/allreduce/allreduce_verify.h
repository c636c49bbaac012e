/* allreduce_verify.h - verifies an all-reduce, between its last answer and its result. */
#ifndef PL_ALLREDUCE_VERIFY_H
#define PL_ALLREDUCE_VERIFY_H

#include "allreduce_internal.h"

int allreduce_verify_open(struct allreduce *x, struct pl_err *err);
void allreduce_verify_close(struct allreduce *x);
/* Goes on with it if it is due. */
void allreduce_verify_go(struct allreduce *x, double now);
double allreduce_verify_wake(const struct allreduce *x);
/* The round's time limit has passed. */
void allreduce_verify_expire(struct allreduce *x, double now);
void allreduce_verify_done(struct allreduce *x, double now);

#endif
