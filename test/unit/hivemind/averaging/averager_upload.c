/* averager_upload.c - a peer whose uplink is too slow for its own values gets no share from the
 * leader, sends values in some parts only, and ends with the others' means. */
#include "test/unit/hivemind/loopback.h"
#include "net/hivemind/allreduce/allreduce_internal.h"
#include "net/hivemind/averaging/averager_internal.h"

#include <math.h>
#include <unistd.h>

#define MBIT 125000.0 /* bytes */
#define MEMBERS 4

static const double rate[MEMBERS] = { 1000, 1.5, 1, 1000 }; /* Mbit/s; too slow are those below 2 */

static void average(double limit)
{
    static struct bandwidth measured[MEMBERS];
    for (size_t i = 0; i < MEMBERS; i++) {
        struct peer *p = add(0, 0);
        measured[i] = (struct bandwidth){ .rate = rate[i] * MBIT };
        p->options.measured = &measured[i];
        p->options.upload_limit = limit;
    }
    expect(MEMBERS);
    open_all();
    begin_all();
    for (size_t i = 0; i < MEMBERS; i++) {
        assert_true(await(&peers[i].done, 1));
        if (peers[i].status) fail_msg("peer %zu: %s", i, peers[i].err.text);
        assert_int_equal(peers[i].group, MEMBERS);
        assert_int_equal(peers[i].report.senders_lost, 0);
        for (size_t v = 0; v < VALUES; v++)
            assert_true(fabsf(peers[i].values[v] - peers[0].values[v]) < 1e-5f);
    }
}

/* Which of the members has this share in peer 0's list? */
static size_t share_of(const struct peer *p)
{
    for (size_t i = 0; i < MEMBERS; i++)
        if (peer_id_equal(&peers[0].member[i], &p->me.id)) return peers[0].share[i];
    fail_msg("it is not in the group");
    return 0;
}

static void slow_uplink_sends_what_fits(void **state)
{
    average(VALUES * sizeof(float) / (2 * MBIT));
    for (size_t i = 0; i < MEMBERS; i++) {
        const double sent = 1 - (double)peers[i].report.withheld / VALUES;
        assert_true(fabs(sent - fmin(1, rate[i] / 2)) < 0.2);
        assert_int_equal(share_of(&peers[i]) > 0, rate[i] > 2);
    }
}

static void without_a_limit_it_sends_all(void **state)
{
    average(0);
    for (size_t i = 0; i < MEMBERS; i++) assert_int_equal(peers[i].report.withheld, 0);
}

static double time_limit; /* of the all-reduce that peer 0 is in */
static void read_time_limit(void *context)
{
    const struct allreduce *x = ((struct peer *)context)->a->round.x;
    if (x) time_limit = x->o.time_limit;
}
static void enlarge(void *context) { ((struct peer *)context)->a->slow = 1e6; }

/* The limit of a first round; one peer never begins, so that it lasts. */
static double limit_of_first_round(struct bandwidth measured)
{
    const double until = pl_seconds() + LIMIT;
    for (size_t i = 0; i < 3; i++) {
        struct peer *p = add(0, 0);
        p->options.measured = &measured;
        p->options.upload_limit = 7;
    }
    expect(3);
    open_all();
    for (size_t i = 0; i < 3; i++) loop_call(loop, enlarge, &peers[i]); /* as if of many values */
    peers[2].step.untriggered = 1;
    begin_all();
    for (time_limit = 0; loop_call(loop, read_time_limit, &peers[0]), !time_limit; usleep(10000))
        assert_true(pl_seconds() < until);
    return time_limit;
}

/* Nobody knows its uplink: the round measures them, and is given up early if it takes long. */
static void first_round_measures(void **state)
{
    assert_true(limit_of_first_round((struct bandwidth){ .rate = 0 }) == 7);
    assert_true(peers[0].a->round.has_begun);
}

static void known_uplinks_have_all_the_time(void **state)
{
    assert_true(limit_of_first_round((struct bandwidth){ .rate = MBIT }) == 40);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(slow_uplink_sends_what_fits, begin_test, end_test),
        cmocka_unit_test_setup_teardown(without_a_limit_it_sends_all, begin_test, end_test),
        cmocka_unit_test_setup_teardown(first_round_measures, begin_test, end_test),
        cmocka_unit_test_setup_teardown(known_uplinks_have_all_the_time, begin_test, end_test),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
