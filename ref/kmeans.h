/* kmeans.h - centres for a cloud of points: where a code book begins.
 * [Lloyd 1982] [k-means++: Arthur & Vassilvitskii 2007] */
#ifndef PL_KMEANS_H
#define PL_KMEANS_H

#include "rng.h"

#ifdef __cplusplus
extern "C" {
#endif

/* K centres (K,D) of points (n,D), n >= 1; host memory. Starts are drawn by squared distance from
 * those drawn before, so that a quarter of nearly equal points doesn't get a quarter of the
 * centres; then `rounds` of Lloyd's. A centre that loses all its points stays where it is.
 * PL_ENOMEM. */
int pl_kmeans(float *centre, int K, const float *point, size_t n, int D, int rounds,
              struct pl_rng *rng);

/* Moves the centres with idle[k] != 0 to the points farthest from every centre, one after the
 * other, so that no two of them share a corner. PL_ENOMEM. */
int pl_reseed(float *centre, const uint8_t *idle, int K, const float *point, size_t n, int D);

#ifdef __cplusplus
}
#endif
#endif
