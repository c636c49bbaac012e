/* host_turns.c - requests and answers take turns: no more is read from a peer that does not read
 * its answers, on the stream and on the connection; when it reads again, it gets all of them. */
#include "test/unit/libp2p/host_sides.h"
#include "net/loop/loop_uv.h"

#define PROTOCOL "/test/turns"
#define ANSWER (1u << 20) /* bytes for each byte of a request: more than a stream's window */
#define STREAMS 16
#define PAUSE 0.3 /* s, in which all would be answered that is going to be */

static int answered; /* requests that the server has read */
static uint8_t *answer;
static size_t answer_bytes;

static void on_request(void *context, struct stream *c)
{
    size_t n;
    int ended;
    while (stream_data(c, &n, &ended), n) {
        stream_write(c, answer, answer_bytes);
        stream_took(c, 1);
        note(&answered);
    }
    if (ended) stream_close(c);
}

static void on_server_failed(void *context, struct stream *c, int status, const char *why)
{
    stream_close(c);
}

static void on_asked(void *context, struct stream *c)
{
    static const struct stream_events events = { .readable = on_request,
                                                 .failed = on_server_failed };
    stream_listen(c, &events, context);
}

static void serve_turns(void *context)
{
    assert_int_equal(host_serve(context, PROTOCOL, on_asked, context), PL_OK);
}

/* Counts what is answered between two rounds of the server's loop. */
static uv_check_t rounds;
static int answered_before, most_in_a_round;

static void on_round(uv_check_t *unused)
{
    int now = noted(&answered);
    if (now - answered_before > most_in_a_round) most_in_a_round = now - answered_before;
    answered_before = now;
}

static void count_rounds(void *context)
{
    uv_check_init(loop_uv(context), &rounds);
    uv_check_start(&rounds, on_round);
}

static void stop_rounds(void *context) { uv_close((uv_handle_t *)&rounds, NULL); }

/* --- the asker -------------------------------------------------------------------------------- */

static struct stream *asking[STREAMS];
static struct side from, to;
static int streams, requests, reads, arrived; /* arrived: whole answers */
static size_t got[STREAMS];

static void take(int i)
{
    size_t n, before = got[i] / answer_bytes;
    int ended;
    stream_data(asking[i], &n, &ended);
    stream_took(asking[i], n);
    got[i] += n;
    for (; before < got[i] / answer_bytes; before++) note(&arrived);
}

static void on_answer_bytes(void *context, struct stream *c)
{
    if (reads) take((int)((struct stream **)context - asking));
}

static void on_asker_failed(void *context, struct stream *c, int status, const char *why)
{
    fail_msg("%s", why);
}

static void ask_all(void *context)
{
    static const struct stream_events events = { .readable = on_answer_bytes,
                                                 .failed = on_asker_failed };
    for (int i = 0; i < streams; i++) {
        asking[i] = stream_open(from.host, &to.me.id, PROTOCOL, LIMIT, &events, &asking[i]);
        for (int k = 0; k < requests; k++) stream_write(asking[i], "?", 1);
    }
}

static void take_all(void *context)
{
    reads = 1;
    for (int i = 0; i < streams; i++) take(i);
}

static void close_all(void *context)
{
    for (int i = 0; i < streams; i++) stream_close(asking[i]);
}

/* This many streams with this many requests each, of which at most `most` are read before answers
 * are. */
static void turns(int n, int each, int most)
{
    answer = noise(ANSWER, 1);
    answer_bytes = ANSWER;
    answered = arrived = reads = 0;
    memset(got, 0, sizeof got);
    streams = n;
    requests = each;
    open_side(&from, 0, 0);
    open_side(&to, 1, 0);
    loop_call(to.loop, serve_turns, to.host);
    teach(&from, &to);
    loop_call(from.loop, ask_all, NULL);
    assert_true(await_noted(&answered, 1, LIMIT));
    if (await_noted(&answered, most + 1, PAUSE))
        fail_msg("%d requests are read whose answers nobody takes", answered);
    loop_call(from.loop, take_all, NULL);
    assert_true(await_noted(&arrived, n * each, LIMIT));
    assert_int_equal(answered, n * each);
    loop_call(from.loop, close_all, NULL);
    close_side(&from);
    close_side(&to);
    free(answer);
}

static void one_stream(void **state) { turns(1, 20, 1); }

/* The first answer fills what a connection may have waiting. */
static void many_streams(void **state) { turns(STREAMS, 1, 1); }

/* A peer that reads all of its answers and asks as fast as it can has no more than its turns. */
static void connections(void **state)
{
    answer = noise(ANSWER, 1);
    answer_bytes = 10;
    answered = arrived = answered_before = most_in_a_round = 0;
    reads = streams = 1;
    requests = 2000;
    memset(got, 0, sizeof got);
    open_side(&from, 0, 0);
    open_side(&to, 1, 0);
    loop_call(to.loop, serve_turns, to.host);
    loop_call(to.loop, count_rounds, to.loop);
    teach(&from, &to);
    loop_call(from.loop, ask_all, NULL);
    assert_true(await_noted(&arrived, requests, LIMIT));
    loop_call(to.loop, stop_rounds, NULL);
    if (most_in_a_round > 2 * ANSWERS_A_TURN) fail_msg("%d answers in a row", most_in_a_round);
    loop_call(from.loop, close_all, NULL);
    close_side(&from);
    close_side(&to);
    free(answer);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_stream),
        cmocka_unit_test(many_streams),
        cmocka_unit_test(connections),
    };
    return cmocka_run_group_tests_name("host_turns", tests, NULL, NULL);
}
