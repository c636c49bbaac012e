/* conn.c - two ends of a connection without sockets: every way to agree on encryption, what another
 * protocol's server says, two sides that dial at once, and how much waits for a slow socket.
 * [spec libp2p-wire 0, 4, 7] */
#include "net/libp2p/muxing/conn.h"
#include "net/libp2p/muxing/multistream.h"
#include "test/unit/hivemind/numbered_identity.h"

static struct identity ids[2];
static struct {
    struct conn c[2]; /* the dialer first */
    struct pl_err err[2];
    int rc[2], opens[2];
    struct yamux_stream *inbound;
    size_t readable;
} t;

static int make_identities(void **state)
{
    numbered_identity(&ids[0], 0);
    numbered_identity(&ids[1], 1);
    return 0;
}

static int clear_identities(void **state)
{
    identity_clear(&ids[0]);
    identity_clear(&ids[1]);
    return 0;
}

static void on_open(void *context) { ++*(int *)context; }
static void on_stream(void *context, struct yamux_stream *s) { t.inbound = s; }
static void on_readable(void *context, struct yamux_stream *s) { t.readable++; }
static void on_writable(void *context, struct yamux_stream *s) {}

static void begin(int dialers, int listeners)
{
    static const struct conn_events events = { on_open, { on_stream, on_readable, on_writable } };
    memset(&t, 0, sizeof t);
    assert_int_equal(conn_init(&t.c[0], &ids[0], 1, dialers, &ids[1].id, &events, &t.opens[0]),
                     PL_OK);
    assert_int_equal(conn_init(&t.c[1], &ids[1], 0, listeners, NULL, &events, &t.opens[1]), PL_OK);
}

static void end(void)
{
    conn_clear(&t.c[0]);
    conn_clear(&t.c[1]);
}

/* What one end has written arrives at the other. */
static int carry(int from)
{
    struct bytes *wire = &t.c[from].wire;
    const int to = 1 - from;
    size_t n = bytes_length(wire);
    int rc = conn_receive(&t.c[to], bytes_at(wire), n, 100, &t.err[to]);
    if (rc) t.rc[to] = rc;
    bytes_take(wire, n);
    return rc;
}

static void carry_all(void)
{
    for (int i = 0; i < 12; i++) carry(i % 2);
}

/* dialer's, listener's encryptions | agreed on (0: none). */
static void encryption_is_agreed_on(void **state)
{
    static const struct {
        int dialer, listener, agreed;
    } cases[] = { { CONN_NOISE, CONN_NOISE | CONN_TLS, CONN_NOISE },
                  { CONN_TLS, CONN_NOISE | CONN_TLS, CONN_TLS },
                  { CONN_NOISE | CONN_TLS, CONN_NOISE | CONN_TLS, CONN_NOISE },
                  { CONN_NOISE | CONN_TLS, CONN_TLS, CONN_TLS },
                  { CONN_NOISE | CONN_TLS, CONN_NOISE, CONN_NOISE },
                  { CONN_NOISE, CONN_TLS, 0 },
                  { CONN_TLS, CONN_NOISE, 0 } };
    for (size_t i = 0; i < PL_COUNT(cases); i++) {
        begin(cases[i].dialer, cases[i].listener);
        carry_all();
        for (int k = 0; k < 2; k++) {
            assert_int_equal(t.opens[k], cases[i].agreed != 0);
            if (!cases[i].agreed) continue;
            assert_int_equal(t.rc[k], PL_OK);
            assert_int_equal(t.c[k].state, CONN_OPEN);
            assert_true(peer_id_equal(&t.c[k].secure->remote, &ids[1 - k].id));
        }
        if (!cases[i].agreed) {
            assert_int_equal(t.rc[0], PL_EPROTO);
            assert_int_equal(t.c[0].state, CONN_CLOSED);
            assert_non_null(strstr(t.err[0].text, "no encryption in common"));
            assert_int_equal(carry(1), PL_OK); /* a closed one reads nothing */
        } else {
            struct yamux_stream *s;
            assert_int_equal(yamux_open(&t.c[0].yamux, &s, &t.c[0].frames), PL_OK);
            assert_int_equal(s->id, 1);
            assert_int_equal(conn_flush(&t.c[0]), PL_OK);
            carry_all();
            assert_non_null(t.inbound);
            assert_int_equal(s->acked, 1);
        }
        end();
    }
}

/* An engine that has not agreed on Yamux in the handshake negotiates it, encrypted. */
static void the_multiplexer_is_negotiated(void **state)
{
    begin(CONN_NOISE, CONN_NOISE);
    for (int i = 0; i < 12 && !t.c[0].secure; i++) carry(i % 2);
    while (!t.c[1].secure || !t.c[1].secure->established) {
        /* As if neither had named it. */
        for (int i = 0; i < 2; i++) {
            const uint8_t *at = bytes_at(&t.c[i].wire);
            size_t n = bytes_length(&t.c[i].wire);
            int rc;
            assert_true(t.c[1 - i].secure || n);
            if (t.c[1 - i].secure) {
                rc = t.c[1 - i].secure->receive(t.c[1 - i].secure, at, n, &t.c[1 - i].plain,
                                                &t.c[1 - i].wire, NULL);
                assert_int_equal(rc, PL_OK);
            } else {
                assert_int_equal(conn_receive(&t.c[1 - i], at, n, 100, NULL), PL_OK);
            }
            bytes_take(&t.c[i].wire, n);
        }
    }
    for (int i = 0; i < 2; i++) {
        t.c[i].secure->muxer_agreed = 0;
        assert_int_equal(conn_receive(&t.c[i], NULL, 0, 100, NULL), PL_OK);
        assert_int_equal(t.c[i].state, CONN_MUXER);
        assert_int_equal(t.opens[i], 0);
    }
    carry_all();
    for (int i = 0; i < 2; i++) {
        assert_int_equal(t.c[i].state, CONN_OPEN);
        assert_int_equal(t.opens[i], 1);
    }
    end();
}

/* A greeting of printable characters is quoted; fewer than three say nothing. */
static void another_protocols_greeting_is_quoted(void **state)
{
    static const struct {
        const char *says, *error;
    } cases[] = {
        { "SSH-2.0-OpenSSH_9.2\r\n", "it says \"SSH-2.0-OpenSSH_9.2\", not multistream" },
        { "220 a name that is longer than forty characters together",
          "it says \"220 a name that is longer than forty cha\", not multistream" },
        { "abc\n", "it says \"abc\", not" },
        { "ab\n", "encryption: not multistream" },
        { "~ \x7f", "encryption: not multistream" },
        { "~ ~\x7f", "it says \"~ ~\", not" },
        { "\x01\x02\x03", "encryption: not multistream" },
        { "\x01 SSH", "encryption: not multistream" },
    };
    for (size_t i = 0; i < PL_COUNT(cases); i++) {
        begin(CONN_NOISE, CONN_NOISE);
        assert_int_equal(conn_receive(&t.c[0], (const uint8_t *)cases[i].says,
                                      strlen(cases[i].says), 100, &t.err[0]),
                         PL_EPROTO);
        if (!strstr(t.err[0].text, cases[i].error)) fail_msg("%s", t.err[0].text);
        assert_int_equal(t.c[0].state, CONN_CLOSED);
        end();
    }
}

/* Two dialers take each other's proposal for an agreement; the first bytes of the handshake tell them apart from a
 * listener's. */
static void two_sides_that_dial_at_once(void **state)
{
    static const struct conn_events events = { on_open, { on_stream, on_readable, on_writable } };
    for (int security = CONN_NOISE; security <= CONN_TLS; security++) {
        begin(security, security);
        conn_clear(&t.c[1]);
        assert_int_equal(conn_init(&t.c[1], &ids[1], 1, security, &ids[0].id, &events, &t.opens[1]),
                         PL_OK);
        for (int i = 0; i < 4; i++) carry(i % 2);
        for (int i = 0; i < 2; i++) {
            assert_true(t.c[i].both_dialed || t.c[1 - i].both_dialed);
            if (!t.c[i].both_dialed) continue;
            assert_int_equal(t.rc[i], PL_EPROTO);
            assert_non_null(strstr(t.err[i].text, "both sides have dialed"));
        }
        end();
    }
}

/* Data stop at wire_high, what the socket holds counts; the other side's unread frames wait for the next turn. */
static void little_waits_for_a_slow_socket(void **state)
{
    static uint8_t data[200000];
    struct yamux_stream *s;
    begin(CONN_NOISE, CONN_NOISE);
    carry_all();
    assert_int_equal(t.c[0].wire_high, CONN_WIRE_LOW);
    assert_int_equal(yamux_open(&t.c[0].yamux, &s, &t.c[0].frames), PL_OK);
    t.c[0].under_way = CONN_WIRE_LOW;
    assert_int_equal(conn_flush(&t.c[0]), PL_OK);
    bytes_take(&t.c[0].wire, bytes_length(&t.c[0].wire));
    assert_int_equal(yamux_write(&t.c[0].yamux, s, data, sizeof data, &t.c[0].frames), PL_OK);
    assert_int_equal(s->waiting.length, sizeof data);
    t.c[0].under_way = CONN_WIRE_LOW - 1;
    assert_int_equal(conn_flush(&t.c[0]), PL_OK);
    assert_int_equal(sizeof data - s->waiting.length, YAMUX_BODY_MAX); /* the last is not cut */
    assert_true(bytes_length(&t.c[0].wire) > YAMUX_BODY_MAX);
    assert_int_equal(t.c[0].yamux.send_budget, 0); /* nor does a later write get past it */
    end();
}

/* n bytes in so many seconds | what may wait: a tenth of a second's worth, from 128 KiB to 1 MiB. */
static void a_tenth_of_a_second_may_wait(void **state)
{
    static const struct {
        size_t n;
        double seconds;
        size_t high;
    } cases[] = { { 1000, 1, CONN_WIRE_LOW },       { 5000000, 1, 500000 },
                  { 1 << 20, 0.1, CONN_WIRE_HIGH }, { 1 << 24, 1, CONN_WIRE_HIGH },
                  { 10, 0, CONN_WIRE_HIGH },        { 3000000, 2, 150000 } };
    begin(CONN_NOISE, CONN_NOISE);
    for (size_t i = 0; i < PL_COUNT(cases); i++) {
        conn_took(&t.c[0], cases[i].n, cases[i].seconds);
        assert_int_equal(t.c[0].wire_high, cases[i].high);
    }
    end();
}

/* 32 frames a turn: the rest stays until the connection's next one. */
static void frames_are_taken_in_turns(void **state)
{
    const struct yamux_frame ping = { 0, YAMUX_PING, YAMUX_SYN, 0, 1 };
    begin(CONN_NOISE, CONN_NOISE);
    carry_all();
    for (int i = 0; i < CONN_FRAMES_A_TURN + 1; i++)
        assert_int_equal(yamux_frame_put(&t.c[0].frames, &ping), PL_OK);
    assert_int_equal(conn_flush(&t.c[0]), PL_OK);
    assert_false(conn_has_more(&t.c[1]));
    assert_int_equal(carry(0), PL_OK);
    assert_true(conn_has_more(&t.c[1]));
    assert_int_equal(conn_receive(&t.c[1], NULL, 0, 100, NULL), PL_OK);
    assert_false(conn_has_more(&t.c[1]));
    end();
}

/* The first tick sends a ping; a quiet connection gives large buffers back; a dead one is closed. */
static void ticks(void **state)
{
    begin(CONN_NOISE, CONN_NOISE);
    assert_int_equal(conn_tick(&t.c[0], 100, NULL), PL_OK); /* not open yet */
    carry_all();
    for (int k = 0; k < 6; k++) {
        struct bytes *b[] = { &t.c[0].plain, &t.c[0].frames, &t.c[0].wire };
        bytes_clear(b[k / 2]);
        assert_non_null(bytes_reserve(b[k / 2], k % 2 ? 5000 : 100));
        assert_int_equal(conn_tick(&t.c[0], 99, &t.err[0]), PL_OK);
        assert_int_equal(b[k / 2]->data == NULL, k % 2);
    }
    assert_int_equal(conn_tick(&t.c[0], 100, &t.err[0]), PL_OK);
    assert_true(bytes_length(&t.c[0].wire) > 0);
    carry_all();
    assert_true(t.c[0].yamux.ping_sent < 0);
    assert_int_equal(conn_tick(&t.c[0], 130, &t.err[0]), PL_OK);
    assert_int_equal(conn_tick(&t.c[0], 140, &t.err[0]), PL_EPROTO);
    assert_int_equal(t.c[0].state, CONN_CLOSED);
    end();
}

/* --- multistream ------------------------------------------------------------------------------ */

static int find(void *context, const char *name, size_t n)
{
    return n == 2 && !memcmp(name, "/a", 2) ? 3 : -1;
}

static int receive(struct multistream *m, const char *data, size_t n, struct bytes *out)
{
    struct cursor c = { (const uint8_t *)data, n };
    int rc = multistream_receive(m, &c, out);
    if (rc == PL_OK) assert_int_equal(c.left, 0);
    return rc;
}

/* The 64th wrong guess is still answered. */
static void a_dialer_that_guesses_is_sent_away(void **state)
{
    struct multistream m;
    struct bytes out = { 0 };
    assert_int_equal(multistream_listen(&m, find, NULL, &out), PL_OK);
    assert_int_equal(receive(&m, "\023/multistream/1.0.0\n", 20, &out), PL_EAGAIN);
    for (int i = 0; i < MULTISTREAM_PROPOSALS_MAX; i++) {
        bytes_take(&out, bytes_length(&out));
        assert_int_equal(receive(&m, "\003/b\n", 4, &out), PL_EAGAIN);
        assert_memory_equal(bytes_at(&out), "\003na\n", 4);
    }
    assert_int_equal(receive(&m, "\003/b\n", 4, &out), PL_EPROTO);
    assert_int_equal(multistream_listen(&m, find, NULL, &out), PL_OK);
    bytes_take(&out, bytes_length(&out));
    assert_int_equal(receive(&m, "\023/multistream/1.0.0\n\003/a\n", 24, &out), PL_OK);
    assert_int_equal(m.agreed, 3);
    assert_memory_equal(bytes_at(&out), "\003/a\n", 4);
    bytes_clear(&out);
}

/* Each proposal in its order, until one comes back, or there is none left; any other answer is an error. */
static void a_dialer_proposes_in_order(void **state)
{
    static const char *const wanted[] = { "/x", "/y" };
    static const char *const answers[] = { "\003/y\n", "\003na\n", "\003/x\n" };
    static const int ends[] = { PL_OK, PL_ENOTFOUND, PL_EPROTO };
    for (size_t i = 0; i < PL_COUNT(answers); i++) {
        struct multistream m;
        struct bytes out = { 0 };
        assert_int_equal(multistream_dial(&m, wanted, 2, &out), PL_OK);
        assert_memory_equal(bytes_at(&out), "\023/multistream/1.0.0\n\003/x\n", 24);
        bytes_take(&out, 24);
        assert_int_equal(receive(&m, "\023/multistream/1.0.0\n\003na\n", 24, &out), PL_EAGAIN);
        assert_memory_equal(bytes_at(&out), "\003/y\n", 4);
        assert_int_equal(receive(&m, answers[i], 4, &out), ends[i]);
        if (!ends[i]) assert_int_equal(m.agreed, 1);
        bytes_clear(&out);
    }
}

static void tokens_that_are_none(void **state)
{
    static const char *const bad[] = { "\023/multistream/1.0.1\n", "\022/multistream/1.0.0",
                                       "\024/multistream/1.0.0\n", "GET / HTTP/1.1" };
    for (size_t i = 0; i < PL_COUNT(bad); i++) {
        struct multistream m;
        struct bytes out = { 0 };
        assert_int_equal(multistream_listen(&m, find, NULL, &out), PL_OK);
        assert_int_equal(receive(&m, bad[i], strlen(bad[i]), &out), PL_EPROTO);
        bytes_clear(&out);
    }
    for (int k = 0; k < 3; k++) { /* an empty token, one without its newline, one of 1,025 bytes */
        static const char *const after[] = { "\0", "\002/a", "\x81\x08" };
        static const size_t n[] = { 1, 3, 2 };
        struct multistream m;
        struct bytes out = { 0 };
        assert_int_equal(multistream_listen(&m, find, NULL, &out), PL_OK);
        assert_int_equal(receive(&m, "\023/multistream/1.0.0\n", 20, &out), PL_EAGAIN);
        assert_int_equal(receive(&m, after[k], n[k], &out), PL_EPROTO);
        bytes_clear(&out);
    }
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(encryption_is_agreed_on),
        cmocka_unit_test(the_multiplexer_is_negotiated),
        cmocka_unit_test(another_protocols_greeting_is_quoted),
        cmocka_unit_test(two_sides_that_dial_at_once),
        cmocka_unit_test(little_waits_for_a_slow_socket),
        cmocka_unit_test(a_tenth_of_a_second_may_wait),
        cmocka_unit_test(frames_are_taken_in_turns),
        cmocka_unit_test(ticks),
        cmocka_unit_test(a_dialer_that_guesses_is_sent_away),
        cmocka_unit_test(a_dialer_proposes_in_order),
        cmocka_unit_test(tokens_that_are_none),
    };
    if (argc > 1) cmocka_set_test_filter(argv[1]);
    return cmocka_run_group_tests(tests, make_identities, clear_identities);
}
