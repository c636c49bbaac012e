/* rpc_stream.c - streams between two hosts over loopback: both ways, crossing, slow readers,
 * failures. */
#include "host_sides.h"

#include <unistd.h>

/* --- streams ---------------------------------------------------------------------------------- */

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

static void talk_more(void *context, struct rpc_stream *s)
{
    struct talk *t = context;
    while (t->sent < t->to_send && !rpc_queued(s)) {
        t->sent++;
        rpc_send(s, t->data, t->n);
    }
    if (t->sent == t->to_send) rpc_end(s);
}

static void talk_message(void *context, struct rpc_stream *s, const uint8_t *data, size_t n)
{
    struct talk *t = context;
    note(&t->received);
    if (t->received > 1000) rpc_pause(s); /* the same for ever: a failure, not a hang */
    t->wrong += n != t->n || memcmp(data, t->data, n);
}

static void talk_end(void *context, struct rpc_stream *s)
{
    struct talk *t = context;
    rpc_close(s);
    t->s = NULL;
    note(&t->over);
}

static void talk_failed(void *context, struct rpc_stream *s, int status, const char *why)
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

static void talk_here(void *context)
{
    struct talk *t = context;
    t->s = rpc_open(t->side->host, t->to, t->name, 16 << 20, LIMIT, &talk_events, t);
    if (t->quiet) rpc_pause(t->s);
    talk_more(t, t->s);
}

/* The server sends every message back. */
static void mirror_message(void *context, struct rpc_stream *s, const uint8_t *data, size_t n)
{
    (void)context;
    rpc_send(s, data, n);
}

static void mirror_end(void *context, struct rpc_stream *s)
{
    (void)context;
    rpc_end(s);
    rpc_close(s);
}

static int mirrors_failed;

static void mirror_failed(void *context, struct rpc_stream *s, int status, const char *why)
{
    (void)context;
    (void)status;
    (void)why;
    rpc_close(s);
    note(&mirrors_failed);
}

static void mirror(void *context, struct rpc_stream *s)
{
    static const struct rpc_stream_events events = { mirror_message, mirror_end, mirror_failed,
                                                     NULL };
    rpc_listen(s, &events, context);
}

static void streams_both_ways(void **state)
{
    static const struct {
        size_t n;
        int count;
    } cases[] = { { 0, 3 }, { 5, 1000 }, { 65536, 50 }, { (1 << 20) + 7, 6 }, { 9 << 20, 2 } };
    struct side a, b;
    (void)state;
    open_side(&a, 0, 0);
    open_side(&b, 1, 0);
    serve(&b, "Test.mirror", NULL, mirror, NULL);
    teach(&a, &b);
    for (size_t i = 0; i < PL_COUNT(cases); i++) {
        uint8_t *data = noise(cases[i].n, (uint32_t)i);
        struct talk t = { .side = &a,
                          .to = &b.me.id,
                          .name = "Test.mirror",
                          .data = data,
                          .n = cases[i].n,
                          .to_send = cases[i].count };
        loop_call(a.loop, talk_here, &t);
        assert_true(await_noted(&t.over, 1, LIMIT));
        if (t.failed) fail_msg("%s", t.why);
        assert_int_equal(t.received, cases[i].count);
        assert_int_equal(t.wrong, 0);
        free(data);
    }
    close_side(&a);
    close_side(&b);
}

/* Two at once in both directions over one connection, all four directions full. */
static void streams_cross(void **state)
{
    struct side a, b;
    uint8_t *data = noise(300000, 1);
    (void)state;
    open_side(&a, 1, 0);
    open_side(&b, 1, 0);
    serve(&a, "Test.mirror", NULL, mirror, NULL);
    serve(&b, "Test.mirror", NULL, mirror, NULL);
    teach(&a, &b);
    {
        struct talk there = { .side = &a,
                              .to = &b.me.id,
                              .name = "Test.mirror",
                              .data = data,
                              .n = 300000,
                              .to_send = 30 };
        struct talk back = { .side = &b,
                             .to = &a.me.id,
                             .name = "Test.mirror",
                             .data = data,
                             .n = 300000,
                             .to_send = 30 };
        struct asking q = { .from = &a, .to = &b.me.id, .name = "Test.none", .timeout_s = LIMIT };
        ask_and_wait(&q); /* connects */
        loop_call(a.loop, talk_here, &there);
        loop_call(b.loop, talk_here, &back);
        assert_true(await_noted(&there.over, 1, LIMIT) && await_noted(&back.over, 1, LIMIT));
        assert_int_equal(there.received + back.received, 60);
        assert_int_equal(there.wrong + back.wrong, 0);
    }
    free(data);
    close_side(&a);
    close_side(&b);
}

static void credit_here(void *context)
{
    struct talk *t = context;
    if (t->s) rpc_credit(t->s, 1);
}

/* The server sends as much as the reader takes; what it holds stays small. */
static int flood_sent;

static void flood_more(void *context, struct rpc_stream *s)
{
    static uint8_t zeros[65536];
    (void)context;
    while (flood_sent < 1000 && !rpc_queued(s)) {
        rpc_send(s, zeros, sizeof zeros);
        note(&flood_sent);
    }
    if (flood_sent == 1000) rpc_end(s);
}

static void flood_message(void *context, struct rpc_stream *s, const uint8_t *data, size_t n)
{
    (void)data;
    (void)n;
    flood_more(context, s);
}

static void flood_end(void *context, struct rpc_stream *s)
{
    (void)context;
    (void)s;
}

static void flood(void *context, struct rpc_stream *s)
{
    static const struct rpc_stream_events events = { flood_message, flood_end, mirror_failed,
                                                     flood_more };
    rpc_listen(s, &events, context);
}

static void slow_reader(void **state)
{
    static uint8_t zeros[65536];
    struct side a, b;
    int before;
    (void)state;
    flood_sent = mirrors_failed = 0;
    open_side(&a, 0, 0);
    open_side(&b, 1, 0);
    serve(&b, "Test.flood", NULL, flood, NULL);
    teach(&a, &b);
    {
        struct talk t = { .side = &a,
                          .to = &b.me.id,
                          .name = "Test.flood",
                          .data = zeros,
                          .n = 65536,
                          .to_send = 1,
                          .quiet = 1 };
        loop_call(a.loop, talk_here, &t);
        assert_true(await_noted(&flood_sent, 1, LIMIT));
        usleep(200000);
        before = noted(&flood_sent);
        assert_in_range(before, 1, 40); /* a window of 256 KiB and what the server has in hand */
        assert_false(await_noted(&t.received, 1, 0));
        for (int i = 0; i < 30; i++) loop_call(a.loop, credit_here, &t);
        assert_true(await_noted(&flood_sent, before + 20, LIMIT) &&
                    await_noted(&t.received, 30, LIMIT));
        assert_false(await_noted(&t.received, 31, 0.1));
        loop_call(a.loop, credit_here, &t);
        assert_true(await_noted(&t.received, 31, LIMIT));
        assert_false(await_noted(&t.received, 32, 0.1));
        close_side(&a); /* in the middle: the server hears of it */
        assert_true(await_noted(&mirrors_failed, 1, LIMIT));
        assert_int_equal(t.failed, 1);
    }
    close_side(&b);
}

/* Three messages and the beginning of a fourth, larger than the window; then the server resets. */
static int torn;

static void tear(void *context, struct rpc_stream *s, const uint8_t *data, size_t n)
{
    static uint8_t zeros[1 << 20];
    (void)context;
    for (int i = 0; i < 3; i++) rpc_send(s, data, n);
    if (n > 1) rpc_send(s, zeros, sizeof zeros);
    rpc_close(s);
    note(&torn);
}

static void tearing(void *context, struct rpc_stream *s)
{
    static const struct rpc_stream_events events = { tear, mirror_end, mirror_failed, NULL };
    rpc_listen(s, &events, context);
}

/* Three messages, and nothing more. */
static void keep(void *context, struct rpc_stream *s, const uint8_t *data, size_t n)
{
    (void)context;
    for (int i = 0; i < 3; i++) rpc_send(s, data, n);
    note(&torn);
}

static void keeping(void *context, struct rpc_stream *s)
{
    static const struct rpc_stream_events events = { keep, mirror_end, mirror_failed, NULL };
    rpc_listen(s, &events, context);
}

/* What came whole before a reset reaches a reader that was pausing, message by message; the reset
 * is told behind it, also where a part of a message lies there. */
static void reset_behind_messages(void **state)
{
    static const uint8_t data[500] = { 1, 2, 3 };
    struct side a, b;
    (void)state;
    open_side(&a, 0, 0);
    open_side(&b, 1, 0);
    serve(&b, "Test.tear", NULL, tearing, NULL);
    teach(&a, &b);
    for (size_t n = 1; n <= sizeof data; n += sizeof data - 1) {
        struct talk t = { .side = &a,
                          .to = &b.me.id,
                          .name = "Test.tear",
                          .data = data,
                          .n = n,
                          .to_send = 1,
                          .quiet = 1 };
        torn = 0;
        loop_call(a.loop, talk_here, &t);
        assert_true(await_noted(&torn, 1, LIMIT));
        assert_false(await_noted(&t.over, 1, 0.2));
        for (int i = 1; i <= 2; i++) {
            loop_call(a.loop, credit_here, &t);
            assert_true(await_noted(&t.received, i, LIMIT));
            assert_false(await_noted(&t.over, 1, 0.1));
        }
        loop_call(a.loop, credit_here, &t);
        assert_true(await_noted(&t.received, 3, LIMIT));
        if (n > 1) { /* the rest looks like more to come, until the reader asks for it */
            assert_false(await_noted(&t.over, 1, 0.1));
            loop_call(a.loop, credit_here, &t);
        }
        assert_true(await_noted(&t.over, 1, LIMIT));
        assert_int_equal(t.received, 3);
        assert_int_equal(t.wrong, 0);
        assert_int_equal(t.status, PL_EIO);
        assert_non_null(strstr(t.why, "has reset the stream"));
    }
    close_side(&a);
    close_side(&b);
}

/* So it is where the other side leaves: the connection has gone, what came on it is still read. */
static void loss_behind_messages(void **state)
{
    static const uint8_t data[500] = { 1, 2, 3 };
    struct side a, b;
    struct talk t = { .side = &a,
                      .to = &b.me.id,
                      .name = "Test.tear",
                      .data = data,
                      .n = sizeof data,
                      .to_send = 1,
                      .quiet = 1 };
    struct talk u = t;
    (void)state;
    torn = 0;
    open_side(&a, 0, 0);
    open_side(&b, 1, 0);
    serve(&b, "Test.tear", NULL, keeping, NULL);
    teach(&a, &b);
    loop_call(a.loop, talk_here, &t);
    loop_call(a.loop, talk_here, &u);
    assert_true(await_noted(&torn, 2, LIMIT));
    close_side(&b);
    for (int i = 1; i <= 3; i++) {
        assert_false(await_noted(&t.over, 1, 0.1));
        loop_call(a.loop, credit_here, &t);
        assert_true(await_noted(&t.received, i, LIMIT));
    }
    assert_true(await_noted(&t.over, 1, LIMIT));
    assert_int_equal(t.wrong, 0);
    assert_int_equal(t.status, PL_EIO);
    assert_non_null(strstr(t.why, "connection lost"));
    assert_false(await_noted(&u.over, 1, 0));
    close_side(&a); /* nobody will read the other's */
    assert_int_equal(u.failed, 1);
    assert_int_equal(u.received, 0);
}

static void end_and_credit_here(void *context)
{
    struct talk *t = context;
    host_disconnect(t->side->host, t->to);
    rpc_credit(t->s, 100000);
}

/* Credit is given in the turn in which the connection ends: each message is handed on once. */
static void credit_as_it_ends(void **state)
{
    static const uint8_t data[500] = { 1, 2, 3 };
    struct side a, b;
    struct talk t = { .side = &a,
                      .to = &b.me.id,
                      .name = "Test.tear",
                      .data = data,
                      .n = sizeof data,
                      .to_send = 1,
                      .quiet = 1 };
    (void)state;
    torn = 0;
    open_side(&a, 0, 0);
    open_side(&b, 1, 0);
    serve(&b, "Test.tear", NULL, keeping, NULL);
    teach(&a, &b);
    loop_call(a.loop, talk_here, &t);
    assert_true(await_noted(&torn, 1, LIMIT));
    usleep(300000); /* they lie there */
    loop_call(a.loop, end_and_credit_here, &t);
    assert_true(await_noted(&t.over, 1, LIMIT));
    assert_in_range(t.received, 0, 3);
    assert_int_equal(t.wrong, 0);
    close_side(&a);
    close_side(&b);
}

static int paused_ones;

static void paused(void *context, struct rpc_stream *s)
{
    mirror(context, s);
    rpc_pause(s);
    note(&paused_ones);
}

static void open_here(void *context)
{
    struct talk *t = context;
    t->s = rpc_open(t->side->host, t->to, t->name, 1000, LIMIT, &talk_events, t);
}

static void close_here(void *context)
{
    struct talk *t = context;
    rpc_close(t->s);
}

/* A reader that pauses with nothing before it hears of the reset at once. */
static void reset_of_nothing(void **state)
{
    struct side a, b;
    struct talk t = { .side = &a, .to = &b.me.id, .name = "Test.paused" };
    (void)state;
    mirrors_failed = paused_ones = 0;
    open_side(&a, 0, 0);
    open_side(&b, 1, 0);
    serve(&b, "Test.paused", NULL, paused, NULL);
    teach(&a, &b);
    loop_call(a.loop, open_here, &t);
    assert_true(await_noted(&paused_ones, 1, LIMIT));
    loop_call(a.loop, close_here, &t);
    assert_true(await_noted(&mirrors_failed, 1, LIMIT));
    close_side(&a);
    close_side(&b);
}

static void fail_five(void *context, struct rpc_stream *s, const uint8_t *data, size_t n)
{
    (void)context;
    (void)data;
    (void)n;
    rpc_fail(s, "five\x1b[31m");
}

static void failing(void *context, struct rpc_stream *s)
{
    static const struct rpc_stream_events events = { fail_five, mirror_end, mirror_failed, NULL };
    rpc_listen(s, &events, context);
}

static int silent_heard;

static void silent_message(void *context, struct rpc_stream *s, const uint8_t *data, size_t n)
{
    note(&silent_heard);
    (void)context;
    (void)s;
    (void)data;
    (void)n;
}

static void silent(void *context, struct rpc_stream *s)
{
    static const struct rpc_stream_events events = { silent_message, NULL, mirror_failed, NULL };
    rpc_listen(s, &events, context);
}

static void deadline_here(void *context)
{
    struct talk *t = context;
    rpc_deadline(t->s, 0.1);
}

static void streams_fail(void **state)
{
    struct side a, b;
    uint8_t byte = 1;
    (void)state;
    mirrors_failed = silent_heard = 0;
    open_side(&a, 0, 0);
    open_side(&b, 1, 0);
    serve(&b, "Test.fail", NULL, failing, NULL);
    serve(&b, "Test.silent", NULL, silent, NULL);
    teach(&a, &b);
    {
        struct talk t = {
            .side = &a, .to = &b.me.id, .name = "Test.fail", .data = &byte, .n = 1, .to_send = 1
        };
        loop_call(a.loop, talk_here, &t);
        assert_true(await_noted(&t.over, 1, LIMIT));
        assert_int_equal(t.status, PL_EPROTO);
        assert_string_equal(t.why, "five?[31m");
    }
    {
        struct talk t = {
            .side = &a, .to = &b.me.id, .name = "Test.silent", .data = &byte, .n = 1, .to_send = 1
        };
        loop_call(a.loop, talk_here, &t);
        assert_true(await_noted(&silent_heard, 1, LIMIT));
        loop_call(a.loop, deadline_here, &t);
        assert_true(await_noted(&t.over, 1, LIMIT));
        assert_int_equal(t.status, PL_EAGAIN);
        assert_true(
            await_noted(&mirrors_failed, 1, LIMIT)); /* and the server knows that it is cancelled */
    }
    close_side(&a);
    close_side(&b);
}

/* A message larger than the RPC allows is refused by its length alone. */
static void too_large(void **state)
{
    struct side a, b;
    uint8_t *data = noise((16 << 20) + 1, 1);
    struct talk t = { .side = &a,
                      .to = &b.me.id,
                      .name = "Test.mirror",
                      .data = data,
                      .n = (16 << 20) + 1,
                      .to_send = 1 };
    struct asking q = { .from = &a,
                        .to = &b.me.id,
                        .name = "Test.echo",
                        .data = data,
                        .n = RPC_UNARY_MAX,
                        .timeout_s = LIMIT };
    (void)state;
    mirrors_failed = 0;
    open_side(&a, 0, 0);
    open_side(&b, 1, 0);
    serve(&b, "Test.mirror", NULL, mirror, NULL);
    serve(&b, "Test.echo", echo, NULL, NULL);
    teach(&a, &b);
    loop_call(a.loop, talk_here, &t);
    assert_true(await_noted(&t.over, 1, LIMIT));
    assert_int_equal(t.failed, 1);
    assert_true(await_noted(&mirrors_failed, 1, LIMIT));
    ask_and_wait(&q);
    assert_int_equal(q.status, PL_ELIMIT);
    free(data);
    close_side(&a);
    close_side(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(streams_both_ways),
        cmocka_unit_test(streams_cross),
        cmocka_unit_test(slow_reader),
        cmocka_unit_test(reset_behind_messages),
        cmocka_unit_test(loss_behind_messages),
        cmocka_unit_test(credit_as_it_ends),
        cmocka_unit_test(reset_of_nothing),
        cmocka_unit_test(streams_fail),
        cmocka_unit_test(too_large),
    };
    return cmocka_run_group_tests_name("rpc_stream", tests, NULL, NULL);
}
