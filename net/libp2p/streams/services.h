/* services.h - the table of protocols that a host serves. */
#ifndef PL_SERVICES_H
#define PL_SERVICES_H

#include "stream.h"

struct service {
    char *protocol;
    stream_opened *opened;
    void *context;
};

/* Zero-initialize to begin. */
struct services {
    struct service list[HOST_PROTOCOLS_MAX];
    size_t count;
};

/* The index of a protocol's name, which is not zero-terminated; -1: it is not served. */
int services_find(const struct services *t, const char *name, size_t n);
/* PL_OK; PL_EUSE: it is served already; PL_ELIMIT: HOST_PROTOCOLS_MAX are; PL_ENOMEM. */
int services_add(struct services *t, const char *protocol, stream_opened *opened, void *context);
/* 1 if it was there. */
int services_remove(struct services *t, const char *protocol);
void services_clear(struct services *t);

#endif
