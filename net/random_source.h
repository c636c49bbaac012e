/* random_source.h - random numbers for decisions of the protocol: OpenSSL's, which are
 * unpredictable, or a caller's own, to repeat a swarm exactly. Keys and nonces are never drawn
 * here. */
#ifndef PL_RANDOM_SOURCE_H
#define PL_RANDOM_SOURCE_H

#include "../ref/base.h"

struct random_source {
    int (*draw)(void *context, uint8_t *bytes, size_t n); /* PL_OK or PL_ENOMEM; NULL: OpenSSL's */
    void *context;
};

/* n random bytes. PL_ENOMEM: OpenSSL has none. */
int random_source_bytes(const struct random_source *c, uint8_t *bytes, size_t n);
/* Uniform below n, n >= 1. 0 if the source has failed. */
size_t random_source_below(const struct random_source *c, size_t n);

#endif
