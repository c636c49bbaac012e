/* stream_budget.c - what happens where all strangers together reach a limit: the largest holder
 * loses a stream, a message or its connection, and nobody else does. Connections without sockets;
 * the limits are small. [spec libp2p-wire 16] */
#include "net/libp2p/streams/stream_budget.h"
#include "test/unit/unit.h"

#define PEERS 4

static struct host_core core;
static struct connections connections = { .core = &core };
static struct streams streams = { .core = &core, .connections = &connections };
static struct connection peers[PEERS];
static int takes_streams; /* 0: streams of Yamux that come have no owner yet */
static const char *lost[8];
static size_t lost_count;

static void on_failed(void *context, struct stream *s, int status, const char *why)
{
    assert_int_equal(status, PL_ELIMIT);
    assert_true(lost_count < PL_COUNT(lost));
    lost[lost_count++] = context;
    stream_close(s);
}

/* A stream of that name, the newest of its connection. */
static struct stream *add_stream(struct connection *c, int inbound, const char *name)
{
    struct stream *s = stream_new(&streams, c, &(struct peer_id){ 0 });
    assert_non_null(s);
    s->inbound = inbound;
    s->state = STREAM_OPEN;
    s->events.failed = on_failed;
    s->context = (void *)(uintptr_t)name;
    return s;
}

static void on_opened(void *context, struct yamux_stream *mux)
{
    struct stream *s;
    if (!takes_streams) return;
    assert_int_equal(stream_budget_open(context), PL_OK);
    s = add_stream(context, 1, mux->id == 2 ? "first" : "second");
    s->mux = mux;
    mux->user = s;
}

static void on_event(void *context, struct yamux_stream *mux) {}

/* Each in a subnet of its own but for the last, which shares the first one's. */
static int begin(void **state)
{
    static const struct yamux_events events = { on_opened, on_event, on_event };
    static const char *const at[PEERS] = { "/ip4/1.2.1.1/tcp/1", "/ip4/1.2.2.1/tcp/1",
                                           "/ip4/1.2.3.1/tcp/1", "/ip4/1.2.1.9/tcp/1" };
    resources_init(&core.resources, SIZE_MAX);
    assert_int_equal(loop_open(&core.loop, NULL), PL_OK);
    connections.dirty = connections.ending = NULL;
    memset(peers, 0, sizeof peers);
    for (int i = 0; i < PEERS; i++) {
        struct connection *c = &peers[i];
        struct peer_id id = { .length = 34, .bytes = { (uint8_t)(i + 1) } };
        struct multiaddr from;
        assert_int_equal(multiaddr_from_text(&from, at[i], NULL), PL_OK);
        c->of = &connections;
        c->state = CONNECTION_OPEN;
        c->account.owner = c;
        yamux_init(&c->conn.yamux, 1, &events, c, 0);
        assert_int_equal(resources_open(&core.resources, &c->account, &from, 0, 0), PL_OK);
        assert_int_equal(resources_authenticate(&c->account, &id), PL_OK);
    }
    lost_count = 0;
    takes_streams = 1;
    return 0;
}

static int end(void **state)
{
    for (int i = 0; i < PEERS; i++) {
        struct connection *c = &peers[i];
        while (c->streams.all) stream_close(c->streams.all);
        yamux_clear(&c->conn.yamux);
        bytes_clear(&c->conn.frames);
        bytes_clear(&c->conn.wire);
        resources_close(&c->account);
    }
    resources_clear(&core.resources);
    loop_close(core.loop);
    return 0;
}

/* The other side opens a stream of that name. */
static int open_stream(struct connection *c, const char *name)
{
    int rc = stream_budget_open(c);
    if (!rc) add_stream(c, 1, name);
    return rc;
}

/* Of the largest holder's own streams the newest one goes. A peer of another subnet gets its place,
 * neither that peer nor a neighbour in its subnet does. */
static void largest_holder_loses_its_newest_stream(void **state)
{
    struct connection *large = &peers[0], *small = &peers[1], *neighbour = &peers[3];
    core.resources.limits[SCOPE_SYSTEM][RESOURCE_STREAMS] = 5;
    assert_int_equal(open_stream(large, "older"), PL_OK);
    assert_int_equal(open_stream(large, "old"), PL_OK);
    assert_int_equal(open_stream(large, "newest"), PL_OK);
    add_stream(large, 0, "ours"); /* not its to lose, and not charged to it */
    assert_int_equal(open_stream(small, "a"), PL_OK);
    assert_int_equal(open_stream(neighbour, "b"), PL_OK);
    assert_int_equal(open_stream(large, "more"), PL_ELIMIT);
    assert_int_equal(open_stream(neighbour, "more"), PL_ELIMIT);
    assert_int_equal(lost_count, 0);
    assert_int_equal(open_stream(small, "c"), PL_OK);
    assert_int_equal(lost_count, 1);
    assert_string_equal(lost[0], "newest");
    assert_int_equal(large->account.used[RESOURCE_STREAMS], 2);
    assert_int_equal(small->account.used[RESOURCE_STREAMS], 2);
    assert_int_equal(core.resources.system.used[RESOURCE_STREAMS], 5);
}

/* Protected peers have a share that only they use: a full one refuses, and none of them loses a
 * stream. */
static void protected_peers_keep_their_streams(void **state)
{
    struct peer_id first = { .length = 34, .bytes = { 1 } },
                   second = { .length = 34, .bytes = { 2 } };
    core.resources.limits[SCOPE_RESERVED][RESOURCE_STREAMS] = 3;
    assert_int_equal(resources_protect(&core.resources, &first), PL_OK);
    assert_int_equal(resources_protect(&core.resources, &second), PL_OK);
    for (int i = 0; i < 3; i++) assert_int_equal(open_stream(&peers[0], "mate's"), PL_OK);
    assert_int_equal(open_stream(&peers[1], "more"), PL_ELIMIT);
    assert_int_equal(open_stream(&peers[2], "stranger's"), PL_OK);
    assert_int_equal(lost_count, 0);
    resources_unprotect(&core.resources, &first);
    resources_unprotect(&core.resources, &second);
}

/* n bytes of a message come in the stream with this ID; the first ones open it. */
static void receive(struct connection *c, uint32_t id, uint32_t n)
{
    const struct yamux_frame f = {
        .type = YAMUX_DATA, .flags = YAMUX_SYN, .stream = id, .length = n
    };
    struct bytes in = { 0 };
    assert_int_equal(yamux_frame_put(&in, &f), PL_OK);
    assert_non_null(bytes_reserve(&in, n));
    memset(in.data + in.end, 0, n);
    in.end += n;
    assert_int_equal(yamux_receive(&c->conn.yamux, bytes_at(&in), bytes_length(&in),
                                   &c->conn.frames, NULL),
                     PL_OK);
    bytes_clear(&in);
    stream_budget_count(c);
}

/* Of unread bytes the largest holder loses its largest message, and keeps its others. The limit
 * itself may be held. */
static void largest_message_is_dropped(void **state)
{
    struct connection *large = &peers[0], *small = &peers[1];
    core.resources.limits[SCOPE_SYSTEM][RESOURCE_HELD] = 1000;
    receive(large, 2, 300);
    receive(large, 4, 500);
    receive(small, 2, 200);
    assert_int_equal(lost_count, 0);
    receive(small, 4, 1);
    assert_int_equal(lost_count, 1);
    assert_string_equal(lost[0], "second");
    assert_int_equal(large->state, CONNECTION_OPEN);
    assert_int_equal(large->account.used[RESOURCE_HELD], 300);
    assert_int_equal(core.resources.system.used[RESOURCE_HELD], 501);
    assert_true(large->dirty); /* its reset is to be sent */
}

/* Bytes that have no stream yet can only go with their connection. */
static void unread_bytes_without_a_stream_end_the_connection(void **state)
{
    takes_streams = 0;
    core.resources.limits[SCOPE_SYSTEM][RESOURCE_HELD] = 1000;
    receive(&peers[0], 2, 700);
    receive(&peers[1], 2, 300);
    assert_int_equal(peers[0].state, CONNECTION_OPEN);
    receive(&peers[2], 2, 1);
    assert_int_equal(peers[0].state, CONNECTION_ENDING);
    assert_int_equal(peers[0].status, PL_ELIMIT);
    assert_int_equal(peers[1].state, CONNECTION_OPEN);
    assert_int_equal(peers[2].state, CONNECTION_OPEN);
    assert_int_equal(core.resources.system.used[RESOURCE_HELD], 301);
}

/* What waits for the other side to take it counts wherever it lies. The largest holder is cut off. */
static void slowest_reader_is_cut_off(void **state)
{
    struct connection *slow = &peers[0], *other = &peers[1];
    core.resources.limits[SCOPE_SYSTEM][RESOURCE_UNSENT] = 1000;
    assert_non_null(bytes_reserve(&slow->conn.wire, 200));
    slow->conn.wire.end += 200;
    assert_non_null(bytes_reserve(&slow->conn.frames, 200));
    slow->conn.frames.end += 200;
    slow->conn.under_way = 200;
    slow->conn.yamux.unsent = 200;
    other->conn.under_way = 200;
    stream_budget_count(slow);
    stream_budget_count(other);
    assert_int_equal(slow->state, CONNECTION_OPEN);
    other->conn.under_way++;
    stream_budget_count(other);
    assert_int_equal(slow->state, CONNECTION_ENDING);
    assert_int_equal(slow->status, PL_ELIMIT);
    assert_ptr_equal(connections.ending, slow);
    assert_int_equal(other->state, CONNECTION_OPEN);
    assert_int_equal(core.resources.system.used[RESOURCE_UNSENT], 201);
    slow->conn.yamux.unsent = 0;
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, begin, end)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(largest_holder_loses_its_newest_stream),
        TEST(protected_peers_keep_their_streams),
        TEST(largest_message_is_dropped),
        TEST(unread_bytes_without_a_stream_end_the_connection),
        TEST(slowest_reader_is_cut_off),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
