/* allreduce_send.h - the sending side of an all-reduce: our parts to reducers, and their
 * answers. */
#ifndef PL_ALLREDUCE_SEND_H
#define PL_ALLREDUCE_SEND_H

#include "net/bytes.h"
#include "ref/wire.h"
#include "allreduce_wait.h"

struct allreduce;
struct allreduce_job_of;

/* What a reducer did that no healthy one does. */
enum reducer_fault {
    FAULT_NONE,
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

struct answer {    /* what a reducer sent for one of its parts */
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

/* After the parts have been dealt. PL_OK or PL_ENOMEM. */
int allreduce_send_open(struct allreduce *x, struct pl_err *err);
void allreduce_send_close(struct allreduce *x);
/* Sends to a reducer and encodes for it what can be. */
void allreduce_send_go(struct allreduce *x, double now, size_t peer);
/* JOB_ENCODE: on a helper thread, and back on the loop's. */
void allreduce_send_run(struct allreduce_job_of *job);
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
