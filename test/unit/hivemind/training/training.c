/* training.c - peers that train a toy model together over loopback: in step and with the same
 * parameters while one joins late and one leaves without notice; and the state that one peer gives
 * to another. */
#include "training_totals.h"
#include "training_world.h"

static double length(const float *x)
{
    double s = 0;
    for (size_t i = 0; i < TOTAL; i++) s += (double)x[i] * x[i];
    return sqrt(s);
}

static struct metrics_record metrics[TRAINERS];
static int metrics_count, metrics_came;

static void on_metrics(void *context, int status, const struct dht_result *r)
{
    for (size_t i = 0; !status && r->type == DHT_FOUND_DICTIONARY && i < r->dictionary.count; i++)
        if (metrics_count < TRAINERS)
            metrics_count += !metrics_read(&metrics[metrics_count], r->dictionary.items[i].value,
                                           r->dictionary.items[i].n, NULL);
    note(&metrics_came);
}

/* The records of all nodes near the key: peers store their entries at different ones. */
static void get_metrics(void *context)
{
    struct training *c = context;
    dht_node_get(c->o.node, &c->records.metrics_key, 1, on_metrics, NULL);
}

/* Of uneven speed; one comes when the others have begun; the fastest leaves half-way,
 * unannounced. */
static void three_peers_train_in_step(void **state)
{
    struct training_view v;
    struct metrics_sums sums;
    struct report_record totals;
    double apart = 0, start;
    pl_backend_ref(&be);
    for (int i = 0; i < TRAINERS; i++) open_peer(&peers[i], i);
    start = length(peers[0].value);
    for (int i = 0; i < TRAINERS; i++) {
        peers[i].nap = 0.04 + 0.03 * i;
        peers[i].epochs = i == 1 ? 6 : 12;
        if ((peers[i].joins_late = i == 2)) {
            do {
                struct timespec nap = { 0, 20000000 };
                nanosleep(&nap, NULL);
                training_get_view(peers[0].c, &v);
            } while (v.epoch < 2);
        }
        begin_training(&peers[i]);
    }
    join_trainer(&peers[1]);
    join_trainer(&peers[0]);
    join_trainer(&peers[2]);
    assert_true(peers[2].begun_at >=
                1); /* it took a state over: a slow donor may have given the one before */
    for (int i = 0; i < TRAINERS; i++)
        assert_true(peers[i].common >= 1); /* a slow machine may spoil some */
    for (size_t i = 0; i < TOTAL; i++)
        apart = fmax(apart, fabs((double)peers[0].value[i] - peers[2].value[i]));
    assert_true(apart <
                0.2); /* of values up to 7, steps of 1 %: alone they would be farther apart */
    assert_true(length(peers[0].value) < start);
    loop_call(peers[0].loop, get_metrics, peers[0].c);
    assert_true(await_noted(&metrics_came, 1, LIMIT));
    metrics_sum(&sums, metrics, (size_t)metrics_count);
    assert_true(sums.step >= 6);
    assert_true(sums.loss > 0);
    totals = totals_of(peers[0].c);
    assert_true(totals.rounds >= 1 && totals.sent > 0 && totals.received > 0);
    assert_true(totals.uncompressed >=
                4 * (int64_t)TOTAL / 2); /* half of it goes to the other, at least */
    assert_string_equal(totals.version, "potluck " PL_VERSION);
}

/* A state that one peer gives and another takes is equal, bit for bit; a state that does not fit is
 * refused with a sentence. */
static void state_there_and_back(void **state)
{
    struct state_snapshot *s;
    struct state_source source;
    struct state_load l = { 0 };
    struct bytes message = { 0 };
    struct pl_err err = { "" };
    struct training_state meta;
    int64_t epoch;
    pl_backend_ref(&be);
    open_peer(&peers[0], 0);
    open_peer(&peers[1], 1);
    for (int i = 0; i < 3; i++) {
        for (size_t k = 0; k < TOTAL; k++)
            peers[0].grad[k] = sinf((float)k) * (peers[0].value[k] != 0);
        pl_optimizer_step(peers[0].optimizer, peers[0].value, peers[0].grad, 0.01);
    }
    s = optimizer_state_snapshot(&peers[0].state, peers[0].value, 7, 0.01, 0.02, "0110");
    assert_non_null(s);
    assert_int_equal(training_state_read(&meta, s->metadata, s->metadata_n, &err), PL_OK);
    assert_string_equal(meta.group_bits, "0110");
    training_state_clear(&meta);
    source = (struct state_source){ .metadata = s->metadata,
                                    .metadata_n = s->metadata_n,
                                    .tensors = s->tensors,
                                    .count = s->count };
    while (!state_source_next(&source, &message, &be, NULL)) {
        assert_int_equal(state_load_add(&l, bytes_at(&message), bytes_length(&message), &err),
                         PL_OK);
        bytes_clear(&message);
    }
    assert_int_equal(state_load_finish(&l, &err), PL_OK);
    assert_int_equal(optimizer_state_check(&peers[1].state, &l, 8, &err), PL_EPROTO);
    assert_non_null(strstr(err.text, "epoch"));
    assert_int_equal(optimizer_state_check(&peers[1].state, &l, 7, &err), PL_OK);
    assert_int_equal(optimizer_state_take(&peers[1].state, peers[1].value, &epoch, &l, &err),
                     PL_OK);
    assert_int_equal(epoch, 7);
    assert_memory_equal(peers[0].value, peers[1].value, sizeof peers[0].value);
    assert_int_equal(pl_optimizer_steps(peers[1].optimizer), 3);
    for (size_t k = 0; k < pl_optimizer_state_count(peers[0].optimizer); k++) {
        float a[600], b[600];
        size_t n = pl_optimizer_state_at(peers[0].optimizer, k).n;
        pl_optimizer_state_get(peers[0].optimizer, k, a);
        pl_optimizer_state_get(peers[1].optimizer, k, b);
        assert_memory_equal(a, b, n * sizeof *a);
    }
    memset(l.tensors[1].buffer, 0xff, 4); /* not a number */
    assert_int_equal(optimizer_state_check(&peers[1].state, &l, 0, &err), PL_EFORMAT);
    state_source_clear(&source);
    state_load_clear(&l);
    state_snapshot_free(s);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(state_there_and_back, close_all),
        cmocka_unit_test_teardown(three_peers_train_in_step, close_all),
    };
    if (argc > 1) cmocka_set_test_filter(argv[1]);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
