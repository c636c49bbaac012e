/* allreduce_receive.h - the receiving side of an all-reduce: who sends us parts to reduce, and
 * how far each has come. */
#ifndef PL_ALLREDUCE_RECEIVE_H
#define PL_ALLREDUCE_RECEIVE_H

#include "net/bytes.h"
#include "allreduce_wait.h"

struct allreduce;

enum in_state {
    IN_AWAITED, /* no stream yet */
    IN_SENDING,
    IN_COMPLETE, /* all its parts are here; or there are none to send */
    IN_OVER      /* lost, or answered in full: the stream is closed */
};
enum in_fault {
    IN_FAULT_NONE,
    IN_FAULT_LOST, /* counted as one whose values are missing */
    IN_FAULT_FALSE /* and in a verified round it has sent what no honest peer sends */
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

/* After the reducing half knows its parts. PL_OK or PL_ENOMEM. */
int allreduce_receive_open(struct allreduce *x);
void allreduce_receive_close(struct allreduce *x);
void allreduce_receive_message(struct allreduce *x, double now, size_t peer, const uint8_t *data,
                               size_t n);
/* The sender's side of the stream has ended. */
void allreduce_receive_ended(struct allreduce *x, size_t peer);
/* The answer to a sender's oldest part without one; takes its memory. */
void allreduce_receive_answer(struct allreduce *x, size_t peer, struct bytes *reply);
/* No more is taken from this sender. report: 1 to report an error to it. */
void allreduce_drop_sender(struct allreduce *x, size_t peer, int report);
/* Its values are missing in the means. */
void allreduce_lose_sender(struct allreduce *x, struct in_peer *in);
void allreduce_receive_stop(struct allreduce *x); /* closes all streams of senders */
double allreduce_receive_wake(const struct allreduce *x);
void allreduce_receive_tick(struct allreduce *x, double now);
/* The round has run out of time: the senders that it waits for are lost. */
void allreduce_receive_late(struct allreduce *x);

#endif
