/* random_source.h - random numbers that decide who does what: OpenSSL's, which nobody can foresee; or a
 * caller's own, where a swarm is to be repeated as it was. Keys and nonces are never drawn here. */
#ifndef PL_CHANCE_H
#define PL_CHANCE_H

#include "../ref/base.h"

struct chance {
    int (*draw)(void *context, uint8_t *bytes, size_t n); /* PL_OK or PL_ENOMEM; NULL: OpenSSL's */
    void *context;
};

/* n random bytes. PL_ENOMEM: there are none. */
int chance_bytes(const struct chance *c, uint8_t *bytes, size_t n);
/* Uniform below n, n >= 1. 0 where there are no random numbers. */
size_t chance_below(const struct chance *c, size_t n);

#endif
