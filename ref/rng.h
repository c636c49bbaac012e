/* rng.h - one generator for everything that is drawn, so that a seed means the
 * same on every machine, backend and thread count. */
#ifndef PL_RNG_H
#define PL_RNG_H

#include "base.h"

#ifdef __cplusplus
extern "C" {
#endif

/* xoshiro256** [Blackman & Vigna 2018], seeded through splitmix64. The state is
 * plain data: copy it to fork a stream, store it to resume one. */
struct pl_rng {
    uint64_t s[4];
};

/* Different (seed, stream) pairs give unrelated sequences; use `stream` to keep
 * independent uses of one seed apart (initial values, shuffle, sampling). */
void pl_rng_init(struct pl_rng *rng, uint64_t seed, uint64_t stream);
uint64_t pl_rng_u64(struct pl_rng *rng);
/* Uniform in [0,1): the upper 53 bits. */
double pl_rng_uniform(struct pl_rng *rng);
/* Uniform in 0..n-1 without bias; n >= 1. */
uint64_t pl_rng_below(struct pl_rng *rng, uint64_t n);
/* Standard normal (Box-Muller, two uniforms a draw, no state kept between calls). */
double pl_rng_normal(struct pl_rng *rng);

#ifdef __cplusplus
}
#endif
#endif
