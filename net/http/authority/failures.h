/* failures.h - failed attempts by network, in a table of fixed size. An engine: no clock. */
#ifndef PL_HTTP_FAILURES_H
#define PL_HTTP_FAILURES_H

#include "net/http/server/slots.h"

#define FAILURES_NETWORKS_MAX 1024 /* 32 KiB; a count that is pushed out begins again at 1 */
#define FAILURES_WINDOW_S 60.0

struct failures {
    struct {
        struct http_address network;
        unsigned count;
        double until; /* s: the count ends; 0: a free place */
    } of[FAILURES_NETWORKS_MAX];
};

/* Counts one. Returns how many the address's network (slots.h) has had in this minute. */
unsigned failures_add(struct failures *f, const struct http_address *from, double now);

#endif
