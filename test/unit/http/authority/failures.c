/* failures.c - failed attempts are counted by network, for a minute, in a table of fixed size. */
#include "net/http/authority/failures.h"
#include "test/unit/http/http_address.h"

static void failures_count_by_network(void **unused)
{
    static struct failures f;
    struct http_address a = at("10.0.0.1"), b = at("10.0.0.2"), c = at("10.0.1.1");
    memset(&f, 0, sizeof f);
    for (unsigned i = 1; i <= 60; i++) assert_int_equal(failures_add(&f, i % 2 ? &a : &b, 100), i);
    assert_int_equal(failures_add(&f, &c, 100), 1);
    assert_int_equal(failures_add(&f, &a, 159.9), 61);
    assert_int_equal(failures_add(&f, &a, 160), 1); /* another minute */
    assert_int_equal(failures_add(&f, &b, 160), 2);
    /* More networks than there are places: counts above 1 stay. */
    for (unsigned i = 0; i < 3 * FAILURES_NETWORKS_MAX; i++) {
        char text[40];
        snprintf(text, sizeof text, "2001:db8:%x:1::", i);
        struct http_address x = at(text);
        failures_add(&f, &x, 161);
    }
    assert_int_equal(failures_add(&f, &a, 161), 3);
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(failures_count_by_network) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
