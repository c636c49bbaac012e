/* exchange.h - a protocol's stream with its time limit, from the question to the answer: one that
 * another peer has opened to ask us, or one of ours. All on the loop's thread. */
#ifndef PL_HOST_EXCHANGE_H
#define PL_HOST_EXCHANGE_H

#include "host.h"

/* The first member of the protocol's own struct, if it has more to remember. */
struct exchange {
    struct host *host;
    struct stream *stream; /* closed with it; NULL: none yet, or it was handed to another owner */
    struct timer timer;    /* started by the protocol */
    struct exchange **list, *next, *prev; /* list NULL: in none */
};

/* `size` bytes for the protocol's struct, zero but for the exchange, which joins `list`, if that is
 * not NULL. NULL: no memory. */
void *exchange_new(struct host *h, struct exchange **list, size_t size);
/* The same for a stream that the other side has opened; `late` is called with it after limit_s.
 * NULL: no memory, and the stream is closed. */
void *exchange_serve(struct stream *c, struct exchange **list, size_t size,
                     const struct stream_events *events, double limit_s, loop_fn *late);
/* Removes the exchange from its list, closes the stream and frees both. May be a timer's
 * callback. */
void exchange_end(void *exchange);
/* A stream_events.failed that ends the exchange: for those without a caller to notify. */
void exchange_failed(void *exchange, struct stream *c, int status, const char *why);

#endif
