/* rpc_stream.c - streams between two hosts over loopback: both ways, crossing, slow readers. */
#include "rpc_talk.h"

static void streams_both_ways(void **state)
{
    static const struct {
        size_t n;
        int count;
    } cases[] = { { 0, 3 }, { 5, 1000 }, { 65536, 50 }, { (1 << 20) + 7, 6 }, { 9 << 20, 2 } };
    struct side a, b;
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

/* The server sends as much as the reader takes; it holds few bytes itself. */
static int flood_sent;

static void flood_more(void *context, struct rpc_stream *s)
{
    static uint8_t zeros[65536];
    while (flood_sent < 1000 && !rpc_queued(s)) {
        rpc_send(s, zeros, sizeof zeros);
        note(&flood_sent);
    }
    if (flood_sent == 1000) rpc_end(s);
}

static void flood_message(void *context, struct rpc_stream *s, const uint8_t *data, size_t n)
{
    flood_more(context, s);
}

static void flood_end(void *context, struct rpc_stream *s) {}

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
        assert_in_range(before, 1, 40); /* a window of 256 KiB and the bytes that the server
                                         * holds */
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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(streams_both_ways),
        cmocka_unit_test(streams_cross),
        cmocka_unit_test(slow_reader),
    };
    return cmocka_run_group_tests_name("rpc_stream", tests, NULL, NULL);
}
