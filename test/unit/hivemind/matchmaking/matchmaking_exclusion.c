/* matchmaking_exclusion.c - peers with special rules in matchmaking: behind NAT, banned, absent, on
 * back-off, unproven. */
#include "matchmaking_world.h"

static struct world w;

/* Two peers behind NAT, reachable only over connections that they have made, and an open one, which
 * comes when one of them has searched for a while: it leads both, though its time is later. The
 * second knows from the beginning how it stands, the first finds out in the search. */
static void peers_behind_nat_follow(void **state)
{
    for (int late = 0; late <= 1; late++) {
        make(&w, 3, 0, 0);
        for (size_t i = 0; i < 2; i++) w.peer[i].unreachable = 1;
        matchmaking_set_behind_nat(&w.peer[0].m, w.now, !late);
        matchmaking_set_behind_nat(&w.peer[1].m, w.now, 1);
        matchmaking_begin(&w.peer[0].m, w.now, 1006, 1100);
        run_until(&w, 1000.5);
        matchmaking_set_behind_nat(&w.peer[0].m, w.now, 1);
        assert_true(w.peer[0].declared == 0);
        run_until(&w, 1001);
        matchmaking_begin(&w.peer[2].m, w.now, 1007, 1100);
        matchmaking_expect(&w.peer[2].m, w.now, 3);
        run_until(&w, 1002);
        matchmaking_begin(&w.peer[1].m, w.now, 0, 1100);
        run_until(&w, 1008);
        same_group(&w, 0, 3, 3);
        clear(&w);
    }
}

/* Where nobody is to be followed they meet each other, a window later: one router may be before
 * all. */
static void peers_behind_nat_alone_form_a_group(void **state)
{
    make(&w, 3, 0, 0);
    for (size_t i = 0; i < 3; i++) {
        matchmaking_set_behind_nat(&w.peer[i].m, w.now, 1);
        matchmaking_begin(&w.peer[i].m, w.now, 0, 1100);
    }
    run_until(&w, 1004);
    for (size_t i = 0; i < 3; i++) assert_true(w.peer[i].declared == 0);
    run_until(&w, 1011);
    same_group(&w, 0, 3, 3);
    matchmaking_begin(&w.peer[0].m, w.now, 0, 1100); /* as callable again */
    matchmaking_set_behind_nat(&w.peer[0].m, w.now, 0);
    assert_true(w.peer[0].declared > 1011);
    clear(&w);
}

/* No peer follows it or accepts it as a follower; and none waits for it, though it has declared. */
static void banned(void **state)
{
    make(&w, 6, 0, 0);
    w.banned = 1;
    for (size_t i = 0; i < w.count; i++) matchmaking_begin(&w.peer[i].m, w.now, 0, w.now + 60);
    for (size_t i = 1; i < w.count; i++) matchmaking_expect(&w.peer[i].m, w.now, 5);
    run_until(&w, w.now + 3); /* less than the time that is given to newcomers */
    same_group(&w, 1, 6, 5);
    assert_false(w.peer[0].over);
    clear(&w);
    make(&w, 2, 0, 0); /* with nobody else it asks, and its user gets a message */
    w.banned = 1;
    matchmaking_begin(&w.peer[1].m, w.now, 0, w.now + 60);
    run_until(&w, w.now + 2);
    matchmaking_begin(&w.peer[0].m, w.now, 0, w.now + 60);
    run_until(&w, w.now + 40);
    assert_true(w.peer[0].m.seen == MATCHMAKING_SEEN_REFUSAL);
    assert_false(w.peer[1].m.seen == MATCHMAKING_SEEN_REFUSAL);
    clear(&w);
}

/* It has declared first and does not answer: no peer asks it or waits for it. If it asks in time,
 * it is accepted. */
static void absent(void **state)
{
    for (int comes = 0; comes <= 1; comes++) {
        make(&w, 4, 0, 0);
        w.absent = 1;
        w.peer[0].frozen = !comes;
        if (!comes) w.peer[0].declared = 1004;
        for (size_t i = 1; i < 4; i++) matchmaking_begin(&w.peer[i].m, w.now, 0, 1100);
        if (comes) run_until(&w, 1000.1);
        if (comes) matchmaking_begin(&w.peer[0].m, w.now, 0, 1100);
        for (size_t i = 1; i < 4; i++) matchmaking_expect(&w.peer[i].m, w.now, 3 + (size_t)comes);
        run_until(&w, 1002);
        same_group(&w, comes ? 0 : 1, 4, comes ? 4 : 3);
        w.peer[0].frozen = 0;
        clear(&w);
    }
    make(&w, 2, 0, 0); /* the only other peer is asked although it is absent */
    w.absent = 1;
    for (size_t i = 0; i < 2; i++) matchmaking_begin(&w.peer[i].m, w.now, 0, 1100);
    run_until(&w, 1006);
    same_group(&w, 0, 2, 2);
    clear(&w);
}

static int has(const struct group *g, size_t peer)
{
    const struct peer_id id = id_of(peer);
    return group_find(g, &id) >= 0;
}

/* On back-off at all of the others it comes into no group of theirs: it is not asked though it has
 * declared first, not waited for, and refused when it asks. */
static void paused(void **state)
{
    for (int asks = 0; asks <= 1; asks++) {
        make(&w, 4, 0, 0);
        w.paused_by = 14;
        if (!asks) matchmaking_begin(&w.peer[0].m, w.now, 0, 1060);
        run_until(&w, 1000.5);
        for (size_t i = 1; i < 4; i++) matchmaking_begin(&w.peer[i].m, w.now, 0, 1060);
        if (asks) run_until(&w, 1000.6);
        if (asks) matchmaking_begin(&w.peer[0].m, w.now, 0, 1060);
        for (size_t i = 1; i < 4; i++) matchmaking_expect(&w.peer[i].m, w.now, 3);
        run_until(&w, 1003);
        same_group(&w, 1, 4, 3);
        assert_false(w.peer[0].over || w.peer[0].m.seen == MATCHMAKING_SEEN_REFUSAL);
        clear(&w);
    }
}

/* The views differ: a leader that has seen no fault in it takes it, and those who have go on with
 * the group. If they left it, the leader would find them silent. */
static void peer_on_back_off_at_some_is_tolerated(void **state)
{
    make(&w, 4, 0, 0);
    w.paused_by = 12; /* not the second, which leads */
    matchmaking_begin(&w.peer[1].m, w.now, 0, 1060);
    run_until(&w, 1000.3);
    for (size_t i = 0; i < 4; i++)
        if (i != 1) matchmaking_begin(&w.peer[i].m, w.now, 0, 1060);
    run_until(&w, 1006);
    same_group(&w, 0, 4, 4);
    clear(&w);
}

/* It accepts, and is silent from then on. */
static void abandoned(void **state)
{
    make(&w, 3, 0, 0);
    matchmaking_begin(&w.peer[0].m, w.now, 0, 1060);
    run_until(&w, 1000.3);
    for (size_t i = 1; i < 3; i++) matchmaking_begin(&w.peer[i].m, w.now, 0, 1060);
    run_until(&w, 1001);
    assert_int_equal(w.peer[0].m.followers.count, 2);
    w.peer[0].frozen = 1;
    run_until(&w, 1030);
    same_group(&w, 1, 3, 2);
    for (size_t i = 1; i < 3; i++) {
        assert_int_equal(w.peer[i].abandoned, 1);
        assert_true(peer_id_equal(&w.peer[i].abandoned_by, &w.peer[0].m.o.self));
    }
    w.peer[0].frozen = 0;
    clear(&w);
}

/* It accepts, and then says that there will be no group. Its followers find one without it. */
static void disbanded(void **state)
{
    make(&w, 3, 0, 0);
    matchmaking_begin(&w.peer[0].m, w.now, 0, 1060);
    run_until(&w, 1000.3);
    for (size_t i = 1; i < 3; i++) matchmaking_begin(&w.peer[i].m, w.now, 0, 1060);
    run_until(&w, 1001);
    assert_int_equal(w.peer[0].m.followers.count, 2);
    matchmaking_cancel(&w.peer[0].m);
    run_until(&w, 1030);
    same_group(&w, 1, 3, 2);
    for (size_t i = 1; i < 3; i++) {
        assert_int_equal(w.peer[i].abandoned, 0);
        assert_int_equal(w.peer[i].disbanded, 1);
        assert_true(peer_id_equal(&w.peer[i].abandoned_by, &w.peer[0].m.o.self));
    }
    clear(&w);
}

/* Who has not delivered yet reduces nothing, as all of the group agree: but not where too few would
 * be left to reduce, nor where all have to. */
static void unproven_reduce_nothing(void **state)
{
    static const struct {
        size_t peers, verify;
        uint32_t unproven;
        int demoted;
    } cases[] = {
        { 3, 0, 4, 1 }, { 3, 0, 0, 0 },    { 3, 0, 7, 0 },     { 2, 0, 2, 0 },
        { 3, 1, 4, 0 }, { 8, 0, 0xfc, 1 }, { 9, 0, 0x1fc, 0 },
    };
    for (size_t c = 0; c < PL_COUNT(cases); c++) {
        size_t share[PEERS_MAX], n = cases[c].peers;
        make(&w, n, 0, n);
        w.unproven = cases[c].unproven;
        for (size_t i = 0; i < n; i++) {
            w.peer[i].m.o.verify = (int)cases[c].verify;
            matchmaking_begin(&w.peer[i].m, w.now, 0, 1060);
            run_until(&w, w.now + 0.5);
        }
        run_until(&w, 1010);
        same_group(&w, 0, n, n);
        for (size_t i = 0; i < n; i++) {
            const struct group *g = &w.peer[i].m.group;
            assert_int_equal(group_shares(share, g, 1000 * n, NULL), PL_OK);
            for (size_t k = 0; k < n; k++) {
                struct peer_id id = id_of(k);
                int none = cases[c].demoted && w.unproven >> k & 1;
                assert_true(has(g, k));
                assert_int_equal(share[group_find(g, &id)] == 0, none);
            }
        }
        clear(&w);
    }
}

/* A proven follower that states more than any link carries: the leader lowers that for the whole
 * group, so the others still reduce. */
static void large_claims_take_little(void **state)
{
    static const double bandwidth[2] = { 100, 1e300 };
    struct bytes gather[2] = { { 0 } };
    size_t share[8];
    for (int i = 0; i < 2; i++)
        assert_int_equal(gather_write(&gather[i], &(struct gather){ .bandwidth = bandwidth[i] }),
                         PL_OK);
    make(&w, 8, 0, 8);
    for (size_t i = 0; i < 8; i++) {
        w.peer[i].m.o.gather = bytes_at(&gather[i == 5]);
        w.peer[i].m.o.gather_n = bytes_length(&gather[i == 5]);
        matchmaking_begin(&w.peer[i].m, w.now, 0, 1060);
        run_until(&w, w.now + 0.5);
    }
    run_until(&w, 1010);
    same_group(&w, 0, 8, 8);
    for (size_t i = 0; i < 8; i++) {
        const struct group *g = &w.peer[i].m.group;
        assert_int_equal(group_shares(share, g, 8000, NULL), PL_OK);
        for (size_t k = 0; k < 8; k++) {
            struct peer_id id = id_of(k);
            int claimant = k == 5;
            assert_in_range(share[group_find(g, &id)], claimant ? 3900 : 560,
                            claimant ? 4100 : 590);
        }
    }
    clear(&w);
    bytes_clear(&gather[0]);
    bytes_clear(&gather[1]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(peers_behind_nat_follow),
        cmocka_unit_test(peers_behind_nat_alone_form_a_group),
        cmocka_unit_test(banned),
        cmocka_unit_test(absent),
        cmocka_unit_test(paused),
        cmocka_unit_test(peer_on_back_off_at_some_is_tolerated),
        cmocka_unit_test(abandoned),
        cmocka_unit_test(disbanded),
        cmocka_unit_test(unproven_reduce_nothing),
        cmocka_unit_test(large_claims_take_little),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
