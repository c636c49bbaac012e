/* optimizer_overlap.c - algorithms whose exchanges take as long as local steps, over loopback: after
 * each inner step peers equal, bit for bit, the result of ref/outer; a peer that comes back in the
 * middle of an exchange does, too. */
#include "test/unit/hivemind/optimizer/gather_world.h"

static const struct algorithm overlapped[] = {
    { "streaming", "fragments=2,tau=1,alpha=0.25,coding=uniform8", 0 },
    { "delayed", "coding=e3m0", 0 },
    { "eager", "", 1 },
    { "delayed_gradients", "", 0 },
};

static void overlapped_alone_equals_the_reference(void **state)
{
    static float want[STEPS_MAX + 1][2][N];
    (void)state;
    for (size_t a = 0; a < PL_COUNT(overlapped); a++) {
        struct play w = { .algorithm = &overlapped[a], .peers = 1 };
        struct peer *p = new_peer(&w, 0);
        overlapped_reference(&overlapped[a], 1, 0, want);
        for (int i = 0; i < EPOCHS * INNER; i++) assert_int_equal(step(p, SAMPLES), PL_OK);
        assert_int_equal(p->last, EPOCHS * INNER);
        if (!follows(p, 0, want)) fail_msg("%s", overlapped[a].name);
        close_peer(p);
    }
}

static void two_peers_equal_the_reference(void **state)
{
    (void)state;
    two_peers_and_a_newcomer(overlapped, PL_COUNT(overlapped));
}

/* It comes back while an exchange of the others is under way, or has not been applied yet. */
static void a_diverged_peer_resynchronizes(void **state)
{
    (void)state;
    resynchronize(&overlapped[1]);
}

/* At the second message there is no mean, and x goes back to phi, which has not moved. */
static void failed_exchange_brings_nothing(void **state)
{
    struct play w = { .peers = 0 };
    struct peer *p = with_a_silent_peer(&w, &overlapped[1], 0);
    float first[N], x[N];
    (void)state;
    for (int h = 0; h < 2 * INNER; h++) assert_int_equal(step(p, SAMPLES), PL_OK);
    assert_int_equal(p->failed, 1);
    first_values(first);
    values_of(p, x);
    assert_memory_equal(x, first, sizeof x);
    close_peer(w.p[1]);
    close_peer(p);
}

/* Values are about 1. A third of a huge gradient's step is more than 1e3. */
static void a_huge_message_moves_little(void **state)
{
    const struct algorithm streaming = { "streaming", "fragments=1,tau=1,coding=uniform8", 0 };
    (void)state;
    assert_true(attacked(&streaming, 0) > 1e3f);
    assert_true(attacked(&streaming, PL_CLIP_USUAL) < 2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(overlapped_alone_equals_the_reference),
        cmocka_unit_test(two_peers_equal_the_reference),
        cmocka_unit_test(a_diverged_peer_resynchronizes),
        cmocka_unit_test(failed_exchange_brings_nothing),
        cmocka_unit_test(a_huge_message_moves_little),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
