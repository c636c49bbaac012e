/* fair.h - which of those that wait gives its place to a newcomer, when all places are taken? One
 * of the network that has the most of them, if these are more than the newcomer's network has: an
 * identity costs nothing, an address does. Linear in the number that wait. */
#ifndef PL_FAIR_H
#define PL_FAIR_H

#include "ref/base.h"

#define FAIR_BUCKETS 256u

/* Zero-initialise, count all that wait, name the newcomer; then ask about each that may go, the
 * newest first: the last for which the answer is 1 has to go. Networks are hashes with a secret
 * key, so nobody chooses its bucket; two in one bucket count as one. */
struct fair {
    size_t count[FAIR_BUCKETS];
    size_t most;
};

static inline void fair_count(struct fair *f, uint64_t network)
{
    f->count[network % FAIR_BUCKETS]++;
}

static inline void fair_newcomer(struct fair *f, uint64_t network)
{
    f->most = f->count[network % FAIR_BUCKETS] + 1;
}

static inline int fair_has_more(struct fair *f, uint64_t network)
{
    size_t n = f->count[network % FAIR_BUCKETS];
    if (n <= f->most) return 0;
    f->most = n;
    return 1;
}

#endif
