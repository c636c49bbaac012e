/* host.c - two hosts over loopback, each with a thread of its own: calls, streams, refusals, ends. */
#include "../../net/libp2p/conn.h"
#include "../../net/libp2p/host.h"
#include "../../net/libp2p/rpc.h"

#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

/* --- two sides and a way to wait ---------------------------------------------------------------- */

struct side {
    struct loop *loop;
    struct identity me;
    struct host *host;
    struct multiaddr at;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;

static void note(int *flag)
{
    pthread_mutex_lock(&lock);
    ++*flag;
    pthread_cond_broadcast(&changed);
    pthread_mutex_unlock(&lock);
}

/* Until the flag has been noted n times; 0 after `limit_s`. */
static int await(const int *flag, int n, double limit_s)
{
    struct timespec until;
    int rc = 0, good;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += (time_t)limit_s;
    until.tv_nsec += (long)((limit_s - (double)(time_t)limit_s) * 1e9);
    if (until.tv_nsec >= 1000000000) {
        until.tv_sec++;
        until.tv_nsec -= 1000000000;
    }
    pthread_mutex_lock(&lock);
    while (*flag < n && !rc) rc = pthread_cond_timedwait(&changed, &lock, &until);
    good = *flag >= n;
    pthread_mutex_unlock(&lock);
    return good;
}

static void read_address(void *context)
{
    struct side *s = context;
    host_addresses(s->host, &s->at, 1);
}

static void open_side(struct side *s, int listens, int securities)
{
    static const char *const listen[] = { "/ip4/127.0.0.1/tcp/0" };
    struct host_options o = { .me = &s->me, .listen = listen, .listen_count = (size_t)listens,
                              .securities = securities };
    struct pl_err err = { "" };
    memset(s, 0, sizeof *s);
    assert_int_equal(loop_open(&s->loop, &err), PL_OK);
    assert_int_equal(identity_make(&s->me, KEY_ED25519, &err), PL_OK);
    if (host_open(&s->host, s->loop, &o, &err)) fail_msg("%s", err.text);
    loop_call(s->loop, read_address, s);
}

static void close_side(struct side *s)
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

static void teach_here(void *context)
{
    struct teaching *t = context;
    host_learn(t->pupil->host, &t->of->me.id, &t->of->at, 60);
}

static void teach(struct side *pupil, const struct side *of)
{
    struct teaching t = { pupil, of };
    loop_call(pupil->loop, teach_here, &t);
}

/* --- unary calls -------------------------------------------------------------------------------- */

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

static void on_answer(void *context, const struct rpc_result *r)
{
    struct asking *a = context;
    a->status = r->status;
    if (r->status) snprintf(a->error, sizeof a->error, "%s", r->error);
    else bytes_add(&a->response, r->data, r->n);
    note(&a->answered);
}

static void ask_here(void *context)
{
    struct asking *a = context;
    a->request = rpc_call_unary(a->from->host, a->to, a->name, a->data, a->n, a->timeout_s, on_answer,
                                a);
}

static void ask(struct asking *a)
{
    loop_call(a->from->loop, ask_here, a);
    assert_non_null(a->request);
}

static void ask_and_wait(struct asking *a)
{
    ask(a);
    assert_true(await(&a->answered, 1, 20));
}

struct serving {
    struct side *side;
    const char *name;
    rpc_unary_handler *handler;
    rpc_opened *opened;
    void *context;
    int rc;
};

static void serve_here(void *context)
{
    struct serving *s = context;
    s->rc = s->handler ? rpc_serve_unary(s->side->host, s->name, s->handler, s->context)
                       : rpc_serve_stream(s->side->host, s->name, 16 << 20, s->opened, s->context);
}

static void serve(struct side *side, const char *name, rpc_unary_handler *handler, rpc_opened *opened,
                  void *context)
{
    struct serving s = { side, name, handler, opened, context, 0 };
    loop_call(side->loop, serve_here, &s);
    assert_int_equal(s.rc, PL_OK);
}

static void echo(void *context, struct rpc_call *call, const uint8_t *data, size_t n)
{
    (void)context;
    rpc_reply(call, data, n);
}

static void thirteen(void *context, struct rpc_call *call, const uint8_t *data, size_t n)
{
    (void)context;
    (void)data;
    (void)n;
    rpc_reply_error(call, "ValueError('thirteen')");
}

static uint8_t *noise(size_t n, uint32_t seed)
{
    uint8_t *data = malloc(n + 1);
    for (size_t i = 0; i < n; i++) {
        seed = seed * 1664525u + 1013904223u;
        data[i] = (uint8_t)(seed >> 24);
    }
    return data;
}

static void unary_over(int dialler, int listener)
{
    static const size_t sizes[] = { 0, 1, 200, 70000, 300000, 4194304 - 120 };
    struct side a, b;
    open_side(&a, 0, dialler);
    open_side(&b, 1, listener);
    serve(&b, "Test.echo", echo, NULL, NULL);
    serve(&b, "Test.thirteen", thirteen, NULL, NULL);
    teach(&a, &b);
    for (size_t i = 0; i < PL_COUNT(sizes); i++) {
        uint8_t *data = noise(sizes[i], (uint32_t)i);
        struct asking q = { .from = &a, .to = &b.me.id, .name = "Test.echo", .data = data,
                            .n = sizes[i], .timeout_s = 15 };
        ask_and_wait(&q);
        if (q.status) fail_msg("%zu bytes: %s", sizes[i], q.error);
        assert_int_equal(bytes_length(&q.response), sizes[i]);
        if (sizes[i]) assert_memory_equal(bytes_at(&q.response), data, sizes[i]);
        bytes_clear(&q.response);
        free(data);
    }
    {
        struct asking q = { .from = &a, .to = &b.me.id, .name = "Test.thirteen", .timeout_s = 10 };
        ask_and_wait(&q);
        assert_int_equal(q.status, PL_EPROTO);
        assert_string_equal(q.error, "ValueError('thirteen')");
    }
    {
        struct asking q = { .from = &a, .to = &b.me.id, .name = "Test.nothing", .timeout_s = 10 };
        ask_and_wait(&q);
        assert_int_equal(q.status, PL_ENOTFOUND);
    }
    close_side(&a);
    close_side(&b);
}

static void unary_noise(void **state)
{
    (void)state;
    unary_over(CONN_NOISE, CONN_NOISE | CONN_TLS);
}

static void unary_tls(void **state)
{
    (void)state;
    unary_over(CONN_NOISE | CONN_TLS, CONN_TLS);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(unary_noise),
        cmocka_unit_test(unary_tls),
    };
    return cmocka_run_group_tests_name("host", tests, NULL, NULL);
}
