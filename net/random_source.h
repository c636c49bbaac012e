/* random_source.h - random numbers that decide who does what: OpenSSL's, which nobody can
 * foresee; or a caller's own, where a swarm is to be repeated as it was. Keys and nonces are
 * never drawn here. */
#ifndef PL_RANDOM_SOURCE_H
#define PL_RANDOM_SOURCE_H

#include "../ref/base.h"

struct random_source {
    int (*draw)(void *context, uint8_t *bytes, size_t n); /* PL_OK or PL_ENOMEM; NULL: OpenSSL's */
    void *context;
};

/* n random bytes. PL_ENOMEM: there are none. */
int random_source_bytes(const struct random_source *c, uint8_t *bytes, size_t n);
/* Uniform below n, n >= 1. 0 if the source has failed. */
size_t random_source_below(const struct random_source *c, size_t n);

#endif
