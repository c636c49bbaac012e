/* averager_gather.c - rounds in which peers gather messages, over real connections: long messages,
 * groups that fall apart, and groupmates whose message has another length, epoch or weight. */
#include "test/unit/hivemind/loopback.h"
#include "net/hivemind/averaging/averager_internal.h"
#include "net/hivemind/messages/gather_message.h"

#include <math.h>

#define PIECES 20
#define LONG (PIECES * GATHER_PIECE + 3) /* and a short one */

static struct given {
    uint8_t *data;
    size_t n;
    double weight;
    int64_t epoch;
    struct averager_message *messages;
    size_t count;
    int is_delivered, is_early; /* early: it has ended well before its deadline */
} given[PEERS];

static struct peer *add_gathering(void)
{
    struct given *g = &given[count];
    struct peer *p = add(0, 0);
    p->options.gathers = 1;
    p->options.weight_max = 10;
    p->step.untriggered = 1;
    *g = (struct given){ .data = malloc(LONG), .n = LONG, .weight = (double)count, .epoch = 4 };
    for (size_t i = 0; i < LONG; i++) g->data[i] = (uint8_t)(i * count + i / 1000);
    return p;
}

static int end_gathering(void **state)
{
    int rc;
    for (size_t i = 0; i < PEERS; i++) {
        for (size_t k = 0; k < given[i].count; k++) free(given[i].messages[k].data);
        free(given[i].messages);
    }
    rc = end_test(state);
    for (size_t i = 0; i < PEERS; i++) free(given[i].data);
    memset(given, 0, sizeof given);
    return rc;
}

static void on_gathered(void *context, const struct averager_result *r)
{
    struct peer *p = context;
    struct given *g = &given[p - peers];
    if (!r->status) g->count = averager_take_messages(p->a, &g->messages);
    g->is_delivered = averager_was_fetched(p->a);
    g->is_early = dht_node_time(p->dht) < p->step.deadline - 3;
    on_done(context, r);
}

static void begin_gathering(void *context)
{
    struct peer *p = context;
    const struct given *g = &given[p - peers];
    p->step.deadline = dht_node_time(p->dht) + p->timeout;
    assert_int_equal(averager_begin(p->a, &p->step, on_gathered, p), PL_OK);
    assert_int_equal(averager_give(p->a, g->weight, g->epoch, g->data, g->n), PL_OK);
}

static void gather_all(void)
{
    for (size_t i = 0; i < count; i++) loop_call(loop, begin_gathering, &peers[i]);
    for (size_t i = 0; i < count; i++) assert_true(await(&peers[i].done, 1));
}

/* The same messages in the same order at all peers, each marked as its own at one. */
static void three_peers(void **state)
{
    add_gathering(), add_gathering(), add_gathering();
    expect(count);
    open_all();
    gather_all();
    for (size_t i = 0; i < count; i++) {
        size_t own = 0;
        if (peers[i].status) fail_msg("%s", peers[i].err.text);
        assert_int_equal(given[i].count, 3);
        assert_true(given[i].is_delivered);
        for (size_t k = 0; k < 3; k++) {
            const struct averager_message *m = &given[i].messages[k];
            const size_t from = (size_t)m->weight - 1;
            own += (size_t)m->is_own;
            assert_int_equal(m->is_own, from == i);
            assert_int_equal(m->n, LONG);
            assert_memory_equal(m->data, given[from].data, LONG);
            assert_true(m->weight == given[0].messages[k].weight);
        }
        assert_int_equal(own, 1);
        /* to two peers, with heads of 24 bytes */
        assert_int_equal(peers[i].report.bytes_out, 2 * (LONG + (PIECES + 1) * 24));
    }
}

/* Its settings differ: the round ends at once, in a sentence. */
static void another_length(void **state)
{
    add_gathering(), add_gathering();
    given[1].n--;
    for (size_t i = 0; i < 2; i++) peers[i].options.min_matchmaking_time = 2;
    expect(count);
    for (size_t i = 0; i < count; i++) peers[i].timeout = 8;
    open_all();
    gather_all();
    for (size_t i = 0; i < count; i++) assert_true(peers[i].status != PL_OK);
    assert_true(strstr(peers[0].err.text, "another length") ||
                strstr(peers[1].err.text, "another length"));
}

/* One of three is at an earlier epoch: the others go on without it, and it has nothing. It does not
 * offer the same message to other groups until the deadline. */
static void another_epoch(void **state)
{
    add_gathering(), add_gathering(), add_gathering();
    given[2].epoch--;
    for (size_t i = 0; i < count; i++) given[i].n = 1000; /* one piece: all are fetched whole */
    peers[2].timeout = 20;
    peers[2].options.min_matchmaking_time = 2;
    expect(count);
    open_all();
    gather_all();
    for (size_t i = 0; i < 2; i++) {
        size_t left_out = 0;
        assert_true(given[i].is_delivered);
        if (peers[i].status) fail_msg("%s", peers[i].err.text);
        for (size_t k = 0; k < 3; k++) {
            left_out += (size_t)given[i].messages[k].is_other_epoch;
            if (given[i].messages[k].is_other_epoch) assert_int_equal(given[i].messages[k].n, 0);
        }
        assert_int_equal(left_out, 1);
    }
    assert_true(peers[2].status != PL_OK);
    assert_non_null(strstr(peers[2].err.text, "another epoch"));
    assert_true(given[2].is_early);
    assert_false(given[2].is_delivered); /* it may still bring this message's change to them */
}

/* Two of four meet, and one of them has made the step alone: the other two may still make it with
 * the one that has not, so it goes on searching. */
static void one_ahead_of_us_is_not_most(void **state)
{
    add_gathering(), add_gathering();
    given[0].epoch++;
    for (size_t i = 0; i < count; i++) {
        peers[i].options.min_matchmaking_time = 2;
        peers[i].timeout = 12;
    }
    expect(4);
    open_all();
    gather_all();
    for (size_t i = 0; i < count; i++) {
        assert_true(peers[i].attempts >= 1);
        assert_true(peers[i].status != PL_OK);
        assert_false(given[i].is_early);
    }
}

/* A weight beyond the group's limit counts as 0. */
static void weight_beyond_the_limit_counts_as_zero(void **state)
{
    add_gathering(), add_gathering();
    given[1].weight = 10.5;
    expect(count);
    open_all();
    gather_all();
    for (size_t k = 0; k < 2; k++)
        assert_true(given[0].messages[k].weight == (given[0].messages[k].is_own ? 1 : 0));
}

/* A groupmate that never gives its message costs the round; the other two find another group. */
static void missing_message_costs_one_round(void **state)
{
    add_gathering(), add_gathering(), add_gathering();
    for (size_t i = 0; i < count; i++) peers[i].options.allreduce_timeout = 2;
    be_impatient(4, 3);
    expect(count);
    open_all();
    peers[2].step.untriggered = 0; /* in the group, and without a message */
    peers[2].step.tensor = peers[2].tensor;
    peers[2].timeout = 8;
    for (size_t i = 0; i < 2; i++) loop_call(loop, begin_gathering, &peers[i]);
    loop_call(loop, begin, &peers[2]);
    for (size_t i = 0; i < 2; i++) assert_true(await(&peers[i].done, 1));
    for (size_t i = 0; i < 2; i++) {
        if (peers[i].status) fail_msg("%s", peers[i].err.text);
        assert_int_equal(peers[i].attempts, 2);
        assert_int_equal(given[i].count, 2);
    }
    assert_true(await(&peers[2].done, 1));
}

static void cancel_gathering(void *context) { averager_cancel(((struct peer *)context)->a); }

static void begin_search(void *context)
{
    struct peer *p = context;
    p->step.deadline = dht_node_time(p->dht) + p->timeout;
    assert_int_equal(averager_begin(p->a, &p->step, on_gathered, p), PL_OK);
}

/* Cancelled in a group: the other does not wait for its message, and takes it again at once. */
static void groupmate_has_left(void **state)
{
    double began;
    add_gathering(), add_gathering();
    be_impatient(2, 30);
    expect(count);
    open_all();
    loop_call(loop, begin_gathering, &peers[0]);
    loop_call(loop, begin_search, &peers[1]);
    await_groups(2);
    began = pl_seconds();
    loop_call(loop, cancel_gathering, &peers[1]);
    assert_true(await(&peers[1].done, 1));
    usleep(300000);
    peers[1].done = 0;
    loop_call(loop, begin_gathering, &peers[1]);
    for (size_t i = 0; i < 2; i++) {
        assert_true(await(&peers[i].done, 1));
        if (peers[i].status) fail_msg("%s", peers[i].err.text);
        assert_int_equal(given[i].count, 2);
    }
    assert_int_equal(peers[0].attempts, 2);
    assert_true(pl_seconds() < began + RELIABILITY_BASE);
}

static void give(void *context)
{
    struct peer *p = context;
    const struct given *g = &given[p - peers];
    assert_int_equal(averager_give(p->a, g->weight, g->epoch, g->data, g->n), PL_OK);
}

/* The other one waits for its trigger in another group: its message does not come, either. */
static void groupmate_is_in_another_group(void **state)
{
    add_gathering(), add_gathering(), add_gathering();
    be_impatient(2, 30);
    expect(count);
    open_all();
    for (size_t i = 0; i < 2; i++) loop_call(loop, begin_search, &peers[i]);
    await_groups(2);
    loop_call(loop, cancel_gathering, &peers[1]);
    assert_true(await(&peers[1].done, 1));
    for (size_t i = 1; i < 3; i++) loop_call(loop, begin_search, &peers[i]);
    await_groups(3);
    loop_call(loop, give, &peers[0]);
    usleep(500000);
    assert_false(averager_has_group(peers[0].a));
    assert_true(averager_has_group(peers[1].a));
}

/* --- pieces of others -------------------------------------------------------------------------- */

/* How the second peer gives its message. */
static enum { IN_REVERSE, TINY, LATER_SHORTER } manner;
static struct rpc_call *waiting;
static uint64_t waiting_offset;
static size_t reversed, asked;

static void give_piece(struct rpc_call *call, uint64_t offset, size_t n)
{
    const struct given *g = &given[1];
    const struct gather_piece piece = { g->n, g->epoch, g->weight, g->data + offset, n };
    struct bytes out = { 0 };
    assert_int_equal(gather_piece_write(&out, &piece), PL_OK);
    rpc_reply(call, bytes_at(&out), bytes_length(&out));
    bytes_clear(&out);
}

static size_t piece_at(uint64_t offset)
{
    return LONG - offset < GATHER_PIECE ? LONG - offset : GATHER_PIECE;
}

static void on_odd_request(void *context, struct rpc_call *call, const uint8_t *data, size_t n)
{
    struct gather_request r;
    (void)context;
    assert_int_equal(gather_request_read(&r, data, n), PL_OK);
    asked++;
    if (manner == TINY) {
        give_piece(call, r.offset, 1);
    } else if (manner == LATER_SHORTER) {
        give_piece(call, r.offset, r.offset ? piece_at(r.offset) / 2 : piece_at(0));
    } else if (!waiting && r.offset && piece_at(r.offset) == GATHER_PIECE) {
        waiting = call;
        waiting_offset = r.offset;
    } else { /* the last one, or a later one than that which waits */
        give_piece(call, r.offset, piece_at(r.offset));
        if (waiting) give_piece(waiting, waiting_offset, piece_at(waiting_offset)), reversed++;
        waiting = NULL;
    }
}

static void serve_oddly(void *context)
{
    struct peer *p = context;
    rpc_unserve(p->host, p->a->names.rpc[AVERAGER_GATHER]);
    assert_int_equal(rpc_serve_unary(p->host, p->a->names.rpc[AVERAGER_GATHER], on_odd_request,
                                     NULL),
                     PL_OK);
}

static void gather_oddly(int how)
{
    manner = how;
    asked = 0;
    add_gathering(), add_gathering();
    for (size_t i = 0; i < 2; i++) {
        peers[i].options.min_matchmaking_time = 1;
        peers[i].timeout = 4;
    }
    expect(count);
    open_all();
    loop_call(loop, serve_oddly, &peers[1]);
    gather_all();
}

/* Several calls are under way, and their answers need not come in order. */
static void pieces_come_in_any_order(void **state)
{
    gather_oddly(IN_REVERSE);
    if (peers[0].status) fail_msg("%s", peers[0].err.text);
    assert_true(reversed >= 3);
    assert_int_equal(asked, PIECES + 1);
    assert_int_equal(given[0].count, 2);
    for (size_t k = 0; k < 2; k++)
        if (!given[0].messages[k].is_own)
            assert_memory_equal(given[0].messages[k].data, given[1].data, LONG);
}

/* A byte a call would take a million calls; the first answer ends the round. */
static void tiny_pieces_end_the_round(void **state)
{
    gather_oddly(TINY);
    assert_true(peers[0].status != PL_OK);
    assert_int_equal(asked, peers[0].attempts);
}

/* Pieces have places by the first one's length: another length leaves a hole. */
static void shorter_pieces_end_the_round(void **state)
{
    gather_oddly(LATER_SHORTER);
    assert_true(peers[0].status != PL_OK);
    assert_non_null(strstr(peers[0].err.text, "another length"));
}

/* --- requests of others ------------------------------------------------------------------------ */

static struct reply {
    int come, status;
    size_t n;
} reply;

static void on_reply(void *context, const struct rpc_result *r)
{
    struct reply *got = context;
    got->status = r->status;
    got->n = r->n;
    note(&got->come);
}

static uint64_t wanted_offset;
static uint8_t wanted_group[DHT_ID_BYTES];

static void request(void *context)
{
    struct peer *p = context;
    const struct gather_request r = { wanted_group, wanted_offset };
    struct bytes out = { 0 };
    reply.come = 0;
    gather_request_write(&out, &r);
    rpc_call_unary(p->host, host_id(peers[0].host), peers[0].a->names.rpc[AVERAGER_GATHER],
                   bytes_at(&out), bytes_length(&out), 10, on_reply, &reply);
    bytes_clear(&out);
}

static int asks(struct peer *p)
{
    loop_call(loop, request, p);
    assert_true(await(&reply.come, 1));
    return reply.status;
}

/* Members of the last group may still fetch our message; other peers may not, and no peer may read
 * behind its end. */
static void strangers_get_nothing(void **state)
{
    add_gathering(), add_gathering(), add_gathering();
    peers[0].step.expected = peers[1].step.expected = 2;
    open_all();
    for (size_t i = 0; i < 2; i++) loop_call(loop, begin_gathering, &peers[i]);
    for (size_t i = 0; i < 2; i++) assert_true(await(&peers[i].done, 1));
    assert_int_equal(peers[0].status, PL_OK);
    memcpy(wanted_group, peers[0].group_id, sizeof wanted_group);
    wanted_offset = LONG - 5;
    assert_int_equal(asks(&peers[1]), PL_OK);
    assert_int_equal(reply.n, 24 + 5);
    assert_int_equal(asks(&peers[2]), PL_EPROTO);
    wanted_offset = LONG;
    assert_int_equal(asks(&peers[1]), PL_EPROTO);
    wanted_offset = 0;
    wanted_group[0] ^= 1;
    assert_int_equal(asks(&peers[1]), PL_EPROTO);
}

/* Pieces of odd forms, as a Byzantine groupmate may send them. */
static void odd_pieces_are_refused(void **state)
{
    const uint8_t group[GATHER_GROUP_BYTES] = { 7 }, data[3] = { 1, 2, 3 };
    const struct gather_request request = { group, 1ull << 40 };
    struct gather_piece piece = { 3, 5, 0.5, data, 3 }, got;
    struct gather_request back;
    struct bytes out = { 0 };
    (void)state;
    assert_int_equal(gather_request_write(&out, &request), PL_OK);
    assert_int_equal(gather_request_read(&back, bytes_at(&out), bytes_length(&out)), PL_OK);
    assert_true(back.offset == request.offset && !memcmp(back.group, group, sizeof group));
    assert_int_equal(gather_request_read(&back, bytes_at(&out), bytes_length(&out) - 1),
                     PL_EFORMAT);
    bytes_clear(&out);
    assert_int_equal(gather_piece_write(&out, &piece), PL_OK);
    assert_int_equal(gather_piece_read(&got, bytes_at(&out), bytes_length(&out)), PL_OK);
    assert_true(got.total == 3 && got.epoch == 5 && got.weight == 0.5 && got.n == 3);
    assert_memory_equal(got.data, data, 3);
    assert_int_equal(gather_piece_read(&got, bytes_at(&out), 23), PL_EFORMAT);
    bytes_clear(&out);
    {
        const double bad[] = { -1, NAN, INFINITY };
        for (size_t i = 0; i < PL_COUNT(bad); i++) {
            piece.weight = bad[i];
            assert_int_equal(gather_piece_write(&out, &piece), PL_OK);
            assert_int_equal(gather_piece_read(&got, bytes_at(&out), bytes_length(&out)),
                             PL_EFORMAT);
            bytes_clear(&out);
        }
    }
    piece.weight = 1;
    piece.epoch = -1;
    assert_int_equal(gather_piece_write(&out, &piece), PL_OK);
    assert_int_equal(gather_piece_read(&got, bytes_at(&out), bytes_length(&out)), PL_EFORMAT);
    bytes_clear(&out);
}

static void options(void **state)
{
    for (int i = 0; i < 3; i++) {
        struct peer *p = add(i == 1, i == 2);
        p->options.gathers = 1;
        if (i == 0) p->options.clip = 1;
        loop_call(loop, open_averager, p);
        assert_null(p->a);
        assert_non_null(strstr(p->err.text, "none can be a client"));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(three_peers, begin_test, end_gathering),
        cmocka_unit_test_setup_teardown(another_length, begin_test, end_gathering),
        cmocka_unit_test_setup_teardown(another_epoch, begin_test, end_gathering),
        cmocka_unit_test_setup_teardown(one_ahead_of_us_is_not_most, begin_test, end_gathering),
        cmocka_unit_test_setup_teardown(weight_beyond_the_limit_counts_as_zero, begin_test,
                                        end_gathering),
        cmocka_unit_test_setup_teardown(missing_message_costs_one_round, begin_test, end_gathering),
        cmocka_unit_test_setup_teardown(groupmate_has_left, begin_test, end_gathering),
        cmocka_unit_test_setup_teardown(groupmate_is_in_another_group, begin_test, end_gathering),
        cmocka_unit_test_setup_teardown(pieces_come_in_any_order, begin_test, end_gathering),
        cmocka_unit_test_setup_teardown(tiny_pieces_end_the_round, begin_test, end_gathering),
        cmocka_unit_test_setup_teardown(shorter_pieces_end_the_round, begin_test, end_gathering),
        cmocka_unit_test_setup_teardown(strangers_get_nothing, begin_test, end_gathering),
        cmocka_unit_test(odd_pieces_are_refused),
        cmocka_unit_test_setup_teardown(options, begin_test, end_gathering),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
