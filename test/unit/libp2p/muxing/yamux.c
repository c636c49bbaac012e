/* yamux.c - one side of a Yamux session and a script of frames: opening and ending streams, flow
 * control, pings, and what no honest peer sends. [spec libp2p-wire 8] */
#include "net/libp2p/muxing/yamux.h"
#include "test/unit/unit.h"

#include <math.h>

static struct {
    struct yamux y;
    struct bytes out;
    struct yamux_stream *opened; /* by the other side, the last */
    size_t opens, readable, writable;
    size_t written[8], read[8]; /* bytes, by stream */
    int takes;                  /* 1: what arrives is taken at once */
    struct pl_err err;
} t;

static void on_opened(void *context, struct yamux_stream *s) { t.opened = s, t.opens++; }
static void on_writable(void *context, struct yamux_stream *s) { t.writable++; }
static void on_readable(void *context, struct yamux_stream *s)
{
    assert_ptr_equal(context, &t);
    t.readable++;
    if (t.takes) assert_int_equal(yamux_took(&t.y, s, bytes_length(&s->in), &t.out), PL_OK);
}

static void begin(int client)
{
    static const struct yamux_events events = { on_opened, on_readable, on_writable };
    memset(&t, 0, sizeof t);
    memset(&t.y, 0xff, sizeof t.y);
    yamux_init(&t.y, client, &events, &t, 100);
}

static void end(void)
{
    yamux_clear(&t.y);
    bytes_clear(&t.out);
}

/* A frame of the other side, with a body of `body` zeros. */
static int receive(int type, int flags, uint32_t id, uint32_t length, size_t body)
{
    const struct yamux_frame f = { 0, (uint8_t)type, (uint16_t)flags, id, length };
    struct bytes in = { 0 };
    int rc;
    assert_int_equal(yamux_frame_put(&in, &f), PL_OK);
    assert_non_null(bytes_reserve(&in, body + 1));
    memset(in.data + in.end, 0, body);
    in.end += body;
    rc = yamux_receive(&t.y, bytes_at(&in), bytes_length(&in), &t.out, &t.err);
    bytes_clear(&in);
    return rc;
}

static int data(int flags, uint32_t id, uint32_t n) { return receive(YAMUX_DATA, flags, id, n, n); }

/* The next frame that we sent is this one, and its body goes on where the stream's last ended. */
static void expect_sent(int type, int flags, uint32_t id, uint32_t length)
{
    struct cursor c = { bytes_at(&t.out), bytes_length(&t.out) };
    struct yamux_frame f;
    assert_int_equal(yamux_frame_get(&c, &f), PL_OK);
    assert_int_equal(f.type, type);
    assert_int_equal(f.flags, flags);
    assert_int_equal(f.stream, id);
    assert_int_equal(f.length, length);
    for (uint32_t i = 0; type == YAMUX_DATA && i < length; i++)
        if (c.at[i] != t.read[id % 8]++ % 251) fail_msg("another byte at %u", (unsigned)i);
    bytes_take(&t.out, 12 + (type == YAMUX_DATA ? length : 0));
}

static void expect_silence(void) { assert_int_equal(bytes_length(&t.out), 0); }

/* A stream of ours that the other side has taken. */
static struct yamux_stream *open_stream(void)
{
    struct yamux_stream *s;
    assert_int_equal(yamux_open(&t.y, &s, &t.out), PL_OK);
    expect_sent(YAMUX_WINDOW_UPDATE, YAMUX_SYN, s->id, 0);
    assert_int_equal(receive(YAMUX_WINDOW_UPDATE, YAMUX_ACK, s->id, 0, 0), PL_OK);
    return s;
}

/* A stream of theirs. */
static struct yamux_stream *be_opened(uint32_t id)
{
    assert_int_equal(receive(YAMUX_WINDOW_UPDATE, YAMUX_SYN, id, 0, 0), PL_OK);
    expect_sent(YAMUX_WINDOW_UPDATE, YAMUX_ACK, id, 0);
    assert_int_equal(t.opened->id, id);
    return t.opened;
}

/* Bytes that count on from the stream's last ones. */
static void write_bytes(struct yamux_stream *s, size_t n)
{
    uint8_t *bytes = malloc(n);
    assert_non_null(bytes);
    for (size_t i = 0; i < n; i++) bytes[i] = (uint8_t)(t.written[s->id % 8]++ % 251);
    assert_int_equal(yamux_write(&t.y, s, bytes, n, &t.out), PL_OK);
    free(bytes);
}

/* --- opening ---------------------------------------------------------------------------------- */

/* The dialer's IDs are odd, the listener's even, each two above the last; the table finds them all. */
static void ids_of_streams(void **state)
{
    struct yamux_stream *s;
    for (int client = 0; client < 2; client++) {
        const uint32_t first = client ? 1 : 2;
        begin(client);
        for (uint32_t i = 0; i < 100; i++) {
            assert_int_equal(yamux_open(&t.y, &s, &t.out), PL_OK);
            assert_int_equal(s->id, first + 2 * i);
            expect_sent(YAMUX_WINDOW_UPDATE, YAMUX_SYN, s->id, 0);
        }
        assert_int_equal(t.y.count, 100);
        for (uint32_t i = 0; i < 100; i++)
            assert_int_equal(yamux_table_find(&t.y, first + 2 * i)->id, first + 2 * i);
        assert_null(yamux_table_find(&t.y, first + 200));
        t.y.next_id = UINT32_MAX - 2;
        assert_int_equal(yamux_open(&t.y, &s, &t.out), PL_OK);
        assert_int_equal(yamux_open(&t.y, &s, &t.out), PL_EAGAIN); /* no ID comes twice */
        end();
    }
}

/* 256 streams of ours may wait for the other side's acknowledgement; any answer to one frees its place. */
static void unacknowledged_streams_are_limited(void **state)
{
    struct yamux_stream *s, *first;
    begin(1);
    assert_int_equal(yamux_open(&t.y, &first, &t.out), PL_OK);
    for (int i = 1; i < YAMUX_UNACKED_MAX; i++)
        assert_int_equal(yamux_open(&t.y, &s, &t.out), PL_OK);
    assert_int_equal(yamux_open(&t.y, &s, &t.out), PL_EAGAIN);
    assert_null(s);
    assert_int_equal(receive(YAMUX_WINDOW_UPDATE, YAMUX_ACK, 1, 0, 0), PL_OK);
    assert_int_equal(receive(YAMUX_WINDOW_UPDATE, YAMUX_ACK, 1, 0, 0), PL_OK); /* counts once */
    assert_int_equal(yamux_open(&t.y, &s, &t.out), PL_OK);
    assert_int_equal(yamux_open(&t.y, &s, &t.out), PL_EAGAIN);
    assert_int_equal(receive(YAMUX_WINDOW_UPDATE, YAMUX_RST, 3, 0, 0), PL_OK);
    assert_int_equal(yamux_open(&t.y, &s, &t.out), PL_OK);
    assert_int_equal(receive(YAMUX_WINDOW_UPDATE, 0, 5, 1, 0), PL_OK); /* nothing is said of it */
    assert_int_equal(data(0, 5, 1), PL_OK);
    assert_int_equal(yamux_open(&t.y, &s, &t.out), PL_EAGAIN);
    assert_int_equal(data(YAMUX_ACK, 5, 1), PL_OK);
    assert_int_equal(yamux_open(&t.y, &s, &t.out), PL_OK);
    yamux_release(&t.y, yamux_table_find(&t.y, 7), &t.out); /* never acknowledged: gone */
    assert_int_equal(yamux_open(&t.y, &s, &t.out), PL_OK);
    yamux_release(&t.y, first, &t.out); /* was acknowledged long ago */
    assert_int_equal(yamux_open(&t.y, &s, &t.out), PL_EAGAIN);
    end();
}

/* 1,024 streams of theirs. One more gets a reset; the connection and the other streams go on. */
static void inbound_streams_are_limited(void **state)
{
    begin(1);
    for (uint32_t i = 0; i < YAMUX_STREAMS_MAX; i++) be_opened(2 + 2 * i);
    assert_int_equal(receive(YAMUX_WINDOW_UPDATE, YAMUX_SYN, 2 + 2 * YAMUX_STREAMS_MAX, 0, 0),
                     PL_OK);
    expect_sent(YAMUX_WINDOW_UPDATE, YAMUX_RST, 2 + 2 * YAMUX_STREAMS_MAX, 0);
    assert_int_equal(t.opens, YAMUX_STREAMS_MAX);
    yamux_release(&t.y, t.opened, &t.out);
    expect_sent(YAMUX_WINDOW_UPDATE, YAMUX_RST, 2 * YAMUX_STREAMS_MAX, 0);
    be_opened(2 + 2 * YAMUX_STREAMS_MAX);
    end();
}

static void ids_that_the_other_side_may_not_open(void **state)
{
    static const struct {
        int client;
        uint32_t id;
    } bad[] = { { 1, 1 }, { 1, 3 }, { 1, 0 }, { 0, 2 }, { 0, 0 } };
    for (size_t i = 0; i < PL_COUNT(bad); i++) {
        begin(bad[i].client);
        assert_int_equal(receive(YAMUX_WINDOW_UPDATE, YAMUX_SYN, bad[i].id, 0, 0), PL_EPROTO);
        assert_non_null(strstr(t.err.text, "our own kind"));
        expect_sent(YAMUX_GO_AWAY, 0, 0, 1);
        end();
    }
    begin(1);
    be_opened(2);
    assert_int_equal(receive(YAMUX_WINDOW_UPDATE, YAMUX_SYN, 2, 0, 0), PL_EPROTO);
    assert_non_null(strstr(t.err.text, "in use"));
    end();
}

/* After go-away no new streams; with a reason other than 0 the connection has failed. */
static void going_away(void **state)
{
    struct yamux_stream *s;
    begin(1);
    assert_int_equal(receive(YAMUX_GO_AWAY, 0, 0, 0, 0), PL_OK);
    assert_int_equal(yamux_open(&t.y, &s, &t.out), PL_EAGAIN);
    assert_int_equal(receive(YAMUX_GO_AWAY, 0, 0, 2, 0), PL_EPROTO);
    assert_non_null(strstr(t.err.text, "reason 2"));
    end();
}

static void frames_of_other_kinds_are_refused(void **state)
{
    struct yamux_frame f = { 1, YAMUX_DATA, 0, 1, 0 };
    struct cursor c;
    begin(1);
    assert_int_equal(receive(YAMUX_GO_AWAY + 1, 0, 0, 0, 0), PL_EPROTO);
    assert_int_equal(yamux_frame_put(&t.out, &f), PL_OK);
    bytes_take(&t.out, 12); /* our go-away */
    c = (struct cursor){ bytes_at(&t.out), 12 };
    assert_int_equal(yamux_frame_get(&c, &f), PL_EPROTO); /* version 1 */
    c = (struct cursor){ bytes_at(&t.out), 11 };
    assert_int_equal(yamux_frame_get(&c, &f), PL_EAGAIN);
    end();
}

/* --- flow control ----------------------------------------------------------------------------- */

/* Frames of at most 64 KiB with their header, until the credit of 256 KiB is used up; the rest goes when there is
 * more. */
static void what_we_send_is_bounded_by_credit(void **state)
{
    const uint32_t rest = YAMUX_WINDOW - 4 * YAMUX_BODY_MAX;
    struct yamux_stream *s;
    begin(1);
    s = open_stream();
    write_bytes(s, YAMUX_WINDOW + 10);
    for (int i = 0; i < 4; i++) expect_sent(YAMUX_DATA, 0, 1, YAMUX_BODY_MAX);
    expect_sent(YAMUX_DATA, 0, 1, rest);
    expect_silence();
    assert_int_equal(s->waiting.length, 10);
    assert_int_equal(t.y.unsent, 10);
    write_bytes(s, 2); /* behind what waits */
    assert_int_equal(yamux_pump(&t.y, &t.out), PL_OK);
    expect_silence();
    assert_int_equal(receive(YAMUX_WINDOW_UPDATE, 0, 1, 4, 0), PL_OK);
    expect_sent(YAMUX_DATA, 0, 1, 4);
    expect_silence();
    assert_int_equal(t.writable, 0);
    assert_int_equal(yamux_finish(&t.y, s, &t.out), PL_OK);
    expect_silence(); /* FIN comes after the last byte */
    assert_int_equal(receive(YAMUX_WINDOW_UPDATE, 0, 1, 100, 0), PL_OK);
    for (uint32_t left = 8; left;) {
        struct cursor c = { bytes_at(&t.out), bytes_length(&t.out) };
        struct yamux_frame f;
        assert_int_equal(yamux_frame_get(&c, &f), PL_OK);
        expect_sent(YAMUX_DATA, 0, 1, f.length);
        left -= f.length;
    }
    expect_sent(YAMUX_WINDOW_UPDATE, YAMUX_FIN, 1, 0);
    expect_silence();
    assert_int_equal(t.writable, 1);
    assert_int_equal(t.y.unsent, 0);
    assert_int_equal(yamux_finish(&t.y, s, &t.out), PL_OK);
    expect_silence(); /* one FIN */
    assert_int_equal(yamux_write(&t.y, s, "x", 1, &t.out), PL_EPROTO);
    end();
}

/* One frame of each stream in turn, as far as the budget goes; the last frame is not cut. */
static void streams_take_turns(void **state)
{
    struct yamux_stream *s[3];
    begin(1);
    for (int i = 0; i < 3; i++) s[i] = open_stream();
    t.y.send_budget = 0;
    for (int i = 0; i < 3; i++) write_bytes(s[i], 2 * YAMUX_BODY_MAX);
    expect_silence();
    t.y.send_budget = 3 * YAMUX_BODY_MAX + 1;
    assert_int_equal(yamux_pump(&t.y, &t.out), PL_OK);
    for (int i = 0; i < 4; i++) expect_sent(YAMUX_DATA, 0, s[i % 3]->id, YAMUX_BODY_MAX);
    expect_silence();
    assert_int_equal(t.y.send_budget, 0);
    yamux_release(&t.y, s[1], &t.out); /* out of the queue's middle */
    expect_sent(YAMUX_WINDOW_UPDATE, YAMUX_RST, 3, 0);
    t.y.send_budget = SIZE_MAX;
    write_bytes(s[2], 1); /* behind what waits, though it might be sent now */
    expect_silence();
    assert_int_equal(yamux_pump(&t.y, &t.out), PL_OK);
    expect_sent(YAMUX_DATA, 0, 5, YAMUX_BODY_MAX);
    expect_sent(YAMUX_DATA, 0, 5, 1);
    expect_silence();
    assert_int_equal(t.writable, 2);
    assert_int_equal(t.y.unsent, 0);
    end();
}

static void data_that_is_given_goes_out_with_the_next_pump(void **state)
{
    struct bytes given = { 0 };
    struct yamux_stream *s;
    begin(1);
    s = open_stream();
    assert_int_equal(bytes_add(&given, "\x7f\0\1\2", 4), PL_OK);
    bytes_take(&given, 1);
    assert_int_equal(yamux_give(&t.y, s, &given), PL_OK);
    expect_silence();
    assert_true(given.begin == 0 && given.end == 0);
    assert_int_equal(yamux_pump(&t.y, &t.out), PL_OK);
    expect_sent(YAMUX_DATA, 0, 1, 3);
    bytes_clear(&given);
    end();
}

/* Bytes that wait in streams of theirs are answers, which count against the peer; not so once the stream is exempt. */
static void waiting_answers_are_counted(void **state)
{
    struct yamux_stream *theirs, *ours;
    struct bytes given = { 0 };
    begin(1);
    theirs = be_opened(2);
    ours = open_stream();
    t.y.send_budget = 0;
    write_bytes(theirs, 10);
    write_bytes(ours, 100);
    assert_int_equal(t.y.answers, 10);
    assert_int_equal(t.y.unsent, 110);
    assert_int_equal(bytes_add(&given, "abc", 3), PL_OK);
    assert_int_equal(yamux_give(&t.y, theirs, &given), PL_OK);
    assert_true(t.y.answers == 13 && t.y.unsent == 113 && bytes_length(&given) == 0);
    yamux_exempt(&t.y, theirs);
    assert_int_equal(t.y.answers, 0);
    yamux_exempt(&t.y, theirs);
    yamux_exempt(&t.y, ours);
    assert_int_equal(t.y.answers, 0);
    yamux_release(&t.y, theirs, &t.out);
    assert_true(t.y.answers == 0 && t.y.unsent == 100);
    assert_int_equal(receive(YAMUX_WINDOW_UPDATE, YAMUX_RST, ours->id, 0, 0), PL_OK);
    assert_int_equal(t.y.unsent, 0);
    assert_int_equal(bytes_add(&given, "abc", 3), PL_OK);
    assert_int_equal(yamux_give(&t.y, ours, &given), PL_EPROTO);
    assert_int_equal(yamux_write(&t.y, ours, "x", 1, &t.out), PL_EPROTO);
    bytes_clear(&given);
    end();
}

/* Credit comes back in one frame, when half of the window has been read. */
static void credit_comes_back_by_halves(void **state)
{
    struct yamux_stream *s;
    begin(1);
    s = open_stream();
    assert_int_equal(data(0, 1, YAMUX_WINDOW / 2), PL_OK);
    assert_int_equal(t.y.held, YAMUX_WINDOW / 2);
    assert_int_equal(yamux_took(&t.y, s, YAMUX_WINDOW / 2 - 1, &t.out), PL_OK);
    expect_silence();
    assert_int_equal(t.y.held, 1);
    assert_int_equal(yamux_took(&t.y, s, 1, &t.out), PL_OK);
    expect_sent(YAMUX_WINDOW_UPDATE, 0, 1, YAMUX_WINDOW / 2);
    assert_int_equal(data(0, 1, YAMUX_WINDOW), PL_OK); /* exactly what is granted */
    expect_silence();
    assert_int_equal(data(0, 1, 1), PL_EPROTO);
    assert_non_null(strstr(t.err.text, "more data than credit"));
    expect_sent(YAMUX_GO_AWAY, 0, 0, 1);
    end();
}

/* A window that is used up within four round trips doubles, up to 16 MiB. */
static void a_fast_reader_gets_a_larger_window(void **state)
{
    static const struct {
        double later;
        int grows;
    } cases[] = { { 0.4375, 1 }, { 0.5, 0 } };
    struct yamux_stream *s;
    for (size_t i = 0; i < PL_COUNT(cases); i++) {
        begin(1);
        t.takes = 1;
        s = open_stream();
        t.y.rtt = 0.125;
        assert_int_equal(data(0, 1, YAMUX_WINDOW / 2), PL_OK);
        expect_sent(YAMUX_WINDOW_UPDATE, 0, 1, YAMUX_WINDOW / 2); /* the first: no time is known */
        assert_int_equal(s->window, YAMUX_WINDOW);
        t.y.now += cases[i].later;
        assert_int_equal(data(0, 1, YAMUX_WINDOW / 2), PL_OK);
        expect_sent(YAMUX_WINDOW_UPDATE, 0, 1,
                    YAMUX_WINDOW / 2 + (cases[i].grows ? YAMUX_WINDOW : 0));
        assert_int_equal(s->window, cases[i].grows ? 2 * YAMUX_WINDOW : YAMUX_WINDOW);
        assert_int_equal(t.y.grown, cases[i].grows ? YAMUX_WINDOW : 0);
        end();
    }
    begin(1);
    t.takes = 1;
    s = open_stream();
    t.y.rtt = 1;
    for (int i = 0; i < 20; i++) {
        const uint32_t half = s->granted < s->window / 2 + 1 ? s->granted : s->window / 2 + 1;
        assert_int_equal(data(0, 1, half), PL_OK);
    }
    assert_int_equal(s->window, YAMUX_WINDOW_MAX);
    assert_int_equal(t.y.grown, YAMUX_WINDOW_MAX - YAMUX_WINDOW);
    yamux_release(&t.y, s, &t.out);
    assert_int_equal(t.y.grown, 0);
    end();
}

/* All windows together grow by 128 MiB at most. */
static void windows_grow_within_a_sum(void **state)
{
    for (int room = 0; room < 2; room++) {
        struct yamux_stream *s;
        begin(1);
        t.takes = 1;
        s = open_stream();
        t.y.rtt = 1;
        t.y.grown = YAMUX_GROWN_MAX - YAMUX_WINDOW + !room;
        s->granted_at = 100;
        assert_int_equal(data(0, 1, YAMUX_WINDOW), PL_OK);
        assert_int_equal(s->window, room ? 2 * YAMUX_WINDOW : YAMUX_WINDOW);
        t.y.grown = s->window - YAMUX_WINDOW;
        end();
    }
}

/* A reader of one long message opens the window for all of it at once. */
static void an_awaited_message_opens_the_window(void **state)
{
    struct yamux_stream *s;
    begin(1);
    s = open_stream();
    assert_int_equal(yamux_expect(&t.y, s, YAMUX_WINDOW, &t.out), PL_OK);
    expect_silence(); /* it fits */
    assert_int_equal(yamux_expect(&t.y, s, YAMUX_WINDOW + 1, &t.out), PL_OK);
    expect_sent(YAMUX_WINDOW_UPDATE, 0, 1, YAMUX_WINDOW + 1);
    assert_int_equal(s->window, 2 * YAMUX_WINDOW + 1);
    assert_int_equal(t.y.grown, YAMUX_WINDOW + 1);
    assert_int_equal(yamux_expect(&t.y, s, YAMUX_MESSAGE_MAX + 1, &t.out), PL_ELIMIT);
    t.y.grown = YAMUX_GROWN_MAX - YAMUX_MESSAGE_MAX + YAMUX_WINDOW + 2;
    assert_int_equal(yamux_expect(&t.y, s, YAMUX_MESSAGE_MAX, &t.out), PL_ELIMIT);
    t.y.grown--;
    assert_int_equal(yamux_expect(&t.y, s, YAMUX_MESSAGE_MAX, &t.out), PL_OK);
    assert_int_equal(t.y.grown, YAMUX_GROWN_MAX);
    end();
}

/* The reader waits for bytes that lie partly here: credit for the rest, though less than half. */
static void the_rest_of_a_message_gets_credit(void **state)
{
    struct yamux_stream *s;
    begin(1);
    s = open_stream();
    assert_int_equal(data(0, 1, 10), PL_OK);
    assert_int_equal(yamux_took(&t.y, s, 10, &t.out), PL_OK);
    assert_int_equal(yamux_expect(&t.y, s, YAMUX_WINDOW - 10, &t.out), PL_OK);
    expect_silence();
    assert_int_equal(yamux_expect(&t.y, s, YAMUX_WINDOW - 9, &t.out), PL_OK);
    expect_sent(YAMUX_WINDOW_UPDATE, 0, 1, 10);
    end();
}

static void credit_that_overflows_is_refused(void **state)
{
    begin(1);
    open_stream();
    assert_int_equal(receive(YAMUX_WINDOW_UPDATE, 0, 1, UINT32_MAX - YAMUX_WINDOW, 0), PL_OK);
    assert_int_equal(receive(YAMUX_WINDOW_UPDATE, 0, 1, 1, 0), PL_EPROTO);
    assert_non_null(strstr(t.err.text, "credit"));
    end();
}

/* --- ends ------------------------------------------------------------------------------------- */

/* A body counts as it arrives, FIN after its last byte; a stream that both sides have ended goes at its release. */
static void a_stream_ends_after_its_body(void **state)
{
    const struct yamux_frame f = { 0, YAMUX_DATA, YAMUX_FIN, 1, 3 };
    struct bytes in = { 0 };
    struct yamux_stream *s;
    begin(1);
    s = open_stream();
    assert_int_equal(yamux_frame_put(&in, &f), PL_OK);
    assert_int_equal(bytes_add(&in, "abc", 3), PL_OK);
    for (size_t i = 0; i < 15; i++) {
        assert_int_equal(yamux_receive(&t.y, bytes_at(&in) + i, 1, &t.out, &t.err), PL_OK);
        assert_int_equal(s->in_ended, i == 14);
        assert_int_equal(t.readable, i < 12 ? 0 : i - 11);
    }
    bytes_clear(&in);
    assert_memory_equal(bytes_at(&s->in), "abc", 3);
    assert_int_equal(yamux_took(&t.y, s, 3, &t.out), PL_OK);
    expect_silence(); /* an ended stream needs no credit */
    assert_int_equal(yamux_finish(&t.y, s, &t.out), PL_OK);
    expect_sent(YAMUX_WINDOW_UPDATE, YAMUX_FIN, 1, 0);
    yamux_release(&t.y, s, &t.out);
    expect_silence();
    assert_int_equal(t.y.count, 0);
    end();
}

/* An empty frame or a window update can end a stream, too; the layer above hears of it once. */
static void frames_without_a_body_end_streams(void **state)
{
    begin(1);
    for (int flags = YAMUX_FIN; flags <= YAMUX_RST; flags *= 2)
        for (int type = YAMUX_DATA; type <= YAMUX_WINDOW_UPDATE; type++) {
            struct yamux_stream *s = open_stream();
            t.readable = 0;
            assert_int_equal(receive(type, flags, s->id, 0, 0), PL_OK);
            assert_int_equal(s->in_ended, flags == YAMUX_FIN);
            assert_int_equal(s->reset, flags == YAMUX_RST);
            assert_int_equal(t.readable, 1);
        }
    t.readable = 0;
    assert_int_equal(receive(YAMUX_WINDOW_UPDATE, 0, 1, 1, 0), PL_OK);
    assert_int_equal(receive(YAMUX_DATA, 0, 1, 0, 0), PL_OK);
    assert_int_equal(t.readable, 0); /* nothing has come */
    end();
}

/* Data for a stream that is gone is read and dropped: a reset crosses data on the way. No window is larger than 65 MiB. */
static void late_data_is_dropped(void **state)
{
    struct yamux_stream *s;
    begin(1);
    s = open_stream();
    yamux_release(&t.y, s, &t.out);
    expect_sent(YAMUX_WINDOW_UPDATE, YAMUX_RST, 1, 0);
    assert_null(yamux_table_find(&t.y, 1));
    assert_int_equal(data(0, 1, 1000), PL_OK);
    assert_int_equal(receive(YAMUX_WINDOW_UPDATE, 0, 1, 5, 0), PL_OK);
    expect_silence();
    assert_int_equal(t.readable, 0);
    s = open_stream(); /* the stream is whole: another one can follow */
    assert_int_equal(receive(YAMUX_DATA, 0, 1, YAMUX_MESSAGE_MAX + 1, 0), PL_EPROTO);
    end();
    begin(1);
    assert_int_equal(receive(YAMUX_DATA, 0, 1, YAMUX_MESSAGE_MAX, 0), PL_OK);
    assert_int_equal(t.y.body_left, YAMUX_MESSAGE_MAX);
    end();
}

/* After their reset nothing more comes or goes, and none is sent back. */
static void a_reset_stream_is_silent(void **state)
{
    struct yamux_stream *s;
    begin(1);
    s = open_stream();
    assert_int_equal(receive(YAMUX_WINDOW_UPDATE, YAMUX_RST, 1, 0, 0), PL_OK);
    assert_int_equal(receive(YAMUX_WINDOW_UPDATE, YAMUX_FIN, 1, 1, 0), PL_OK);
    assert_int_equal(data(YAMUX_FIN, 1, 1), PL_OK);
    assert_true(t.readable == 1 && !s->in_ended && s->credit == YAMUX_WINDOW);
    yamux_release(&t.y, s, &t.out);
    expect_silence();
    assert_int_equal(t.y.count, 0);
    end();
}

/* A released stream takes no more bytes into memory, and goes when the other side ends it. */
static void a_released_stream_lingers_without_memory(void **state)
{
    struct yamux_stream *s;
    begin(1);
    s = open_stream();
    s->user = &t;
    assert_int_equal(data(0, 1, 7), PL_OK);
    assert_int_equal(data(0, 1, 2), PL_OK);
    assert_int_equal(t.y.held, 9);
    assert_int_equal(yamux_finish(&t.y, s, &t.out), PL_OK);
    expect_sent(YAMUX_WINDOW_UPDATE, YAMUX_FIN, 1, 0);
    yamux_release(&t.y, s, &t.out);
    expect_silence(); /* no reset: our side has ended in order */
    assert_true(t.y.held == 0 && !s->user);
    t.readable = 0;
    assert_int_equal(data(0, 1, 9), PL_OK);
    assert_true(t.y.held == 0 && t.y.count == 1 && t.readable == 0);
    assert_int_equal(data(YAMUX_FIN, 1, 1), PL_OK);
    assert_true(t.y.count == 0 && t.readable == 0);
    end();
}

/* ...or, if that has happened before, when its last bytes are out. */
static void a_stream_that_the_other_side_has_ended_goes_with_its_last_bytes(void **state)
{
    struct yamux_stream *s;
    begin(1);
    s = open_stream();
    t.y.send_budget = 0;
    write_bytes(s, 10);
    assert_int_equal(receive(YAMUX_WINDOW_UPDATE, YAMUX_FIN, 1, 0, 0), PL_OK);
    assert_int_equal(yamux_finish(&t.y, s, &t.out), PL_OK);
    yamux_release(&t.y, s, &t.out);
    assert_int_equal(t.y.count, 1);
    t.y.send_budget = 10;
    assert_int_equal(yamux_pump(&t.y, &t.out), PL_OK);
    expect_sent(YAMUX_DATA, 0, 1, 10);
    expect_sent(YAMUX_WINDOW_UPDATE, YAMUX_FIN, 1, 0);
    assert_int_equal(t.y.count, 0);
    end();
}

/* ...or after three ticks in which nothing moved. */
static void a_lingering_stream_goes(void **state)
{
    for (int moves = 0; moves < 2; moves++) {
        struct yamux_stream *s;
        begin(1);
        s = open_stream();
        t.y.send_budget = 0;
        write_bytes(s, 10);
        assert_int_equal(yamux_finish(&t.y, s, &t.out), PL_OK);
        yamux_release(&t.y, s, &t.out);
        expect_silence();
        for (int i = 0; i < YAMUX_LINGER_TICKS; i++) {
            assert_int_equal(yamux_tick(&t.y, t.y.ping_at, &t.out, &t.err), PL_OK);
            t.y.ping_sent = -1; /* answered */
            expect_sent(YAMUX_PING, YAMUX_SYN, 0, (uint32_t)i + 1);
            expect_silence();
            if (moves && i == YAMUX_LINGER_TICKS - 1) {
                t.y.send_budget = 1;
                s->credit = 4;
                assert_int_equal(yamux_pump(&t.y, &t.out), PL_OK);
                expect_sent(YAMUX_DATA, 0, 1, 4);
            }
        }
        assert_int_equal(t.y.count, 1);
        assert_int_equal(yamux_tick(&t.y, t.y.ping_at, &t.out, &t.err), PL_OK);
        if (!moves) expect_sent(YAMUX_WINDOW_UPDATE, YAMUX_RST, 1, 0);
        expect_sent(YAMUX_PING, YAMUX_SYN, 0, YAMUX_LINGER_TICKS + 1);
        assert_int_equal(t.y.count, moves);
        if (moves) {
            t.y.send_budget = 100;
            assert_int_equal(receive(YAMUX_WINDOW_UPDATE, 0, 1, 100, 0), PL_OK);
            expect_sent(YAMUX_DATA, 0, 1, 6);
            expect_sent(YAMUX_WINDOW_UPDATE, YAMUX_FIN, 1, 0);
            assert_true(t.y.count == 1 && t.writable == 0);
            assert_int_equal(receive(YAMUX_WINDOW_UPDATE, YAMUX_FIN, 1, 0, 0), PL_OK);
            assert_int_equal(t.y.count, 0);
        }
        end();
    }
}

/* --- pings ------------------------------------------------------------------------------------ */

static void pings_are_answered_with_their_number(void **state)
{
    begin(1);
    assert_int_equal(receive(YAMUX_PING, YAMUX_SYN, 0, 77, 0), PL_OK);
    expect_sent(YAMUX_PING, YAMUX_ACK, 0, 77);
    expect_silence();
    end();
}

/* The first at once, then each 30 s; its answer gives the round trip, an answer to another does not. */
static void pings_measure_the_round_trip(void **state)
{
    begin(1);
    assert_true(yamux_due(&t.y) == 100);
    assert_int_equal(yamux_tick(&t.y, 99.9, &t.out, &t.err), PL_OK);
    expect_silence();
    assert_int_equal(yamux_tick(&t.y, 100, &t.out, &t.err), PL_OK);
    expect_sent(YAMUX_PING, YAMUX_SYN, 0, 1);
    t.y.now = 100.25;
    assert_int_equal(receive(YAMUX_PING, YAMUX_ACK, 0, 2, 0), PL_OK);
    assert_true(t.y.rtt == 0 && t.y.ping_sent == 100);
    assert_int_equal(receive(YAMUX_PING, YAMUX_ACK, 0, 1, 0), PL_OK);
    assert_true(t.y.rtt == 0.25);
    t.y.now = 101;
    assert_int_equal(receive(YAMUX_PING, YAMUX_ACK, 0, 1, 0), PL_OK); /* twice: the first counts */
    assert_true(t.y.rtt == 0.25);
    assert_true(yamux_due(&t.y) == 130);
    assert_int_equal(yamux_tick(&t.y, 129, &t.out, &t.err), PL_OK);
    expect_silence();
    assert_int_equal(yamux_tick(&t.y, 130, &t.out, &t.err), PL_OK);
    expect_sent(YAMUX_PING, YAMUX_SYN, 0, 2);
    end();
}

/* Without an answer for 10 s the peer is dead, unless anything else of it arrives meanwhile. */
static void a_silent_peer_is_dead_after_ten_seconds(void **state)
{
    for (int hears = 0; hears < 2; hears++) {
        begin(1);
        assert_int_equal(yamux_tick(&t.y, 100, &t.out, &t.err), PL_OK);
        t.y.now = 104;
        if (hears) assert_int_equal(receive(YAMUX_WINDOW_UPDATE, 0, 9, 1, 0), PL_OK);
        assert_true(yamux_due(&t.y) == (hears ? 114 : 110));
        assert_int_equal(yamux_tick(&t.y, hears ? 113.9 : 109.9, &t.out, &t.err), PL_OK);
        assert_int_equal(yamux_tick(&t.y, hears ? 114 : 110, &t.out, &t.err), PL_EPROTO);
        assert_non_null(strstr(t.err.text, "10 s"));
        end();
    }
    begin(1); /* what was heard before the ping is not an answer */
    t.y.now = 99;
    assert_int_equal(receive(YAMUX_WINDOW_UPDATE, 0, 9, 1, 0), PL_OK);
    assert_int_equal(yamux_tick(&t.y, 100, &t.out, &t.err), PL_OK);
    assert_true(yamux_due(&t.y) == 110);
    end();
}

/* A session in slices: after so many frames the rest stays. */
static void frames_are_taken_in_slices(void **state)
{
    const struct yamux_frame f = { 0, YAMUX_PING, YAMUX_SYN, 0, 5 };
    struct bytes in = { 0 };
    struct cursor c;
    begin(1);
    for (int i = 0; i < 3; i++) assert_int_equal(yamux_frame_put(&in, &f), PL_OK);
    c = (struct cursor){ bytes_at(&in), bytes_length(&in) };
    assert_int_equal(yamux_receive_some(&t.y, &c, 2, &t.out, &t.err), PL_OK);
    assert_int_equal(c.left, 12);
    assert_int_equal(bytes_length(&t.out), 24);
    assert_int_equal(yamux_receive_some(&t.y, &c, 2, &t.out, &t.err), PL_OK);
    assert_int_equal(c.left, 0);
    bytes_clear(&in);
    end();
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ids_of_streams),
        cmocka_unit_test(unacknowledged_streams_are_limited),
        cmocka_unit_test(inbound_streams_are_limited),
        cmocka_unit_test(ids_that_the_other_side_may_not_open),
        cmocka_unit_test(going_away),
        cmocka_unit_test(frames_of_other_kinds_are_refused),
        cmocka_unit_test(what_we_send_is_bounded_by_credit),
        cmocka_unit_test(streams_take_turns),
        cmocka_unit_test(data_that_is_given_goes_out_with_the_next_pump),
        cmocka_unit_test(waiting_answers_are_counted),
        cmocka_unit_test(credit_comes_back_by_halves),
        cmocka_unit_test(a_fast_reader_gets_a_larger_window),
        cmocka_unit_test(windows_grow_within_a_sum),
        cmocka_unit_test(an_awaited_message_opens_the_window),
        cmocka_unit_test(the_rest_of_a_message_gets_credit),
        cmocka_unit_test(credit_that_overflows_is_refused),
        cmocka_unit_test(a_stream_ends_after_its_body),
        cmocka_unit_test(frames_without_a_body_end_streams),
        cmocka_unit_test(late_data_is_dropped),
        cmocka_unit_test(a_reset_stream_is_silent),
        cmocka_unit_test(a_released_stream_lingers_without_memory),
        cmocka_unit_test(a_stream_that_the_other_side_has_ended_goes_with_its_last_bytes),
        cmocka_unit_test(a_lingering_stream_goes),
        cmocka_unit_test(pings_are_answered_with_their_number),
        cmocka_unit_test(pings_measure_the_round_trip),
        cmocka_unit_test(a_silent_peer_is_dead_after_ten_seconds),
        cmocka_unit_test(frames_are_taken_in_slices),
    };
    if (argc > 1) cmocka_set_test_filter(argv[1]);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
