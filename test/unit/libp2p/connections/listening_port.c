/* listening_port.c - peers dial from the port that they listen on, and from another one where that
 * cannot be. */
#include "test/unit/libp2p/host_sides.h"

#include <arpa/inet.h>
#include <sys/socket.h>
#include <unistd.h>

struct calling {
    struct side *from;
    struct multiaddr at;
    int done, status;
    struct pl_err why;
    struct peer_id peer;
};

static void on_called(void *context, int status, const struct peer_id *peer,
                      const struct pl_err *err)
{
    struct calling *c = context;
    c->status = status;
    if (err) c->why = *err;
    c->peer = *peer;
    note(&c->done);
}

static void call_here(void *context)
{
    struct calling *c = context;
    assert_non_null(host_dial(c->from->host, &c->at, LIMIT, on_called, c));
}

static void call(struct calling *c) { loop_call(c->from->loop, call_here, c); }

static void open_at(struct side *s, const char *listen, int listens)
{
    struct host_options o = { .me = &s->me, .listen = &listen, .listen_count = (size_t)listens };
    struct pl_err err = { "" };
    memset(s, 0, sizeof *s);
    assert_int_equal(loop_open(&s->loop, &err), PL_OK);
    assert_int_equal(identity_make(&s->me, KEY_ED25519, &err), PL_OK);
    if (libp2p_open(&s->host, s->loop, &o, &err)) fail_msg("%s", err.text);
    loop_call(s->loop, read_address, s);
}

static uint16_t port_of(const struct multiaddr *a)
{
    struct multiaddr_target t;
    assert_int_equal(multiaddr_target(&t, a), PL_OK);
    return t.port;
}

struct remote {
    struct side *at;
    const struct peer_id *peer;
    struct multiaddr remote;
    int status;
};

static void read_remote_here(void *context)
{
    struct remote *l = context;
    l->status = host_remote_address(l->at->host, l->peer, &l->remote);
}

/* From which port the peer is connected to that side. */
static uint16_t comes_from(struct side *at, const struct side *peer)
{
    struct remote l = { .at = at, .peer = &peer->me.id, .status = PL_ENOTFOUND };
    for (double until = pl_seconds() + LIMIT; l.status && pl_seconds() < until; usleep(10000))
        loop_call(at->loop, read_remote_here, &l);
    assert_int_equal(l.status, PL_OK);
    return port_of(&l.remote);
}

static void dial_and_check(const char *listen)
{
    struct side a, b;
    struct calling first = { .from = &a }, second = { .from = &a };
    open_at(&a, listen, 1);
    open_at(&b, listen, 1);
    first.at = second.at = b.at;
    call(&first);
    assert_true(await_noted(&first.done, 1, LIMIT));
    if (first.status) fail_msg("%s", first.why.text);
    assert_int_equal(comes_from(&b, &a), port_of(&a.at));
    call(&second); /* these two ports have a connection already */
    assert_true(await_noted(&second.done, 1, LIMIT));
    if (second.status) fail_msg("%s", second.why.text);
    close_side(&a);
    close_side(&b);
}

static void leaves_from_the_listening_port(void **state)
{
    dial_and_check("/ip4/127.0.0.1/tcp/0");
    dial_and_check("/ip4/0.0.0.0/tcp/0");
}

static void dials_from_the_listening_port_over_ipv6(void **state)
{
    struct sockaddr_in6 six = { .sin6_family = AF_INET6, .sin6_addr = in6addr_loopback };
    int fd = socket(AF_INET6, SOCK_STREAM, 0),
        have = fd >= 0 && !bind(fd, (void *)&six, sizeof six);
    close(fd);
    if (!have) skip(); /* a machine without IPv6 */
    dial_and_check("/ip6/::1/tcp/0");
}

/* The connection ended a moment ago, so the kernel still holds its pair of ports. */
static void dials_again_at_once(void **state)
{
    struct side a, b;
    open_at(&a, "/ip4/127.0.0.1/tcp/0", 1);
    open_at(&b, "/ip4/127.0.0.1/tcp/0", 1);
    for (int i = 0; i < 5; i++) {
        struct calling c = { .from = &a, .at = b.at };
        call(&c);
        assert_true(await_noted(&c.done, 1, LIMIT));
        if (c.status) fail_msg("%s", c.why.text);
    }
    close_side(&a);
    close_side(&b);
}

/* Sharing is for sockets that connect: a second listener is refused as ever. */
static void a_port_in_use_is_refused(void **state)
{
    struct side a, b = { 0 };
    char text[64];
    const char *listen = text;
    struct host_options o = { .me = &b.me, .listen = &listen, .listen_count = 1 };
    struct pl_err err = { "" };
    open_at(&a, "/ip4/127.0.0.1/tcp/0", 1);
    snprintf(text, sizeof text, "/ip4/127.0.0.1/tcp/%d", port_of(&a.at));
    assert_int_equal(loop_open(&b.loop, &err), PL_OK);
    assert_int_equal(identity_make(&b.me, KEY_ED25519, &err), PL_OK);
    assert_int_equal(libp2p_open(&b.host, b.loop, &o, &err), PL_EIO);
    assert_non_null(strstr(err.text, "in use"));
    loop_close(b.loop);
    identity_clear(&b.me);
    close_side(&a);
}

/* --- both dial at the same moment ------------------------------------------------------------- */

/* A dialer's bytes: over a connection that neither side has accepted, both are dialers. */
static const char dialer_says[] = "\x13/multistream/1.0.0\n\x07/noise\n\0\x20"
                                  "an ephemeral key of 32 bytes....";

/* Accepts, and talks like a dialer. Returns the port that the connection came from. */
static uint16_t dial_at(int listening)
{
    struct sockaddr_in sa;
    socklen_t n = sizeof sa;
    char heard[256];
    int fd = accept(listening, (struct sockaddr *)&sa, &n);
    assert_true(fd >= 0);
    assert_int_equal(send(fd, dialer_says, sizeof dialer_says - 1, MSG_NOSIGNAL),
                     sizeof dialer_says - 1);
    while (recv(fd, heard, sizeof heard, 0) > 0) {}
    close(fd);
    return ntohs(sa.sin_port);
}

static void both_dial_at_once(void **state)
{
    struct sockaddr_in sa = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
    socklen_t n = sizeof sa;
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    struct side a;
    struct calling c = { .from = &a };
    struct pl_err err;
    char text[64];
    assert_int_equal(bind(fd, (struct sockaddr *)&sa, sizeof sa), 0);
    assert_int_equal(listen(fd, 5), 0);
    assert_int_equal(getsockname(fd, (struct sockaddr *)&sa, &n), 0);
    snprintf(text, sizeof text, "/ip4/127.0.0.1/tcp/%d", ntohs(sa.sin_port));
    assert_int_equal(multiaddr_from_text(&c.at, text, &err), PL_OK);
    open_at(&a, "/ip4/127.0.0.1/tcp/0", 1);
    call(&c);
    assert_int_equal(dial_at(fd), port_of(&a.at));
    assert_int_not_equal(dial_at(fd), port_of(&a.at)); /* once more, and not forever */
    assert_true(await_noted(&c.done, 1, LIMIT));
    assert_int_equal(c.status, PL_EPROTO);
    assert_non_null(strstr(c.why.text, "both sides have dialed"));
    close_side(&a);
    close(fd);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(leaves_from_the_listening_port),
        cmocka_unit_test(dials_from_the_listening_port_over_ipv6),
        cmocka_unit_test(dials_again_at_once),
        cmocka_unit_test(a_port_in_use_is_refused),
        cmocka_unit_test(both_dial_at_once),
    };
    return cmocka_run_group_tests_name("listening_port", tests, NULL, NULL);
}
