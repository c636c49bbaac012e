/* sample.h - from logits to one id: guidance, filters, temperature, the draw. Everything here is
 * host memory: one row of logits a token is little work. [TTT 3.4]
 * [top-k: Fan et al. 2018] [top-p: Holtzman et al. 2020] */
#ifndef PL_SAMPLE_H
#define PL_SAMPLE_H

#include "rng.h"

#ifdef __cplusplus
extern "C" {
#endif

/* As in the reference run's script: 0, 1.0, 1.0 unless given. */
struct pl_sampling {
    int top_k;          /* 0: off */
    double top_p;       /* 1: off */
    double temperature; /* > 0 */
};

/* keep (V) = 1 for what may be drawn, of logits z (V):
 *   top_k > 0  drops what is strictly below the k-th largest: ties at the threshold all stay
 *   top_p < 1  of the rest, in falling order, drops what has more than top_p of the probability
 *              before it: the one that crosses the threshold stays, and the first always
 *              (equal logits go in the order of their columns)
 * Both look at the logits before the temperature does. PL_OK or PL_ENOMEM. */
int pl_sample_filter(uint8_t *keep, const float *z, int V, int top_k, double top_p);
/* The training branch's filter: keeps exactly max(1, floor((1 - fraction) V)) of the largest. */
int pl_sample_filter_fraction(uint8_t *keep, const float *z, int V, double fraction);

/* p (V) = softmax of z / temperature over the kept tokens, zero elsewhere. p may be z. */
void pl_sample_softmax(float *p, const float *z, const uint8_t *keep, int V, double temperature);

/* One id with probability p[id] (p need not sum to 1 exactly); takes one number from rng. */
int pl_sample_draw(const float *p, int V, struct pl_rng *rng);

/* All of it: filter, then temperature, then softmax, then draw. PL_OK or PL_ENOMEM. */
int pl_sample(int *id, const float *z, int V, const struct pl_sampling *how, struct pl_rng *rng);

/* The largest of z, the first among equals. */
int pl_sample_greedy(const float *z, int V);

/* Classifier-free guidance, which the package has and the reference run did not use: mixed = blank
 * + (given - blank) * scale, of logits with the caption and without. mixed may be either. */
void pl_sample_guide(float *mixed, const float *given, const float *blank, size_t n, double scale);

#ifdef __cplusplus
}
#endif
#endif
