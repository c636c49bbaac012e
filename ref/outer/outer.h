/* outer.h - one interface for every way of training together: a peer's state, its work around its
 * own steps, the messages that it sends, and their application. [spec outer-steps 1, 16]
 * paper/algorithms.md places them all in one scheme.
 *
 * The algorithm decides, and the trainer acts: each call returns what comes next, or a negative
 * status: an error, and the loop ends. This is the whole loop of a trainer, whatever the algorithm:
 *
 *   next = PL_OUTER_GRADIENT
 *   while (next >= 0) switch (next)
 *     GRADIENT   g = the gradient of this peer's batch at x
 *                next = pl_outer_before_step(o, x, g, lr)
 *     STEP       the inner optimizer steps, x from g
 *                next = pl_outer_after_step(o, x)
 *     SEND       next = pl_outer_message(o, &message, x, g)
 *                the transport takes the message
 *     RECEIVE    the transport brings the messages of the oldest exchange that is not applied yet:
 *                which ones, enum pl_outer_exchange says
 *                next = pl_outer_apply(o, x, g, in, count)
 *
 * x holds the parameters that this peer trains, theta_r. g is its gradient; where gradients travel,
 * it is after RECEIVE the mean that the inner optimizer steps with. Both are the backend's memory,
 * messages the host's. Sending and receiving are apart, so an exchange may take as long as some
 * local steps do. If it ends sooner, pl_outer_arrive may keep its mean in the state, so that a
 * checkpoint or a newcomer has it. Nothing here knows a network or a clock. */
#ifndef PL_OUTER_H
#define PL_OUTER_H

#include "../backend.h"

#ifdef __cplusplus
extern "C" {
#endif

#define PL_OUTER_AXES_MAX 16
#define PL_OUTER_BUFFERS_MAX 8  /* SPARTA and NoLoCo need two, delayed Nesterov four */
#define PL_OUTER_COUNTERS_MAX 8 /* steps, rounds, messages in flight */
#define PL_OUTER_COUNTER_MAX (UINT64_MAX / 4) /* so that sums of two do not wrap around */
#define PL_OUTER_PEERS_MAX 65536   /* of one exchange; a sender's number travels in 16 bits */
#define PL_OUTER_FRAGMENTS_MAX 256 /* of Streaming DiLoCo; the paper's largest model has 24 */

/* The trainer's next action. Negative values are PL_E statuses. */
enum pl_outer_next { PL_OUTER_GRADIENT, PL_OUTER_STEP, PL_OUTER_SEND, PL_OUTER_RECEIVE };

/* The result of an exchange that each peer needs, and so the messages that pl_outer_apply takes. */
enum pl_outer_exchange {
    PL_OUTER_MEAN,   /* the weighted mean: all messages, or one that is the mean already, as a
                        butterfly all-reduce makes it */
    PL_OUTER_GATHER, /* the message of every peer */
    PL_OUTER_GROUP,  /* those of its group, which pl_noloco_group (pairing.h) draws each time */
    PL_OUTER_ONE     /* every message, whenever it comes, in the same order on all peers */
};

/* How values travel where a message is a vector: 4 bytes, 1 byte and a table, half a byte. */
enum pl_outer_coding { PL_OUTER_FLOAT32, PL_OUTER_UNIFORM8, PL_OUTER_E3M0 };

struct pl_outer_tensor {
    size_t offset, n; /* of the buffers x and g; n >= 1 */
    int axes;
    int64_t shape[PL_OUTER_AXES_MAX];
    int fragment; /* of Streaming DiLoCo */
};

struct pl_outer_setup {
    const struct pl_backend *be;
    const struct pl_outer_tensor *tensors; /* copied */
    int count;
    int rank, peers; /* this peer's number, and how many there are */
    enum pl_outer_coding coding;
    double clip; /* CenteredClip's radius in place of the mean, part by part; negative:
                    PL_CLIP_USUAL; 0: the mean */

    int H;         /* inner steps per outer step */
    double mu, nu; /* outer momentum and rate */
    double gamma;  /* NoLoCo: pull towards the group */
    int group;     /* NoLoCo: peers of a group */
    int N;         /* delayed Nesterov: pseudo-gradients between updates of the momentum */
    int fragments; /* Streaming DiLoCo */
    int tau;       /* inner steps that an exchange takes */
    double alpha;  /* weight of the local parameters when the exchange ends */
    const int
        *offsets; /* (fragments), copied: inner step at which each is sent, modulo H; NULL: one
                           after the other, H / fragments apart, applied on the grid */

    int topk, chunk;     /* DeMo, SparseLoCo: entries sent of a chunk, and its side */
    double beta;         /* decay of the state: momentum, error feedback, DGC's momentum */
    double weight_decay; /* of DeMo */
    int mean_over_all;   /* SparseLoCo: divide by all peers, not by those that sent an entry */
    double share;        /* of partial averaging and of DGC: entries sent at a time */
    int powersgd_rank;   /* columns of PowerSGD's factors */
    int own_feedback;    /* PowerSGD: the textbook's rule, not hivemind's */
    int refill;          /* PowerSGD: a Q of zeros is drawn anew; hivemind keeps it */
    double limit;        /* DGC: norm to which a peer's gradient is clipped */
    int warm_up;         /* 1-bit Adam: steps of plain Adam before; at least 1 */
    struct pl_adam adam; /* of 1-bit Adam */
    uint64_t seed;       /* of random choices that all peers share */
};

/* Overwrites *setup with one setting that every algorithm can start from; set be, tensors, count,
 * rank and peers afterwards. Where the papers differ it holds one value, so to repeat a
 * paper set its own: DiLoCo H 500, NoLoCo mu 0.5, DeMo beta 0.999, SparseLoCo topk 64.
 * [spec outer-steps 3, 8, 10, 11] */
void pl_outer_defaults(struct pl_outer_setup *setup);

struct pl_outer_message {
    uint8_t *data;
    size_t bytes;
    double weight; /* 0: left out. A peer sends 1 or 0; the transport multiplies by its samples */
    int rank;      /* of the sender */
};

/* Part of an algorithm's state: a buffer with a name, such as "phi" or "momentum". */
struct pl_outer_buffer {
    const char *name;
    void *at;
    size_t bytes;
    int on_host; /* 0: the backend's memory */
    int is_own;  /* this peer's alone, such as an error feedback: no newcomer takes it over */
};

struct pl_outer;
struct pl_outer_algorithm {
    const char *name, *summary;
    const char *bytes; /* bytes a peer sends per step, as a formula */
    enum pl_outer_exchange exchange;
    int is_reduced;      /* reducers average the messages on the wire (butterfly all-reduce); 0:
                            every peer takes the messages of the others and makes the mean itself */
    int sends_gradients; /* each step's: one with a NaN then travels with weight 0 */
    int takes_back;      /* apply reads the latest message if no peer has received it */
    int takes_clip;      /* messages are vectors that mean the same on every peer, and the mean of
                            all is all that is used of them: CenteredClip may take its place */
    int (*open)(struct pl_outer *o, const float *x, struct pl_err *err); /* or NULL */
    void (*close)(struct pl_outer *o); /* state other than buffers; or NULL */
    int (*before_step)(struct pl_outer *o, float *x, float *g, double lr);
    int (*after_step)(struct pl_outer *o, float *x);
    int (*message)(struct pl_outer *o, struct pl_outer_message *out, float *x, float *g);
    int (*apply)(struct pl_outer *o, float *x, float *g, const struct pl_outer_message *in,
                 int count);
    size_t (*under_way)(const struct pl_outer *o); /* values of the exchange that overlaps with
                                                      steps; NULL: none does */
    double (*bytes_per_step)(const struct pl_outer *o);
};

/* One peer's state. */
struct pl_outer {
    const struct pl_outer_algorithm *algorithm;
    struct pl_outer_setup setup;
    size_t n; /* of x: all tensors */
    struct pl_outer_buffer buffer[PL_OUTER_BUFFERS_MAX];
    int buffers;
    uint64_t counter[PL_OUTER_COUNTERS_MAX]; /* PL_OUTER_STEPS and so on, below */
    void *work;                              /* the algorithm's own: nothing to remember */
    double lr;                               /* of the step under way, */
    int skipped;                             /* and whether its gradient had a NaN */
    uint8_t *out;                            /* the latest message; out_bytes 0: applied, */
    size_t out_bytes, out_capacity;          /* or none */
};

/* The algorithm of that name, or NULL; and the index'th, NULL past the last. */
const struct pl_outer_algorithm *pl_outer_find(const char *name);
const struct pl_outer_algorithm *pl_outer_at(int index);

/* PL_EUSE, with a sentence, for a `clip` that the algorithm does not take. */
int pl_outer_check_clip(const struct pl_outer_algorithm *algorithm,
                        const struct pl_outer_setup *setup, struct pl_err *err);
/* Starts from parameters x. PL_EUSE, with a sentence, for settings that make no sense. */
int pl_outer_open(struct pl_outer **out, const struct pl_outer_algorithm *algorithm,
                  const struct pl_outer_setup *setup, const float *x, struct pl_err *err);
void pl_outer_close(struct pl_outer *o);

/* The loop's four calls. A gradient with a NaN or an infinity takes no inner step and touches no
 * moment: before_step skips to the action after the step. An algorithm that sends gradients still
 * sends: zeros, with weight 0. lr is the inner rate, for the algorithms that make the step
 * themselves. */
int pl_outer_before_step(struct pl_outer *o, float *x, float *g, double lr);
int pl_outer_after_step(struct pl_outer *o, float *x);
/* message->data is the state's, valid until the next call. */
int pl_outer_message(struct pl_outer *o, struct pl_outer_message *message, float *x, float *g);
/* `in` in the order of ranks, the own one among them: sums have that order. Messages of weight 0,
 * of a wrong length, with a NaN or with an index out of bounds are left out, by all peers alike: a
 * broken one costs its sender its say, and the others nothing. count 0: the exchange has failed. */
int pl_outer_apply(struct pl_outer *o, float *x, float *g, const struct pl_outer_message *in,
                   int count);

/* An exchange that overlaps with steps has ended: its mean becomes state, and pl_outer_apply takes
 * it from there, whatever its arguments. 1: there is a mean; 0: no message counts. */
int pl_outer_arrive(struct pl_outer *o, const struct pl_outer_message *in, int count);
/* Inner steps between two messages of a peer; 1 where gradients travel. */
int pl_outer_period(const struct pl_outer_algorithm *algorithm, const struct pl_outer_setup *setup);
/* Inner steps that the first message comes sooner than a whole period: Streaming DiLoCo's tau. */
int pl_outer_lead(const struct pl_outer *o);
/* Cuts tensors into fragments of about equal size, one after the other. None is empty unless there
 * are fewer tensors than fragments. */
void pl_outer_cut(struct pl_outer_tensor *tensors, int count, int fragments);

/* Bytes that one peer sends, a step, exactly: the sum over a whole cycle, divided by its steps. */
double pl_outer_bytes_per_step(const struct pl_outer *o);

/* All of the state, for checkpoints and newcomers, at any moment, also between SEND and RECEIVE;
 * bytes in flight are the transport's. Its size grows by the latest message of an algorithm that
 * may take it back, until the exchange is applied. load refuses (PL_EFORMAT) a state of another
 * algorithm or of other tensors, and then changes nothing. */
size_t pl_outer_state_bytes(const struct pl_outer *o);
int pl_outer_save(const struct pl_outer *o, uint8_t *out);
int pl_outer_load(struct pl_outer *o, const uint8_t *in, size_t bytes, struct pl_err *err);
/* PL_EFORMAT: a number of the loaded state is not finite, or negative where none can be. */
int pl_outer_check(const struct pl_outer *o);
/* What all peers share of it, in one form at all of them: for newcomers, with nothing in flight. No
 * buffer of this peer's own, and no message. load refuses (PL_EFORMAT) what is not finite as well,
 * and changes nothing then; buffers of this peer's own stay. */
size_t pl_outer_shared_bytes(const struct pl_outer *o);
int pl_outer_save_shared(const struct pl_outer *o, uint8_t *out);
int pl_outer_check_shared(const struct pl_outer *o, const uint8_t *in, struct pl_err *err);
int pl_outer_load_shared(struct pl_outer *o, const uint8_t *in, struct pl_err *err);
/* After load: the state was another peer's. State shared by all peers stays; that peer's own, its
 * error feedback and its latest message, becomes zero. That peer will still send it, and it must
 * not count twice. */
int pl_outer_join(struct pl_outer *o);

/* --- for the algorithms ----------------------------------------------------------------------- */

/* Counters: inner steps; outer steps; inner steps that were not skipped, and how many of them there
 * were at the last message, and when this peer's change last was empty (pl_outer_restart). From
 * PL_OUTER_OWN on, an algorithm's own. */
enum {
    PL_OUTER_STEPS,
    PL_OUTER_ROUNDS,
    PL_OUTER_TAKEN,
    PL_OUTER_SENT,
    PL_OUTER_DELIVERED,
    PL_OUTER_OWN,
    /* peers of the exchange whose mean has arrived and is not applied yet; 0: there is none */
    PL_OUTER_ARRIVED = PL_OUTER_COUNTERS_MAX - 1
};
/* For apply: 1, and the mean is in the buffer "mean", which the algorithm has added; 0: none. */
int pl_outer_arrived(struct pl_outer *o, const struct pl_outer_message *in, int count);

/* Delta_r is empty: the others have received it, it held a NaN and is dropped, or the state has
 * just come from another peer. */
void pl_outer_restart(struct pl_outer *o);
/* 1: Delta_r holds inner steps, also such as were taken before a failed exchange. */
int pl_outer_has_change(const struct pl_outer *o);

/* Adds a zeroed buffer to the state; NULL without memory, so that open returns PL_ENOMEM.
 * pl_outer_add_own: one that is this peer's alone. */
void *pl_outer_add(struct pl_outer *o, const char *name, size_t bytes, int on_host);
void *pl_outer_add_own(struct pl_outer *o, const char *name, size_t bytes, int on_host);
/* The buffer of that name, or NULL. */
float *pl_outer_get(const struct pl_outer *o, const char *name);

/* Steps shared by several algorithms. Before a step: take it; or send its gradient. After it: ask
 * for the next gradient; or send every H steps. Bytes per step of a coded vector every H steps. phi
 * = x, and a momentum. */
int pl_outer_take_step(struct pl_outer *o, float *x, float *g, double lr);
int pl_outer_send_gradient(struct pl_outer *o, float *x, float *g, double lr);
int pl_outer_next_gradient(struct pl_outer *o, float *x);
int pl_outer_send_every_H(struct pl_outer *o, float *x);
double pl_outer_vector_per_round(const struct pl_outer *o);
int pl_outer_open_phi(struct pl_outer *o, const float *x);
/* State in double precision: of small terms by the thousand, or of differences of near numbers. */
double *pl_outer_doubles(const struct pl_outer *o, const char *name);
/* out (n) = x (n) of the device, and x (n) = in (n), rounded. PL_OK, PL_ENOMEM or be's error. */
int pl_outer_read(const struct pl_outer *o, double *out, const float *x);
int pl_outer_write(const struct pl_outer *o, float *x, const double *in);
/* PL_EUSE unless the settings `chunk` and `topk` are in their ranges. */
int pl_outer_check_chunks(const struct pl_outer *o, struct pl_err *err);
/* The message Delta_r = from - x, of weight 0 without inner steps. */
int pl_outer_send_change(struct pl_outer *o, struct pl_outer_message *out, const float *from,
                         const float *x);

/* ---- coding.c ---- */

/* Bytes of n values as they travel. */
size_t pl_outer_coded_bytes(enum pl_outer_coding coding, size_t n);
/* o->out = x (n, the backend's), coded. */
int pl_outer_encode(struct pl_outer *o, const float *x, size_t n);
/* The weighted mean, or by setup.clip CenteredClip, of coded values (n) at byte `at` of each
 * message of `bytes`, summed in the order of the messages. Messages of another length than `bytes`,
 * or with a NaN, are left out. With a coding of fewer bits the mean is coded again, and all peers
 * use the decoded values. mean: the backend's. *total: the sum of the weights that count; if it is
 * 0, mean is not written. */
int pl_outer_mean(struct pl_outer *o, float *mean, double *total, const struct pl_outer_message *in,
                  int count, size_t bytes, size_t at, size_t n);
/* Makes o->out hold at least this many bytes. */
int pl_outer_reserve(struct pl_outer *o, size_t bytes);

#ifdef __cplusplus
}
#endif
#endif
