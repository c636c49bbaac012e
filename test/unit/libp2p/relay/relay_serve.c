/* relay_serve.c - a relay as its two customers see it, message by message: reservations, refusals,
 * and circuits that carry bytes both ways, up to their limit. The caller and the callee here speak
 * the protocol themselves. [spec libp2p-wire 14] */
#include "test/unit/libp2p/host_sides.h"
#include "net/libp2p/protocols/identify.h"
#include "net/libp2p/relay/relay_internal.h"

#include <time.h>
#include <unistd.h>

/* One end of a hop or stop stream: what came is kept. */
static struct end {
    struct side *side;
    struct stream *stream;
    enum relay_protocol protocol;
    struct bytes got;
    int readable, ended, failed;
} hop[2], stop;

static struct side hub, caller, callee;

static void read_all(void *context, struct stream *c)
{
    struct end *e = context;
    size_t n;
    int ended;
    const uint8_t *data = stream_data(c, &n, &ended);
    bytes_add(&e->got, data, n);
    stream_took(c, n);
    if (ended && !e->ended) note(&e->ended);
    note(&e->readable);
}

static void on_lost(void *context, struct stream *c, int status, const char *why)
{
    struct end *e = context;
    stream_close(c);
    e->stream = NULL;
    note(&e->failed);
}

static const struct stream_events events = { .readable = read_all, .failed = on_lost };

static void on_stop(void *context, struct stream *c)
{
    stop.stream = c;
    stream_listen(c, &events, &stop);
    stream_both_ways(c);
}

static void serve_stop(void *context)
{
    assert_int_equal(host_serve(callee.host, STOP, on_stop, NULL), PL_OK);
}

static void open_hop(void *context)
{
    struct end *e = context;
    e->stream = stream_open(e->side->host, &hub.me.id, HOP, LIMIT, &events, e);
    assert_non_null(e->stream);
}

struct saying {
    struct end *by;
    const struct relay_message *m;
    const void *data;
    size_t n;
};

static void say_here(void *context)
{
    const struct saying *s = context;
    if (!s->by->stream) return;
    if (s->m) relay_send(s->by->stream, s->by->protocol, s->m);
    stream_write(s->by->stream, s->data, s->n);
}
static void finish_here(void *context) { stream_finish(((struct end *)context)->stream); }
static void close_here(void *context)
{
    stream_close(((struct end *)context)->stream);
    ((struct end *)context)->stream = NULL;
}

static void say(struct end *by, const struct relay_message *m, const void *data, size_t n)
{
    struct saying s = { by, m, data, n };
    loop_call(by->side->loop, say_here, &s);
}

struct reading {
    struct end *at;
    struct relay_message *m;
    int rc;
    size_t bytes;
};

/* Takes a message if one is there, and says how many bytes lie behind it. */
static void read_here(void *context)
{
    struct reading *l = context;
    struct bytes *got = &l->at->got;
    struct cursor c = { bytes_at(got), bytes_length(got) };
    const uint8_t *body;
    size_t n;
    l->rc = PL_EAGAIN;
    if (l->m && c.left && !get_delimited(&c, &body, &n, RELAY_MESSAGE_MAX)) {
        l->rc = relay_get(l->m, l->at->protocol, body, n);
        bytes_take(got, bytes_length(got) - c.left);
    }
    l->bytes = bytes_length(got);
}

static struct relay_message message_at(struct end *e)
{
    static struct relay_message m;
    struct reading l = { .at = e, .m = &m, .rc = PL_EAGAIN };
    for (double until = pl_seconds() + LIMIT; l.rc == PL_EAGAIN; usleep(1000)) {
        loop_call(e->side->loop, read_here, &l);
        assert_true(pl_seconds() < until);
    }
    assert_int_equal(l.rc, PL_OK);
    return m;
}

static size_t bytes_at_end(struct end *e)
{
    struct reading l = { .at = e };
    loop_call(e->side->loop, read_here, &l);
    return l.bytes;
}

static void await_bytes(struct end *e, size_t n)
{
    for (double until = pl_seconds() + LIMIT; bytes_at_end(e) < n; usleep(1000))
        assert_true(pl_seconds() < until);
    assert_int_equal(bytes_at_end(e), n);
}

/* What the relay keeps. */
static void count_here(void *context)
{
    int *counts = context;
    counts[0] = counts[1] = 0;
    for (const struct reservation *v = relay_of(hub.host)->reservations; v; v = v->next)
        counts[0]++;
    counts[1] = relay_of(hub.host)->circuits != NULL;
}

static void relay_holds(int reservations, int circuits)
{
    int counts[2] = { -1, -1 };
    for (double until = pl_seconds() + LIMIT; counts[0] != reservations || counts[1] != circuits;
         usleep(1000)) {
        loop_call(hub.loop, count_here, counts);
        if (pl_seconds() > until) fail_msg("%d reservations, %d", counts[0], counts[1]);
    }
}

static void ask_hop(struct end *e, const struct relay_message *m)
{
    loop_call(e->side->loop, open_hop, e);
    say(e, m, NULL, 0);
}

static int begin(void **state)
{
    static const struct host_protocol *const protocols[] = { &identify_protocol };
    struct host_options o = { .me = &callee.me };
    struct pl_err err = { "" };
    memset(hop, 0, sizeof hop);
    memset(&stop, 0, sizeof stop);
    open_side_as(&hub, 1, 0, 1);
    open_side(&caller, 0, 0);
    memset(&callee, 0, sizeof callee); /* without a relay's client of its own */
    assert_int_equal(loop_open(&callee.loop, &err), PL_OK);
    assert_int_equal(identity_make(&callee.me, KEY_ED25519, &err), PL_OK);
    assert_int_equal(host_open(&callee.host, callee.loop, &o, protocols, 1, &err), PL_OK);
    loop_call(callee.loop, serve_stop, NULL);
    teach(&caller, &hub);
    teach(&callee, &hub);
    hop[0].side = &caller;
    hop[1].side = stop.side = &callee;
    stop.protocol = RELAY_STOP;
    return 0;
}

static int end(void **state)
{
    if (caller.host) close_side(&caller);
    if (callee.host) close_side(&callee);
    close_side(&hub);
    for (int i = 0; i < 2; i++) bytes_clear(&hop[i].got);
    bytes_clear(&stop.got);
    return 0;
}

static void reserve(void)
{
    const struct relay_message m = { .type = HOP_RESERVE };
    struct relay_message answer;
    ask_hop(&hop[1], &m);
    answer = message_at(&hop[1]);
    assert_int_equal(answer.type, HOP_STATUS);
    assert_int_equal(answer.status, RELAY_OK);
    assert_true(answer.has_reservation);
}

/* For an hour, at the relay's own addresses, with the limits of a circuit; the stream then ends.
 * Asking again renews it. It is gone with the last connection. */
static void a_reservation(void **state)
{
    const struct relay_message m = { .type = HOP_RESERVE };
    struct relay_message answer;
    double expire;
    for (int i = 0; i < 2; i++) {
        hop[1].ended = 0;
        ask_hop(&hop[1], &m);
        answer = message_at(&hop[1]);
        assert_int_equal(answer.type, HOP_STATUS);
        assert_int_equal(answer.status, RELAY_OK);
        assert_true(answer.has_reservation && answer.has_limit);
        expire = (double)answer.expire - (double)time(NULL);
        assert_true(expire > RELAY_RESERVATION_S - 60 && expire <= RELAY_RESERVATION_S);
        assert_int_equal(answer.duration_s, 120);
        assert_int_equal(answer.data_bytes, 131072);
        assert_int_equal(answer.address_count, 1);
        assert_true(multiaddr_equal(&answer.addresses[0], &hub.at));
        assert_true(await_noted(&hop[1].ended, 1, LIMIT));
        assert_int_equal(hop[1].failed, 0);
        loop_call(callee.loop, close_here, &hop[1]);
        relay_holds(1, 0);
    }
    close_side(&callee);
    relay_holds(0, 0);
}

static void refused_with(const struct relay_message *m, const char *bytes, size_t n, int status)
{
    struct relay_message answer;
    hop[0].ended = 0;
    loop_call(caller.loop, open_hop, &hop[0]);
    say(&hop[0], m, bytes, n);
    answer = message_at(&hop[0]);
    assert_int_equal(answer.type, HOP_STATUS);
    assert_int_equal(answer.status, status);
    assert_false(answer.has_reservation);
    assert_true(await_noted(&hop[0].ended, 1, LIMIT)); /* a refusal ends the stream, */
    relay_holds(0, 0);                                 /* and nothing stays */
    loop_call(caller.loop, close_here, &hop[0]);
}

/* Each reason has its number. */
static void refusals(void **state)
{
    const struct relay_message nobody = { .type = HOP_CONNECT },
                               stranger = { .type = HOP_CONNECT, .peer = callee.me.id },
                               answer = { .type = HOP_STATUS, .status = RELAY_OK };
    struct end other = { .side = &callee };
    refused_with(&nobody, NULL, 0, RELAY_MALFORMED_MESSAGE);
    refused_with(&stranger, NULL, 0, RELAY_NO_RESERVATION); /* not connected, */
    ask_hop(&other, &answer); /* and connected, but without a reservation */
    assert_int_equal(message_at(&other).status, RELAY_UNEXPECTED_MESSAGE);
    refused_with(&stranger, NULL, 0, RELAY_NO_RESERVATION);
    refused_with(NULL, "\002\377\377", 3, RELAY_MALFORMED_MESSAGE);
    relay_holds(0, 0);
    bytes_clear(&other.got);
}

/* CONNECT reaches the callee with the caller's ID and the limits. Its own answer decides. */
static void connect_to_callee(void)
{
    const struct relay_message m = { .type = HOP_CONNECT, .peer = callee.me.id };
    struct relay_message asked;
    ask_hop(&hop[0], &m);
    asked = message_at(&stop);
    assert_int_equal(asked.type, STOP_CONNECT);
    assert_true(peer_id_equal(&asked.peer, &caller.me.id));
    assert_true(asked.has_limit && asked.duration_s == 120 && asked.data_bytes == 131072);
    assert_int_equal(bytes_at_end(&hop[0]), 0); /* the caller waits meanwhile */
}

static void the_callee_refuses(void **state)
{
    static const struct relay_message no[] = {
        { .type = STOP_STATUS, .status = RELAY_PERMISSION_DENIED },
        { .type = STOP_CONNECT, .status = RELAY_OK }, /* no answer at all */
    };
    reserve();
    for (int i = 0; i < 3; i++) {
        hop[0].ended = 0;
        connect_to_callee();
        if (i < 2) say(&stop, &no[i], NULL, 0);
        else loop_call(callee.loop, close_here, &stop);
        assert_int_equal(message_at(&hop[0]).status, RELAY_CONNECTION_FAILED);
        assert_true(await_noted(&hop[0].ended, 1, LIMIT));
        loop_call(caller.loop, close_here, &hop[0]);
        relay_holds(1, 0);
    }
}

static void open_circuit(const char *first)
{
    const struct relay_message yes = { .type = STOP_STATUS, .status = RELAY_OK };
    struct relay_message answer;
    reserve();
    connect_to_callee();
    say(&stop, &yes, first, strlen(first));
    answer = message_at(&hop[0]);
    assert_int_equal(answer.type, HOP_STATUS);
    assert_int_equal(answer.status, RELAY_OK);
    assert_true(answer.has_limit && answer.duration_s == 120 && answer.data_bytes == 131072);
}

/* Bytes go both ways, also those that came right behind the callee's answer; an end goes through,
 * and both ends end the circuit. */
static void bytes_both_ways(void **state)
{
    open_circuit("first");
    await_bytes(&hop[0], 5);
    assert_memory_equal(bytes_at(&hop[0].got), "first", 5);
    say(&hop[0], NULL, "to callee", 9);
    await_bytes(&stop, 9);
    assert_memory_equal(bytes_at(&stop.got), "to callee", 9);
    say(&stop, NULL, "!", 1);
    await_bytes(&hop[0], 6);
    loop_call(caller.loop, finish_here, &hop[0]);
    assert_true(await_noted(&stop.ended, 1, LIMIT));
    say(&stop, NULL, "?", 1); /* the other direction is still open */
    await_bytes(&hop[0], 7);
    relay_holds(1, 1);
    loop_call(callee.loop, finish_here, &stop);
    assert_true(await_noted(&hop[0].ended, 1, LIMIT));
    relay_holds(1, 0);
    assert_int_equal(hop[0].failed + stop.failed, 0);
}

/* A peer is called twice at once; each circuit has its own bytes. */
static void two_circuits_to_one_callee(void **state)
{
    const struct relay_message m = { .type = HOP_CONNECT, .peer = callee.me.id },
                               yes = { .type = STOP_STATUS, .status = RELAY_OK };
    struct end again = { .side = &caller };
    open_circuit("");
    ask_hop(&again, &m);
    assert_int_equal(message_at(&stop).type, STOP_CONNECT);
    say(&stop, &yes, "second", 6);
    assert_int_equal(message_at(&again).status, RELAY_OK);
    await_bytes(&again, 6);
    assert_int_equal(bytes_at_end(&hop[0]), 0);
    loop_call(caller.loop, close_here, &again);
    bytes_clear(&again.got);
    relay_holds(1, 1);
}

/* 128 KiB of one direction pass, whatever came from the other; one byte more cuts the circuit. */
static void a_circuit_carries_its_limit(void **state)
{
    uint8_t *data = noise(RELAY_CIRCUIT_BYTES, 3);
    open_circuit("");
    say(&stop, NULL, data, 1000);
    await_bytes(&hop[0], 1000);
    say(&hop[0], NULL, data, RELAY_CIRCUIT_BYTES);
    await_bytes(&stop, RELAY_CIRCUIT_BYTES);
    assert_memory_equal(bytes_at(&stop.got), data, RELAY_CIRCUIT_BYTES);
    assert_int_equal(stop.failed, 0);
    relay_holds(1, 1);
    say(&hop[0], NULL, data, 1);
    assert_true(await_noted(&stop.failed, 1, LIMIT) && await_noted(&hop[0].failed, 1, LIMIT));
    assert_int_equal(bytes_at_end(&stop), RELAY_CIRCUIT_BYTES);
    relay_holds(1, 0);
    free(data);
}

/* One side is gone: the other gets an error, and the relay keeps nothing. */
static void a_circuit_ends_with_a_side(void **state)
{
    open_circuit("");
    close_side(&caller);
    assert_true(await_noted(&stop.failed, 1, LIMIT));
    relay_holds(1, 0);
}

/* --- a relay's client ------------------------------------------------------------------------- */

struct using
{
    struct side *side;
    size_t addresses;
    int is_used, holds;
    struct multiaddr at;
};

static void use_twice(void *context)
{
    struct using *u = context;
    assert_int_equal(relay_use(u->side->host, &hub.me.id), PL_OK);
    assert_int_equal(relay_use(u->side->host, &hub.me.id), PL_OK);
    assert_false(relay_has_reservation(u->side->host, &hub.me.id));
}
static void see_use(void *context)
{
    struct using *u = context;
    u->addresses = relay_addresses(u->side->host, &u->at, 1);
    u->is_used = relay_is_used(u->side->host, &hub.me.id);
    u->holds = relay_has_reservation(u->side->host, &hub.me.id);
}
static void leave(void *context)
{
    struct using *u = context;
    assert_int_equal(relay_addresses(u->side->host, &u->at, 0), 0);
    relay_leave(u->side->host, &hub.me.id);
    relay_leave(u->side->host, &hub.me.id); /* nothing is left to leave */
    see_use(u);
}

static void await_use(struct using *u, int holds)
{
    u->holds = !holds;
    for (double until = pl_seconds() + LIMIT; u->holds != holds; usleep(2000)) {
        loop_call(u->side->loop, see_use, u);
        assert_true(pl_seconds() < until);
    }
    assert_int_equal(u->addresses, holds);
}

/* One reservation, however often it is asked for; its address is the relay's, then circuit; it is
 * advertised only while the relay is connected. */
static void a_client_uses_a_relay(void **state)
{
    struct using u = { .side = &caller };
    struct multiaddr want = hub.at;
    loop_call(caller.loop, use_twice, &u);
    await_use(&u, 1);
    assert_true(u.is_used);
    assert_int_equal(multiaddr_add_circuit(&want), PL_OK);
    assert_true(multiaddr_equal(&u.at, &want));
    relay_holds(1, 0);
    loop_call(caller.loop, leave, &u);
    assert_int_equal(u.addresses + (size_t)u.is_used + (size_t)u.holds, 0);
    loop_call(caller.loop, use_twice, &u);
    await_use(&u, 1);
    host_close(hub.host);
    hub.host = NULL;
    await_use(&u, 0);
    close_side(&caller);
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, begin, end)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(a_reservation),
        TEST(refusals),
        TEST(the_callee_refuses),
        TEST(bytes_both_ways),
        TEST(two_circuits_to_one_callee),
        TEST(a_circuit_carries_its_limit),
        TEST(a_circuit_ends_with_a_side),
        TEST(a_client_uses_a_relay),
    };
    return cmocka_run_group_tests_name("relay_serve", tests, NULL, NULL);
}
