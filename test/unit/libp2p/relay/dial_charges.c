/* dial_charges.c - dials that strangers make us begin: each counts for a minute, then its place is free. */
#include "net/libp2p/relay/dial_charges.h"
#include "test/unit/unit.h"

static struct resources all;
static struct peer peers[2];
static struct connection callers[2];

static int set_up(void **state)
{
    resources_init(&all, SIZE_MAX);
    for (int i = 0; i < 2; i++) {
        const char *const at[] = { "/ip4/1.2.3.4/tcp/1", "/ip4/5.6.7.8/tcp/1" };
        peers[i].id = (struct peer_id){ .length = 34, .bytes = { 0x12, 0x20, (uint8_t)i } };
        callers[i].peer = &peers[i];
        if (multiaddr_from_text(&callers[i].remote, at[i], NULL)) return -1;
    }
    return 0;
}

static void dials_count_for_a_minute(void **state)
{
    const size_t most = resources_limit(&all, SCOPE_PEER, RESOURCE_DIAL_BACKS);
    struct dial_charges charges = { 0 };
    assert_true(most > 1 && most < 1000);
    for (size_t i = 0; i < most; i++)
        assert_int_equal(dial_charges_add(&charges, &all, &callers[0], 100 + (double)i), PL_OK);
    assert_int_equal(all.system.used[RESOURCE_DIAL_BACKS], most);
    assert_int_equal(dial_charges_add(&charges, &all, &callers[0], 159.9), PL_ELIMIT);
    assert_int_equal(all.system.used[RESOURCE_DIAL_BACKS], most); /* a refusal charges nothing */
    assert_int_equal(dial_charges_add(&charges, &all, &callers[1], 159.9), PL_OK);
    assert_int_equal(dial_charges_add(&charges, &all, &callers[0], 160),
                     PL_OK); /* the first is over */
    assert_int_equal(dial_charges_add(&charges, &all, &callers[0], 160), PL_ELIMIT);
    assert_int_equal(dial_charges_add(&charges, &all, &callers[0], 161), PL_OK);
    assert_int_equal(all.system.used[RESOURCE_DIAL_BACKS], most + 1);
    dial_charges_clear(&charges);
    assert_int_equal(all.system.used[RESOURCE_DIAL_BACKS], 0);
    assert_null(all.accounts);
    resources_clear(&all);
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(dials_count_for_a_minute) };
    return cmocka_run_group_tests(tests, set_up, NULL);
}
