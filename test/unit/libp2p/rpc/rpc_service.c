/* rpc_service.c - RPCs that a host serves and withdraws: one entry each, which lives as long as it
 * is served or a call to it waits. The host is scripted. */
#include "net/libp2p/rpc/rpc_service.h"
#include "test/unit/unit.h"

#define SERVED 4

static struct {
    const struct host_protocol *joined;
    void *state;
    const char *names[SERVED];            /* NULL: a free place */
    struct rpc_service *services[SERVED]; /* that their streams get as their context */
    int status;                           /* of host_serve */
} host;

int host_join(struct host *h, const struct host_protocol *p)
{
    host.joined = p;
    return PL_OK;
}
void *host_state(const struct host *h, const struct host_protocol *p) { return host.state; }
void host_set_state(struct host *h, const struct host_protocol *p, void *s) { host.state = s; }
int host_serve(struct host *h, const char *name, stream_opened *opened, void *context)
{
    for (int i = 0; i < SERVED; i++) {
        if (host.names[i] && !strcmp(host.names[i], name)) return PL_EUSE;
        if (host.names[i] || host.status) continue;
        host.names[i] = name;
        host.services[i] = context;
        return PL_OK;
    }
    return host.status ? host.status : PL_ELIMIT;
}
void host_unserve(struct host *h, const char *name)
{
    for (int i = 0; i < SERVED; i++)
        if (host.names[i] && !strcmp(host.names[i], name)) host.names[i] = NULL;
}

static int begin(void **state)
{
    memset(&host, 0, sizeof host);
    return 0;
}

static int serve(const char *name)
{
    char copy[32]; /* the caller's name need not last */
    struct rpc_service s = { .name = copy, .message_max = 7 };
    int rc;
    snprintf(copy, sizeof copy, "%s", name);
    rc = rpc_service_add(&s, NULL);
    memset(copy, '?', sizeof copy - 1);
    return rc;
}

static int is_served(const char *name)
{
    for (int i = 0; i < SERVED; i++)
        if (host.names[i] && !strcmp(host.names[i], name)) return 1;
    return 0;
}

/* Those in the middle, at the end and at the beginning of the list; the others stay. */
static void each_is_withdrawn_by_its_name(void **state)
{
    static const char *const names[] = { "a", "b", "c" };
    for (size_t i = 0; i < PL_COUNT(names); i++) assert_int_equal(serve(names[i]), PL_OK);
    rpc_unserve(NULL, "d");
    rpc_unserve(NULL, "b");
    assert_true(is_served("a") && !is_served("b") && is_served("c"));
    rpc_unserve(NULL, "b");
    assert_int_equal(serve("b"), PL_OK);
    rpc_unserve(NULL, "a");
    rpc_unserve(NULL, "b");
    assert_true(!is_served("a") && !is_served("b") && is_served("c"));
    rpc_unserve(NULL, "c");
    assert_null(host.state);
}

/* A withdrawn RPC is there for the calls whose requests are still arriving. */
static void withdrawn_ones_outlive_their_calls(void **state)
{
    struct rpc_service *s;
    assert_int_equal(serve("a"), PL_OK);
    s = host.services[0];
    rpc_service_enter(s);
    rpc_service_leave(s);
    rpc_service_enter(s);
    rpc_service_enter(s);
    rpc_unserve(NULL, "a");
    assert_false(is_served("a"));
    assert_string_equal(s->name, "a");
    rpc_service_leave(s);
    assert_int_equal(s->message_max, 7);
    rpc_service_leave(s);
    rpc_service_leave(NULL);
}

static void refused_ones_leave_nothing(void **state)
{
    assert_int_equal(serve("a"), PL_OK);
    assert_int_equal(serve("a"), PL_EUSE);
    host.status = PL_ELIMIT;
    assert_int_equal(serve("b"), PL_ELIMIT);
    assert_true(is_served("a"));
    rpc_unserve(NULL, "b");
    rpc_unserve(NULL, "a");
}

/* The host ends: all go, but for those that calls wait on. */
static void host_frees_all(void **state)
{
    struct rpc_service *s;
    assert_int_equal(serve("a"), PL_OK);
    assert_int_equal(serve("b"), PL_OK);
    assert_int_equal(serve("c"), PL_OK);
    s = host.services[1];
    rpc_service_enter(s);
    host.joined->free(NULL);
    assert_string_equal(s->name, "b");
    rpc_service_leave(s);
}

#define TEST(f) cmocka_unit_test_setup(f, begin)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(each_is_withdrawn_by_its_name),
        TEST(withdrawn_ones_outlive_their_calls),
        TEST(refused_ones_leave_nothing),
        TEST(host_frees_all),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
