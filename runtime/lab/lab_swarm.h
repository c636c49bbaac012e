/* lab_swarm.h - a swarm on a virtual clock: peers compute real gradients and run the real
 * algorithms of ref/outer/outer.h; only the time that computing and sending take is simulated.
 * README.md has the event model. */
#ifndef PL_LAB_SWARM_H
#define PL_LAB_SWARM_H

#include "lab_links.h"
#include "ref/outer/outer.h"

#include <stdio.h>

#define LAB_LEAVES_MAX 1024

/* The model that is trained. x and g are backend memory of n floats. */
struct lab_model {
    void *context;
    const struct pl_backend *be;
    const struct pl_outer_tensor *tensors;
    int count;
    size_t n;
    int samples; /* of a gradient */
    /* g = the mean gradient at x of the samples that (peer, step) draw. */
    int (*gradient)(void *context, float *g, double *loss, const float *x, int peer, uint64_t step,
                    struct pl_err *err);
    /* The inner optimizer of this peer: x from g. */
    int (*step)(void *context, int peer, float *x, float *g, double lr);
    int (*held_out)(void *context, double *loss, const float *x, struct pl_err *err);
    /* The inner optimizer's state, for checkpoints and newcomers; all bytes 0: a new one's. */
    size_t (*state_bytes)(void *context, int peer);
    int (*save)(void *context, int peer, uint8_t *out);
    int (*load)(void *context, int peer, const uint8_t *in);
};

/* A peer leaves, without a word, and may come back later; then it downloads the state. */
struct lab_leave {
    int peer;
    double at, back; /* s; INFINITY: it stays away */
};

struct lab_setup {
    const struct pl_outer_algorithm *algorithm;
    struct pl_outer_setup outer; /* without tensors, rank and peers */
    int peers;
    int all_reduce; /* 1: reducers average, whatever algorithm->is_reduced says */
    int groups;     /* of a grid, drawn anew for each exchange; 0, 1: all average together */
    struct lab_link link[LAB_PEERS_MAX];
    double sample_s[LAB_PEERS_MAX];         /* time of one sample's gradient */
    double straggle_share, straggle_factor; /* share of slow steps; their time, as a multiple */
    double fail_share;                      /* of exchanges: they fail at their end, for all */
    struct lab_leave leave[LAB_LEAVES_MAX];
    int leaves;
    double lr;
    uint64_t warmup, steps; /* steps: gradients of each peer; the run ends after peers * steps */
    uint64_t evaluate;      /* gradients of all peers between two evaluations */
    uint64_t seed;
};

enum lab_activity { LAB_COMPUTES, LAB_WAITS, LAB_DOWNLOADS, LAB_AWAY };

enum lab_event_kind { LAB_EVALUATED, LAB_SPENT, LAB_EXCHANGED };
struct lab_event {
    enum lab_event_kind kind;
    double from, time;
    /* EVALUATED; loss: held-out; bytes: sent by all peers; utilization: of the time of present
     * peers the share in which they computed */
    uint64_t samples;
    double loss, train_loss, bytes, utilization;
    /* SPENT: a peer has done this from `from` to `time` */
    int peer;
    enum lab_activity activity;
    /* EXCHANGED */
    uint64_t number;
    int members, has_failed;
};
/* A status other than PL_OK ends the run with it. */
typedef int lab_event_fn(void *context, const struct lab_event *e, struct pl_err *err);

struct lab_swarm;

/* All peers begin at x (n, backend memory). Model, setup and their pointers are borrowed. */
int lab_swarm_open(struct lab_swarm **out, const struct lab_setup *setup,
                   const struct lab_model *model, const float *x, lab_event_fn *event,
                   void *context, struct pl_err *err);
void lab_swarm_close(struct lab_swarm *s);

/* Goes on to the next moment at which something happens. PL_EAGAIN: there are more; PL_OK: the run
 * has come to its end. */
int lab_swarm_advance(struct lab_swarm *s, struct pl_err *err);

double lab_swarm_time(const struct lab_swarm *s);
uint64_t lab_swarm_gradients(const struct lab_swarm *s);
const struct lab_traffic *lab_swarm_traffic(const struct lab_swarm *s, int peer);
/* phi, on which the peers agree, or x if the algorithm has no phi: of one peer, or of the first
 * present peer. */
const float *lab_swarm_agreed(const struct lab_swarm *s, int peer);
const float *lab_swarm_common(const struct lab_swarm *s);

/* Everything, to a file or from one; a loaded swarm goes on bit for bit. load: of the same setup
 * and model, which the caller has checked; PL_EFORMAT: the file is damaged, the swarm useless. */
int lab_swarm_save(const struct lab_swarm *s, FILE *file);
int lab_swarm_load(struct lab_swarm *s, FILE *file, struct pl_err *err);

#endif
