/* slow_line.c - a slow link: the last bytes before a close arrive, and a peer that still sends is
 * not taken for dead because its answer to a ping waits behind its data. */
#include "test/unit/libp2p/host_sides.h"
#include "net/loop/socket.h"
#include "net/libp2p/muxing/yamux.h"

#include <arpa/inet.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <pthread.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#define ANSWER ((4u << 20) - 120) /* bytes */
#define ANSWERS 3                 /* more than the buffers of TCP hold */
#define SLICE 32768
#define SLICE_NS 8000000     /* 4 MB/s: seconds more than closing takes without last words */
#define TRICKLE_NS 300000000 /* a slice now and then: enough for closing to wait for the next */

/* --- a line ----------------------------------------------------------------------------------- */

struct line {
    struct sockaddr_in to;
    int listening;
    int trickles, cut; /* noted: it carries next to nothing from now on; nothing at all */
    pthread_t thread;
};

static int small_socket(void)
{
    int fd = socket(AF_INET, SOCK_STREAM, 0), n = SLICE;
    assert_true(fd >= 0);
    setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &n, sizeof n);
    setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &n, sizeof n);
    return fd;
}

static int carry(const struct line *l, int from, int to)
{
    const struct timespec pause = { 0, noted(&l->trickles) ? TRICKLE_NS : SLICE_NS };
    char data[SLICE];
    ssize_t n = recv(from, data, sizeof data, 0);
    nanosleep(&pause, NULL);
    return !noted(&l->cut) && n > 0 && send(to, data, (size_t)n, MSG_NOSIGNAL) == n;
}

/* One connection, both ways, until either side ends it. */
static void *carry_all(void *context)
{
    struct line *l = context;
    int near = accept(l->listening, NULL, NULL), far = small_socket();
    struct pollfd p[2] = { { .fd = near, .events = POLLIN }, { .fd = far, .events = POLLIN } };
    int open = near >= 0 && !connect(far, (struct sockaddr *)&l->to, sizeof l->to);
    while (open && poll(p, 2, -1) > 0)
        for (int i = 0; i < 2 && open; i++)
            if (p[i].revents) open = carry(l, p[i].fd, p[1 - i].fd);
    close(near);
    close(far);
    return NULL;
}

/* `at` becomes the line's own end. */
static void open_line(struct line *l, struct multiaddr *at)
{
    struct sockaddr_in sa = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
    socklen_t n = sizeof sa;
    struct multiaddr_target t;
    char text[64];
    struct pl_err err = { "" };
    assert_int_equal(multiaddr_target(&t, at), PL_OK);
    l->trickles = l->cut = 0;
    l->to = sa;
    l->to.sin_port = htons(t.port);
    l->listening = small_socket();
    assert_int_equal(bind(l->listening, (struct sockaddr *)&sa, sizeof sa), 0);
    assert_int_equal(listen(l->listening, 1), 0);
    assert_int_equal(getsockname(l->listening, (struct sockaddr *)&sa, &n), 0);
    snprintf(text, sizeof text, "/ip4/127.0.0.1/tcp/%d", ntohs(sa.sin_port));
    if (multiaddr_from_text(at, text, &err)) fail_msg("%s", err.text);
    assert_int_equal(pthread_create(&l->thread, NULL, carry_all, l), 0);
}

static void close_line(struct line *l)
{
    pthread_join(l->thread, NULL);
    close(l->listening);
}

/* --- the last words --------------------------------------------------------------------------- */

static int answered;

static void answer(void *context, struct rpc_call *call, const uint8_t *data, size_t n)
{
    uint8_t *large = noise(ANSWER, 7);
    rpc_reply(call, large, ANSWER);
    free(large);
    note(&answered);
}

struct unconfirmed {
    const struct side *at;
    const struct peer_id *by;
    size_t bytes;
};

static void count_unconfirmed(void *context)
{
    struct unconfirmed *u = context;
    u->bytes = host_unconfirmed(u->at->host, u->by);
}

/* A peer that ends right after a round still has to send half of it to a slow groupmate. Until then
 * these bytes count as unconfirmed. */
static void closing_peer_sends_its_last_bytes(void **state)
{
    struct side a, b;
    struct line line;
    struct peer_id id; /* b is gone before the answer is here */
    struct asking q[ANSWERS];
    struct unconfirmed unconfirmed;
    uint8_t *want = noise(ANSWER, 7);
    open_side(&a, 0, 0);
    open_side(&b, 1, 0);
    id = b.me.id;
    serve(&b, "Test.answer", answer, NULL, NULL);
    open_line(&line, &b.at);
    teach(&a, &b);
    for (int i = 0; i < ANSWERS; i++) {
        q[i] = (struct asking){ .from = &a, .to = &id, .name = "Test.answer", .timeout_s = LIMIT };
        ask(&q[i]);
    }
    assert_true(await_noted(&answered, ANSWERS, LIMIT));
    unconfirmed = (struct unconfirmed){ .at = &b, .by = &a.me.id };
    loop_call(b.loop, count_unconfirmed, &unconfirmed);
    assert_in_range(unconfirmed.bytes, ANSWER, ANSWERS * (ANSWER + 4096));
    unconfirmed.by = &id;
    loop_call(b.loop, count_unconfirmed, &unconfirmed);
    assert_int_equal(unconfirmed.bytes, 0); /* there is no connection to itself */
    close_side(&b);
    for (int i = 0; i < ANSWERS; i++) {
        assert_true(await_noted(&q[i].answered, 1, LIMIT));
        if (q[i].status) fail_msg("answer %d: %s", i, q[i].error);
        assert_int_equal(bytes_length(&q[i].response), ANSWER);
        assert_memory_equal(bytes_at(&q[i].response), want, ANSWER);
        bytes_clear(&q[i].response);
    }
    free(want);
    close_side(&a);
    close_line(&line);
}

static int held, closed;

static void give_up(void *context) { rpc_reply(context, NULL, 0); }

static void hold(void *context, struct rpc_call *call, const uint8_t *data, size_t n)
{
    rpc_on_cancel(call, give_up, call);
    note(&held);
}

static void *close_b(void *context)
{
    close_side(context);
    note(&closed);
    return NULL;
}

/* One groupmate takes its last words slowly; the others hear at once that b goes: as long as they
 * are there they ask b, and b would still have something to say. */
static void other_connections_close_at_once(void **state)
{
    struct side a, b, c;
    struct line line;
    struct peer_id id;
    struct asking slow = { .from = &a, .name = "Test.answer", .timeout_s = LIMIT };
    struct asking other = { .from = &c, .name = "Test.hold", .timeout_s = LIMIT };
    pthread_t thread;
    answered = 0;
    open_side(&a, 0, 0);
    open_side(&b, 1, 0);
    open_side(&c, 0, 0);
    id = b.me.id;
    slow.to = other.to = &id;
    serve(&b, "Test.answer", answer, NULL, NULL);
    serve(&b, "Test.hold", hold, NULL, NULL);
    teach(&c, &b);
    open_line(&line, &b.at);
    teach(&a, &b);
    ask(&other);
    ask(&slow);
    assert_true(await_noted(&held, 1, LIMIT));
    assert_true(await_noted(&answered, 1, LIMIT));
    note(&line.trickles);
    assert_int_equal(pthread_create(&thread, NULL, close_b, &b), 0);
    assert_true(await_noted(&other.answered, 1, HOST_CLOSING_MAX / 2));
    assert_int_equal(other.status, PL_EIO);
    note(&line.cut);
    assert_true(await_noted(&closed, 1, LIMIT));
    pthread_join(thread, NULL);
    assert_true(await_noted(&slow.answered, 1, LIMIT));
    bytes_clear(&slow.response);
    bytes_clear(&other.response);
    close_side(&c);
    close_side(&a);
    close_line(&line);
}

/* --- pings ------------------------------------------------------------------------------------ */

static void quiet(void *context, struct yamux_stream *s) {}

static void received_bytes_postpone_the_ping_limit(void **state)
{
    static const struct yamux_events events = { quiet, quiet, quiet };
    static const uint8_t data[12] = { 0, YAMUX_PING, 0, YAMUX_SYN, 0, 0, 0, 0, 0, 0, 0, 9 };
    struct yamux y;
    struct bytes out = { 0 };
    struct pl_err err = { "" };
    double heard = 8.0;
    yamux_init(&y, 1, &events, NULL, 0);
    assert_int_equal(yamux_tick(&y, 0, &out, &err), PL_OK); /* the first ping; no answer comes */
    y.now = heard;
    assert_int_equal(yamux_receive(&y, data, sizeof data, &out, &err), PL_OK);
    assert_int_equal(yamux_tick(&y, YAMUX_PING_LIMIT + 1, &out, &err), PL_OK);
    assert_true(yamux_due(&y) == heard + YAMUX_PING_LIMIT);
    assert_int_equal(yamux_tick(&y, heard + YAMUX_PING_LIMIT, &out, &err), PL_EPROTO);
    yamux_clear(&y);
    bytes_clear(&out);
}

/* --- what waits for the socket ---------------------------------------------------------------- */

/* Urgent bytes wait behind the socket's buffer: so it takes a tenth of a second's worth, within
 * bounds. */
static void slow_socket_buffers_little(void **state)
{
    struct conn c = { .wire_high = CONN_WIRE_LOW };
    conn_took(&c, 1 << 20, 0.5);
    assert_int_equal(c.wire_high, (size_t)((1 << 20) / 0.5 * CONN_WIRE_S));
    conn_took(&c, 1 << 18, 1.0); /* 2 Mbit/s */
    assert_int_equal(c.wire_high, CONN_WIRE_LOW);
    conn_took(&c, 1 << 20, 0.0);
    assert_int_equal(c.wire_high, CONN_WIRE_HIGH);
}

/* Off this machine or on it, a socket stays one. */
static void sockets_are_prepared(void **state)
{
    int pair[2];
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, pair), 0);
    socket_prepare(pair[0]);
    assert_int_equal(socket_unconfirmed(-1), 0);
    close(pair[0]);
    close(pair[1]);
}

static int is_paced(int fd)
{
    char name[16] = "";
    socklen_t n = sizeof name - 1;
    assert_int_equal(getsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, name, &n), 0);
    return !strcmp(name, "bbr");
}

/* A socket of a system that paces all of them. */
static int paced_socket(void)
{
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    assert_true(fd >= 0);
    if (!setsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, "bbr", 3)) return fd;
    close(fd);
    return -1;
}

static int begun(const struct sockaddr_in *to)
{
    int fd = paced_socket(), paced;
    if (fd < 0) return -1;
    socket_begin(fd, (const struct sockaddr *)to);
    paced = is_paced(fd);
    close(fd);
    return paced;
}

/* Connections within the machine are not paced, on either side; connections to other machines keep
 * the system's setting. */
static void neighbours_are_not_paced(void **state)
{
    struct sockaddr_in here = { .sin_family = AF_INET }, far = { .sin_family = AF_INET };
    socklen_t n = sizeof here;
    int listener = paced_socket(), caller = socket(AF_INET, SOCK_STREAM, 0), taken;
    if (listener < 0) {
        close(caller);
        print_message("this kernel has no BBR, or does not let us: left out\n");
        skip();
    }
    here.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    far.sin_addr.s_addr = htonl(0xC0000201); /* 192.0.2.1, an address for documentation */
    assert_int_equal(begun(&here), 0);
    assert_int_equal(begun(&far), 1);
    assert_int_equal(bind(listener, (struct sockaddr *)&here, sizeof here), 0);
    socket_begin(listener, NULL);
    assert_int_equal(listen(listener, 1), 0);
    assert_int_equal(getsockname(listener, (struct sockaddr *)&here, &n), 0);
    assert_int_equal(connect(caller, (struct sockaddr *)&here, sizeof here), 0);
    assert_true((taken = accept(listener, NULL, NULL)) >= 0);
    socket_prepare(taken);
    assert_int_equal(is_paced(taken), 0);
    close(taken);
    close(caller);
    close(listener);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(closing_peer_sends_its_last_bytes),
        cmocka_unit_test(other_connections_close_at_once),
        cmocka_unit_test(received_bytes_postpone_the_ping_limit),
        cmocka_unit_test(slow_socket_buffers_little),
        cmocka_unit_test(sockets_are_prepared),
        cmocka_unit_test(neighbours_are_not_paced),
    };
    return cmocka_run_group_tests_name("slow_line", tests, NULL, NULL);
}
