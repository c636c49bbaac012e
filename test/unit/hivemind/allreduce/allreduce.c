/* allreduce.c - whole groups of all-reduce engines in one process: results equal the reference bit
 * for bit; rounds in which peers lie, freeze or leave. */
#include "allreduce_world.h"
#include "net/hivemind/allreduce/allreduce_internal.h"

/* The reference's result: every reducer takes its own values first and then the others' by rank.
 * `out`: this peer is left out as if it were not in the group. */
static void reference(struct world *w, float result[PEERS][VALUES], size_t out)
{
    struct pl_part *parts;
    size_t count, starts[TENSORS] = { 0 };
    for (size_t t = 1; t < TENSORS; t++) starts[t] = starts[t - 1] + elements[t - 1];
    assert_int_equal(pl_partition(&parts, &count, elements, w->method, TENSORS, w->share, PEERS,
                                  w->part_bytes, NULL),
                     PL_OK);
    for (int reducer = 0; reducer < PEERS; reducer++) {
        struct pl_member member[PEERS];
        struct pl_group group = { .member = member,
                                  .members = PEERS,
                                  .tensors = TENSORS,
                                  .elements = elements,
                                  .method = w->method,
                                  .part_bytes = w->part_bytes };
        static float copy[PEERS][VALUES];
        float *tensor[PEERS][TENSORS];
        int order[PEERS], n = 0;
        order[n++] = reducer;
        for (size_t r = 0; r < PEERS; r++)
            for (int i = 0; i < PEERS; i++)
                if (w->rank[i] == r && i != reducer) order[n++] = i;
        for (size_t i = 0; i < PEERS; i++) {
            memcpy(copy[i], w->peer[i].values, sizeof copy[i]);
            for (size_t t = 0; t < TENSORS; t++) tensor[i][t] = copy[i] + starts[t];
            member[i] = (struct pl_member){ w->share[i] > 0 ? PL_NODE : PL_CLIENT,
                                            w->peer[i].weight, w->share[i], tensor[i] };
            if (i == out) member[i].weight = 0;
        }
        group.order = order;
        assert_int_equal(pl_average_group(&group, &w->be, NULL), PL_OK);
        for (size_t p = 0; p < count; p++)
            for (size_t i = 0; parts[p].reducer == reducer && i < PEERS; i++)
                memcpy(result[i] + starts[parts[p].tensor] + parts[p].start,
                       copy[i] + starts[parts[p].tensor] + parts[p].start,
                       parts[p].length * sizeof(float));
    }
    pl_free(parts);
}

static float wanted[PEERS][VALUES];

/* All rounds in the same memory, of which some take more than it has, and some less.
 * Of parts of 512 bytes the own differences are kept until the end; of 8192, in 8 bits, it is the
 * messages, which are smaller then than what they are made into. */
static void allreduce_equals_the_reference(void **state)
{
    static const size_t ranks[][PEERS] = { { 0, 1, 2, 3 }, { 3, 2, 1, 0 }, { 2, 0, 3, 1 } };
    struct allreduce_memory memory[PEERS] = { 0 };
    for (size_t r = 0; r < 2 * PL_COUNT(ranks); r++) {
        static struct world w;
        struct allreduce_report report;
        make(&w);
        w.memory = memory;
        w.share[r % 3] += 15000;
        memcpy(w.rank, ranks[r / 2], sizeof w.rank);
        w.part_bytes = r % 2 ? 8192 : 512;
        w.peer[2].weight = 0; /* an auxiliary peer: sends, weighs nothing, takes the mean */
        reference(&w, wanted, SIZE_MAX);
        begin(&w);
        run(&w);
        for (size_t i = 0; i < PEERS; i++) {
            assert_true(w.peer[i].over);
            if (w.peer[i].status) fail_msg("peer %zu: %s", i, w.peer[i].err.text);
            assert_memory_equal(w.peer[i].values, wanted[i], sizeof wanted[i]);
            allreduce_report(w.peer[i].x, &report);
            assert_int_equal(report.received, VALUES);
            assert_int_equal(report.senders_lost + report.reducers_lost, 0);
            assert_true(memory[i].answers.n > 0);
        }
        end(&w);
    }
    for (size_t i = 0; i < PEERS; i++) allreduce_memory_clear(&memory[i]);
}

/* One of four sends its values' opposite, a hundred times as large: how far does that drag the
 * result from the honest mean? */
static double dragged(double clip)
{
    static struct world w;
    double far = 0;
    make(&w);
    w.clip = clip;
    memset(wanted, 0, sizeof wanted);
    for (size_t t = 0; t < TENSORS; t++) w.method[t] = PL_COMPRESS_NONE;
    for (size_t i = PEERS; i-- > 0;) { /* the honest agree but for a little */
        w.peer[i].weight = 1;
        for (size_t v = 0; v < VALUES; v++)
            w.peer[i].values[v] = w.peer[0].values[v] + 0.05f * w.peer[i].values[v];
        for (size_t v = 0; v < VALUES && i != 1; v++) wanted[0][v] += w.peer[i].values[v] / 3;
    }
    for (size_t v = 0; v < VALUES; v++) w.peer[1].values[v] *= -100;
    begin(&w);
    run(&w);
    assert_int_equal(w.peer[0].over && w.peer[0].status == PL_OK, 1);
    for (size_t v = 0; v < VALUES; v++) far += pow((double)w.peer[0].values[v] - wanted[0][v], 2);
    end(&w);
    return sqrt(far / VALUES);
}

static void a_byzantine_peer_moves_little(void **state)
{
    double mean, usual, fixed;
    mean = dragged(0);
    usual = dragged(PL_CLIP_USUAL);
    fixed = dragged(1);
    assert_true(mean > 5);     /* a quarter of a hundred times 0.29 */
    assert_true(usual < 0.02); /* the honest are 0.01 apart themselves */
    assert_true(fixed < 0.1);
}

static void zero_weight_sum_changes_nothing(void **state)
{
    static struct world w;
    static float before[VALUES];
    make(&w);
    for (size_t i = 0; i < PEERS; i++) w.peer[i].weight = 0;
    memcpy(before, w.peer[0].values, sizeof before);
    begin(&w);
    run(&w);
    for (size_t i = 0; i < PEERS; i++) {
        assert_true(w.peer[i].over);
        assert_int_not_equal(w.peer[i].status, PL_OK); /* a peer that reduces nothing, too */
    }
    assert_memory_equal(w.peer[0].values, before, sizeof before);
    end(&w);
}

/* An attacker's parts are left out; all others have the mean of the honest peers. */
static void not_a_number(void **state)
{
    static struct world w;
    struct allreduce_report report;
    make(&w);
    reference(&w, wanted, 1);
    for (size_t v = 0; v < VALUES; v++) w.peer[1].values[v] = v % 2 ? NAN : INFINITY;
    /* halves would hide infinity */
    for (size_t t = 0; t < TENSORS; t++) w.method[t] = PL_COMPRESS_NONE;
    begin(&w);
    run(&w);
    for (size_t i = 0; i < PEERS; i++) {
        if (i == 1) continue; /* it reduces nothing, and gets no answers */
        assert_int_equal(w.peer[i].status, PL_OK);
        for (size_t v = 0; v < VALUES; v++) assert_true(isfinite(w.peer[i].values[v]));
        allreduce_report(w.peer[i].x, &report);
        assert_int_equal(report.senders_lost, 1);
    }
    assert_int_equal(w.peer[1].status, w.peer[1].over ? PL_EIO : PL_OK);
    end(&w);
}

/* A client that falls silent costs its timeout and nothing else. */
static void frozen_client(void **state)
{
    static struct world w;
    make(&w);
    w.peer[1].frozen = 1;
    begin(&w);
    run(&w);
    for (size_t i = 0; i < PEERS; i++) assert_false(w.peer[i].over);
    assert_true(allreduce_wake(w.peer[0].x) == 4);
    tick(&w, 3.9);
    assert_false(w.peer[0].over);
    tick(&w, 0.2);
    for (size_t i = 0; i < PEERS; i++)
        if (i != 1) assert_int_equal(w.peer[i].over && w.peer[i].status == PL_OK, 1);
    w.peer[1].frozen = 0;
    end(&w);
}

/* If a reducer fails, the round fails: no peer's values change, and every peer reports it. */
static void frozen_reducer(void **state)
{
    static struct world w;
    static float before[PEERS][VALUES];
    make(&w);
    for (size_t i = 0; i < PEERS; i++) memcpy(before[i], w.peer[i].values, sizeof before[i]);
    w.peer[2].frozen = 1;
    begin(&w);
    run(&w);
    tick(&w, 4.1);
    tick(&w, 4.1);
    for (size_t i = 0; i < PEERS; i++) {
        if (i == 2) continue;
        assert_true(w.peer[i].over);
        assert_int_equal(w.peer[i].status, PL_EIO);
        if (i != 1) assert_non_null(strstr(w.peer[i].err.text, "fallen silent: no answer in time"));
        assert_memory_equal(w.peer[i].values, before[i], sizeof before[i]);
    }
    w.peer[2].frozen = 0;
    end(&w);
}

/* A round's error for a lost reducer is the reason for which its stream was lost. */
static void cut_reducer(void **state)
{
    static struct world w;
    char name[PEER_ID_TEXT_MAX];
    make(&w);
    w.peer[2].frozen = 1;
    begin(&w);
    run(&w);
    allreduce_failed(w.peer[0].x, w.now, 2, ALLREDUCE_OUT, "its line is cut");
    tick(&w, 4.1);
    assert_int_equal(w.peer[0].over && w.peer[0].status == PL_EIO, 1);
    peer_id_text(name, &w.peer[0].group.members[2].peer);
    assert_non_null(strstr(w.peer[0].err.text, name));
    assert_non_null(strstr(w.peer[0].err.text, "its line is cut"));
    w.peer[2].frozen = 0;
    end(&w);
}

static void time_limit_and_cancel(void **state)
{
    static struct world w;
    make(&w);
    w.peer[0].frozen = w.peer[2].frozen = 1;
    begin(&w);
    allreduce_cancel(w.peer[3].x, w.now);
    run(&w);
    assert_true(w.peer[3].over);
    assert_int_equal(w.peer[3].status, PL_EAGAIN);
    tick(&w, 61);
    assert_true(w.peer[1].over);
    assert_int_equal(w.peer[1].status, PL_EAGAIN);
    w.peer[0].frozen = w.peer[2].frozen = 0;
    end(&w);
}

/* Wrong first messages, parts of a wrong size, of a wrong weight, too many: never more than a
 * ban. */
static void bad_messages(void **state)
{
    static const double weights[] = { -1, NAN, INFINITY, 101 };
    static const float values[] = { NAN, -INFINITY, 2 * PART_VALUE_MAX };
    for (int kind = 0; kind < 10; kind++) {
        static struct world w;
        struct bytes raw = { 0 };
        struct part_message m = { .code = MSG_PART_FOR_AVERAGING,
                                  .method = PL_COMPRESS_NONE,
                                  .weight = 1,
                                  .elements = 512,
                                  .bytes = 2048 };
        struct allreduce_report report;
        uint8_t *buffer;
        make(&w);
        w.peer[3].frozen = 1;
        begin(&w);
        run(&w);
        if (kind == 0) m.code = MSG_ACCEPTED;
        if (kind == 1) m.elements = 100, m.bytes = 400;
        if (kind > 1 && kind < 6) m.weight = weights[kind - 2];
        assert_int_equal(part_message_write(&raw, &buffer, &m), PL_OK);
        memset(buffer, 0, m.bytes);
        if (kind > 6) memcpy(buffer + 40, &values[kind - 7], sizeof *values);
        if (kind == 6) raw.end = raw.begin + 3;
        allreduce_message(w.peer[0].x, w.now, 3, ALLREDUCE_IN, bytes_at(&raw), bytes_length(&raw));
        run(&w);
        allreduce_report(w.peer[0].x, &report);
        assert_int_equal(report.senders_lost, 1);
        assert_false(allreduce_awaits(w.peer[0].x, 3));
        allreduce_message(w.peer[0].x, w.now, 3, ALLREDUCE_OUT, bytes_at(&raw), bytes_length(&raw));
        allreduce_report(w.peer[0].x, &report);
        assert_int_equal(report.reducers_lost, 1);
        /* others have not the code of an answer */
        assert_int_equal(lied(&w.peer[0], 3), kind == 6);
        bytes_clear(&raw);
        w.peer[3].frozen = 0;
        end(&w);
    }
}

/* Answers that no honest reducer gives: the round is lost, and every peer knows who caused it.
 * Error codes are honest answers. */
static void lying_reducer(void **state)
{
    static const float values[] = { 0, NAN, INFINITY, 2 * PART_VALUE_MAX };
    for (int kind = 0; kind < 5; kind++) {
        static struct world w;
        static float before[VALUES];
        struct bytes raw = { 0 };
        struct part_message m = {
            .code = MSG_AVERAGED_PART, .method = PL_COMPRESS_NONE, .elements = 512, .bytes = 2048
        };
        uint8_t *buffer;
        make(&w);
        for (size_t t = 0; t < TENSORS; t++) w.method[t] = PL_COMPRESS_NONE;
        memcpy(before, w.peer[0].values, sizeof before);
        w.peer[2].frozen = 1;
        begin(&w);
        run(&w);
        if (kind == 0) m.elements = 511, m.bytes = 2044;
        if (kind == 4) {
            assert_int_equal(part_message_code(&raw, MSG_INTERNAL_ERROR), PL_OK);
        } else {
            assert_int_equal(part_message_write(&raw, &buffer, &m), PL_OK);
            for (size_t i = 0; i < m.elements; i++)
                memcpy(buffer + 4 * i, &values[kind], sizeof *values);
        }
        allreduce_message(w.peer[0].x, w.now, 2, ALLREDUCE_OUT, bytes_at(&raw), bytes_length(&raw));
        assert_int_equal(lied(&w.peer[0], 2), kind != 4);
        tick(&w, 4.1);
        assert_int_equal(w.peer[0].over && w.peer[0].status == PL_EIO, 1);
        assert_memory_equal(w.peer[0].values, before, sizeof before);
        bytes_clear(&raw);
        w.peer[2].frozen = 0;
        end(&w);
    }
}

#define KEPT 70001 /* bytes: several pages, and never at the beginning of one */
#define MESSAGES 5

/* Whether its memory is new or a round's before, and wherever its pages begin: what is kept is what
 * came, and nothing around it changes. */
static void kept_message_is_unchanged(void **state)
{
    struct allreduce_block block = { 0 };
    static uint8_t message[KEPT];
    for (int round = 0; round < 3; round++) {
        size_t all = (round < 2 ? 1 : 2) * (size_t)MESSAGES * KEPT;
        uint8_t *data = allreduce_block_reserve(&block, all);
        assert_non_null(data);
        assert_int_equal(block.is_new, round != 1);
        for (int k = MESSAGES; k-- > 0;) {
            memset(message, 16 * round + k, sizeof message);
            allreduce_block_put(&block, data + (size_t)k * KEPT, message, sizeof message);
        }
        allreduce_block_put(&block, data, message, 0);
        for (int k = 0; k < MESSAGES; k++) {
            memset(message, 16 * round + k, sizeof message);
            assert_memory_equal(data + (size_t)k * KEPT, message, sizeof message);
        }
    }
    free(block.data);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(allreduce_equals_the_reference),
        cmocka_unit_test(a_byzantine_peer_moves_little),
        cmocka_unit_test(zero_weight_sum_changes_nothing),
        cmocka_unit_test(not_a_number),
        cmocka_unit_test(frozen_client),
        cmocka_unit_test(frozen_reducer),
        cmocka_unit_test(cut_reducer),
        cmocka_unit_test(time_limit_and_cancel),
        cmocka_unit_test(bad_messages),
        cmocka_unit_test(lying_reducer),
        cmocka_unit_test(kept_message_is_unchanged),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
