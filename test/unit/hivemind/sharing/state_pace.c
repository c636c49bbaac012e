/* state_pace.c - a state that travels too slowly is given up: within a window, and over the whole. */
#include "net/hivemind/sharing/state_pace.h"
#include "test/unit/unit.h"

static const size_t least = (size_t)(STATE_RATE_MIN * STATE_RATE_WINDOW); /* bytes of a window */

static void a_stream_that_stalls(void **state)
{
    struct state_pace p;
    struct pl_err err;
    state_pace_begin(&p, 1000);
    assert_int_equal(state_pace_check(&p, 1029.9, 1 << 30, NULL), PL_OK);
    assert_int_equal(state_pace_check(&p, 1030, 1 << 30, &err), PL_EAGAIN);
    assert_non_null(strstr(err.text, "0 bytes within 30 s, expected at least 491520"));
    p.bytes = least;
    assert_int_equal(state_pace_check(&p, 1030, 1 << 30, NULL), PL_OK);
    /* A new window has begun: what moved in the last one does not count in it. */
    assert_int_equal(state_pace_check(&p, 1059.9, 1 << 30, NULL), PL_OK);
    p.bytes += least - 1;
    assert_int_equal(state_pace_check(&p, 1060, 1 << 30, &err), PL_EAGAIN);
    assert_non_null(strstr(err.text, "491519 bytes within 30 s"));
    p.bytes++;
    assert_int_equal(state_pace_check(&p, 1060, 1 << 30, NULL), PL_OK);
    /* A window that is read late is as long as it was. */
    p.bytes += 2 * least - 1;
    assert_int_equal(state_pace_check(&p, 1120, 1 << 30, NULL), PL_EAGAIN);
}

/* 60 s, and a second for each 64 KiB. */
static void a_donor_that_drips(void **state)
{
    struct state_pace p;
    struct pl_err err;
    const size_t most = (size_t)(10 * STATE_RATE_MEAN);
    state_pace_begin(&p, 1000);
    p.bytes = 100 * least;
    assert_int_equal(state_pace_check(&p, 1070, most, &err), PL_OK);
    p.bytes = 200 * least;
    assert_int_equal(state_pace_check(&p, 1070.1, most, &err), PL_EAGAIN);
    assert_non_null(strstr(err.text, "too slow to wait"));
    assert_non_null(strstr(err.text, " in 70 s"));
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(a_stream_that_stalls),
                                        cmocka_unit_test(a_donor_that_drips) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
