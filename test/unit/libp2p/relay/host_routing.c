/* host_routing.c - peers find each other: through another peer, through a relay, and not at all;
 * and AutoNAT reports whether they are publicly reachable. */
#include "test/unit/libp2p/host_sides.h"
#include "net/libp2p/relay/autonat.h"
#include "net/libp2p/relay/relay_internal.h"

#include <arpa/inet.h>
#include <sys/socket.h>
#include <unistd.h>

struct ears {
    struct host_watch watch;
    struct side *side;
    int connected, disconnected, identified;
};

static void on_connected(void *context, const struct peer_id *peer)
{
    note(&((struct ears *)context)->connected);
}

static void on_disconnected(void *context, const struct peer_id *peer)
{
    note(&((struct ears *)context)->disconnected);
}

static void on_identified(void *context, const struct peer_id *peer)
{
    note(&((struct ears *)context)->identified);
}

static void watch_here(void *context)
{
    struct ears *e = context;
    e->watch = (struct host_watch){ .events = { .connected = on_connected,
                                                .disconnected = on_disconnected,
                                                .identified = on_identified },
                                    .context = e };
    host_watch(e->side->host, &e->watch);
}

static void found_through_another(void **state)
{
    struct side hub, a, b;
    struct ears ears = { .side = &hub };
    struct asking join_a = {
        .from = &a, .to = &hub.me.id, .name = "Test.none", .timeout_s = LIMIT
    };
    struct asking join_b = {
        .from = &b, .to = &hub.me.id, .name = "Test.none", .timeout_s = LIMIT
    };
    struct asking q = {
        .from = &b, .to = &a.me.id, .name = "Test.echo", .data = "x", .n = 1, .timeout_s = LIMIT
    };
    open_side(&hub, 1, 0);
    open_side(&a, 1, 0);
    open_side(&b, 0, 0);
    serve(&a, "Test.echo", echo, NULL, NULL);
    loop_call(hub.loop, watch_here, &ears);
    teach(&a, &hub);
    teach(&b, &hub);
    ask_and_wait(&join_a);
    ask_and_wait(&join_b);
    assert_true(await_noted(&ears.connected, 2, LIMIT) && await_noted(&ears.identified, 2, LIMIT));
    ask_and_wait(&q); /* b knows nothing of a but its ID */
    if (q.status) fail_msg("%s", q.error);
    bytes_clear(&q.response);
    close_side(&a);
    assert_true(await_noted(&ears.disconnected, 1, LIMIT));
    close_side(&b);
    assert_true(await_noted(&ears.disconnected, 2, LIMIT));
    close_side(&hub);
}

static void reserve_here(void *context)
{
    struct asking *a = context;
    a->status = relay_use(a->from->host, a->to);
}

static void read_relay_here(void *context)
{
    struct asking *a = context;
    a->answered = relay_is_used(a->from->host, a->to) &&
                  relay_addresses(a->from->host, &a->from->at, 1) == 1;
}

/* A hub that relays; a, which has a place there and answers; b, which has called the hub. Neither
 * a nor b listens. */
static void open_relayed(struct side *hub, struct ears *ears, struct side *a, struct side *b)
{
    struct asking reserve = { .from = a, .to = &hub->me.id };
    struct asking join = { .from = b, .to = &hub->me.id, .name = "Test.none", .timeout_s = LIMIT };
    open_side_as(hub, 1, 0, 1);
    open_side(a, 0, 0);
    open_side(b, 0, 0);
    serve(a, "Test.echo", echo, NULL, NULL);
    loop_call(hub->loop, watch_here, ears);
    teach(a, hub);
    teach(b, hub);
    loop_call(a->loop, reserve_here, &reserve);
    assert_int_equal(reserve.status, PL_OK);
    for (double until = pl_seconds() + LIMIT; !reserve.answered && pl_seconds() < until;) {
        usleep(50000);
        loop_call(a->loop, read_relay_here, &reserve);
    }
    assert_true(reserve.answered);
    ask_and_wait(&join);
    /* both, and a's push of its new address */
    assert_true(await_noted(&ears->identified, 3, LIMIT));
}

/* b reaches a through the hub, knowing its ID only. */
static void called_through_relay(void **state)
{
    struct side hub, a, b;
    struct ears ears = { .side = &hub };
    uint8_t *data = noise(400000, 1);
    struct asking small = { .from = &b,
                            .to = &a.me.id,
                            .name = "Test.echo",
                            .data = data,
                            .n = 40000,
                            .timeout_s = LIMIT };
    struct asking large = { .from = &b,
                            .to = &a.me.id,
                            .name = "Test.echo",
                            .data = data,
                            .n = 400000,
                            .timeout_s = LIMIT };
    open_relayed(&hub, &ears, &a, &b);
    ask_and_wait(&small);
    if (small.status) fail_msg("%s", small.error);
    assert_memory_equal(bytes_at(&small.response), data, 40000);
    ask_and_wait(&large); /* more than a circuit carries: cut, and reported */
    assert_int_equal(large.status, PL_EIO);
    bytes_clear(&small.response);
    free(data);
    close_side(&b);
    close_side(&a);
    close_side(&hub);
}

/* An address where nobody answers, not even with a refusal: its line of callers is full. */
static void open_silence(int fd[3], struct multiaddr *at)
{
    struct sockaddr_in sa = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
    socklen_t n = sizeof sa;
    struct pl_err err = { "" };
    char text[64];
    for (int i = 0; i < 3; i++) fd[i] = socket(AF_INET, SOCK_STREAM | (i ? SOCK_NONBLOCK : 0), 0);
    assert_int_equal(bind(fd[0], (struct sockaddr *)&sa, sizeof sa), 0);
    assert_int_equal(listen(fd[0], 0), 0);
    assert_int_equal(getsockname(fd[0], (struct sockaddr *)&sa, &n), 0);
    for (int i = 1; i < 3; i++) connect(fd[i], (struct sockaddr *)&sa, sizeof sa);
    snprintf(text, sizeof text, "/ip4/127.0.0.1/tcp/%d", ntohs(sa.sin_port));
    if (multiaddr_from_text(at, text, &err)) fail_msg("%s", err.text);
}

/* a stands behind a router: its own address, which b has heard of, leads nowhere. b calls it
 * through the hub long before that address is given up. */
static void unreachable_address_does_not_delay_a_relayed_call(void **state)
{
    struct side hub, a, b;
    int silence[3];
    struct ears ears = { .side = &hub };
    struct asking q = {
        .from = &b, .to = &a.me.id, .name = "Test.echo", .data = "hello", .n = 5, .timeout_s = LIMIT
    };
    double begun;
    open_relayed(&hub, &ears, &a, &b);
    open_silence(silence, &a.at);
    teach(&b, &a);
    begun = pl_seconds();
    ask_and_wait(&q);
    if (q.status) fail_msg("%s", q.error);
    assert_true(pl_seconds() - begun < CONN_SETUP_LIMIT);
    bytes_clear(&q.response);
    close_side(&b);
    close_side(&a);
    close_side(&hub);
    for (int i = 0; i < 3; i++) close(silence[i]);
}

/* a has no relay yet when b's search begins: b asks the hub again while a's address is silent. */
static void relay_found_during_the_search(void **state)
{
    struct side hub, a, b;
    int silence[3];
    struct ears ears = { .side = &hub };
    struct asking reserve = { .from = &a, .to = &hub.me.id };
    struct asking join = { .from = &b, .to = &hub.me.id, .name = "Test.none", .timeout_s = LIMIT };
    struct asking q = {
        .from = &b, .to = &a.me.id, .name = "Test.echo", .data = "hello", .n = 5, .timeout_s = LIMIT
    };
    double begun;
    open_side_as(&hub, 1, 0, 1);
    open_side(&a, 0, 0);
    open_side(&b, 0, 0);
    serve(&a, "Test.echo", echo, NULL, NULL);
    loop_call(hub.loop, watch_here, &ears);
    teach(&a, &hub);
    teach(&b, &hub);
    open_silence(silence, &a.at);
    teach(&b, &a);
    ask_and_wait(&join);
    begun = pl_seconds();
    ask(&q);
    usleep(1500000); /* the hub has been asked, and knew no address */
    loop_call(a.loop, reserve_here, &reserve);
    assert_true(await_noted(&q.answered, 1, LIMIT));
    if (q.status) fail_msg("%s", q.error);
    assert_true(pl_seconds() - begun < CONN_SETUP_LIMIT - 5);
    bytes_clear(&q.response);
    close_side(&b);
    close_side(&a);
    close_side(&hub);
    for (int i = 0; i < 3; i++) close(silence[i]);
}

static void stand_still(void *context) { sleep(14); }

/* A peer falls silent, as behind a router that has forgotten the connection. The first request that it does not
 * answer finds that out, long before the next keep-alive. */
static void unanswered_request_finds_a_dead_connection(void **state)
{
    struct side a, b;
    struct ears ears = { .side = &a };
    struct asking q = {
        .from = &a, .to = &b.me.id, .name = "Test.echo", .data = "hello", .n = 5, .timeout_s = LIMIT
    };
    open_side(&a, 0, 0);
    open_side(&b, 1, 0);
    serve(&b, "Test.echo", echo, NULL, NULL);
    loop_call(a.loop, watch_here, &ears);
    teach(&a, &b);
    ask_and_wait(&q);
    assert_int_equal(q.status, PL_OK);
    bytes_clear(&q.response);
    usleep(2100000);
    loop_post(b.loop, stand_still, NULL);
    q.answered = 0;
    q.timeout_s = 1;
    ask_and_wait(&q);
    assert_int_equal(q.status, PL_EAGAIN);
    assert_true(await_noted(&ears.disconnected, 1, 12));
    close_side(&a);
    close_side(&b);
}

static void on_reach(void *context, int status, const struct multiaddr *at, const char *why)
{
    struct asking *a = context;
    a->status = status;
    a->from->at = *at;
    snprintf(a->error, sizeof a->error, "%s", why);
    note(&a->answered);
}

static void reach_here(void *context)
{
    struct asking *a = context;
    assert_non_null(autonat_ask(a->from->host, a->to, LIMIT, on_reach, a));
}

static void reachable(void **state)
{
    struct side hub, a, b;
    struct asking from_a = { .from = &a, .to = &hub.me.id },
                  from_b = { .from = &b, .to = &hub.me.id };
    struct multiaddr was;
    open_side(&hub, 1, 0);
    open_side(&a, 1, 0);
    open_side(&b, 0, 0);
    was = a.at;
    multiaddr_strip_peer(&was, &a.me.id);
    teach(&a, &hub);
    teach(&b, &hub);
    loop_call(a.loop, reach_here, &from_a);
    loop_call(b.loop, reach_here, &from_b);
    assert_true(await_noted(&from_a.answered, 1, LIMIT) && await_noted(&from_b.answered, 1, LIMIT));
    if (from_a.status) fail_msg("%s", from_a.error);
    assert_true(multiaddr_equal(&a.at, &was));
    assert_int_equal(from_b.status, PL_EPROTO); /* it has no address to be dialled at */
    close_side(&a);
    close_side(&b);
    close_side(&hub);
}

/* a's own address is not the one that the hub sees, as behind a router: the hub is asked about the
 * one that it sees, and finds nobody there. */
static void not_reachable_behind_a_router(void **state)
{
    static const char *const listen[] = { "/ip4/127.0.0.2/tcp/0" };
    struct side hub, a = { 0 };
    struct host_options o = { .me = &a.me, .listen = listen, .listen_count = 1 };
    struct asking join = { .from = &a, .to = &hub.me.id, .name = "Test.none", .timeout_s = LIMIT };
    struct asking q = { .from = &a, .to = &hub.me.id };
    struct ears ears = { .side = &a };
    struct pl_err err = { "" };
    open_side(&hub, 1, 0);
    assert_int_equal(loop_open(&a.loop, &err), PL_OK);
    assert_int_equal(identity_make(&a.me, KEY_ED25519, &err), PL_OK);
    if (libp2p_open(&a.host, a.loop, &o, &err)) fail_msg("%s", err.text);
    loop_call(a.loop, watch_here, &ears);
    teach(&a, &hub);
    ask_and_wait(&join);
    assert_true(await_noted(&ears.identified, 1, LIMIT));
    loop_call(a.loop, reach_here, &q);
    assert_true(await_noted(&q.answered, 1, LIMIT));
    assert_int_equal(q.status, PL_EIO); /* it has tried */
    close_side(&a);
    close_side(&hub);
}

/* --- a closing host --------------------------------------------------------------------------- */

struct silence {
    struct side caller, callee;
    int is_there, fired;
};

static void on_silence_failed(void *context, struct stream *c, int status, const char *why)
{
    stream_close(c);
}

static void open_silent_stop(void *context)
{
    static const struct stream_events events = { .failed = on_silence_failed };
    struct silence *s = context;
    assert_non_null(stream_open(s->caller.host, &s->callee.me.id, STOP, LIMIT, &events, s));
}

static void on_fired(void *context) { note(&((struct silence *)context)->fired); }

/* In place of the stop stream's own time limit, which takes 15 s. */
static void shorten_limit(void *context)
{
    struct silence *s = context;
    struct exchange *x = relay_of(s->callee.host)->stopping;
    s->is_there = x != NULL;
    if (x) timer_start(s->callee.loop, &x->timer, 0.2, on_fired, s);
}

/* As host_close does, but connections live on: what the relay does not end itself stays. */
static void end_relay(void *context)
{
    relay_protocol.stop(((struct silence *)context)->callee.host);
}

/* A stop stream whose first message never comes ends with the relay, whose memory its end would write
 * into. Otherwise its time limit passes. */
static void a_closing_host_ends_stop_streams(void **state)
{
    struct silence s = { .is_there = 0 };
    const double until = pl_seconds() + LIMIT;
    open_side(&s.caller, 0, 0);
    open_side(&s.callee, 1, 0);
    teach(&s.caller, &s.callee);
    loop_call(s.caller.loop, open_silent_stop, &s);
    for (; !s.is_there && pl_seconds() < until; usleep(1000))
        loop_call(s.callee.loop, shorten_limit, &s);
    loop_call(s.callee.loop, end_relay, &s);
    usleep(500000);
    host_close(s.callee.host);
    loop_close(s.callee.loop);
    identity_clear(&s.callee.me);
    close_side(&s.caller);
    assert_true(s.is_there);
    assert_int_equal(s.fired, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(found_through_another),
        cmocka_unit_test(called_through_relay),
        cmocka_unit_test(unreachable_address_does_not_delay_a_relayed_call),
        cmocka_unit_test(relay_found_during_the_search),
        cmocka_unit_test(unanswered_request_finds_a_dead_connection),
        cmocka_unit_test(a_closing_host_ends_stop_streams),
        cmocka_unit_test(reachable),
        cmocka_unit_test(not_reachable_behind_a_router),
    };
    return cmocka_run_group_tests_name("host_routing", tests, NULL, NULL);
}
