/* allreduce_internal.h - what the two halves of an all-reduce share: sending our parts (exchange.c)
 * and reducing those that are ours (allreduce_reduce.c). */
#ifndef PL_ALLREDUCE_INSIDE_H
#define PL_ALLREDUCE_INSIDE_H

#include "allreduce.h"

/* We send to a reducer, and it answers. */
struct out_peer {
    size_t *part, parts; /* its parts, as numbers into exchange.parts */
    size_t encoding;     /* the next to be encoded */
    size_t sent, answered;
    struct allreduce_job_of *job;
    struct bytes ready; /* encoded, waiting for the last one to be gone */
    int is_ready, open, over, failed, lied, refused;
    double since;   /* of its last sign of life */
    double checked; /* when enough of a message had moved; see allreduce_is_moving */
};

/* A sender asks us. */
enum in_state {
    IN_AWAITED, /* no stream yet */
    IN_SENDING,
    IN_COMPLETE, /* all its parts are here; or there are none to send */
    IN_OVER      /* banned, or answered in full: the stream is closed */
};
struct in_peer {
    enum in_state state;
    size_t next; /* the part of ours that it sends next */
    int lost;    /* counted as one whose data are missing */
    int holds;   /* it reduces nothing: answers wait until it has sent everything */
    int lied;    /* costs the round where all have to be there */
    struct bytes *held;
    size_t held_count, answered;
    double since;
    double checked; /* as an out_peer's */
    double latest;  /* s that its slowest part took */
};

/* One part that we reduce. */
struct contribution {
    size_t peer;
    struct bytes message;     /* unless it lies in kept_bytes */
    struct part_message part; /* a view of it */
    struct bytes reply;
    int bad; /* not finite, or of a weight that is none */
};
struct slot {
    size_t k;                  /* the k-th of our parts; own_count: not in use */
    struct contribution *from; /* (group) in the order of arrival */
    size_t arrived;
    double first_at; /* when the first of them came */
    double weight;   /* of what the mean is over */
    int replied;
    struct allreduce_job_of *job;
};

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

struct answer {    /* what a reducer sent for a part of its */
    uint8_t *data; /* its place among all answers, or `other` */
    size_t n, room;
    uint8_t *other; /* of one that is longer than the method makes it */
    enum pl_compression method;
    double weight; /* to verify: the radius */
};

#define ALLREDUCE_SPARES 64 /* several groupmates' windows */

struct allreduce {
    struct allreduce_options o;
    const struct allreduce_port *port;
    void *context;
    size_t count, self; /* of the group */
    struct pl_part *parts;
    size_t part_count, values, values_max;
    struct answer *answers;                      /* (parts); none for our own */
    struct allreduce_memory own_memory, *memory; /* the latter is what is used */
    struct bytes spare[ALLREDUCE_SPARES];        /* of messages that are gone, for those to come */
    size_t spare_count;
    struct out_peer *out;
    struct in_peer *in;
    size_t *own, own_count; /* numbers of the parts that we reduce */
    size_t *own_at;         /* (own): where its differences begin in own_delta */
    /* NULL where the messages that they are made of take less memory: then those are kept, and
     * everything is added up once more at the end, in the same order. */
    float *own_delta;
    struct contribution **kept; /* (own): what came, in the order of arrival; NULL: forgotten */
    size_t *kept_count;         /* (own) */
    /* Where messages lie until then, each of a group's in its place; NULL: each in memory of its
     * own. */
    uint8_t *kept_bytes;
    size_t *kept_at; /* (own): the first peer's, others' behind */
    size_t own_done;
    struct slot slot[ALLREDUCE_WINDOW];
    /* Scratch of the parts that are reduced at the moment: the last one used is the next one lent,
     * while it is in the caches. */
    struct pl_reducer idle[ALLREDUCE_WINDOW];
    size_t idle_count;
    double began;
    size_t asked, answered; /* parts that others reduce; those of them that are answered */
    double first_answer;    /* when the first was */
    double slowest;         /* s that the slowest part took to come to us */
    size_t jobs;
    int applying, ended, cancelled;
    int missing;     /* to verify: somebody's values are not all there */
    int is_late;     /* the time limit has ended it */
    int own_trouble; /* we have had no memory: nobody else is to blame */
    int status;
    struct pl_err err;
    struct allreduce_report report;
    struct pl_err misfit;   /* whose parts are not cut as ours are, and why, most likely */
    struct pl_err refusal;  /* who takes no more of ours */
    struct pl_err gone;     /* the first reducer that was lost, and why */
    struct pl_err differs;  /* who only compresses otherwise */
    struct pl_err left_out; /* whose values are none, or weigh too much */

    /* To verify: everything is kept until everybody agrees. */
    struct verifier *verifier;
    double *own_tau; /* (own); own_delta holds the aggregates themselves */
    /* (tensors): what a peer should have sent; NULL until it is needed */
    float **again;
    int verifying, verifying_job, verified;
};

/* No result: what is under way on helper threads comes back first. */
void allreduce_give_up(struct allreduce *x, int status, const char *why);
struct allreduce_job_of *allreduce_job_new(struct allreduce *x, enum job_kind kind);
void allreduce_job_start(struct allreduce *x, struct allreduce_job_of *job);
void allreduce_job_free(struct allreduce_job_of *job);
/* Room for a message, used before where there is some: pages that are new cost more than what is
 * done with them. Neither is called by helper threads. */
struct bytes allreduce_buffer(struct allreduce *x);
void allreduce_buffer_back(struct allreduce *x, struct bytes *b);
/* At least n bytes, of any content. NULL: no memory. */
uint8_t *allreduce_room(struct allreduce_room *r, size_t n);
/* Copies n bytes to a place in it. */
void allreduce_put(const struct allreduce_room *r, uint8_t *place, const uint8_t *data, size_t n);
/* Sends it; what it leaves behind is room for the next. */
void allreduce_send(struct allreduce *x, size_t peer, enum allreduce_way way,
                    struct bytes *message);
enum pl_compression allreduce_method(const struct allreduce *x, const struct pl_part *part);
/* Of a part's values as they travel. */
size_t allreduce_part_bytes(const struct allreduce *x, const struct pl_part *part);

/* Of a part's message enough has moved since `since` that it will be there within twice `timeout`. */
int allreduce_is_moving(const struct allreduce *x, size_t peer, enum allreduce_way way, size_t part,
                        double elapsed, double timeout);

/* The reducing half. */
int allreduce_reduce_open(struct allreduce *x, struct pl_err *err);
void allreduce_reduce_close(struct allreduce *x);
void allreduce_reduce_stop(struct allreduce *x); /* closes all streams of senders */
void allreduce_reduce_message(struct allreduce *x, double now, size_t peer, const uint8_t *data,
                              size_t n);
void allreduce_reduce_ended(struct allreduce *x, size_t peer);
void allreduce_ban(struct allreduce *x, size_t peer, int tell);
void allreduce_reduce_run(struct allreduce_job_of *job);
void allreduce_reduce_done(struct allreduce *x, double now, struct allreduce_job_of *job);
/* Once all is there, on a helper thread: our own values of our k-th part become the mean's. */
int allreduce_reduce_again(struct allreduce *x, struct pl_reducer *r, size_t k);
double allreduce_reduce_wake(const struct allreduce *x);
void allreduce_reduce_tick(struct allreduce *x, double now);
/* The round has run out of time: the senders that it waits for are lost. */
void allreduce_reduce_late(struct allreduce *x);
/* on a helper thread: the robust aggregate */
int allreduce_clip(struct allreduce *x, const struct slot *s, struct pl_reducer *r);
/* The same to be verified: the aggregate itself, and its radius. */
int allreduce_aggregate(struct allreduce *x, const struct slot *s, struct pl_reducer *r,
                        float *aggregate, double *tau);

/* Verification. */
int allreduce_verify_open(struct allreduce *x, struct pl_err *err);
void allreduce_verify_close(struct allreduce *x);
void allreduce_verify_go(struct allreduce *x, double now);
double allreduce_verify_wake(const struct allreduce *x);
/* the time limit of the exchange is over */
void allreduce_verify_expire(struct allreduce *x, double now);
void allreduce_verify_done(struct allreduce *x, double now, struct allreduce_job_of *job);
void allreduce_reduce_go(struct allreduce *x); /* starts what can be started */

#endif
