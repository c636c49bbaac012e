/* yamux_credit.c - flow control of a Yamux session: what we may send, what the other side may, and windows that grow.
 * [spec libp2p-wire 8] */
#include "test/unit/libp2p/muxing/yamux_script.h"

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
    assert_int_equal(yamux_finish(s, &t.out), PL_OK);
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
    assert_int_equal(yamux_finish(s, &t.out), PL_OK);
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
    for (int may_grow = 0; may_grow < 2; may_grow++) {
        struct yamux_stream *s;
        begin(1);
        t.takes = 1;
        s = open_stream();
        t.y.rtt = 1;
        t.y.grown = YAMUX_GROWN_MAX - YAMUX_WINDOW + !may_grow;
        s->granted_at = 100;
        assert_int_equal(data(0, 1, YAMUX_WINDOW), PL_OK);
        assert_int_equal(s->window, may_grow ? 2 * YAMUX_WINDOW : YAMUX_WINDOW);
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

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
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
    };
    if (argc > 1) cmocka_set_test_filter(argv[1]);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
