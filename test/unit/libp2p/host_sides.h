/* host_sides.h - two hosts over loopback, each with a thread of its own, for the tests of calls and
 * of streams. Included by one file of each test program. */
#ifndef PL_TEST_HOST_SIDES_H
#define PL_TEST_HOST_SIDES_H

#include "test/unit/net/await.h"
#include "net/libp2p/muxing/conn.h"
#include "net/libp2p/libp2p.h"
#include "net/libp2p/rpc/rpc.h"
#include "test/unit/unit.h"

#define LIMIT 60.0 /* s for anything; nothing here takes two on an idle machine */

/* --- two sides -------------------------------------------------------------------------------- */

struct side {
    struct loop *loop;
    struct identity me;
    struct host *host;
    struct multiaddr at;
};

static inline void read_address(void *context)
{
    struct side *s = context;
    host_addresses(s->host, &s->at, 1);
}

static inline void open_side_as(struct side *s, int listens, int securities, int relay)
{
    static const char *const listen[] = { "/ip4/127.0.0.1/tcp/0" };
    struct host_options o = { .me = &s->me,
                              .listen = listen,
                              .listen_count = (size_t)listens,
                              .securities = securities,
                              .relay = relay };
    struct pl_err err = { "" };
    memset(s, 0, sizeof *s);
    assert_int_equal(loop_open(&s->loop, &err), PL_OK);
    assert_int_equal(identity_make(&s->me, KEY_ED25519, &err), PL_OK);
    if (libp2p_open(&s->host, s->loop, &o, &err)) fail_msg("%s", err.text);
    loop_call(s->loop, read_address, s);
}

static inline void open_side(struct side *s, int listens, int securities)
{
    open_side_as(s, listens, securities, 0);
}

static inline void close_side(struct side *s)
{
    host_close(s->host);
    loop_close(s->loop);
    identity_clear(&s->me);
    memset(s, 0, sizeof *s);
}

struct teaching {
    struct side *pupil;
    const struct side *of;
};

static inline void teach_here(void *context)
{
    struct teaching *t = context;
    host_learn(t->pupil->host, &t->of->me.id, &t->of->at, 60);
}

static inline void teach(struct side *pupil, const struct side *of)
{
    struct teaching t = { pupil, of };
    loop_call(pupil->loop, teach_here, &t);
}

/* --- unary calls ------------------------------------------------------------------------------ */

struct asking {
    struct side *from;
    const struct peer_id *to;
    const char *name;
    const void *data;
    size_t n;
    double timeout_s;
    int answered, status;
    char error[512];
    struct bytes response;
    struct rpc_request *request;
};

static inline void on_answer(void *context, const struct rpc_result *r)
{
    struct asking *a = context;
    a->status = r->status;
    if (r->status) snprintf(a->error, sizeof a->error, "%s", r->error);
    else bytes_add(&a->response, r->data, r->n);
    note(&a->answered);
}

static inline void ask_here(void *context)
{
    struct asking *a = context;
    a->request = rpc_call_unary(a->from->host, a->to, a->name, a->data, a->n, a->timeout_s,
                                on_answer, a);
}

static inline void ask(struct asking *a)
{
    loop_call(a->from->loop, ask_here, a);
    assert_non_null(a->request);
}

static inline void ask_and_wait(struct asking *a)
{
    ask(a);
    assert_true(await_noted(&a->answered, 1, 2 * LIMIT));
}

struct serving {
    struct side *side;
    const char *name;
    rpc_unary_handler *handler;
    rpc_opened *opened;
    void *context;
    int rc;
};

static inline void serve_here(void *context)
{
    struct serving *s = context;
    s->rc = s->handler ? rpc_serve_unary(s->side->host, s->name, s->handler, s->context)
                       : rpc_serve_stream(s->side->host, s->name, 16 << 20, s->opened, s->context);
}

static inline void serve(struct side *side, const char *name, rpc_unary_handler *handler,
                         rpc_opened *opened, void *context)
{
    struct serving s = { side, name, handler, opened, context, 0 };
    loop_call(side->loop, serve_here, &s);
    assert_int_equal(s.rc, PL_OK);
}

static inline void echo(void *context, struct rpc_call *call, const uint8_t *data, size_t n)
{
    rpc_reply(call, data, n);
}

static inline void thirteen(void *context, struct rpc_call *call, const uint8_t *data, size_t n)
{
    rpc_reply_error(call, "ValueError('thirteen')");
}

static inline uint8_t *noise(size_t n, uint32_t seed)
{
    uint8_t *data = malloc(n + 1);
    for (size_t i = 0; i < n; i++) {
        seed = seed * 1664525u + 1013904223u;
        data[i] = (uint8_t)(seed >> 24);
    }
    return data;
}

#endif
