/* simulator.c - the simulated swarm of test/simulator: the same seed gives the same swarm, and the
 * statements of paper/scaling.md about large swarms hold for small ones, too. */
#include "test/simulator/links.h"
#include "test/simulator/queue.h"
#include "test/simulator/world.h"
#include "test/unit/unit.h"

#include <math.h>

/* No peer dies, all are expected: the best case. */
static struct world_options calm(size_t peers)
{
    return (struct world_options){ .peers = peers,
                                   .seed = 7,
                                   .steps = 1,
                                   .accumulate_s = 60,
                                   .life_s = 1e9,
                                   .rounds = 1,
                                   .expect = 1,
                                   .measured = 1,
                                   .warm = 1,
                                   .values = 10000000 };
}

static struct world_result run(const struct world_options *o)
{
    struct world_result r;
    struct pl_err err;
    assert_int_equal(world_run(&r, o, &err), PL_OK);
    return r;
}

static void soonest_first(void **state)
{
    static const double times[] = { 3, 1, 2, 1, 5, 4, 1 };
    struct queue q = { 0 };
    double last = 0;
    uint64_t order = 0;
    for (size_t i = 0; i < PL_COUNT(times); i++)
        assert_int_equal(queue_push(&q, &(struct event){ .at = times[i] }), PL_OK);
    while (q.count) {
        struct event e = queue_pop(&q);
        assert_true(e.at > last || (e.at == last && e.order > order));
        last = e.at;
        order = e.order;
    }
    assert_true(last == 5);
    queue_clear(&q);
}

static void names_lead_back(void **state)
{
    struct peer_id a, b;
    link_name(&a, 9999, 1);
    link_name(&b, 9999, 2);
    assert_int_equal(link_peer_of(&a), 9999);
    assert_false(peer_id_equal(&a, &b));
    assert_int_equal(peer_id_parse(&b, a.bytes, a.length), PL_OK);
}

static void same_seed_same_swarm(void **state)
{
    struct world_options o = calm(40);
    struct world_result a, b, c;
    o.life_s = 600;
    o.steps = 2;
    a = run(&o);
    b = run(&o);
    assert_memory_equal(&a, &b, sizeof a);
    o.seed = 8;
    c = run(&o);
    assert_true(a.averaging_s != c.averaging_s && a.moved != c.moved);
}

/* All in one group, nothing lost: every peer holds the mean of all. A leader that knows how many
 * will come need not wait. */
static void one_group_agrees(void **state)
{
    struct world_options o = calm(40);
    struct world_result r = run(&o), waited;
    assert_true(r.failed == 0 && r.group == 40 && r.tries == 1);
    assert_true(r.spread < 1e-20);
    o.expect = 0;
    waited = run(&o);
    assert_true(waited.failed == 0 && waited.spread < 1e-20);
}

/* Bytes: a copy of all that others reduce goes out, and as much comes back: at most twice the
 * values at the peer that reduces as much as anybody, at least once at one that reduces nothing. */
static void bytes_are_those_of_the_values(void **state)
{
    struct world_options o = calm(20);
    struct world_result r = run(&o);
    double values = 0.9 * 10e6 + 2 * 0.1 * 10e6; /* 8 bits, and a tenth in 16 */
    assert_true(r.moved > 0.9 * values && r.moved < 2.2 * values);
}

/* Slow uplinks that reduce as much as others hold up everybody; shares by bandwidth spare them. */
static void bandwidth_spares_the_slow(void **state)
{
    struct world_options o = calm(60);
    struct world_result by_bandwidth = run(&o), equal;
    o.measured = 0;
    equal = run(&o);
    assert_true(equal.averaging_s > 1.3 * by_bandwidth.averaging_s);
}

/* Where slow uplinks send less than all, nobody waits for them, and groups mix as well. */
static void slow_uplinks_do_not_set_the_time(void **state)
{
    struct world_options o = calm(200);
    struct world_result all, limited;
    o.grid = 1;
    o.values = 125894244;
    all = run(&o);
    assert_true(all.withheld == 0);
    o.limited = 1;
    limited = run(&o);
    assert_true(limited.failed == 0 && limited.averaging_s < 0.8 * all.averaging_s);
    assert_true(limited.first_s < 0.8 * all.first_s); /* its first round is given up early */
    assert_true(limited.withheld > 0.05 && limited.withheld < 0.25);
    assert_true(limited.moved < all.moved);
    assert_true(limited.spread < 3 * all.spread + 0.02);
}

/* With lives as short as rounds one large group rarely comes to its end; small ones do. */
static void small_groups_survive(void **state)
{
    struct world_options o = calm(200);
    struct world_result one, grid;
    o.expect = o.warm = 0;
    o.values = 60000000;
    o.life_s = 600;
    one = run(&o);
    o.bits = 3;
    o.target = 16;
    o.rounds = 2;
    grid = run(&o);
    assert_true(one.failed > 0.5);
    assert_true(grid.failed < 0.3 * one.failed);
    assert_true(grid.group <= 16);
    assert_true(grid.spread < 0.2); /* two rounds of 16 mix nearly all of 200 */
}

/* By default 200 peers come to groups of 12 to 48 by themselves, in one round, though their counts
 * differ; the rest of their differences is as the theory predicts for groups of that size. */
static void the_grid_fits_itself(void **state)
{
    struct world_options o = calm(200);
    struct world_result r;
    double groups, theory;
    o.grid = 1;
    o.steps = 2;
    r = run(&o);
    groups = 200 / r.group;
    theory = (groups - 1) / 200 + groups / (200.0 * 200);
    assert_true(r.failed == 0 && r.group > 10 && r.group < 50);
    assert_true(r.spread > 0.3 * theory && r.spread < 3 * theory);
}

/* Steps that are shorter than a record's life: a peer that has died without notice is expected in
 * one of them, not in all until its record has expired, which would make 0.9 of it. */
static void dead_peer_is_expected_once(void **state)
{
    struct world_options o = calm(40);
    struct world_result r;
    o.steps = 60;
    o.measured = o.warm = 0;
    o.accumulate_s = 5;
    o.values = 100000;
    o.life_s = 600;
    r = run(&o);
    assert_true(r.dead > 0 && r.dead < 0.5);
}

/* Every peer reads every record. */
static void polls_grow_with_the_square_of_peers(void **state)
{
    struct world_options o = calm(20);
    struct world_result few = run(&o), more;
    o.peers = 40;
    more = run(&o);
    assert_true(few.records_fit > 1000 && few.unheard == 0);
    assert_true(more.progress > 3.5 * few.progress && more.progress < 4.5 * few.progress);
}

static void options_that_make_no_sense(void **state)
{
    struct world_options o = calm(1);
    struct world_result r;
    struct pl_err err;
    assert_int_equal(world_run(&r, &o, &err), PL_EUSE);
    o = calm(10);
    o.bits = 40;
    assert_int_equal(world_run(&r, &o, &err), PL_EUSE);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(soonest_first),
        cmocka_unit_test(names_lead_back),
        cmocka_unit_test(same_seed_same_swarm),
        cmocka_unit_test(one_group_agrees),
        cmocka_unit_test(bytes_are_those_of_the_values),
        cmocka_unit_test(bandwidth_spares_the_slow),
        cmocka_unit_test(slow_uplinks_do_not_set_the_time),
        cmocka_unit_test(small_groups_survive),
        cmocka_unit_test(the_grid_fits_itself),
        cmocka_unit_test(dead_peer_is_expected_once),
        cmocka_unit_test(polls_grow_with_the_square_of_peers),
        cmocka_unit_test(options_that_make_no_sense),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
