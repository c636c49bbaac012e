/* latency.c - pings to the peers of a run: peers that answer, peers that do not, and peers that are
 * forgotten. */
#include "test/unit/libp2p/host_sides.h"
#include "net/libp2p/protocols/latency.h"

#include <math.h>

static struct distance found[LATENCY_MAX];

/* Polls until `wanted` peers are known. */
static size_t await_latencies(struct latency *d, const struct peer_id *peers, size_t count,
                              size_t wanted)
{
    size_t n = 0;
    for (int i = 0; i < 1500; i++) {
        struct timespec t = { 0, 20000000 };
        if ((n = latency_update(d, found, peers, count)) >= wanted) break;
        nanosleep(&t, NULL);
    }
    return n;
}

static const struct distance *of(const struct peer_id *peer, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (peer_id_equal(&found[i].peer, peer)) return &found[i];
    return NULL;
}

static void answering_peers_have_a_round_trip_time(void **state)
{
    struct side here, there, gone;
    struct latency *d;
    struct peer_id peers[2];
    size_t n;
    open_side(&here, 0, 0);
    open_side(&there, 1, 0);
    open_side(&gone, 1, 0);
    teach(&here, &there);
    teach(&here, &gone);
    peers[0] = there.me.id;
    peers[1] = gone.me.id;
    close_side(&gone);
    assert_int_equal(latency_open(&d, here.host), PL_OK);
    n = await_latencies(d, peers, 2, 2);
    assert_int_equal(n, 2);
    assert_true(of(&peers[0], n)->rtt_s > 0);
    assert_false(of(&peers[0], n)->relayed);
    assert_true(isnan(of(&peers[1], n)->rtt_s));
    n = await_latencies(d, peers + 1, 1, 1); /* the other is not asked for any more */
    assert_int_equal(n, 1);
    assert_non_null(of(&peers[1], n));
    latency_stop(d);
    close_side(&here);
    latency_close(d);
    close_side(&there);
}

/* More peers than there are places for, all unknown; closed while pings are under way. */
static void number_of_pinged_peers_is_bounded(void **state)
{
    static struct peer_id crowd[LATENCY_MAX + 50];
    struct side here;
    struct latency *d;
    open_side(&here, 0, 0);
    for (size_t i = 0; i < PL_COUNT(crowd); i++) {
        uint8_t key[36] = { 8, 1, 18, 32, (uint8_t)i, (uint8_t)(i >> 8) };
        peer_id_of_key(&crowd[i], key, sizeof key);
    }
    assert_int_equal(latency_open(&d, here.host), PL_OK);
    assert_true(latency_update(d, found, crowd, PL_COUNT(crowd)) <= LATENCY_MAX);
    assert_true(await_latencies(d, crowd, PL_COUNT(crowd), 20) >= 20);
    latency_update(d, found, crowd + 100, 150);
    latency_stop(d);
    close_side(&here);
    latency_close(d);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(answering_peers_have_a_round_trip_time),
        cmocka_unit_test(number_of_pinged_peers_is_bounded),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
