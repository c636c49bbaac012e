/* observed.c - which of our addresses, as peers report them, counts. */
#include "net/libp2p/connections/observed.h"
#include "test/unit/unit.h"

#include <stdio.h>

static struct multiaddr at(const char *format, ...)
{
    struct multiaddr a;
    struct pl_err err = { "" };
    char text[200];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    if (multiaddr_from_text(&a, text, &err)) fail_msg("%s", err.text);
    return a;
}

static int observe(struct observed *o, const char *seen, const char *observer, double now)
{
    struct multiaddr s = at("%s", seen), w = at("%s", observer);
    return observed_add(o, &s, &w, now);
}

static void counts(const struct observed *o, double now, const char *want)
{
    int family = want && want[3] == '6' ? 6 : 4;
    struct multiaddr got, a;
    if (!want) {
        assert_int_equal(observed_address(o, 4, now, &got), PL_ENOTFOUND);
        return;
    }
    a = at("%s", want);
    assert_int_equal(observed_address(o, family, now, &got), PL_OK);
    assert_true(multiaddr_equal(&got, &a));
}

#define ROUTER "/ip4/93.184.1.2/tcp/4001"

static void two_subnets_agree(void **state)
{
    struct observed o = { 0 };
    assert_int_equal(observe(&o, ROUTER, "/ip4/8.8.1.1/tcp/1", 0), 0);
    counts(&o, 0, NULL);
    assert_int_equal(observe(&o, ROUTER, "/ip4/8.8.1.2/tcp/2", 0), 0); /* the same owner */
    counts(&o, 0, NULL);
    assert_int_equal(observe(&o, ROUTER, "/ip4/8.8.2.1/tcp/1", 0), 1);
    counts(&o, 0, ROUTER);
    assert_int_equal(observe(&o, ROUTER, "/ip4/8.8.3.1/tcp/1", 0), 0); /* nothing new */
}

/* A router whose port depends on the destination: no address of it leads to us. */
static void symmetric_nat_has_no_observed_address(void **state)
{
    struct observed o = { 0 };
    char seen[64], observer[64];
    for (int i = 0; i < 40; i++) {
        snprintf(seen, sizeof seen, "/ip4/93.184.1.2/tcp/%d", 4001 + i);
        snprintf(observer, sizeof observer, "/ip4/8.8.%d.1/tcp/1", i);
        assert_int_equal(observe(&o, seen, observer, i), 0);
    }
    counts(&o, 40, NULL);
}

/* Two of seven peers that report another address have no majority, whatever they report. */
static void a_minority_has_no_effect(void **state)
{
    struct observed o = { 0 };
    char observer[64];
    for (int i = 0; i < 5; i++) {
        snprintf(observer, sizeof observer, "/ip4/8.8.%d.1/tcp/1", i);
        observe(&o, ROUTER, observer, 0);
    }
    for (int again = 0; again < 20; again++)
        for (int i = 5; i < 7; i++) {
            char seen[64];
            snprintf(observer, sizeof observer, "/ip4/8.8.%d.1/tcp/1", i);
            snprintf(seen, sizeof seen, "/ip4/1.2.3.4/tcp/%d", 80 + again);
            assert_int_equal(observe(&o, seen, observer, again), 0);
            counts(&o, again, ROUTER);
        }
}

/* A new address of the router wins once more than half have seen it. */
static void an_address_changes(void **state)
{
    struct observed o = { 0 };
    char observer[64];
    for (int i = 0; i < 3; i++) {
        snprintf(observer, sizeof observer, "/ip4/8.8.%d.1/tcp/1", i);
        observe(&o, ROUTER, observer, 0);
    }
    assert_int_equal(observe(&o, "/ip4/93.184.9.9/tcp/4001", "/ip4/8.8.0.1/tcp/1", 1), 0);
    assert_int_equal(observe(&o, "/ip4/93.184.9.9/tcp/4001", "/ip4/8.8.1.1/tcp/1", 1), 1);
    counts(&o, 1, "/ip4/93.184.9.9/tcp/4001");
}

static void reports_expire(void **state)
{
    struct observed o = { 0 };
    struct multiaddr observer = at("/ip4/8.8.1.1/tcp/1"), other = at("/ip4/8.8.2.1/tcp/1");
    observe(&o, ROUTER, "/ip4/8.8.1.1/tcp/1", 0);
    observe(&o, ROUTER, "/ip4/8.8.2.1/tcp/1", 0);
    counts(&o, OBSERVED_TTL, ROUTER);
    counts(&o, OBSERVED_TTL + 1, NULL);
    observed_renew(&o, &observer, OBSERVED_TTL);
    observed_renew(&o, &other, OBSERVED_TTL);
    counts(&o, OBSERVED_TTL + 1, ROUTER);
}

static void private_observed_addresses_do_not_count(void **state)
{
    struct observed o = { 0 };
    observe(&o, "/ip4/192.168.1.5/tcp/4001", "/ip4/8.8.1.1/tcp/1", 0);
    observe(&o, "/ip4/192.168.1.5/tcp/4001", "/ip4/8.8.2.1/tcp/1", 0);
    observe(&o, ROUTER, "/ip4/192.168.1.7/tcp/1", 0);
    observe(&o, ROUTER, "/ip4/127.0.0.1/tcp/1", 0);
    observe(&o, ROUTER, "/ip6/2600::1/tcp/1", 0);
    counts(&o, 0, NULL);
}

static void of_each_ip_version(void **state)
{
    struct observed o = { 0 };
    observe(&o, ROUTER, "/ip4/8.8.1.1/tcp/1", 0);
    observe(&o, ROUTER, "/ip4/8.8.2.1/tcp/1", 0);
    observe(&o, "/ip6/2601::9/tcp/4001", "/ip6/2600::1/tcp/1", 0);
    observe(&o, "/ip6/2601::9/tcp/4001", "/ip6/2600::2/tcp/1", 0); /* the same /64 */
    counts(&o, 0, ROUTER);
    assert_int_equal(observed_address(&o, 6, 0, &(struct multiaddr){ 0 }), PL_ENOTFOUND);
    observe(&o, "/ip6/2601::9/tcp/4001", "/ip6/2600:0:0:1::2/tcp/1", 0);
    counts(&o, 0, "/ip6/2601::9/tcp/4001");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(two_subnets_agree),
        cmocka_unit_test(symmetric_nat_has_no_observed_address),
        cmocka_unit_test(a_minority_has_no_effect),
        cmocka_unit_test(an_address_changes),
        cmocka_unit_test(reports_expire),
        cmocka_unit_test(private_observed_addresses_do_not_count),
        cmocka_unit_test(of_each_ip_version),
    };
    return cmocka_run_group_tests_name("observed", tests, NULL, NULL);
}
