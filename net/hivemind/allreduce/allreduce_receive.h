/* allreduce_receive.h - the receiving side of an all-reduce: the peers that send us parts to
 * reduce, and their progress. */
#ifndef PL_ALLREDUCE_RECEIVE_H
#define PL_ALLREDUCE_RECEIVE_H

#include "allreduce_internal.h"

/* After the reducing half knows its parts. PL_OK or PL_ENOMEM. */
int allreduce_receive_open(struct allreduce *x);
void allreduce_receive_close(struct allreduce *x);
void allreduce_receive_message(struct allreduce *x, double now, size_t peer, const uint8_t *data,
                               size_t n);
/* The sender's side of the stream has ended. */
void allreduce_receive_ended(struct allreduce *x, size_t peer);
/* The answer to a sender's oldest part without one; takes its memory. */
void allreduce_receive_answer(struct allreduce *x, size_t peer, struct bytes *reply);
/* Accepts no further parts from this sender. report: 1 to report an error to it. */
void allreduce_drop_sender(struct allreduce *x, size_t peer, int report);
/* Its values are missing in the means. */
void allreduce_lose_sender(struct allreduce *x, struct in_peer *in);
void allreduce_receive_stop(struct allreduce *x); /* closes all streams of senders */
double allreduce_receive_wake(const struct allreduce *x);
void allreduce_receive_tick(struct allreduce *x, double now);
/* The round has run out of time: the senders that it waits for are lost. */
void allreduce_receive_late(struct allreduce *x);

#endif
