/* allreduce_send.h - the sending side of an all-reduce: our parts to reducers, and their
 * answers. */
#ifndef PL_ALLREDUCE_SEND_H
#define PL_ALLREDUCE_SEND_H

#include "allreduce_internal.h"

/* After the parts have been dealt. PL_OK or PL_ENOMEM. */
int allreduce_send_open(struct allreduce *x);
void allreduce_send_close(struct allreduce *x);
/* Sends to a reducer, and encodes for it, as far as possible now. */
void allreduce_send_go(struct allreduce *x, double now, size_t peer);
/* JOB_ENCODE is back. */
void allreduce_send_encoded(struct allreduce *x, struct allreduce_job_of *job);
/* An answer has arrived; the stream has ended or failed. */
void allreduce_send_message(struct allreduce *x, double now, size_t peer, const uint8_t *data,
                            size_t n);
/* Its stream has done its work. */
void allreduce_send_end(struct allreduce *x, size_t peer);
void allreduce_send_lost(struct allreduce *x, size_t peer, const char *why);
double allreduce_send_wake(const struct allreduce *x);
void allreduce_send_tick(struct allreduce *x, double now);

#endif
