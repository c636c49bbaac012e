/* matchmaking.c - swarms of searching averagers on a virtual clock: all find the same group. */
#include "matchmaking_world.h"

static struct world w;

static void all_together(void **state)
{
    for (size_t n = 2; n <= PEERS_MAX; n += 11) {
        make(&w, n, n / 4, 0);
        for (size_t i = 0; i < n; i++) {
            run_until(&w, 1000 + 0.2 * (double)i);
            matchmaking_begin(&w.peer[i].m, w.now, 0, 1100);
        }
        run_until(&w, 1030);
        same_group(&w, 0, n, n);
        for (size_t i = 0; i < n; i++)
            assert_true(w.peer[i].polls < 40); /* three a second, not 540 */
        clear(&w);
    }
}

static void target_size_begins_at_once(void **state)
{
    make(&w, 3, 0, 3);
    for (size_t i = 0; i < 3; i++) matchmaking_begin(&w.peer[i].m, w.now, 0, 1100);
    run_until(&w, 1001.5);
    same_group(&w, 0, 3, 3);
    clear(&w);
}

/* When everybody is there who was to be expected, the leader does not wait for its time. */
static void expected_are_here(void **state)
{
    make(&w, 4, 0, 0);
    for (size_t i = 0; i < 4; i++) {
        matchmaking_begin(&w.peer[i].m, w.now, 0, 1100);
        matchmaking_expect(&w.peer[i].m, w.now,
                           3); /* a newcomer that the others do not know yet is waited for, too */
    }
    run_until(&w, 1002);
    same_group(&w, 0, 4, 4);
    clear(&w);
}

/* Those who are not expected are no reason to begin without those who are. */
static void others_do_not_count(void **state)
{
    make(&w, 4, 0, 0);
    w.unexpected = 6;
    for (size_t i = 0; i < 3; i++) {
        matchmaking_begin(&w.peer[i].m, w.now, 0, 1100);
        matchmaking_expect(&w.peer[i].m, w.now, 2);
    }
    run_until(&w, 1002);
    for (size_t i = 0; i < 3; i++) assert_false(w.peer[i].over);
    matchmaking_begin(&w.peer[3].m, w.now, 0, 1100);
    run_until(&w, 1004);
    same_group(&w, 0, 4, 4);
    clear(&w);
}

/* An auxiliary peer and one other are no group, whichever leads; with a second one they are, as
 * soon as those two are there. */
static void helpers_make_no_group(void **state)
{
    static const uint8_t auxiliary[] = { 0x93, 0xc0, 0x02, 0xc4, 0x01, 0xc0 };
    make(&w, 3, 0, 0);
    w.peer[1].m.o.gather = auxiliary;
    for (size_t i = 0; i < 3; i++) {
        if (i == 2) run_until(&w, 1015);
        assert_false(w.peer[0].over || w.peer[1].over);
        matchmaking_begin(&w.peer[i].m, w.now, 0, 1100);
        matchmaking_expect(&w.peer[i].m, w.now, 2);
    }
    run_until(&w, 1030);
    same_group(&w, 0, 3, 3);
    clear(&w);
}

static void alone_until_the_deadline(void **state)
{
    make(&w, 1, 0, 0);
    matchmaking_begin(&w.peer[0].m, w.now, 0, 1012);
    run_until(&w, 1011);
    assert_false(w.peer[0].over);
    assert_true(w.peer[0].declared > 1011);
    run_until(&w, 1013);
    assert_int_equal(w.peer[0].over && w.peer[0].status == PL_EAGAIN, 1);
    assert_true(w.peer[0].declared == 0);
    clear(&w);
}

/* Both hear that the other one averages other tensors. */
static void mismatches(void **state)
{
    make(&w, 3, 0, 0);
    w.peer[1].m.o.schema_hash[0] ^= 1;
    for (size_t i = 0; i < 2; i++) matchmaking_begin(&w.peer[i].m, w.now, 0, 1012);
    run_until(&w, 1013);
    for (size_t i = 0; i < 2; i++) {
        assert_int_equal(w.peer[i].status, PL_EAGAIN);
        assert_int_equal(w.peer[i].m.seen, MATCHMAKING_SEEN_INCOMPATIBLE);
    }
    matchmaking_begin(&w.peer[2].m, w.now, 0, w.now + 12);
    run_until(&w, w.now + 13);
    assert_int_equal(w.peer[2].m.seen, MATCHMAKING_SEEN_NONE);
    clear(&w);
}

/* Its followers notice a frozen leader when its time has passed, and form a group without it. */
static void frozen_leader(void **state)
{
    make(&w, 4, 0, 0);
    for (size_t i = 0; i < 4; i++) {
        run_until(&w, 1000 + 0.3 * (double)i);
        matchmaking_begin(&w.peer[i].m, w.now, 0, 1100);
    }
    run_until(&w, 1003);
    assert_int_equal(w.peer[0].m.followers.count, 3);
    w.peer[0].frozen = 1;
    w.peer[0].declared = 0;
    run_until(&w, 1025);
    same_group(&w, 1, 4, 3);
    w.peer[0].frozen = 0;
    clear(&w);
}

/* A leader whose machine pauses when it is asked is asked again: no peer waits for its next window,
 * which is a minute away. The first peer is a client, which can only ask. */
static void leader_pauses(void **state)
{
    make(&w, 3, 1, 3);
    for (size_t i = 0; i < 3; i++) w.peer[i].m.o.min_time = 60;
    matchmaking_begin(&w.peer[2].m, w.now, 0, 1300);
    run_until(&w, 1000.5);
    w.peer[2].frozen = 1;
    for (size_t i = 0; i < 2; i++) matchmaking_begin(&w.peer[i].m, w.now, 0, 1300);
    run_until(&w, 1004.5);
    assert_int_equal(w.peer[2].m.followers.count, 0);
    w.peer[2].frozen = 0;
    run_until(&w, 1012);
    same_group(&w, 0, 3, 3);
    clear(&w);
}

/* The connection between a follower and its leader ends, and both notice. */
static void cut(struct peer *follower)
{
    struct stream *s = follower->asked;
    add(&w, (struct event){ .kind = ASKER_GONE, .to = s->leader, .stream = s }, NULL, 0);
    add(&w, (struct event){ .kind = LEADER_GONE, .to = s->asker, .stream = s }, NULL, 0);
    run_until(&w, w.now + 1);
}

/* As by a relay: the follower goes back once. A leader that it is cut off from again has abandoned it. */
static void follower_that_is_cut_off_goes_back(void **state)
{
    make(&w, 2, 0, 0);
    for (size_t i = 0; i < 2; i++) w.peer[i].m.o.min_time = 60;
    matchmaking_begin(&w.peer[0].m, w.now, 0, 1300);
    run_until(&w, 1001);
    matchmaking_begin(&w.peer[1].m, w.now, 0, 1300);
    run_until(&w, 1002);
    assert_int_equal(w.peer[1].m.state, MATCHMAKING_FOLLOWING);
    cut(&w.peer[1]);
    assert_int_equal(w.peer[1].m.state, MATCHMAKING_FOLLOWING);
    assert_int_equal(w.peer[0].m.followers.count, 1);
    assert_int_equal(w.peer[1].abandoned, 0);
    cut(&w.peer[1]);
    assert_int_equal(w.peer[1].m.state, MATCHMAKING_LOOKING);
    assert_int_equal(w.peer[0].m.followers.count, 0);
    assert_int_equal(w.peer[1].abandoned, 1);
    clear(&w);
}

/* An earlier leader turns up: the later one goes there, and sends its followers after it. */
static void followers_are_sent_on(void **state)
{
    make(&w, 3, 0, 0);
    matchmaking_begin(&w.peer[1].m, w.now, 1010, 1100);
    matchmaking_begin(&w.peer[2].m, w.now, 1010, 1100);
    run_until(&w, 1002);
    assert_int_equal(w.peer[1].m.followers.count + w.peer[2].m.followers.count, 1);
    matchmaking_begin(&w.peer[0].m, w.now, 0, 1100);
    run_until(&w, 1009);
    same_group(&w, 0, 3, 3);
    clear(&w);
}

static void cancelled(void **state)
{
    make(&w, 3, 1, 0);
    for (size_t i = 0; i < 3; i++) matchmaking_begin(&w.peer[i].m, w.now, 0, 1100);
    run_until(&w, 1001);
    matchmaking_cancel(&w.peer[1].m);
    assert_true(w.peer[1].declared == 0);
    run_until(&w, 1020);
    assert_false(w.peer[1].over);
    same_group(&w, 2, 3, 2);
    same_group(&w, 0, 1, 2);
    clear(&w);
}

/* A peer that was a group of one writes a zero, too: bin(0) has a digit. */
static void bits_after_a_group_of_one(void **state)
{
    const uint8_t id[DHT_ID_BYTES] = { 7 };
    char bits[GROUP_BITS_MAX + 1];
    for (size_t target = 0; target < 2; target++) {
        assert_int_equal(group_next_bits(bits, "0111", id, 1, 0, target), PL_OK);
        assert_string_equal(bits, "1110");
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(all_together),
        cmocka_unit_test(target_size_begins_at_once),
        cmocka_unit_test(expected_are_here),
        cmocka_unit_test(helpers_make_no_group),
        cmocka_unit_test(alone_until_the_deadline),
        cmocka_unit_test(mismatches),
        cmocka_unit_test(frozen_leader),
        cmocka_unit_test(leader_pauses),
        cmocka_unit_test(follower_that_is_cut_off_goes_back),
        cmocka_unit_test(followers_are_sent_on),
        cmocka_unit_test(bits_after_a_group_of_one),
        cmocka_unit_test(others_do_not_count),
        cmocka_unit_test(cancelled),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
