/* stream.c - one stream as its owner sees it: data, ends, resets and losses, for readers that pause
 * and for those that do not; messages with their length in front. */
#include "test/unit/libp2p/host_sides.h"
#include "net/libp2p/streams/stream_internal.h"

#include <unistd.h>

#define PROTOCOL "/test/stream"

static struct side from, to;

/* --- the server: each byte of a request is a command ------------------------------------------ */

static struct stream *served;
static int asked, server_lost;
static struct bytes greeting; /* what the server sends before it obeys */

static void obey(struct stream *c, uint8_t command)
{
    stream_write(c, bytes_at(&greeting), bytes_length(&greeting));
    if (command == 'f') stream_finish(c);
    if (command == 'c') stream_finish(c), stream_write(c, "more", 4), stream_close(c);
    if (command == 'r') stream_close(c);
    if (command == 'c' || command == 'r') served = NULL;
}

static void on_command(void *context, struct stream *c)
{
    size_t n;
    int ended;
    const uint8_t *data = stream_data(c, &n, &ended);
    const uint8_t command = n ? data[n - 1] : 0;
    if (!n) return;
    stream_took(c, n);
    obey(c, command);
    note(&asked);
}

static void on_lost(void *context, struct stream *c, int status, const char *why)
{
    stream_close(c);
    served = NULL;
    note(&server_lost);
}

static void on_opened(void *context, struct stream *c)
{
    static const struct stream_events events = { .readable = on_command, .failed = on_lost };
    served = c;
    assert_true(peer_id_equal(stream_peer(c), host_id(from.host)));
    assert_ptr_equal(stream_host(c), to.host);
    stream_listen(c, &events, NULL);
}

static void serve_here_commands(void *context)
{
    assert_int_equal(host_serve(context, PROTOCOL, on_opened, NULL), PL_OK);
}

/* --- the client ------------------------------------------------------------------------------- */

static struct client {
    struct stream *s;
    const char *protocol;
    const char *early; /* written before there is a connection */
    int pauses, opened, readable, drained, failed, status;
    char why[400];
    size_t n, queued; /* seen last */
    int ended;
    uint8_t first;
} client;

static void read_stream(void *context)
{
    struct client *c = context;
    const uint8_t *data = stream_data(c->s, &c->n, &c->ended);
    c->first = c->n ? data[0] : 0;
    c->queued = stream_queued(c->s);
}

static void on_open(void *context, struct stream *s) { note(&((struct client *)context)->opened); }
static void on_readable(void *context, struct stream *s)
{
    struct client *c = context;
    read_stream(c);
    assert_true(c->n || c->ended); /* called for nothing else */
    note(&c->readable);
}
static void on_drained(void *context, struct stream *s)
{
    assert_int_equal(stream_queued(s), 0);
    note(&((struct client *)context)->drained);
}
static void on_failed(void *context, struct stream *s, int status, const char *why)
{
    struct client *c = context;
    c->status = status;
    snprintf(c->why, sizeof c->why, "%s", why);
    note(&c->failed);
}

static void open_here(void *context)
{
    static const struct stream_events events = { on_open, on_readable, on_drained, on_failed };
    struct client *c = context;
    c->s = stream_open(from.host, &to.me.id, c->protocol, LIMIT, &events, c);
    assert_non_null(c->s);
    if (c->pauses) stream_pause(c->s);
    stream_write(c->s, c->early, strlen(c->early));
    assert_int_equal(stream_queued(c->s), strlen(c->early));
}

static void write_here(void *context)
{
    const char *text = context;
    stream_write(client.s, text, strlen(text));
}
static void take_here(void *context) { stream_took(client.s, *(size_t *)context); }
static void resume_here(void *context) { stream_resume(client.s); }
static void pause_here(void *context) { stream_pause(client.s); }
static void close_here(void *context) { stream_close(client.s); }
static void finish_here(void *context) { stream_finish(client.s); }

static void take(size_t n) { loop_call(from.loop, take_here, &n); }
static void read_client(void) { loop_call(from.loop, read_stream, &client); }

static int begin(void **state)
{
    memset(&client, 0, sizeof client);
    client.protocol = PROTOCOL;
    client.early = "";
    asked = server_lost = 0;
    served = NULL;
    open_side(&from, 0, 0);
    open_side(&to, 1, 0);
    loop_call(to.loop, serve_here_commands, to.host);
    teach(&from, &to);
    return 0;
}

static int end(void **state)
{
    loop_call(from.loop, close_here, NULL);
    close_side(&from);
    if (to.host) close_side(&to);
    bytes_clear(&greeting);
    return 0;
}

/* What the server has sent by then has arrived. */
static void open_and_ask(const char *command, const char *answer)
{
    bytes_add(&greeting, answer, strlen(answer));
    client.early = command;
    loop_call(from.loop, open_here, &client);
    assert_true(await_noted(&asked, 1, LIMIT));
}

static void await_bytes(size_t n)
{
    for (double until = pl_seconds() + LIMIT; read_client(), client.n < n; usleep(2000))
        assert_true(pl_seconds() < until);
}

/* What is written at once travels with the negotiation, and is then no longer queued. Data stay
 * until they are taken; a clean end comes behind them and is no failure. */
static void data_then_an_end(void **state)
{
    open_and_ask("c", "abc");
    assert_true(await_noted(&client.opened, 1, LIMIT));
    assert_true(peer_id_equal(stream_peer(client.s), &to.me.id));
    assert_true(await_noted(&client.drained, 1, LIMIT));
    await_bytes(3);
    for (double until = pl_seconds() + LIMIT; read_client(), !client.ended; usleep(2000))
        assert_true(pl_seconds() < until);
    assert_int_equal(client.n, 3); /* nothing is sent after the FIN */
    assert_int_equal(client.first, 'a');
    take(1);
    read_client();
    assert_int_equal(client.n, 2);
    assert_int_equal(client.first, 'b');
    assert_true(client.ended);
    take(2);
    read_client();
    assert_int_equal(client.n, 0);
    assert_true(client.ended);
    assert_int_equal(client.opened, 1);
    assert_int_equal(client.failed, 0);
}

static void reset_is_reported(void **state)
{
    open_and_ask("r", "abc");
    assert_true(await_noted(&client.failed, 1, LIMIT));
    assert_int_equal(client.status, PL_EIO);
    assert_non_null(strstr(client.why, "has reset the stream"));
    read_client(); /* the stream is still its owner's, and empty */
    assert_int_equal(client.n, 0);
}

/* A reset waits until a reader that pauses has read all data. */
static void reset_waits_for_a_paused_reader(void **state)
{
    client.pauses = 1;
    open_and_ask("r", "abc");
    await_bytes(3);
    usleep(50000); /* the reset has come, too */
    assert_int_equal(client.failed, 0);
    take(3);
    loop_call(from.loop, resume_here, NULL);
    assert_int_equal(noted(&client.failed), 1);
    assert_int_equal(client.status, PL_EIO);
}

/* Resuming tells of what has come meanwhile, and a second pause keeps the reset back again. */
static void a_reader_pauses_twice(void **state)
{
    int before;
    client.pauses = 1;
    open_and_ask("w", "abc");
    await_bytes(3);
    before = noted(&client.readable);
    loop_call(from.loop, resume_here, NULL);
    assert_int_equal(noted(&client.readable), before + 1);
    assert_int_equal(client.n, 3);
    loop_call(from.loop, pause_here, NULL);
    loop_call(from.loop, write_here, "r");
    await_bytes(6);
    usleep(50000);
    assert_int_equal(client.failed, 0);
    take(6);
    loop_call(from.loop, resume_here, NULL);
    assert_true(await_noted(&client.failed, 1, LIMIT));
}

/* The connection is lost: a paused reader keeps what had arrived, reads it piece by piece, and is
 * notified of the loss after the last byte. */
static void a_lost_connection_leaves_its_data(void **state)
{
    client.pauses = 1;
    open_and_ask("w", "abcdef");
    await_bytes(6);
    close_side(&to);
    usleep(100000);
    assert_int_equal(client.failed, 0);
    take(4);
    read_client();
    assert_int_equal(client.n, 2);
    assert_int_equal(client.first, 'e');
    assert_false(client.ended);
    assert_int_equal(client.failed, 0);
    loop_call(from.loop, resume_here, NULL);
    assert_true(client.readable >= 1);
    assert_int_equal(client.failed, 1); /* it reads as if the loss had come now */
    assert_true(strlen(client.why) > 0);
    read_client();
    assert_int_equal(client.n, 0);
    take(0);
}

/* What such streams hold is counted for all of the host's, until it is taken or given up. */
static void data_of_lost_connections_are_counted(void **state)
{
    static struct client other;
    struct streams *all;
    other = (struct client){ .protocol = PROTOCOL, .early = "w", .pauses = 1 };
    client.pauses = 1;
    open_and_ask("w", "abcdef");
    await_bytes(6);
    loop_call(from.loop, open_here, &other);
    for (double until = pl_seconds() + LIMIT; other.n < 6; usleep(2000)) {
        loop_call(from.loop, read_stream, &other);
        assert_true(pl_seconds() < until);
    }
    all = client.s->of;
    assert_int_equal(all->remains, 0);
    close_side(&to);
    for (double until = pl_seconds() + LIMIT; client.s->connection; usleep(2000))
        assert_true(pl_seconds() < until);
    read_client();
    assert_int_equal(all->remains, 12);
    take(4);
    assert_int_equal(all->remains, 8);
    loop_call(from.loop, close_here, NULL);
    client.s = other.s;
    assert_int_equal(all->remains, 6);
    loop_call(from.loop, close_here, NULL);
    client.s = NULL;
    assert_int_equal(all->remains, 0);
    assert_null(all->detached);
}

static void a_loss_is_reported_at_once_to_others(void **state)
{
    open_and_ask("w", "abcdef");
    await_bytes(6);
    close_side(&to);
    assert_true(await_noted(&client.failed, 1, LIMIT));
    assert_int_equal(client.status, PL_EIO);
    read_client();
    assert_int_equal(client.n, 0);
    loop_call(from.loop, write_here, "too late"); /* nobody takes it, and nothing breaks */
    read_client();
    assert_int_equal(client.queued, 0);
    assert_int_equal(noted(&client.failed), 1);
}

static void a_protocol_that_is_not_served(void **state)
{
    client.protocol = "/test/none";
    client.early = "x";
    loop_call(from.loop, open_here, &client);
    assert_true(await_noted(&client.failed, 1, LIMIT));
    assert_int_equal(client.status, PL_ENOTFOUND);
    assert_non_null(strstr(client.why, "does not serve /test/none"));
    assert_int_equal(client.opened, 0);
    assert_int_equal(asked, 0);
}

/* A stream that its owner closes without finishing it is reset; the server learns of it. */
static void closing_resets(void **state)
{
    open_and_ask("w", "a");
    await_bytes(1);
    loop_call(from.loop, close_here, NULL);
    client.s = NULL;
    assert_true(await_noted(&server_lost, 1, LIMIT));
}

/* After a FIN nothing more is sent, while answers still come. */
static void finishing_ends_one_direction(void **state)
{
    open_and_ask("w", "a");
    await_bytes(1);
    loop_call(from.loop, write_here, "w");
    loop_call(from.loop, finish_here, NULL);
    loop_call(from.loop, write_here, "r"); /* not sent: a reset would follow */
    await_bytes(2);
    usleep(50000);
    assert_int_equal(noted(&asked), 2);
    assert_int_equal(client.failed, 0);
}

/* --- more than may be unacknowledged ---------------------------------------------------------- */

#define MANY 300 /* of which 256 at once wait for the other side's word */

static struct client many[MANY];

static void open_many(void *context)
{
    for (int i = 0; i < MANY; i++) {
        many[i] = (struct client){ .protocol = PROTOCOL, .early = "w" };
        open_here(&many[i]);
    }
}

/* The last, some in the middle and the first of those that wait are closed before their turn. */
static int is_closed_early(int i) { return i == MANY - 1 || i == 280 || i == 281 || i == 256; }

static void open_and_close_many(void *context)
{
    open_many(NULL);
    for (int i = MANY - 1; i >= 0; i--)
        if (is_closed_early(i)) stream_close(many[i].s);
    many[MANY - 1].early = "w"; /* and one more behind the one that was the last */
    many[MANY - 1].opened = 0;
    open_here(&many[MANY - 1]);
}

static void close_many(void *context)
{
    for (int i = 0; i < MANY; i++)
        if (!is_closed_early(i) || i == MANY - 1) stream_close(many[i].s);
}

static void streams_wait_for_their_turn(void **state)
{
    open_and_ask("w", "a"); /* there is a connection, to whose queue all go */
    loop_call(from.loop, open_and_close_many, NULL);
    for (int i = 0; i < MANY; i++)
        if (!is_closed_early(i) || i == MANY - 1)
            assert_true(await_noted(&many[i].opened, 1, LIMIT));
    for (int i = 0; i < MANY; i++)
        assert_int_equal(many[i].opened, !is_closed_early(i) || i == MANY - 1);
    loop_call(from.loop, close_many, NULL);
}

/* --- messages --------------------------------------------------------------------------------- */

struct next {
    const uint8_t *body;
    size_t n, used, max;
    int rc;
};

static void next_here(void *context)
{
    struct next *x = context;
    x->rc = stream_next_message(client.s, &x->body, &x->n, &x->used, x->max);
}

static struct next next_of_at_most(size_t max)
{
    struct next x = { .max = max };
    loop_call(from.loop, next_here, &x);
    return x;
}

static void messages_have_their_length_in_front(void **state)
{
    struct next x;
    open_and_ask("w", "\003abc\001x");
    await_bytes(6);
    assert_int_equal(next_of_at_most(2).rc, PL_ELIMIT);
    x = next_of_at_most(3);
    assert_int_equal(x.rc, PL_OK);
    assert_int_equal(x.n, 3);
    assert_int_equal(x.used, 4);
    assert_memory_equal(x.body, "abc", 3);
    take(x.used);
    x = next_of_at_most(3);
    assert_int_equal(x.rc, PL_OK);
    assert_int_equal(x.n, 1);
    assert_int_equal(x.used, 2);
    take(x.used);
    assert_int_equal(next_of_at_most(3).rc, PL_EAGAIN); /* nothing is there */
}

static void half_a_message_is_awaited(void **state)
{
    open_and_ask("w", "\004ab");
    await_bytes(3);
    assert_int_equal(next_of_at_most(9).rc, PL_EAGAIN);
    bytes_clear(&greeting);
    loop_call(from.loop, write_here, "f"); /* the server ends without the rest */
    for (double until = pl_seconds() + LIMIT; read_client(), !client.ended; usleep(2000))
        assert_true(pl_seconds() < until);
    assert_int_equal(next_of_at_most(9).rc, PL_EIO);
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, begin, end)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(data_then_an_end),
        TEST(reset_is_reported),
        TEST(reset_waits_for_a_paused_reader),
        TEST(a_reader_pauses_twice),
        TEST(a_lost_connection_leaves_its_data),
        TEST(data_of_lost_connections_are_counted),
        TEST(a_loss_is_reported_at_once_to_others),
        TEST(a_protocol_that_is_not_served),
        TEST(closing_resets),
        TEST(finishing_ends_one_direction),
        TEST(streams_wait_for_their_turn),
        TEST(messages_have_their_length_in_front),
        TEST(half_a_message_is_awaited),
    };
    return cmocka_run_group_tests_name("stream", tests, NULL, NULL);
}
