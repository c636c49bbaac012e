/* allreduce.h - one all-reduce of a group: an engine without sockets, clock or threads. Messages
 * and the time come in; messages, and work for helper threads, go out through callbacks. [TTT 2.1,
 * communication] [spec hivemind-protocol 5]
 *
 *   to each other peer that reduces something ("out"):  encode - send - ... - take its answers
 *   from each other peer, when we reduce ("in"):        take its parts - add - mean - answer
 *
 * Every peer has a share of all values to reduce. It adds up everybody's copy of a part in the
 * order of arrival and answers each with the difference to what came from there. Parts are in the
 * order of the tensors; the next are encoded and added up while the last ones travel.
 *
 * Nothing is changed in the tensors before everything has come: a round is applied wholly or not
 * at all. What ref/average.h's pl_average_group gives for the same order of arrival, this gives
 * bit for bit. */
#ifndef PL_ALLREDUCE_H
#define PL_ALLREDUCE_H

#include "ref/average.h"
#include "allreduce_buffers.h"
#include "net/hivemind/matchmaking/group.h"
#include "net/hivemind/messages/part_message.h" /* PART_WEIGHT_MAX */
#include "net/hivemind/verification/verifier.h"

/* parts that we reduce at once: how far a fast sender may be ahead */
#define ALLREDUCE_WINDOW 4

/* Recomputes into `tensor`, from a groupmate's claim, the values that it should have sent. PL_OK;
 * any error: they cannot be computed here. Called on a helper thread, and may be slow. */
typedef int allreduce_recompute(void *context, const struct peer_id *peer,
                                const struct verifier_claim *claim, float *const *tensor);

/* For verified rounds: which peers' gradients are computed again, and how. */
struct allreduce_validation {
    double validators;    /* a round, on average; the same in the whole group */
    uint64_t samples_max; /* the most that a peer may claim; 0: any number */
    const char *data;     /* name of the data that all must have to compute the same; NULL: "" */
    allreduce_recompute *recompute; /* NULL: we validate nobody */
    void *context;                  /* its */
};

#define ALLREDUCE_PHASE_MAX 8 /* characters of a phase; "PHASE_Q" */
#define ALLREDUCE_HEADERS 512 /* bytes of a message apart from the part's values and tables */

/* s that a groupmate may be silent while most of the others make progress; the timeouts hold in any
 * case. A sender waits for no other peer, a reducer for the slowest sender of its group. */
struct allreduce_patience {
    double sender, reducer;
};

struct allreduce_options {
    const struct pl_backend *be;
    const struct group *group;
    const char *phase; /* of several all-reduces of one group: follows its id; NULL: there is one */
    size_t tensors;
    const size_t *elements;            /* (tensors) */
    const enum pl_compression *method; /* (tensors) */
    float *const *tensor;              /* (tensors): ours in host memory; changed at the very end */
    double weight;                     /* of ours; 0: we only listen and help */
    /* A slow uplink sends values in this share of its parts only, spread evenly; 0: in all. In the
     * place of each other part goes a blank one, a single 0 of weight 0, and the answer is the mean
     * itself. upload_from, in [0, 1), decides which parts. Not in verified rounds. */
    double upload, upload_from;
    const double *share; /* (group->count): the share that each peer reduces */
    size_t part_bytes;
    double sender_timeout;                     /* s that we wait for a part; 0: without limit */
    double reducer_timeout;                    /* s for an answer */
    double time_limit;                         /* s for all of it */
    const struct allreduce_patience *patience; /* (group->count); NULL: the timeouts alone */
    double weight_max; /* largest weight of a peer; 0: only PART_WEIGHT_MAX limits it */
    double clip;       /* CenteredClip's radius, or PL_CLIP_USUAL, part by part; 0: the mean */
    /* BTARD, see allreduce_verify.c; the same in the whole group, and all of it reduces. */
    int verify;
    const struct identity *me;   /* borrowed: signs our messages of verification */
    struct verifier_claim claim; /* the claim from which our values can be recomputed */
    struct allreduce_validation validation;
    struct random_source random;     /* of our lots */
    struct allreduce_memory *memory; /* borrowed until allreduce_close; NULL: memory of its own */
};

enum allreduce_way { ALLREDUCE_OUT, ALLREDUCE_IN };

struct allreduce;
/* the engine's; a helper thread calls run(job), then the engine wants it back */
struct allreduce_job {
    void (*run)(struct allreduce_job *job);
    void *owner; /* these two are the callbacks' */
    struct allreduce_job *next;
};

/* The engine's requests to its owner; `peer` is an index in the group. None of these may call the
 * engine. */
struct allreduce_callbacks {
    /* Open the stream to a reducer. */
    void (*open)(void *context, size_t peer);
    /* Send a message on a stream, or on our answering side of it. NULL if `give` is there. */
    void (*send)(void *context, size_t peer, enum allreduce_way way, const uint8_t *data, size_t n);
    /* For ALLREDUCE_OUT. 1: sent messages are still queued here; allreduce_drained follows. */
    int (*is_busy)(void *context, size_t peer);
    /* Our side of the stream is complete. */
    void (*finish)(void *context, size_t peer, enum allreduce_way way);
    /* We are done with the stream. */
    void (*close)(void *context, size_t peer, enum allreduce_way way);
    /* `messages` more may be taken from a sender, beyond the ALLREDUCE_WINDOW of the beginning. */
    void (*credit)(void *context, size_t peer, size_t messages);
    void (*work)(void *context, struct allreduce_job *job);
    /* PL_OK: the tensors hold the mean. Otherwise they are as they were; err says why. No job is
     * running and no stream is open. */
    void (*over)(void *context, int status, const struct pl_err *err);
    /* Only to verify: a message for a groupmate's allreduce_verify_message. May be NULL without
     * verification. */
    void (*send_packet)(void *context, size_t peer, const uint8_t *data, size_t n);
    /* Used in place of send: may take over the memory of the message, and leave another buffer in
     * *data for the next one. May be NULL. */
    void (*give)(void *context, size_t peer, enum allreduce_way way, struct bytes *data);
    /* Bytes of the current message that have been transferred: of the outgoing one while is_busy,
     * otherwise of the incoming one. They distinguish a slow link from silence. May be NULL. */
    size_t (*moved)(void *context, size_t peer, enum allreduce_way way);
};

/* The reason for a ban: the peer gave an answer that no honest reducer gives, or verification has a
 * proof. NULL: there is no proof. A peer that only sends bad parts is left out of the mean, and the
 * round succeeds. */
const char *allreduce_proof(const struct allreduce *x, size_t peer);
/* 1: it has cost us the round, or it or one other peer has; nothing proves which. */
int allreduce_is_charged(const struct allreduce *x, size_t peer);

/* How a groupmate has behaved in the round, once it is over. */
enum allreduce_outcome {
    ALLREDUCE_UNKNOWN,   /* nothing was expected of it, or we ended the round ourselves */
    ALLREDUCE_DELIVERED, /* all that was */
    ALLREDUCE_LEFT,      /* it has left the group before the round began, and says so at once */
    ALLREDUCE_REFUSED,   /* it has reported an error: its own trouble, or we were too slow */
    ALLREDUCE_WITHHELD   /* silent, disconnected, or its messages were of no use */
};
/* latest: s that its slowest part took to come. A reducer that did not answer may have waited for a
 * sender: it counts as ALLREDUCE_UNKNOWN if we have lost a sender ourselves. */
enum allreduce_outcome allreduce_outcome(const struct allreduce *x, size_t peer, double *latest);

/* An error sentence about the first groupmate whose values were excluded (not finite, or too
 * large); NULL: none was. */
const char *allreduce_left_out(const struct allreduce *x);

/* A sentence about a groupmate that uses another compression, which is harmless; NULL: none does. A
 * reason why the round is impossible comes with `over`. */
const char *allreduce_differs(const struct allreduce *x);

/* How far it went, at any time. */
struct allreduce_report {
    /* of all values: how many differences are there, own ones included */
    size_t values, received;
    size_t senders_lost;  /* peers whose data are missing in parts that we reduced */
    size_t reducers_lost; /* peers that did not answer in full */
    /* the least that any of our own parts is a mean over; 0: no parts */
    double weight;
    size_t bytes_out, bytes_in; /* of messages */
    size_t values_out;          /* that these hold: four bytes each, were nothing compressed */
    size_t withheld;            /* values of ours whose parts went blank */
};

/* The name in the first message of a stream: the group's ID followed by the phase. Returns its
 * length in bytes. */
size_t allreduce_name(uint8_t name[DHT_ID_BYTES + ALLREDUCE_PHASE_MAX], const struct group *group,
                      const char *phase);

/* Begins at once. The options' pointers are borrowed until `over`. */
int allreduce_open(struct allreduce **x, const struct allreduce_options *o,
                   const struct allreduce_callbacks *callbacks, void *context, double now,
                   struct pl_err *err);
/* After `over`, or before anything else was called. NULL may be closed. */
void allreduce_close(struct allreduce *x);
/* Ends it without a result: `over` comes, with PL_EAGAIN. */
void allreduce_cancel(struct allreduce *x, double now);

void allreduce_message(struct allreduce *x, double now, size_t peer, enum allreduce_way way,
                       const uint8_t *data, size_t n);
/* The other side has sent everything. */
void allreduce_ended(struct allreduce *x, double now, size_t peer, enum allreduce_way way);
/* The stream is lost; why: for the round's report. */
void allreduce_failed(struct allreduce *x, double now, size_t peer, enum allreduce_way way,
                      const char *why);
/* Hash of all that the peers of a verified round agree on, PL_HASH_BYTES; NULL: not verified. */
const uint8_t *allreduce_round(const struct allreduce *x);
/* A packet of verification. PL_EPROTO: this round can't take it. */
int allreduce_verify_message(struct allreduce *x, double now, size_t peer, const uint8_t *data,
                             size_t n);
void allreduce_drained(struct allreduce *x, double now, size_t peer);
void allreduce_done(struct allreduce *x, double now, struct allreduce_job *job);
double allreduce_wake(const struct allreduce *x);
void allreduce_tick(struct allreduce *x, double now);

/* 1: a first message from this sender is awaited; 0: refuse it with INTERNAL_ERROR. */
int allreduce_awaits(const struct allreduce *x, size_t peer);
void allreduce_report(const struct allreduce *x, struct allreduce_report *r);

#endif
