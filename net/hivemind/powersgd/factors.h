/* factors.h - one peer's part in PowerSGD: the factors that it sends in a round's two phases, and
 * the error that it keeps for the next one. [Vogels et al. 2019, arXiv 1905.13727, alg. 1, 2] [spec
 * wire-extensions A]
 *
 *   begin     W = M + G,  P = W Q           then phase P: the group averages all P
 *   project   P orthonormal,  Q' = W^T P    then phase Q: all Q', and the tensors not compressed
 *   finish    G = P Q'^T,  M = W - G,  Q = Q'
 *
 * M and Q change in `finish` only. A failed round leaves them unchanged, so a gradient never counts
 * twice, however many groups it is tried in.
 *
 * The functions in the middle may take long: an averager calls them on a helper thread. */
#ifndef PL_FACTORS_H
#define PL_FACTORS_H

#include "net/hivemind/messages/tensor_message.h"
#include "net/random_source.h"
#include "ref/backend.h"

/* hivemind's min_compression_ratio: a tensor is sent uncompressed if its factors would save less
 * than half of it. */
#define FACTORS_LEAST_GAIN 0.5
#define FACTORS_RANK_USUAL 4   /* of the first peer of a run, if its user names none */
#define FACTORS_RANK_MAX 16384 /* half of the widest published models' side: more never pays */

/* Limit of the error's norm, relative to the largest norm of this peer's gradients so far. With
 * hivemind's rule and different data the error grows by up to two a round, so no honest run of
 * thousands of rounds reaches the limit. A reducer's false mean of 1e18 does: then the error is set
 * to zero, and is not sent to others. */
#define FACTORS_ERROR_MAX 1e4

/* The largest value that is sent: groupmates accept up to PART_VALUE_MAX, and the sum over 1000
 * peers must fit. */
#define FACTORS_VALUE_MAX 1e15f

/* Steps of a group after which the error of a peer that was away is worth less than none. With
 * hivemind's rule all errors of a group sum to what the run has not received. Without this peer's,
 * the others' are sent, and gradients make up for that, within some rounds; then its own would be
 * sent for nothing. Simulated (4 peers, 48 x 32, r = 4): the distance from the optimum in the next
 * 100 rounds is 3.8 with the error and 8.1 without it after 2 rounds, 5.0 and 7.4 after 10, but 6.9
 * and 3.9 after 50. The textbook's error loses nothing by waiting: 3.6 and 3.7. */
#define FACTORS_BEHIND_MAX 16

enum factors_feedback {
    /* M = W - P Q'^T with the group's Q': hivemind's rule. The difference between this peer's
     * gradients and the group's mean stays in M permanently; over all peers these differences sum
     * to zero. */
    FACTORS_GROUP,
    /* M = W - P Q_i^T with the Q_i of this peer: the textbook's rule. Peers with different rules in
     * one group diverge. */
    FACTORS_OWN
};

struct factors_options {
    const struct pl_backend *be; /* borrowed; computes in host memory */
    size_t tensors;
    const struct schema_tensor *schema; /* (tensors) of the gradients */
    const enum pl_compression *method;  /* (tensors) of those that are not compressed */
    enum pl_compression small, large;   /* of factors below PL_WIRE_ADAPTIVE values, and others */
    int rank;
    enum factors_feedback feedback;
    struct random_source random; /* of the first Q */
};

/* The tensors that an all-reduce averages in one phase. */
struct factors_phase {
    size_t tensors;
    size_t *elements;            /* (tensors) */
    enum pl_compression *method; /* (tensors) */
    float **tensor;              /* (tensors): factors; behind them, in phase Q, gradients */
};
enum { FACTORS_P, FACTORS_Q, FACTORS_PHASES };

/* A compressed tensor as a matrix (a,b). */
struct factors_matrix {
    size_t index; /* among the tensors */
    int a, b;
    float *M, *Q;          /* (a,b), (b,r): from round to round */
    float *P, *next, *own; /* (a,r), (b,r), (b,r) or NULL: of one round; own: for FACTORS_OWN */
};

struct factors {
    const struct pl_backend *be;
    int rank;
    enum factors_feedback feedback;
    struct random_source random;
    struct factors_matrix *matrix;
    size_t count;
    struct factors_phase phase[FACTORS_PHASES];
    size_t tensors;
    size_t scratch_n;
    float *scratch;   /* (the largest matrix) */
    double largest;   /* norm of a gradient so far */
    const char *note; /* a sentence about the last round; NULL: nothing unusual */
};

/* How many of the tensors are compressed at this rank. */
size_t factors_count(const struct schema_tensor *schema, size_t tensors, int rank);
/* Rows a and columns b of the matrix that a tensor is compressed as; 0: it is not. */
int factors_shape(size_t *a, size_t *b, const struct schema_tensor *tensor, int rank);

/* PL_EUSE for a rank that makes no sense, PL_ENOMEM. */
int factors_open(struct factors **f, const struct factors_options *o, struct pl_err *err);
void factors_close(struct factors *f); /* NULL may be closed */

/* gradient: (tensors) host memory, borrowed until the round has ended, and changed by phase Q and
 * by `finish` alone. PL_EFORMAT: the gradient is too large to be sent; otherwise the status of the
 * backend. */
int factors_begin(struct factors *f, float *const *gradient);
int factors_project(struct factors *f, float *const *gradient);
int factors_finish(struct factors *f, float *const *gradient);

/* What goes from round to round: M and Q, as bytes for a checkpoint. Not during a computation. */
size_t factors_state_bytes(const struct factors *f);
void factors_save(const struct factors *f, uint8_t *data);
/* behind: steps of the group since these bytes. If there are any, its present Q stays
 * (factors_begin_with), and M is taken with FACTORS_OWN, or if they are FACTORS_BEHIND_MAX at most.
 * PL_EUSE with a sentence: of another model or rank; nothing has changed. PL_EFORMAT: the same for
 * values that are not finite. */
int factors_load(struct factors *f, const uint8_t *data, size_t n, int64_t behind,
                 struct pl_err *err);
/* The first round begins with these Q (n values of all matrices) and not with random ones: those of
 * another peer, so that the group's power iteration goes on. Of another n: nothing happens. */
void factors_begin_with(struct factors *f, const float *Q, size_t n);
/* 0: these are no such bytes. */
int factors_saved_rank(const uint8_t *data, size_t n);

#endif
