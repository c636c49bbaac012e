/* rpc_talk.h - a conversation over a streaming RPC, for the tests of such calls: one side sends,
 * the other sends everything back. Included by one file of each test program. */
#ifndef PL_TEST_RPC_TALK_H
#define PL_TEST_RPC_TALK_H

#include "test/unit/libp2p/host_sides.h"

#include <unistd.h>

struct talk {
    struct side *side;
    const struct peer_id *to;
    const char *name;
    struct rpc_stream *s;
    const uint8_t *data;
    size_t n;
    int to_send, sent, received, wrong; /* messages */
    int over, failed, status;
    size_t queued_most;
    char why[512];
    int quiet; /* begins without credit */
};

static inline void talk_more(void *context, struct rpc_stream *s)
{
    struct talk *t = context;
    while (t->sent < t->to_send && !rpc_queued(s)) {
        t->sent++;
        rpc_send(s, t->data, t->n);
    }
    if (t->sent == t->to_send) rpc_end(s);
}

static inline void talk_message(void *context, struct rpc_stream *s, const uint8_t *data, size_t n)
{
    struct talk *t = context;
    note(&t->received);
    if (t->received > 1000) rpc_pause(s); /* the same forever: a failure, not a hang */
    t->wrong += n != t->n || memcmp(data, t->data, n);
}

static inline void talk_end(void *context, struct rpc_stream *s)
{
    struct talk *t = context;
    rpc_close(s);
    t->s = NULL;
    note(&t->over);
}

static inline void talk_failed(void *context, struct rpc_stream *s, int status, const char *why)
{
    struct talk *t = context;
    t->status = status;
    snprintf(t->why, sizeof t->why, "%s", why);
    rpc_close(s);
    t->s = NULL;
    note(&t->failed);
    note(&t->over);
}

static const struct rpc_stream_events talk_events = { talk_message, talk_end, talk_failed,
                                                      talk_more };

static inline void talk_here(void *context)
{
    struct talk *t = context;
    t->s = rpc_open(t->side->host, t->to, t->name, 16 << 20, LIMIT, &talk_events, t);
    if (t->quiet) rpc_pause(t->s);
    talk_more(t, t->s);
}

/* The server sends every message back. */
static inline void mirror_message(void *context, struct rpc_stream *s, const uint8_t *data,
                                  size_t n)
{
    rpc_send(s, data, n);
}

static inline void mirror_end(void *context, struct rpc_stream *s)
{
    rpc_end(s);
    rpc_close(s);
}

static int mirrors_failed;

static inline void mirror_failed(void *context, struct rpc_stream *s, int status, const char *why)
{
    rpc_close(s);
    note(&mirrors_failed);
}

static inline void mirror(void *context, struct rpc_stream *s)
{
    static const struct rpc_stream_events events = { mirror_message, mirror_end, mirror_failed,
                                                     NULL };
    rpc_listen(s, &events, context);
}

static inline void credit_here(void *context)
{
    struct talk *t = context;
    if (t->s) rpc_credit(t->s, 1);
}

#endif
