/* yamux.c - one side of a Yamux session and a script of frames: opening and ending streams, pings, and what no honest
 * peer sends. [spec libp2p-wire 8] yamux_credit.c has flow control. */
#include "test/unit/libp2p/muxing/yamux_script.h"

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
    assert_int_equal(receive(YAMUX_WINDOW_UPDATE, 0, 5, 1, 0),
                     PL_OK); /* nothing is reported of it */
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
    assert_int_equal(yamux_finish(s, &t.out), PL_OK);
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
    assert_int_equal(yamux_finish(s, &t.out), PL_OK);
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
    assert_int_equal(yamux_finish(s, &t.out), PL_OK);
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
        assert_int_equal(yamux_finish(s, &t.out), PL_OK);
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

/* A ping out of turn; a second one waits for the answer. */
static void a_ping_out_of_turn_finds_a_dead_peer(void **state)
{
    begin(1);
    assert_int_equal(yamux_tick(&t.y, 100, &t.out, &t.err), PL_OK);
    expect_sent(YAMUX_PING, YAMUX_SYN, 0, 1);
    assert_int_equal(receive(YAMUX_PING, YAMUX_ACK, 0, 1, 0), PL_OK);
    assert_true(yamux_due(&t.y) == 130);
    assert_int_equal(yamux_ping(&t.y, 105, &t.out), PL_OK);
    expect_sent(YAMUX_PING, YAMUX_SYN, 0, 2);
    assert_int_equal(yamux_ping(&t.y, 106, &t.out), PL_OK);
    expect_silence();
    assert_int_equal(yamux_tick(&t.y, 114.9, &t.out, &t.err), PL_OK);
    assert_int_equal(yamux_tick(&t.y, 115, &t.out, &t.err), PL_EPROTO);
    end();
}

/* 2 frames of 3: the last one stays. */
static void frames_are_taken_in_turns(void **state)
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
        cmocka_unit_test(a_stream_ends_after_its_body),
        cmocka_unit_test(frames_without_a_body_end_streams),
        cmocka_unit_test(late_data_is_dropped),
        cmocka_unit_test(a_reset_stream_is_silent),
        cmocka_unit_test(a_released_stream_lingers_without_memory),
        cmocka_unit_test(a_stream_that_the_other_side_has_ended_goes_with_its_last_bytes),
        cmocka_unit_test(a_lingering_stream_goes),
        cmocka_unit_test(pings_are_answered_with_their_number),
        cmocka_unit_test(pings_measure_the_round_trip),
        cmocka_unit_test(a_ping_out_of_turn_finds_a_dead_peer),
        cmocka_unit_test(a_silent_peer_is_dead_after_ten_seconds),
        cmocka_unit_test(frames_are_taken_in_turns),
    };
    if (argc > 1) cmocka_set_test_filter(argv[1]);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
