/* rng.c - a random source that gives the same numbers on every machine: xoshiro256**
 * [Blackman & Vigna 2018], its state filled by splitmix64 so that neighbouring seeds give unrelated
 * sequences.
 *
 *   uniform   the upper 53 bits times 2^-53, in [0,1)
 *   below n   the remainder, after rejecting draws that would favour small ones
 *   normal    sqrt(-2 log u) cos(2 pi v): a point of a round normal distribution has this radius
 *             and this angle (Box and Muller) */
#include "rng.h"

#include <assert.h>
#include <math.h>

/* One step of a counter through a good hash: every seed, 0 too, fills the state with mixed bits. */
static uint64_t splitmix64(uint64_t *x)
{
    uint64_t z = (*x += 0x9E3779B97F4A7C15u);
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
    return z ^ (z >> 31);
}

static uint64_t rotl(uint64_t x, int k) { return (x << k) | (x >> (64 - k)); }

/* A stream is a sequence of its own under the same seed: one for each purpose. */
void pl_rng_init(struct pl_rng *rng, uint64_t seed, uint64_t stream)
{
    uint64_t x = seed;
    x = splitmix64(&x) ^ (stream * 0xD1342543DE82EF95u);
    for (int i = 0; i < 4; i++) rng->s[i] = splitmix64(&x);
}

/* xoshiro256**: shifts and rotations move the state, 5 and 9 scramble the output. */
uint64_t pl_rng_u64(struct pl_rng *rng)
{
    uint64_t *s = rng->s, result = rotl(s[1] * 5, 7) * 9, t = s[1] << 17;
    s[2] ^= s[0];
    s[3] ^= s[1];
    s[1] ^= s[2];
    s[0] ^= s[3];
    s[2] ^= t;
    s[3] = rotl(s[3], 45);
    return result;
}

double pl_rng_uniform(struct pl_rng *rng) { return (double)(pl_rng_u64(rng) >> 11) * 0x1p-53; }

uint64_t pl_rng_below(struct pl_rng *rng, uint64_t n)
{
    uint64_t limit, x;
    assert(n > 0);
    limit = UINT64_MAX - UINT64_MAX % n; /* the largest multiple of n: above it would be biased */
    do x = pl_rng_u64(rng);
    while (x >= limit);
    return x % n;
}

double pl_rng_normal(struct pl_rng *rng)
{
    double u = 1.0 - pl_rng_uniform(rng), v = pl_rng_uniform(rng); /* u > 0 for the logarithm */
    return sqrt(-2.0 * log(u)) * cos(6.283185307179586 * v);
}
