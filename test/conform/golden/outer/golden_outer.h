/* golden_outer.h - replaying outer optimizers: a file's tensors, peers in lock step, comparison. */
#ifndef PL_GOLDEN_OUTER_H
#define PL_GOLDEN_OUTER_H

#include "test/conform/golden/golden.h"
#include "ref/outer/outer.h"

#define OUTER_PEERS_MAX 32 /* of a golden file; the largest has 6 */
#define OUTER_QUEUE_MAX 16 /* exchanges under way at once */
#define OUTER_TENSORS_MAX 64

/* A file of the optimizers: tensors p0, p1, ... flattened one after the other. */
struct outer_file {
    struct golden *g;
    struct st_file *f;
    json_t *config;
    struct pl_outer_tensor tensors[OUTER_TENSORS_MAX];
    int count;
    size_t n;
    double scale; /* largest start parameter: errors are relative to it at least */
};

/* Reads shapes and `prefix`p<i>.init ("" or "r0."). 0 after a golden_fail line. */
int outer_open(struct outer_file *r, struct golden *g, const char *path, const char *prefix);
void outer_close(struct outer_file *r);
double outer_real(const struct outer_file *r, const char *key, double otherwise);
long outer_long(const struct outer_file *r, const char *key, long otherwise);
/* out (n) = all tensors named PREFIXp<i>.NAME, row `row` of their first axis if it is not negative.
 * 0 if one is missing. */
int outer_read(const struct outer_file *r, float *out, const char *prefix, const char *name,
               long row);
/* Compares got (n, the backend's) with those tensors: the error of each relative to its largest
 * entry or to the start parameters'. `row` as above. Those that the file lacks, and a `fragment`
 * other than the given (-1: all), are left out. Not-a-number must be where the file has it. */
void outer_compare(struct outer_file *r, const char *prefix, const char *name, long row,
                   const float *got, int fragment, double allowed);

/* Peers in lock step, with their messages. */
struct outer_swarm {
    struct golden *g;
    int peers, next;
    struct pl_outer *o[OUTER_PEERS_MAX];
    float *x[OUTER_PEERS_MAX], *grad[OUTER_PEERS_MAX]; /* the backend's */
    double weight[OUTER_PEERS_MAX];
    struct pl_outer_message queue[OUTER_QUEUE_MAX][OUTER_PEERS_MAX];
    int head, tail; /* of the queue: oldest exchange, next free place */
    size_t n;
    /* Called with the messages of an exchange before it begins, or NULL; and before it ends: returns
     * 0 if it fails. */
    void (*sent)(void *context, const struct pl_outer_message *in);
    int (*arrives)(void *context);
    void *context;
};

/* All peers begin at init (peers, n) on the host. 0 after a golden_fail line. */
int outer_swarm_open(struct outer_swarm *s, struct golden *g, const char *algorithm,
                     const struct pl_outer_setup *setup, const float *init);
void outer_swarm_close(struct outer_swarm *s);
/* One inner step's gradient of peer k (n, on the host), then the step itself by `inner`, called with
 * the context if the algorithm wants it. */
int outer_swarm_step(struct outer_swarm *s, int k, const float *g, double lr,
                     int (*inner)(void *context, int k, float *x, const float *g), void *context);
/* All exchanges that are due: until every peer wants its next gradient. */
int outer_swarm_exchange(struct outer_swarm *s);

/* Inner optimizers of the files. */
struct outer_inner {
    const struct pl_backend *be;
    const struct outer_file *r;
    enum { INNER_SGD, INNER_ADAM, INNER_MUON } kind;
    double lr, beta1, beta2, eps, decay, clip;
    double muon_lr, muon_momentum, muon_decay; /* of matrices, with INNER_MUON */
    int matrices; /* the first this many tensors are Muon's; -1: those of two axes or more */
    long t[OUTER_PEERS_MAX];
    float *m[OUTER_PEERS_MAX], *v[OUTER_PEERS_MAX]; /* the backend's */
};
/* From config.inner ({"kind": "sgd" | "adam" | "adamw", ...}). */
int outer_inner_open(struct outer_inner *in, const struct outer_file *r, const json_t *config,
                     int peers);
void outer_inner_close(struct outer_inner *in);
/* A outer_swarm_step's inner; context is the struct outer_inner. */
int outer_inner_step(void *context, int k, float *x, const float *g);

/* The kinds of files. */
void golden_outer_nesterov(struct golden *g, const char *path);
void golden_outer_diloco(struct golden *g, const char *path);
void golden_outer_muon(struct golden *g, const char *path);
void golden_outer_newton_schulz(struct golden *g, const char *path);
void golden_outer_streaming(struct golden *g, const char *path);
void golden_outer_delayed(struct golden *g, const char *path);
void golden_outer_eager(struct golden *g, const char *path);
void golden_outer_noloco(struct golden *g, const char *path);
void golden_outer_dct(struct golden *g, const struct st_file *f, const json_t *config);
void golden_outer_demo(struct golden *g, const struct st_file *f, const json_t *config);
void golden_outer_sides(struct golden *g, const json_t *doc);
void golden_outer_pack(struct golden *g, const struct st_file *f, const json_t *config);
void golden_outer_quantizer(struct golden *g, const struct st_file *f, const json_t *config);
void golden_outer_sparseloco(struct golden *g, const struct st_file *f, const json_t *config);
void golden_outer_aggregate(struct golden *g, const struct st_file *f, const json_t *config);
void golden_outer_powersgd(struct golden *g, const struct st_file *f, const json_t *config);
void golden_outer_powersgd_shapes(struct golden *g, const json_t *doc);
void golden_outer_e3m0(struct golden *g, const struct st_file *f, const json_t *config);
void golden_outer_e3m0_exchange(struct golden *g, const struct st_file *f, const json_t *config);
void golden_outer_rows8(struct golden *g, const struct st_file *f, const json_t *config);
void golden_outer_sparta(struct golden *g, const struct st_file *f, const json_t *config);
void golden_outer_node0(struct golden *g, const struct st_file *f, const json_t *config);

/* The shape config.shapes[i] as a tensor at offset 0; 0 if there is none. */
int outer_shape(struct pl_outer_tensor *t, const json_t *shapes, size_t i);
/* f's tensor by a name as printf makes it. */
__attribute__((format(printf, 2, 3))) const struct st_tensor *outer_find(const struct st_file *f,
                                                                         const char *format, ...);
/* Its values as float32 or int32, with a golden_fail line if it is missing or has not n elements
 * (SIZE_MAX: any); free with pl_free. */
__attribute__((format(printf, 4, 5))) float *outer_floats(struct golden *g, const struct st_file *f,
                                                          size_t n, const char *format, ...);
__attribute__((format(printf, 4, 5))) int32_t *outer_ints(struct golden *g, const struct st_file *f,
                                                          size_t n, const char *format, ...);

#endif
