/* abuse.c - two peers average while a third attacks them: floods of streams, streams that send
 * nothing or a byte now and then, messages that are invalid or too long, parts for no group. */
#include "test/unit/hivemind/loopback.h"
#include "net/libp2p/rpc/rpc.h"
#include "net/libp2p/rpc/rpc_frame.h"

#include <math.h>

#define STREAMS 1500 /* more than a connection may have open, or an averager keeps */
#define TOO_LONG (8u << 20)
#define TRICKLES 50
#define TRICKLE_EVERY 0.2 /* s; of a message that is longer than all of them */
#define END_LIMIT (AVERAGER_FIRST_MESSAGE + LIMIT)

static int over;               /* streams that the others have ended */
static char rpc_names[2][128]; /* in turn */
static size_t message_n;
static int streams, says_nothing, trickles_now, parts;

static void on_message(void *context, struct rpc_stream *s, const uint8_t *data, size_t n) {}
static void on_end(void *context, struct rpc_stream *s)
{
    rpc_close(s);
    note(&over);
}
static void on_failed(void *context, struct rpc_stream *s, int status, const char *why)
{
    on_end(context, s);
}

/* --- slow-loris: a byte now and then, of a message that never ends ---------------------------- */

static struct trickle {
    struct stream *channel;
    struct timer timer;
} trickles[TRICKLES];

static void trickle(void *context)
{
    struct trickle *t = context;
    stream_write(t->channel, "\x0a", 1);
    timer_start(loop, &t->timer, TRICKLE_EVERY, trickle, t);
}
static void on_trickle_open(void *context, struct stream *c)
{
    struct bytes header = { 0 };
    rpc_header_put(&header, RPC_MESSAGE, 2000); /* both take that much */
    stream_write(c, bytes_at(&header), bytes_length(&header));
    bytes_clear(&header);
    trickle(context);
}
static void trickle_over(struct trickle *t)
{
    timer_stop(&t->timer);
    stream_close(t->channel);
    t->channel = NULL;
    note(&over);
}
static void on_trickle_answer(void *context, struct stream *c)
{
    size_t n;
    int ended;
    stream_data(c, &n, &ended);
    stream_took(c, n);
    if (ended) trickle_over(context);
}
static void on_trickle_failed(void *context, struct stream *c, int status, const char *why)
{
    trickle_over(context);
}
static void trickle_all(void)
{
    static const struct stream_events events = { on_trickle_open, on_trickle_answer, NULL,
                                                 on_trickle_failed };
    memset(trickles, 0, sizeof trickles);
    for (int i = 0; i < streams; i++)
        trickles[i].channel = stream_open(peers[2].host, host_id(peers[0].host), rpc_names[i % 2],
                                          END_LIMIT, &events, &trickles[i]);
}

/* --- messages ------------------------------------------------------------------------------- */

static void make_message(struct bytes *raw)
{
    struct part_message m = { .code = MSG_PART_FOR_AVERAGING,
                              .group_id = (const uint8_t *)"12345678901234567890",
                              .group_id_n = 20,
                              .weight = 1,
                              .elements = 4,
                              .bytes = 16 };
    uint8_t *buffer;
    if (parts) {
        assert_int_equal(part_message_write(raw, &buffer, &m), PL_OK);
        memset(buffer, 0, 16);
    } else {
        assert_non_null(buffer = bytes_reserve(raw, message_n));
        memset(buffer, 0xee, message_n);
        raw->end += message_n;
    }
}

/* The third peer to the first. */
static void abuse(void *context)
{
    static const struct rpc_stream_events events = { on_message, on_end, on_failed, NULL };
    struct bytes *raw = context;
    if (trickles_now) {
        trickle_all();
        return;
    }
    for (int i = 0; i < streams; i++) {
        struct rpc_stream *s = rpc_open(peers[2].host, host_id(peers[0].host), rpc_names[i % 2],
                                        1 << 20, END_LIMIT, &events, NULL);
        if (s && !says_nothing) rpc_send(s, bytes_at(raw), bytes_length(raw));
    }
}

/* --- the round -------------------------------------------------------------------------------- */

/* While that goes on the honest two have their round, and in the end no stream is left. */
static void round_during(const char *rpc, const char *other, int n)
{
    struct bytes raw = { 0 };
    snprintf(rpc_names[0], sizeof *rpc_names, "test::DecentralizedAverager.%s", rpc);
    snprintf(rpc_names[1], sizeof *rpc_names, "test::DecentralizedAverager.%s", other);
    streams = n;
    over = 0;
    if (!count) {
        add(0, 0), add(0, 0), add(0, 0);
        open_all();
    }
    expect(2);
    if (!says_nothing) make_message(&raw);
    loop_call(loop, abuse, &raw);
    bytes_clear(&raw);
    loop_call(loop, begin, &peers[0]);
    loop_call(loop, begin, &peers[1]);
    for (size_t i = 0; i < 2; i++) {
        assert_true(await(&peers[i].done, 1));
        if (peers[i].status) fail_msg("peer %zu: %s", i, peers[i].err.text);
        assert_int_equal(peers[i].group, 2);
        for (size_t k = 0; k < VALUES; k++) assert_true(isfinite(peers[i].values[k]));
    }
    assert_true(await_noted(&over, n, END_LIMIT));
}

static void parts_for_no_group(void **state)
{
    parts = 1, says_nothing = 0;
    round_during("rpc_aggregate_part", "rpc_aggregate_part", STREAMS);
}

static void streams_that_say_nothing(void **state)
{
    parts = 0, says_nothing = 1;
    round_during("rpc_aggregate_part", "rpc_join_group", STREAMS);
}

static void invalid_messages_do_not_stop_a_round(void **state)
{
    parts = 0, says_nothing = 0, message_n = 300;
    round_during("rpc_aggregate_part", "rpc_join_group", 400);
    round_during("rpc_download_state", "rpc_nothing", 200);
}

static void too_long_a_message(void **state)
{
    parts = 0, says_nothing = 0, message_n = TOO_LONG;
    round_during("rpc_aggregate_part", "rpc_join_group", 16);
}

static void a_byte_now_and_then(void **state)
{
    parts = 0, says_nothing = 0, trickles_now = 1, message_n = 0;
    round_during("rpc_aggregate_part", "rpc_join_group", TRICKLES);
    trickles_now = 0;
}

/* A name, with * and ?, runs only the tests that match it. */
int main(int argc, char **argv)
{
#define TEST(f) cmocka_unit_test_setup_teardown(f, begin_test, end_test)
    const struct CMUnitTest tests[] = {
        TEST(parts_for_no_group),
        TEST(streams_that_say_nothing),
        TEST(invalid_messages_do_not_stop_a_round),
        TEST(too_long_a_message),
        TEST(a_byte_now_and_then),
    };
    if (argc > 1) cmocka_set_test_filter(argv[1]);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
