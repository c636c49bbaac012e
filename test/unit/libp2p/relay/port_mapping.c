/* port_mapping.c - when a host asks its router for a port, which one, and what it does with the
 * answer. The host, the loop and the router are scripted: a test is a list of events. */
#include "net/libp2p/relay/port_mapping.h"
#include "net/libp2p/host/host_protocol.h"
#include "test/unit/unit.h"

#define OUTSIDE "/ip4/8.8.4.4/tcp/4001"
#define RELAYED "/ip4/10.0.0.1/tcp/7/p2p/QmYyQSo1c1Ym7orWxLYvCrM2EmxFTANf8wXmmE7DWjhx5N/p2p-circuit"

/* The host as the protocol sees it. */
static struct {
    int maps_port;
    const char *own[4]; /* addresses that it listens on; NULL ends them */
    int is_translated;  /* of public ones: a router shows them, no interface has them */
    void *state;
    int calls;             /* of host_set_mapped, */
    struct multiaddr seen; /* and its argument; length 0: nothing is mapped */
} host;

/* The loop: one piece of work and one timer at a time. */
static struct {
    loop_fn *work, *done, *alarm;
    void *work_context, *alarm_context;
    double in_s;
    int has_no_memory;
} loop;

static struct {
    int maps; /* 1: it does what it is asked for */
    int asked, removed;
    uint16_t port;
} router;

struct loop *host_loop(const struct host *h) { return NULL; }
void *host_state(const struct host *h, const struct host_protocol *p) { return host.state; }
void host_set_state(struct host *h, const struct host_protocol *p, void *s) { host.state = s; }
int host_maps_port(const struct host *h) { return host.maps_port; }
int host_is_translated(const struct host *h, const struct multiaddr *a)
{
    return host.is_translated;
}
size_t host_own_addresses(const struct host *h, struct multiaddr *out, size_t max)
{
    size_t n = 0;
    for (; n < PL_COUNT(host.own) && host.own[n]; n++)
        assert_int_equal(multiaddr_from_text(&out[n], host.own[n], NULL), PL_OK);
    return n;
}
void host_set_mapped(struct host *h, const struct multiaddr *outside)
{
    host.calls++;
    host.seen = outside ? *outside : (struct multiaddr){ .length = 0 };
}

int loop_work(struct loop *l, loop_fn *work, loop_fn *done, void *context)
{
    assert_null(loop.work); /* one request at a time */
    if (loop.has_no_memory) return PL_ENOMEM;
    loop.work = work;
    loop.done = done;
    loop.work_context = context;
    return PL_OK;
}
void timer_start(struct loop *l, struct timer *t, double in_s, loop_fn *fn, void *context)
{
    loop.alarm = fn;
    loop.alarm_context = context;
    loop.in_s = in_s;
}
void timer_stop(struct timer *t) { loop.alarm = NULL; }

void gateway_map(struct gateway *g)
{
    router.asked++;
    router.port = g->port;
    g->outcome[GATEWAY_UPNP].status = router.maps ? GATEWAY_MAPPED : GATEWAY_SILENT;
    assert_int_equal(multiaddr_from_text(&g->outside, OUTSIDE, NULL), PL_OK);
}
void gateway_unmap(struct gateway *g)
{
    router.removed++;
    assert_int_equal(g->port, router.port);
}
int gateway_is_mapped(const struct gateway *g)
{
    return g->outcome[GATEWAY_UPNP].status == GATEWAY_MAPPED;
}

static int begin(void **state)
{
    memset(&host, 0, sizeof host);
    memset(&loop, 0, sizeof loop);
    memset(&router, 0, sizeof router);
    host.maps_port = router.maps = 1;
    host.own[0] = "/ip4/192.168.1.7/tcp/4001";
    return 0;
}

static void start(void) { assert_int_equal(port_mapping_protocol.start(NULL), PL_OK); }
static void stop(void) { port_mapping_protocol.stop(NULL); }

/* The helper thread's work and its end. */
static void finish_work(void)
{
    loop_fn *work = loop.work, *done = loop.done;
    assert_non_null(work);
    loop.work = NULL;
    work(loop.work_context);
    done(loop.work_context);
}

static void ring(double in_s)
{
    loop_fn *alarm = loop.alarm;
    assert_non_null(alarm);
    assert_true(loop.in_s == in_s);
    loop.alarm = NULL;
    alarm(loop.alarm_context);
}

static enum port_mapping_state outcome(void)
{
    struct gateway g;
    return port_mapping_outcome(NULL, &g);
}

/* Asked at once, renewed each minute, removed in the end. */
static void mapping_is_kept(void **state)
{
    struct multiaddr want;
    assert_int_equal(multiaddr_from_text(&want, OUTSIDE, NULL), PL_OK);
    assert_int_equal(outcome(), PORT_MAPPING_OFF);
    start();
    assert_int_equal(outcome(), PORT_MAPPING_PENDING);
    assert_null(loop.alarm);
    finish_work();
    for (int i = 1; i < 4; i++) {
        assert_int_equal(outcome(), PORT_MAPPING_KNOWN);
        assert_int_equal(router.asked, i);
        assert_int_equal(router.port, 4001);
        assert_int_equal(host.calls, i);
        assert_true(multiaddr_equal(&host.seen, &want));
        ring(MAPPING_RENEW);
        assert_int_equal(outcome(), PORT_MAPPING_KNOWN); /* the last answer, meanwhile */
        finish_work();
    }
    stop();
    assert_null(loop.alarm);
    assert_int_equal(outcome(), PORT_MAPPING_OFF);
    finish_work();
    assert_int_equal(router.removed, 1);
}

/* A router that refuses is asked again later. A mapping that it ends is not advertised any more, and
 * is not removed. */
static void refusals_are_tried_again(void **state)
{
    router.maps = 0;
    start();
    finish_work();
    assert_int_equal(outcome(), PORT_MAPPING_KNOWN);
    assert_int_equal(host.calls, 1);
    assert_int_equal(host.seen.length, 0);
    router.maps = 1;
    ring(MAPPING_RETRY);
    finish_work();
    assert_int_not_equal(host.seen.length, 0);
    router.maps = 0;
    ring(MAPPING_RENEW);
    finish_work();
    assert_int_equal(host.seen.length, 0);
    stop();
    assert_null(loop.work);
    assert_int_equal(router.removed, 0);
}

/* The port of the first private IPv4 address, which is all that routers forward; none where an
 * interface has a public address. */
static void port_of_a_private_address(void **state)
{
    static const struct {
        const char *own[3];
        int is_translated;
        uint16_t port; /* 0: the router is not asked */
    } cases[] = {
        { { "/ip4/10.0.0.1/tcp/7", "/ip4/192.168.0.2/tcp/8" }, 0, 7 },
        { { "/ip6/fd00::1/tcp/7", "/ip4/192.168.0.2/tcp/8" }, 0, 8 },
        { { "/ip4/127.0.0.1/tcp/7", "/ip4/172.16.0.2/tcp/8" }, 0, 8 },
        { { "/ip4/10.0.0.1/tcp/7", "/ip4/8.8.8.8/tcp/8" }, 0, 0 },
        { { "/ip4/10.0.0.1/tcp/7", "/ip4/8.8.8.8/tcp/8" }, 1, 7 },
        { { "/ip4/8.8.8.8/tcp/8", "/ip4/10.0.0.1/tcp/7" }, 0, 0 },
        { { "/ip4/127.0.0.1/tcp/7" }, 0, 0 },
        { { RELAYED }, 0, 0 },
        { { NULL }, 0, 0 },
    };
    for (size_t i = 0; i < PL_COUNT(cases); i++) {
        begin(NULL);
        memcpy(host.own, cases[i].own, sizeof cases[i].own);
        host.is_translated = cases[i].is_translated;
        start();
        if (cases[i].port) {
            finish_work();
            assert_int_equal(router.port, cases[i].port);
            stop();
            finish_work();
        } else {
            assert_null(loop.work);
            assert_int_equal(outcome(), PORT_MAPPING_OFF);
            host.own[0] = "/ip4/10.0.0.9/tcp/9"; /* a laptop comes home */
            host.own[1] = NULL;
            ring(MAPPING_RETRY);
            finish_work();
            assert_int_equal(router.port, 9);
            stop();
            finish_work();
        }
    }
}

/* The host is gone when the router answers: the mapping is removed, and the host learns nothing. */
static void answer_after_the_end(void **state)
{
    for (int maps = 0; maps < 2; maps++) {
        begin(NULL);
        router.maps = maps;
        start();
        stop();
        assert_int_equal(outcome(), PORT_MAPPING_OFF);
        finish_work();
        assert_int_equal(host.calls, 0);
        if (maps) finish_work();
        assert_int_equal(router.removed, maps);
        assert_null(loop.work);
    }
}

static void without_memory_later(void **state)
{
    loop.has_no_memory = 1;
    start();
    assert_int_equal(outcome(), PORT_MAPPING_OFF);
    loop.has_no_memory = 0;
    ring(MAPPING_RETRY);
    assert_int_equal(outcome(), PORT_MAPPING_PENDING);
    finish_work();
    loop.has_no_memory = 1; /* the lease ends it */
    stop();
    assert_int_equal(router.removed, 0);
}

static void only_on_request(void **state)
{
    host.maps_port = 0;
    start();
    assert_null(loop.work);
    assert_null(loop.alarm);
    stop();
}

#define TEST(f) cmocka_unit_test_setup(f, begin)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(mapping_is_kept),      TEST(refusals_are_tried_again), TEST(port_of_a_private_address),
        TEST(answer_after_the_end), TEST(without_memory_later),     TEST(only_on_request),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
