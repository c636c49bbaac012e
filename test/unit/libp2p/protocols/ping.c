/* ping.c - two hosts and what each host speaks: pings and false answers to them, what a peer tells of itself and
 * when that changes, names in addresses. [spec libp2p-wire 9, 10] */
#include "test/unit/libp2p/host_sides.h"
#include "net/libp2p/protocols/ping.h"

#define PING "/ipfs/ping/1.0.0"

static struct side a, b;

static int open_sides(void **state)
{
    open_side(&a, 0, 0);
    open_side(&b, 1, 0);
    return 0;
}

static int close_sides(void **state)
{
    close_side(&a);
    close_side(&b);
    return 0;
}

struct pinging {
    double timeout_s, rtt_s;
    int done, status;
    char why[200];
};

static void on_pinged(void *context, int status, double rtt_s, const char *why)
{
    struct pinging *p = context;
    p->status = status;
    p->rtt_s = rtt_s;
    snprintf(p->why, sizeof p->why, "%s", why);
    note(&p->done);
}

static void ping_here(void *context)
{
    struct pinging *p = context;
    assert_int_equal(ping_peer(a.host, &b.me.id, p->timeout_s, on_pinged, p), PL_OK);
}

static void ping(struct pinging *p, double timeout_s)
{
    *p = (struct pinging){ .timeout_s = timeout_s };
    loop_call(a.loop, ping_here, p);
    assert_true(await_noted(&p->done, 1, 2 * LIMIT));
}

/* --- names ------------------------------------------------------------------------------------ */

/* b is known by a name, of the given kind. */
static void teach_name(const char *kind)
{
    struct side named = { .me = b.me };
    struct multiaddr_target t;
    char text[64];
    assert_int_equal(multiaddr_target(&t, &b.at), PL_OK);
    snprintf(text, sizeof text, "/%s/127.0.0.1/tcp/%d", kind, t.port);
    assert_int_equal(multiaddr_from_text(&named.at, text, NULL), PL_OK);
    teach(&a, &named);
}

static void a_name_is_resolved(void **state)
{
    struct pinging p;
    teach_name("dns6"); /* there is no such address of IPv6 */
    ping(&p, LIMIT);
    assert_int_equal(p.status, PL_EIO);
    if (!strstr(p.why, "/dns6/127.0.0.1")) fail_msg("%s", p.why);
    teach_name("dns4");
    ping(&p, LIMIT);
    assert_int_equal(p.status, PL_OK);
    assert_true(p.rtt_s > 0 && p.rtt_s < LIMIT);
}

/* The lookup goes on, on a thread of its own; its result finds nobody. */
static void a_host_may_close_while_a_name_is_resolved(void **state)
{
    struct asking q = { .from = &a, .to = &b.me.id, .name = "Test.echo", .timeout_s = LIMIT };
    teach_name("dns4");
    ask(&q);
    close_side(&a);
    assert_int_equal(q.answered, 1);
    assert_int_not_equal(q.status, PL_OK);
    open_side(&a, 0, 0);
}

/* --- pings ------------------------------------------------------------------------------------ */

static struct {
    struct stream *stream;
    size_t got;
    uint8_t data[3 * PING_BYTES];
    int blocks, ended;
} raw;

static void on_echo(void *context, struct stream *s)
{
    size_t n;
    int ended;
    const uint8_t *data = stream_data(s, &n, &ended);
    assert_true(raw.got + n <= sizeof raw.data);
    memcpy(raw.data + raw.got, data, n);
    raw.got += n;
    stream_took(s, n);
    for (size_t k = 0; k < n / PING_BYTES; k++) note(&raw.blocks);
    if (ended) note(&raw.ended);
}

static void on_raw_failed(void *context, struct stream *s, int status, const char *why)
{
    note(&raw.ended);
    note(&raw.ended);
}

static void open_raw(void *context)
{
    static const struct stream_events events = { .readable = on_echo, .failed = on_raw_failed };
    raw.stream = stream_open(a.host, &b.me.id, PING, LIMIT, &events, NULL);
}

struct writing {
    const uint8_t *data;
    size_t n;
};

static void write_raw(void *context)
{
    const struct writing *w = context;
    if (w->n) stream_write(raw.stream, w->data, w->n);
    else stream_finish(raw.stream);
}

static void close_raw(void *context) { stream_close(raw.stream); }

/* Blocks of 32 bytes come back, half a block waits for its rest, and the end for an end. */
static void whole_blocks_are_echoed(void **state)
{
    uint8_t *data = noise(2 * PING_BYTES, 1);
    struct writing parts[] = { { data, PING_BYTES + 8 },
                               { data + PING_BYTES + 8, PING_BYTES - 8 },
                               { NULL, 0 } };
    memset(&raw, 0, sizeof raw);
    teach(&a, &b);
    loop_call(a.loop, open_raw, NULL);
    loop_call(a.loop, write_raw, &parts[0]);
    assert_true(await_noted(&raw.blocks, 1, LIMIT));
    assert_int_equal(raw.got, PING_BYTES);
    loop_call(a.loop, write_raw, &parts[1]);
    assert_true(await_noted(&raw.blocks, 2, LIMIT));
    assert_int_equal(raw.got, 2 * PING_BYTES);
    assert_memory_equal(raw.data, data, 2 * PING_BYTES);
    loop_call(a.loop, write_raw, &parts[2]);
    assert_true(await_noted(&raw.ended, 1, LIMIT));
    loop_call(a.loop, close_raw, NULL);
    assert_int_equal(raw.ended, 1); /* in order */
    free(data);
}

/* How b answers pings: by bytes that differ, by too few and an end, not at all. */
enum answer { FALSE_BYTES, SHORT_END, SILENCE };
static enum answer answer;

static void on_false(void *context, struct stream *s)
{
    size_t n;
    int ended;
    uint8_t wrong[PING_BYTES];
    const uint8_t *data = stream_data(s, &n, &ended);
    if (ended || (n == PING_BYTES && answer == SHORT_END)) {
        if (!ended) stream_write(s, data, PING_BYTES - 1);
        stream_finish(s);
        stream_close(s);
    } else if (n == PING_BYTES && answer == FALSE_BYTES) {
        memcpy(wrong, data, PING_BYTES);
        wrong[PING_BYTES - 1] ^= 1;
        stream_write(s, wrong, PING_BYTES);
    }
}

static void on_gone(void *context, struct stream *s, int status, const char *why)
{
    stream_close(s);
}

static void on_opened(void *context, struct stream *s)
{
    static const struct stream_events events = { .readable = on_false, .failed = on_gone };
    stream_listen(s, &events, NULL);
}

static void serve_false(void *context)
{
    host_unserve(b.host, PING);
    assert_int_equal(host_serve(b.host, PING, on_opened, NULL), PL_OK);
}

static void a_false_answer_is_none(void **state)
{
    static const int status[] = { PL_EPROTO, PL_EPROTO, PL_EAGAIN };
    static const char *const why[] = { "differs", "differs", "in time" };
    struct pinging p;
    teach(&a, &b);
    loop_call(b.loop, serve_false, NULL);
    for (answer = FALSE_BYTES; answer <= SILENCE; answer++) {
        ping(&p, answer == SILENCE ? 0.5 : LIMIT);
        assert_int_equal(p.status, status[answer]);
        assert_true(p.rtt_s == 0);
        if (!strstr(p.why, why[answer])) fail_msg("%s", p.why);
    }
}

/* --- identify --------------------------------------------------------------------------------- */

struct question {
    const char *protocol;
    int says;
};

static void read_service(void *context)
{
    struct question *q = context;
    q->says = host_peer_serves(a.host, &b.me.id, q->protocol);
}

/* Until b's news have come. */
static int await_service(const char *protocol, int wanted)
{
    const struct timespec pause = { 0, 5000000 };
    struct question q = { protocol, !wanted };
    for (int i = 0; i < LIMIT / 0.005 && q.says != wanted; i++) {
        loop_call(a.loop, read_service, &q);
        if (q.says != wanted) nanosleep(&pause, NULL);
    }
    return q.says == wanted;
}

static void serve_more(void *context)
{
    assert_int_equal(host_serve(b.host, "/more", on_opened, NULL), PL_OK);
}
static void serve_less(void *context) { host_unserve(b.host, "/more"); }

static void read_observed(void *context)
{
    struct multiaddr seen;
    char text[MULTIADDR_TEXT_MAX];
    assert_int_equal(host_observed(a.host, &b.me.id, &seen), PL_OK);
    multiaddr_text(text, &seen);
    assert_memory_equal(text, "/ip4/127.0.0.1/tcp/", 19);
}

/* What it serves, where it sees us; and again when it changes. */
static void a_peer_tells_of_itself(void **state)
{
    struct pinging p;
    teach(&a, &b);
    ping(&p, LIMIT);
    assert_int_equal(p.status, PL_OK);
    assert_true(await_service(PING, 1));
    loop_call(a.loop, read_observed, NULL);
    assert_true(await_service("/more", 0));
    loop_call(b.loop, serve_more, NULL);
    assert_true(await_service("/more", 1));
    assert_true(await_service(PING, 1));
    loop_call(b.loop, serve_less, NULL);
    assert_true(await_service("/more", 0));
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_name_is_resolved, open_sides, close_sides),
        cmocka_unit_test_setup_teardown(a_host_may_close_while_a_name_is_resolved, open_sides,
                                        close_sides),
        cmocka_unit_test_setup_teardown(whole_blocks_are_echoed, open_sides, close_sides),
        cmocka_unit_test_setup_teardown(a_false_answer_is_none, open_sides, close_sides),
        cmocka_unit_test_setup_teardown(a_peer_tells_of_itself, open_sides, close_sides),
    };
    if (argc > 1) cmocka_set_test_filter(argv[1]);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
