/* rpc_stream_ends.c - how streaming calls end: resets and losses behind messages, failures,
 * limits. */
#include "rpc_talk.h"
#include "net/libp2p/host/host_internal.h"

/* Three messages and the beginning of a fourth, larger than the window; then the server resets. */
static int torn;

static void tear(void *context, struct rpc_stream *s, const uint8_t *data, size_t n)
{
    static uint8_t zeros[1 << 20];
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
    for (int i = 0; i < 3; i++) rpc_send(s, data, n);
    note(&torn);
}

static void keeping(void *context, struct rpc_stream *s)
{
    static const struct rpc_stream_events events = { keep, mirror_end, mirror_failed, NULL };
    rpc_listen(s, &events, context);
}

/* Messages that came whole before a reset reach a reader that was pausing, one by one; the reset is
 * reported after them, even if part of a message came, too. */
static void messages_before_a_reset_are_read(void **state)
{
    static const uint8_t data[500] = { 1, 2, 3 };
    struct side a, b;
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

/* The same holds if the other side leaves: the connection has gone, but bytes that came on it are
 * still read. */
static void messages_before_a_lost_connection_are_read(void **state)
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
    close_side(&a); /* the other side's bytes are not read any more */
    assert_int_equal(u.failed, 1);
    assert_int_equal(u.received, 0);
}

static void end_and_credit_here(void *context)
{
    struct talk *t = context;
    const struct peer *p = core_find_peer(&t->side->host->core, t->to);
    for (struct connection *c = p->connections; c; c = c->next_of_peer)
        connection_end(c, PL_OK, "the test ends it");
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
static void reset_without_messages_is_reported_at_once(void **state)
{
    struct side a, b;
    struct talk t = { .side = &a, .to = &b.me.id, .name = "Test.paused" };
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
        cmocka_unit_test(messages_before_a_reset_are_read),
        cmocka_unit_test(messages_before_a_lost_connection_are_read),
        cmocka_unit_test(credit_as_it_ends),
        cmocka_unit_test(reset_without_messages_is_reported_at_once),
        cmocka_unit_test(streams_fail),
        cmocka_unit_test(too_large),
    };
    return cmocka_run_group_tests_name("rpc_stream_ends", tests, NULL, NULL);
}
