/* exchange.c - what all streams of protocols have in common: a list, a time limit, an end. */
#include "exchange.h"
#include "net/list.h"

#include <stdlib.h>

void *exchange_new(struct host *h, struct exchange **list, size_t size)
{
    struct exchange *x = calloc(1, size);
    if (!x) return NULL;
    x->host = h;
    x->list = list;
    if (list) list_add(list, x);
    return x;
}

void *exchange_serve(struct stream *c, struct exchange **list, size_t size,
                     const struct stream_events *events, double limit_s, loop_fn *late)
{
    struct exchange *x = exchange_new(stream_host(c), list, size);
    if (!x) {
        stream_close(c);
        return NULL;
    }
    x->stream = c;
    timer_start(host_loop(x->host), &x->timer, limit_s, late, x);
    stream_listen(c, events, x);
    return x;
}

void exchange_end(void *exchange)
{
    struct exchange *x = exchange;
    if (x->list) list_remove(x->list, x);
    timer_stop(&x->timer);
    stream_close(x->stream);
    free(x);
}

void exchange_failed(void *exchange, struct stream *c, int status, const char *why)
{
    exchange_end(exchange);
}
