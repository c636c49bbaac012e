/* services.c - the table of protocols that a host serves: each name once, as many as there are places. */
#include "net/libp2p/streams/services.h"
#include "test/unit/unit.h"

static struct services table;

static int find(const char *name) { return services_find(&table, name, strlen(name)); }

static void names_are_served_once(void **state)
{
    char name[] = "/a";
    int context;
    assert_int_equal(services_add(&table, name, NULL, &context), PL_OK);
    assert_int_equal(services_add(&table, "/b/1", NULL, NULL), PL_OK);
    assert_int_equal(services_add(&table, "/a", NULL, NULL), PL_EUSE);
    assert_int_equal(services_add(&table, "/b/1", NULL, NULL), PL_EUSE);
    name[1] = 'x'; /* the table has its own copy */
    assert_ptr_equal(table.list[find("/a")].context, &context);
    assert_int_equal(find("/b"), -1);
    assert_int_equal(services_find(&table, "/b/12", 4), find("/b/1"));
    assert_int_equal(services_remove(&table, "/c"), 0);
    assert_int_equal(services_remove(&table, "/a"), 1);
    assert_int_equal(find("/a"), -1);
    assert_int_equal(find("/b/1"), 0); /* moved to the place that was free */
    services_clear(&table);
    assert_int_equal(find("/b/1"), -1);
}

static void places_are_limited(void **state)
{
    char name[16];
    for (int i = 0; i <= HOST_PROTOCOLS_MAX; i++) {
        snprintf(name, sizeof name, "/%d", i);
        assert_int_equal(services_add(&table, name, NULL, NULL),
                         i < HOST_PROTOCOLS_MAX ? PL_OK : PL_ELIMIT);
    }
    services_clear(&table);
    assert_int_equal(table.count, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(names_are_served_once),
                                        cmocka_unit_test(places_are_limited) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
