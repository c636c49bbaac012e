/* slots.c - which connection gets a slot when all are taken; accepted Host headers. */
#include "net/http/server/host_name.h"
#include "net/http/server/slots.h"
#include "test/unit/http/http_address.h"

static double now;

static int add(struct slots *s, struct slot *slot, struct slot **evicted, const char *address,
               int is_waiting)
{
    const struct http_address a = at(address);
    return slots_add(s, slot, evicted, &a, is_waiting, ++now);
}

static void empty(struct slots *s)
{
    while (s->first) slots_remove(s, s->first);
    assert_int_equal(s->count, 0);
    assert_null(s->last);
}

static void networks(void **unused)
{
    static const struct {
        const char *a, *b;
        int same;
    } cases[] = {
        { "10.0.0.1", "10.0.0.255", 1 },
        { "10.0.0.1", "10.0.1.1", 0 },
        { "2001:db8:0:1::1", "2001:db8:0:1:ffff::2", 1 },
        { "2001:db8:0:1::1", "2001:db8:0:2::1", 0 },
        { "::ffff:10.0.0.1", "10.0.0.7", 1 },
        { "::1", "10.0.0.1", 0 },
        { "::1", "0.0.0.0", 0 },
    };
    for (size_t i = 0; i < PL_COUNT(cases); i++) {
        struct http_address a = at(cases[i].a), b = at(cases[i].b), x, y;
        http_network_of(&x, &a);
        http_network_of(&y, &b);
        assert_int_equal(!memcmp(&x, &y, sizeof x), cases[i].same);
    }
}

/* The connection that waits longest is closed first, in the network that has most waiting; the
 * newest stays. */
static void longest_silent_connection_is_closed_first(void **unused)
{
    struct slot many[6], honest, busy, newcomer[3];
    struct slots s = { .limit = 8 };
    struct slot *evicted;
    assert_int_equal(add(&s, &busy, &evicted, "10.0.0.1", 0), PL_OK);
    assert_int_equal(add(&s, &honest, &evicted, "10.0.1.1", 1), PL_OK); /* older than the many */
    for (int i = 0; i < 6; i++)
        assert_int_equal(add(&s, &many[i], &evicted, i % 2 ? "10.0.2.1" : "10.0.2.2", 1), PL_OK);
    assert_null(evicted);
    assert_int_equal(add(&s, &newcomer[0], &evicted, "10.0.3.1", 1), PL_OK);
    assert_ptr_equal(evicted, &many[0]);
    /* From their own network, too: then the address with most of them pays. */
    assert_int_equal(add(&s, &newcomer[1], &evicted, "10.0.2.3", 1), PL_OK);
    assert_ptr_equal(evicted, &many[1]);
    slots_set_waiting(&s, &many[2], 0, ++now); /* a request is complete */
    assert_int_equal(add(&s, &newcomer[2], &evicted, "10.0.2.1", 1), PL_OK);
    assert_ptr_equal(evicted, &many[3]);
    slots_set_waiting(&s, &many[3], 0, ++now); /* an evicted connection stays out */
    slots_remove(&s, &many[3]);
    assert_int_equal(s.count, 8);
    empty(&s);
}

/* Of those in use only a larger holder's go. */
static void larger_holders_pay(void **unused)
{
    struct slot many[4], one, newcomer[4];
    struct slots s = { .limit = 5 };
    struct slot *evicted;
    assert_int_equal(add(&s, &one, &evicted, "2001:db8::1", 0), PL_OK);
    for (int i = 0; i < 4; i++)
        assert_int_equal(add(&s, &many[i], &evicted, i ? "10.0.0.1" : "10.0.0.2", 0), PL_OK);
    assert_int_equal(add(&s, &newcomer[0], &evicted, "10.0.0.1", 0), PL_ELIMIT);
    assert_null(evicted);
    assert_int_equal(add(&s, &newcomer[1], &evicted, "10.0.1.1", 0), PL_OK);
    assert_ptr_equal(evicted, &many[1]); /* many[0] is older, but its address has one */
    assert_int_equal(add(&s, &newcomer[2], &evicted, "10.0.2.1", 1), PL_OK);
    assert_ptr_equal(evicted, &many[2]);
    slots_set_waiting(&s, &newcomer[2], 0, ++now);
    /* now two have one each, and 10.0.0 has two: no network holds more than a third one's */
    assert_int_equal(add(&s, &newcomer[3], &evicted, "10.0.1.2", 0), PL_ELIMIT);
    assert_int_equal(s.count, 5);
    empty(&s);
}

static void longest_waiting_slot_is_evicted(void **unused)
{
    struct slot a, b, c;
    struct slots s = { .limit = 5 };
    struct slot *evicted;
    now = 0;
    add(&s, &a, &evicted, "10.0.0.1", 1);
    add(&s, &b, &evicted, "10.0.0.2", 1);
    add(&s, &c, &evicted, "10.0.0.3", 1);
    slots_set_waiting(&s, &a, 0, 4);
    assert_null(slots_take_overdue(&s, 2));
    assert_ptr_equal(slots_take_overdue(&s, 2.5), &b);
    assert_null(slots_take_overdue(&s, 2.5));
    slots_set_waiting(&s, &a, 1, 9); /* it waits for the next one since then */
    assert_ptr_equal(slots_take_overdue(&s, 9), &c);
    assert_null(slots_take_overdue(&s, 9));
    assert_ptr_equal(slots_take_overdue(&s, 9.5), &a);
    assert_int_equal(s.count, 0);
}

static void hosts_are_ours_or_not(void **unused)
{
    static const char *const ours[] = {
        "localhost", "LocalHost:8000", "127.0.0.1", "127.0.0.1:1", "[::1]", "[::1]:8000", "[0:0::1]:8000",
        "192.168.1.5:8000", "potluck.example", "Potluck.Example:443", "[2001:db8::5]:8000", "[2001:db8:0::5]",
        "0.0.0.0:8000",
    }, *const not_ours[] = {
        "", "evil.example", "localhost.evil.example", "localhost.", "localhost@evil.example", "evil.example:8000",
        "127.0.0.1.evil.example", "127.0.0.1.nip.io:8000", "127.0.0.2", "127.1", "2130706433", "0x7f.1", "::1", "[::1",
        "[::1]evil.example", "[localhost]", "[127.0.0.1]", "localhost:", "localhost:80a", "localhost:8000:8000",
        "localhost/", "localhost, evil.example", "localhost evil.example", " localhost", "http://localhost",
        "192.168.1.6", "[2001:db8::6]", "potluck.example.evil.example", "xpotluck.example", "169.254.169.254",
        "[::1%25lo]",
    };
    struct http_hosts h = { .count = 0 };
    struct http_address local = at("192.168.1.5");
    struct pl_err err;
    assert_int_equal(http_hosts_add(&h, "potluck.example", &err), PL_OK);
    assert_int_equal(http_hosts_add(&h, "2001:db8::5", &err), PL_OK);
    assert_int_equal(http_hosts_add(&h, "0.0.0.0", &err), PL_OK);
    for (size_t i = 0; i < PL_COUNT(ours); i++)
        if (!http_hosts_have(&h, ours[i], &local)) fail_msg("'%s' is refused", ours[i]);
    for (size_t i = 0; i < PL_COUNT(not_ours); i++)
        if (http_hosts_have(&h, not_ours[i], &local)) fail_msg("'%s' is let in", not_ours[i]);
    assert_false(http_hosts_have(&h, NULL, &local));
    char longest[300];
    memset(longest, 'a', sizeof longest);
    longest[299] = 0;
    assert_false(http_hosts_have(&h, longest, &local));
    const char *const wrong[] = {
        "", "a:80", "a b", "http://a", "[::1]:80", "[::1", "::g", longest
    };
    for (size_t i = 0; i < PL_COUNT(wrong); i++)
        if (http_hosts_add(&h, wrong[i], &err) != PL_EUSE) fail_msg("'%s' is a name", wrong[i]);
    assert_int_equal(http_hosts_add(&h, "[::2]", &err), PL_OK);
    while (h.count < HTTP_HOSTS_MAX) assert_int_equal(http_hosts_add(&h, "b", &err), PL_OK);
    assert_int_equal(http_hosts_add(&h, "c", &err), PL_ELIMIT);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(networks),
        cmocka_unit_test(longest_silent_connection_is_closed_first),
        cmocka_unit_test(larger_holders_pay),
        cmocka_unit_test(longest_waiting_slot_is_evicted),
        cmocka_unit_test(hosts_are_ours_or_not),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
