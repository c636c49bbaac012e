/* dcutr.c - from a relayed connection to a direct one: the messages, which peer's addresses may be
 * dialled, and connection reversal. test/nat plays both sides behind routers. */
#include "test/unit/libp2p/host_sides.h"
#include "net/libp2p/relay/dcutr.h"
#include "net/libp2p/relay/relay.h"

#include <unistd.h>

static struct multiaddr at(const char *text)
{
    struct multiaddr a;
    struct pl_err err = { "" };
    if (multiaddr_from_text(&a, text, &err)) fail_msg("%s", err.text);
    return a;
}

static void messages_have_the_recorded_bytes(void **state)
{
    static const uint8_t connect[] = { 0x0c, 0x08, 0x64, 0x12, 0x08, 0x04, 0xcb,
                                       0x00, 0x71, 0x07, 0x06, 0x0f, 0xa1 };
    static const uint8_t sync[] = { 0x03, 0x08, 0xac, 0x02 };
    struct dcutr_message m = { .type = DCUTR_CONNECT }, s = { .type = DCUTR_SYNC }, got;
    struct bytes out = { 0 };
    m.addresses[m.address_count++] = at("/ip4/203.0.113.7/tcp/4001");
    assert_int_equal(dcutr_put(&out, &m), PL_OK);
    assert_int_equal(bytes_length(&out), sizeof connect);
    assert_memory_equal(bytes_at(&out), connect, sizeof connect);
    assert_int_equal(dcutr_get(&got, connect + 1, sizeof connect - 1), PL_OK);
    assert_int_equal(got.type, DCUTR_CONNECT);
    assert_int_equal(got.address_count, 1);
    assert_true(multiaddr_equal(&got.addresses[0], &m.addresses[0]));
    bytes_clear(&out);
    assert_int_equal(dcutr_put(&out, &s), PL_OK);
    assert_int_equal(bytes_length(&out), sizeof sync);
    assert_memory_equal(bytes_at(&out), sync, sizeof sync);
    bytes_clear(&out);
}

static void hundreds_of_addresses(void **state)
{
    static const uint8_t address[] = { 0x12, 0x08, 0x04, 0x08, 0x08, 0x01, 0x01, 0x06, 0x0f, 0xa1 };
    uint8_t message[2 + 100 * sizeof address] = { 0x08, 0x64 };
    struct dcutr_message m;
    for (size_t i = 0; i < 100; i++)
        memcpy(message + 2 + i * sizeof address, address, sizeof address);
    assert_int_equal(dcutr_get(&m, message, sizeof message), PL_OK);
    assert_int_equal(m.address_count, PUNCH_ADDRESSES_MAX);
}

/* Relayed addresses lead nowhere new. */
static void relayed_addresses_are_left_out(void **state)
{
    struct dcutr_message m = { .type = DCUTR_CONNECT }, got;
    struct bytes out = { 0 };
    m.addresses[0] = at(
        "/ip4/8.8.8.8/tcp/1/p2p/QmYyQSo1c1Ym7orWxLYvCrM2EmxFTANf8wXmmE7DWjhx5N/p2p-circuit");
    m.addresses[1] = at("/unix/a"); /* nothing that can be dialled */
    m.addresses[2] = at("/ip4/8.8.8.8/tcp/2");
    m.address_count = 3;
    assert_int_equal(dcutr_put(&out, &m), PL_OK);
    assert_int_equal(dcutr_get(&got, bytes_at(&out) + 1, bytes_length(&out) - 1), PL_OK);
    assert_int_equal(got.address_count, 1);
    assert_true(multiaddr_equal(&got.addresses[0], &m.addresses[2]));
    bytes_clear(&out);
}

static void what_cannot_be_read(void **state)
{
    static const uint8_t no_type[] = { 0x12, 0x01, 0x04 }, unknown[] = { 0x08, 0x65 };
    static const uint8_t junk[] = { 0x08, 0x64, 0x12, 0x03, 0x04, 0x08, 0x08 };
    struct dcutr_message m;
    assert_int_equal(dcutr_get(&m, no_type, sizeof no_type), PL_EFORMAT);
    assert_int_equal(dcutr_get(&m, unknown, sizeof unknown), PL_EFORMAT);
    assert_int_equal(dcutr_get(&m, junk, sizeof junk), PL_OK); /* half an address is left out */
    assert_int_equal(m.address_count, 0);
}

/* A peer at the other end of the internet makes us dial neither ourselves nor our network, nor
 * through a relay, nor a name. */
static void what_a_stranger_may_have_dialed(void **state)
{
    static const char *const refused[] = {
        "/ip4/127.0.0.1/tcp/22",   "/ip4/0.0.0.0/tcp/22", "/ip4/10.250.251.252/tcp/80",
        "/dns4/example.org/tcp/1", "/ip4/8.8.1.1/tcp/0",  "/ip6/::1/tcp/22",
    };
    struct multiaddr far = at("/ip4/8.8.8.8/tcp/4001"), here = at("/ip4/127.0.0.1/tcp/4001"), a;
    for (size_t i = 0; i < PL_COUNT(refused); i++) {
        a = at(refused[i]);
        if (punch_may_dial(&a, &far)) fail_msg("%s would be dialed", refused[i]);
    }
    a = at("/ip4/8.8.1.1/tcp/4001");
    assert_true(punch_may_dial(&a, &far));
    a = at("/ip4/127.0.0.1/tcp/22");
    assert_true(punch_may_dial(&a, &here)); /* a swarm on one machine */
}

struct relaying {
    struct side *from;
    const struct peer_id *to;
    int ready;
};

static void reserve_here(void *context)
{
    struct relaying *r = context;
    assert_int_equal(relay_use(r->from->host, r->to), PL_OK);
}

static void is_reserved_here(void *context)
{
    struct relaying *r = context;
    r->ready = relay_addresses(r->from->host, &r->from->at, 1) == 1;
    if (r->ready) multiaddr_add_peer(&r->from->at, &r->from->me.id);
}

static void is_direct_here(void *context)
{
    struct relaying *r = context;
    struct multiaddr remote;
    struct multiaddr_target t;
    r->ready = !host_remote_address(r->from->host, r->to, &remote) &&
               !multiaddr_target(&t, &remote) && !t.relay.length;
}

static int until_ready(struct relaying *r, loop_fn *check)
{
    for (double until = pl_seconds() + LIMIT; !r->ready && pl_seconds() < until; usleep(10000))
        loop_call(r->from->loop, check, r);
    return r->ready;
}

/* a, which nobody can dial, is dialed through the hub by b, which listens: a dials b itself. */
static void connection_is_reversed(void **state)
{
    struct side hub, a, b;
    struct relaying reserve = { .from = &a, .to = &hub.me.id }, direct = { .from = &b };
    struct asking q = {
        .from = &b, .name = "Test.echo", .data = "hello", .n = 5, .timeout_s = LIMIT
    };
    open_side_as(&hub, 1, 0, 1);
    open_side(&a, 0, 0);
    open_side(&b, 1, 0);
    serve(&a, "Test.echo", echo, NULL, NULL);
    teach(&a, &hub);
    loop_call(a.loop, reserve_here, &reserve);
    assert_true(until_ready(&reserve, is_reserved_here));
    teach(&b, &a); /* the address through the hub */
    q.to = direct.to = &a.me.id;
    ask_and_wait(&q);
    if (q.status) fail_msg("%s", q.error);
    bytes_clear(&q.response);
    assert_true(until_ready(&direct, is_direct_here));
    close_side(&b);
    close_side(&a);
    close_side(&hub);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(messages_have_the_recorded_bytes),
        cmocka_unit_test(hundreds_of_addresses),
        cmocka_unit_test(relayed_addresses_are_left_out),
        cmocka_unit_test(what_cannot_be_read),
        cmocka_unit_test(what_a_stranger_may_have_dialed),
        cmocka_unit_test(connection_is_reversed),
    };
    return cmocka_run_group_tests_name("dcutr", tests, NULL, NULL);
}
