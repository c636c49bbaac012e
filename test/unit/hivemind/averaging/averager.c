/* averager.c - averagers over real connections, up to eight in this process: whole groups, clients,
 * Byzantine peers, peers that fall silent or die, and states that newcomers take over.
 * One long file: all cases begin, trigger and cancel steps of the same peers. */
#include "test/unit/hivemind/loopback.h"
#include "net/hivemind/averaging/averager_internal.h"

#include <math.h>

/* --- rounds ----------------------------------------------------------------------------------- */

static const struct schema_tensor other_schema[2] = {
    { .type = { .dtype = PL_F32, .dims = 1, .size = { 4000 } } },
    { .type = { .dtype = PL_F32, .dims = 1, .size = { 1000 } } },
};

static void mean_of(double *mean, size_t skip)
{
    double weight = 0;
    memset(mean, 0, VALUES * sizeof *mean);
    for (size_t k = 0; k < count; k++) {
        double w = peers[k].options.auxiliary || k == skip ? 0 : peers[k].step.weight;
        for (size_t i = 0; i < VALUES && w > 0; i++) mean[i] += w * peers[k].values[i];
        weight += w;
    }
    for (size_t i = 0; i < VALUES; i++) mean[i] /= weight > 0 ? weight : 1;
}

static double mean[VALUES];

static void has_mean(const struct peer *p)
{
    double worst = 0;
    for (size_t i = 0; i < VALUES; i++) worst = fmax(worst, fabs((double)p->values[i] - mean[i]));
    if (!(worst < 1e-6))
        fail_msg("peer %d: %g off; senders lost %zu, attempts %d", (int)(p - peers), worst,
                 p->report.senders_lost, p->attempts);
}

static void all_kinds_together(void **state)
{
    add(0, 0), add(0, 0), add(1, 0), add(0, 1), add(0, 0), add(1, 0);
    expect(count - 1); /* all but the auxiliary one */
    open_all();
    mean_of(mean, SIZE_MAX);
    begin_all();
    for (size_t i = 0; i < count; i++) {
        assert_true(await(&peers[i].done, 1));
        if (peers[i].status) fail_msg("peer %zu: %s", i, peers[i].err.text);
        assert_int_equal(peers[i].group, count);
        assert_memory_equal(peers[i].group_id, peers[0].group_id, DHT_ID_BYTES);
        has_mean(&peers[i]);
    }
    begin_all(); /* and again: everything of the first round is forgotten */
    for (size_t i = 0; i < count; i++) {
        assert_true(await(&peers[i].done, 1));
        assert_int_equal(peers[i].status, PL_OK);
    }
}

/* Groups of two, by bits: peers of one group are in different groups next, so after two
 * rounds everybody has the mean of all four. */
static void groups_by_bits(void **state)
{
    for (int i = 0; i < 4; i++) {
        struct peer *p = add(0, 0);
        p->options.bits = i < 2 ? "0" : "1";
        p->options.target_size = 2;
        p->step.weight = 1;
    }
    open_all();
    mean_of(mean, SIZE_MAX);
    for (int round = 0; round < 2; round++) {
        begin_all();
        for (size_t i = 0; i < count; i++) {
            assert_true(await(&peers[i].done, 1));
            if (peers[i].status) fail_msg("peer %zu: %s", i, peers[i].err.text);
            assert_int_equal(peers[i].group, 2);
        }
        if (round) break;
        assert_memory_equal(peers[0].group_id, peers[1].group_id, DHT_ID_BYTES);
        assert_memory_equal(peers[2].group_id, peers[3].group_id, DHT_ID_BYTES);
    }
    assert_memory_not_equal(peers[0].group_id, peers[1].group_id, DHT_ID_BYTES);
    assert_memory_not_equal(peers[2].group_id, peers[3].group_id, DHT_ID_BYTES);
    for (size_t i = 0; i < count; i++) has_mean(&peers[i]);
}

static void one_bit(void *context) { averager_fit_bits(((struct peer *)context)->a, 1); }
static void no_bits(void *context) { averager_fit_bits(((struct peer *)context)->a, 0); }

/* A key with other bits is another group: two peers that stay under the old key don't meet the
 * others. Without bits all meet again. While a peer searches, nothing changes. */
static void digits_move_to_other_keys(void **state)
{
    for (int i = 0; i < 4; i++) add(0, 0)->options.bits = i < 2 ? "" : i == 2 ? "01" : "111";
    be_impatient(4, 15);
    open_all();
    for (size_t i = 2; i < 4; i++) loop_call(loop, one_bit, &peers[i]); /* "1" is left of both */
    for (size_t i = 2; i < 4; i++) assert_string_equal(averager_group_bits(peers[i].a), "1");
    for (int round = 0; round < 2; round++) {
        begin_all();
        loop_call(loop, one_bit, &peers[0]);
        assert_string_equal(averager_group_bits(peers[0].a), "");
        for (size_t i = 0; i < count; i++) {
            assert_true(await(&peers[i].done, 1));
            assert_int_equal(peers[i].status, PL_OK);
            assert_int_equal(peers[i].group, round ? 4 : 2);
        }
        for (size_t i = 2; i < 4; i++) loop_call(loop, no_bits, &peers[i]);
    }
}

/* Peers with other shapes under the same name find each other, and no others. */
static void two_schemas(void **state)
{
    for (int i = 0; i < 4; i++)
        if (add(0, 0) && i % 2) peers[i].options.schema = other_schema;
    be_impatient(4, 15); /* the expected peer never comes: the others' names are there */
    open_all();
    begin_all();
    for (size_t i = 0; i < count; i++) {
        assert_true(await(&peers[i].done, 1));
        assert_int_equal(peers[i].status, PL_OK);
        assert_int_equal(peers[i].group, 2);
        assert_memory_equal(peers[i].group_id, peers[i % 2].group_id, DHT_ID_BYTES);
    }
}

static void not_a_number(void **state)
{
    add(0, 0), add(0, 0), add(1, 0);
    expect(count);
    open_all();
    mean_of(mean, 2);
    for (size_t i = 0; i < VALUES; i++) peers[2].values[i] = NAN;
    peers[2].timeout = 10; /* no peer answers it: it tries again, alone */
    begin_all();
    for (size_t i = 0; i < 2; i++) {
        assert_true(await(&peers[i].done, 1));
        assert_int_equal(peers[i].status, PL_OK);
        assert_int_equal(peers[i].report.senders_lost, 1);
        has_mean(&peers[i]);
    }
    assert_true(await(&peers[2].done, 1));
    assert_true(peers[2].status != PL_OK);
}

/* A groupmate that never begins its exchange. As a client it costs its timeout; as one that
 * reduces, the round: the others form a group without it. */
static void silent(int client, double matchmaking, loop_fn *prepare)
{
    add(0, 0), add(0, 0), add(client, 0);
    be_impatient(matchmaking, 3);
    expect(count);
    open_all();
    for (size_t i = 0; prepare && i < count; i++) loop_call(loop, prepare, &peers[i]);
    mean_of(mean, 2);
    peers[2].step.untriggered = 1;
    begin_all();
    for (size_t i = 0; i < 2; i++) {
        assert_true(await(&peers[i].done, 1));
        if (peers[i].status) fail_msg("peer %zu: %s", i, peers[i].err.text);
        assert_int_equal(peers[i].attempts, client ? 1 : 2);
        has_mean(&peers[i]);
    }
}
static void silent_client(void **state) { silent(1, 4, NULL); }

/* The second group begins with those who are left of the first, not at the end of its window. */
static void silent_reducer_of(loop_fn *prepare)
{
    const double began = pl_seconds(), window = 25;
    silent(0, window, prepare);
    assert_true(pl_seconds() < began + window);
}
static void silent_reducer(void **state) { silent_reducer_of(NULL); }

static void in_the_grid(void *context)
{
    averager_set_bits(((struct peer *)context)->a, "01010101");
}

/* In a grid, too: among 256 keys they keep theirs until they have averaged, then part. */
static void silent_reducer_in_a_grid(void **state)
{
    silent_reducer_of(in_the_grid);
    assert_string_not_equal(averager_group_bits(peers[0].a), averager_group_bits(peers[1].a));
}

/* The third is a stranger: it reports no progress. Nor do others that are unknown here. */
static int reports(void *context, const struct peer_id *peer)
{
    int honest = 0;
    for (size_t i = 0; i < count; i++) honest |= i != 2 && peer_id_equal(peer, &peers[i].me.id);
    return honest;
}

/* Rounds with strangers have failed here: a minute's back-off. */
static void meet_strangers(void *context)
{
    struct peer *p = context;
    const double now = loop_now(loop);
    for (uint8_t i = 0; i < 5; i++) {
        struct peer_id stranger = { .length = 34, .bytes = { 0x12, 0x20, i } };
        averager_see(p->a, &stranger);
        reliability_failed(p->a->reliability, now, now - 1, &stranger);
    }
}

/* Strangers under new names have spoiled rounds: the next stranger is held back, and a newcomer
 * that reports progress is not. */
static void newcomer_among_strangers(void **state)
{
    add(0, 0), add(0, 0), add(0, 0), add(0, 0);
    be_impatient(4, 3);
    for (size_t i = 0; i < count; i++) peers[i].options.reports = reports;
    open_all();
    loop_call(loop, meet_strangers, &peers[0]);
    loop_call(loop, meet_strangers, &peers[1]);
    loop_call(loop, meet_strangers, &peers[3]);
    begin_all();
    for (size_t i = 0; i < count; i++) {
        if (i == 2) continue;
        assert_true(await(&peers[i].done, 1));
        assert_int_equal(peers[i].status, PL_OK);
        assert_int_equal(peers[i].group, 3);
    }
    assert_false(peers[2].done);
}

static void fail_once(void *context)
{
    struct reliability *r = peers[0].a->reliability;
    reliability_delivered(r, loop_now(loop), context, 0);
    reliability_failed(r, loop_now(loop), loop_now(loop), context);
}

static void read_paused(void *context)
{
    peers[0].grouped = reliability_is_paused(peers[0].a->reliability, loop_now(loop), context, 1);
}

/* A groupmate that has failed a round and connects again is not on back-off any longer. */
static void new_connection_excuses_a_groupmate(void **state)
{
    struct identity mate;
    const double until = pl_seconds() + RELIABILITY_BASE - 5;
    numbered = 1;
    numbered_identity(&mate, 1);
    add(0, 0);
    open_all();
    loop_call(loop, fail_once, &mate.id);
    loop_call(loop, read_paused, &mate.id);
    assert_true(peers[0].grouped);
    add(0, 0);
    assert_true(peer_id_equal(&peers[1].me.id, &mate.id));
    for (; loop_call(loop, read_paused, &mate.id), peers[0].grouped; usleep(10000))
        assert_true(pl_seconds() < until);
    identity_clear(&mate);
}

static void trigger(void *context)
{
    struct peer *p = context;
    averager_trigger(p->a, p->step.weight, p->tensor, NULL);
}

/* Parts that come before our own trigger wait; the values given with the trigger count. */
static void late_trigger(void **state)
{
    add(0, 0), add(0, 0);
    expect(count);
    open_all();
    peers[1].step.untriggered = 1;
    mean_of(mean, SIZE_MAX);
    begin_all();
    await_groups(2);
    usleep(300000); /* for the parts */
    assert_int_equal(noted(&peers[0].done), 0);
    loop_call(loop, trigger, &peers[1]);
    for (size_t i = 0; i < 2; i++) {
        assert_true(await(&peers[i].done, 1));
        assert_int_equal(peers[i].status, PL_OK);
        has_mean(&peers[i]);
    }
}

static void trigger_elsewhere(void *context)
{
    struct peer *p = context;
    struct verifier_claim claim = { .epoch = p->step.claim.epoch + 1, .samples = 3 };
    averager_trigger(p->a, p->step.weight, p->tensor, &claim);
}

/* A search that began for one epoch is triggered for another: from then on its gather message
 * states the new epoch, and not the one before. */
static void epoch_changes_during_the_search(void **state)
{
    add(0, 0), add(0, 0);
    expect(count);
    open_all();
    peers[0].step.untriggered = 1;
    mean_of(mean, SIZE_MAX);
    loop_call(loop, begin, &peers[0]);
    loop_call(loop, trigger_elsewhere, &peers[0]);
    loop_call(loop, begin, &peers[1]);
    for (size_t i = 0; i < 2; i++) {
        assert_true(await(&peers[i].done, 1));
        if (peers[i].status) fail_msg("peer %zu: %s", i, peers[i].err.text);
        has_mean(&peers[i]);
    }
}

/* Dies when the group has been found: the others hear of the lost connection, and do without it. */
static void killed(void **state)
{
    add(0, 0), add(0, 0), add(0, 0);
    be_impatient(4, 15);
    expect(count);
    open_all();
    mean_of(mean, 2);
    peers[2].step.untriggered = 1;
    begin_all();
    await_groups(3);
    close_peer(&peers[2]);
    for (size_t i = 0; i < 2; i++) {
        assert_true(await(&peers[i].done, 1));
        if (peers[i].status) fail_msg("peer %zu: %s", i, peers[i].err.text);
        has_mean(&peers[i]);
    }
}

/* Closed while its exchange waits for a groupmate: nothing of it may come later. */
static void closed_in_the_exchange(void **state)
{
    add(0, 0), add(0, 0);
    be_impatient(10, 0.7); /* so that a timer which had been forgotten would go off */
    expect(count);
    open_all();
    peers[1].step.untriggered = 1;
    begin_all();
    await_groups(1);
    close_peer(&peers[0]);
    usleep(1900000);
}

static void cancel(void *context) { averager_cancel(((struct peer *)context)->a); }

static void alone_and_cancelled(void **state)
{
    static float before[VALUES];
    add(0, 0), add(0, 0);
    open_all();
    memcpy(before, peers[0].values, sizeof before);
    peers[0].timeout = 2;
    loop_call(loop, begin, &peers[0]);
    assert_true(await(&peers[0].done, 1));
    assert_int_equal(peers[0].status, PL_EAGAIN);
    loop_call(loop, begin, &peers[1]);
    loop_call(loop, cancel, &peers[1]);
    assert_true(await(&peers[1].done, 1));
    assert_int_equal(peers[1].status, PL_EAGAIN);
    assert_memory_equal(peers[0].values, before, sizeof before);
}

/* The first two are in a group, and the second one gives it up. */
static void second_leaves(void)
{
    be_impatient(2, 30);
    expect(count);
    open_all();
    mean_of(mean, SIZE_MAX);
    for (size_t i = 0; i < count; i++) peers[i].step.untriggered = 1;
    for (size_t i = 0; i < 2; i++) loop_call(loop, begin, &peers[i]);
    await_groups(2);
    loop_call(loop, cancel, &peers[1]);
    assert_true(await(&peers[1].done, 1));
    assert_int_equal(peers[1].status, PL_EAGAIN);
}

/* Cancelled in a group, as by a peer that begins alone: the other hears of it at once, and takes it
 * again as soon as it comes back. */
static void groupmate_has_left(void **state)
{
    double began;
    add(0, 0), add(0, 0);
    second_leaves();
    began = pl_seconds();
    loop_call(loop, trigger, &peers[0]);
    usleep(300000);
    peers[1].done = peers[1].step.untriggered = 0;
    loop_call(loop, begin, &peers[1]);
    for (size_t i = 0; i < 2; i++) {
        assert_true(await(&peers[i].done, 1));
        if (peers[i].status) fail_msg("peer %zu: %s", i, peers[i].err.text);
        has_mean(&peers[i]);
    }
    assert_int_equal(peers[0].attempts, 2);
    assert_true(pl_seconds() < began + RELIABILITY_BASE);
}

/* It waits for its trigger in another group when the other one's values come: those are refused at
 * once, so that their sender can look for a group again. */
static void groupmate_is_in_another_group(void **state)
{
    add(0, 0), add(0, 0), add(0, 0);
    second_leaves();
    for (size_t i = 1; i < 3; i++) loop_call(loop, begin, &peers[i]);
    await_groups(3);
    loop_call(loop, trigger, &peers[0]);
    usleep(500000);
    assert_false(averager_has_group(peers[0].a));
    assert_true(averager_has_group(peers[1].a));
}

/* --- what strangers send ---------------------------------------------------------------------- */

struct stranger {
    struct peer *from, *to;
    struct rpc_stream *s;
    int codes[4], code_count, over;
};

static void stranger_message(void *context, struct rpc_stream *s, const uint8_t *data, size_t n)
{
    struct stranger *t = context;
    struct part_message m;
    if (!part_message_read(&m, data, n, NULL) && t->code_count < 4)
        t->codes[t->code_count++] = m.code;
}
static void stranger_end(void *context, struct rpc_stream *s)
{
    struct stranger *t = context;
    rpc_close(s);
    note(&t->over);
}
static void stranger_failed(void *context, struct rpc_stream *s, int status, const char *why)
{
    stranger_end(context, s);
}

static void send_stranger(void *context)
{
    static const struct rpc_stream_events events = { stranger_message, stranger_end,
                                                     stranger_failed, NULL };
    struct stranger *t = context;
    struct part_message m = { .code = MSG_PART_FOR_AVERAGING,
                              .group_id = (const uint8_t *)"12345678901234567890",
                              .group_id_n = 20,
                              .weight = 1,
                              .elements = 4,
                              .bytes = 16 };
    struct bytes raw = { 0 };
    uint8_t *buffer;
    assert_int_equal(part_message_write(&raw, &buffer, &m), PL_OK);
    memset(buffer, 0, 16);
    t->s = rpc_open(t->from->host, host_id(t->to->host),
                    "test::DecentralizedAverager.rpc_aggregate_part", 1 << 20, 5, &events, t);
    rpc_send(t->s, bytes_at(&raw), bytes_length(&raw));
    rpc_end(t->s);
    bytes_clear(&raw);
}

static void unknown_group(void **state)
{
    struct stranger idle, busy;
    add(0, 0), add(0, 0), add(0, 0);
    open_all();
    idle = busy = (struct stranger){ .from = &peers[2], .to = &peers[0] };
    loop_call(loop, send_stranger, &idle);
    assert_true(await(&idle.over, 1));
    assert_int_equal(idle.code_count, 1);
    assert_int_equal(idle.codes[0], MSG_BAD_GROUP_ID);
    mean_of(mean, 2);
    expect(2);
    loop_call(loop, begin, &peers[0]);
    loop_call(loop, begin, &peers[1]);
    loop_call(loop, send_stranger, &busy); /* waits until there is a group, and is then refused */
    for (size_t i = 0; i < 2; i++) {
        assert_true(await(&peers[i].done, 1));
        assert_int_equal(peers[i].status, PL_OK);
        has_mean(&peers[i]);
    }
    assert_true(await(&busy.over, 1));
    assert_int_equal(busy.code_count, 1);
    assert_int_equal(busy.codes[0], MSG_BAD_GROUP_ID);
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, begin_test, end_test)

/* A name, with * and ?, runs only the tests that match it. */
int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        TEST(all_kinds_together),
        TEST(groups_by_bits),
        TEST(digits_move_to_other_keys),
        TEST(two_schemas),
        TEST(not_a_number),
        TEST(silent_client),
        TEST(silent_reducer),
        TEST(silent_reducer_in_a_grid),
        TEST(newcomer_among_strangers),
        TEST(new_connection_excuses_a_groupmate),
        TEST(late_trigger),
        TEST(epoch_changes_during_the_search),
        TEST(killed),
        TEST(closed_in_the_exchange),
        TEST(alone_and_cancelled),
        TEST(groupmate_has_left),
        TEST(groupmate_is_in_another_group),
        TEST(unknown_group),
    };
    if (argc > 1) cmocka_set_test_filter(argv[1]);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
