/* averager_powersgd.c - rounds of PowerSGD over real connections: both phases, groups that fall
 * apart in one of them, peers of another rank, and strangers that report a false rank of the run.
 */
#include "test/unit/hivemind/loopback.h"
#include "net/hivemind/averaging/averager_internal.h"
#include "ref/rng.h"

#include <math.h>
#include <unistd.h>

#define ROWS 40
#define COLUMNS 100
#define RANK 4

struct answer {
    int come, rank;
    size_t votes;
};
static struct answer answers[PEERS];
static struct pl_rng lots[PEERS];

/* P = G Q is orthogonalized in float32: where the columns of a random first Q are nearly dependent,
 * the mean is off by far more than a rounding, as one in nine draws shows. So the draws are fixed. */
static int draw(void *context, uint8_t *bytes, size_t n)
{
    for (size_t i = 0; i < n; i++) bytes[i] = (uint8_t)pl_rng_below(context, 256);
    return PL_OK;
}

static struct peer *add_compressing(int client)
{
    struct peer *p = add(client, 0);
    pl_rng_init(&lots[p - peers], 1, (uint64_t)(p - peers));
    p->options.random = (struct random_source){ draw, &lots[p - peers] };
    p->options.powersgd = 1;
    return p;
}

static void compress_by(void *context)
{
    struct peer *p = context;
    p->status = averager_compress(p->a, p->tries, &p->err);
}

static void compress_all(int rank)
{
    for (size_t i = 0; i < count; i++) {
        peers[i].tries = rank;
        loop_call(loop, compress_by, &peers[i]);
        assert_int_equal(peers[i].status, PL_OK);
    }
}

/* Gradients of the factors' rank, with common columns: so is their mean, and a round finds all of
 * it. Of a lower rank PowerSGD's columns would be noise, normalised. */
static void fill_values(struct peer *p)
{
    const double scale = 1 + 0.5 * (double)(p - peers);
    for (size_t i = 0; i < VALUES; i++) {
        double sum = (double)(i % 97) / 97;
        if (i < ROWS * COLUMNS) sum = 0;
        for (int k = 1; i < ROWS * COLUMNS && k <= RANK; k++)
            sum += sin(k * (double)(i / COLUMNS)) * cos(k * (double)(i % COLUMNS));
        p->values[i] = (float)(scale * sum);
    }
}

static void fill_all(void)
{
    for (size_t i = 0; i < count; i++) fill_values(&peers[i]);
}

static double mean[VALUES];

static void mean_without(size_t skip)
{
    double weight = 0;
    memset(mean, 0, sizeof mean);
    for (size_t k = 0; k < count; k++) {
        if (k == skip) continue;
        for (size_t i = 0; i < VALUES; i++)
            mean[i] += peers[k].step.weight * (double)peers[k].values[i];
        weight += peers[k].step.weight;
    }
    for (size_t i = 0; i < VALUES; i++) mean[i] /= weight;
}

static void has_mean(const struct peer *p)
{
    double worst = 0;
    for (size_t i = 0; i < VALUES; i++) worst = fmax(worst, fabs((double)p->values[i] - mean[i]));
    if (!(worst < 1e-5))
        fail_msg("peer %d: %g off, attempts %d", (int)(p - peers), worst, p->attempts);
}

static void await_means(size_t n)
{
    for (size_t i = 0; i < n; i++) {
        assert_true(await(&peers[i].done, 1));
        if (peers[i].status) fail_msg("peer %zu: %s", i, peers[i].err.text);
        has_mean(&peers[i]);
    }
}

static void two_rounds(void **state)
{
    add_compressing(0), add_compressing(0), add_compressing(1), add_compressing(0);
    expect(count);
    open_all();
    compress_all(RANK);
    for (int round = 0; round < 2; round++) {
        fill_all();
        mean_without(SIZE_MAX);
        begin_all();
        await_means(count);
        /* P (40,4), and Q (100,4) with the 1000 values as they are. */
        assert_int_equal(peers[0].report.values, (ROWS + COLUMNS) * RANK + 1000);
        assert_int_equal(peers[0].report.received, peers[0].report.values);
        { /* the formula's 4 k (a + b) a matrix and 4 a value of the rest, from all but one to a
             part's owner and back; heads of messages add little */
            const double formula = 2.0 * (double)(count - 1) * sizeof(float) *
                                   ((ROWS + COLUMNS) * RANK + 1000);
            double sent = 0;
            for (size_t i = 0; i < count; i++) sent += (double)peers[i].report.bytes_out;
            if (sent < formula || sent > 1.1 * formula)
                fail_msg("%g bytes, expected %g", sent, formula);
        }
    }
}

/* At this rank no tensor is worth it: phase P is left out. */
static void nothing_to_compress(void **state)
{
    add_compressing(0), add_compressing(0);
    expect(count);
    open_all();
    compress_all(20);
    fill_all();
    mean_without(SIZE_MAX);
    begin_all();
    await_means(count);
    assert_int_equal(peers[0].report.values, VALUES);
}

static void spoil_start(void *context)
{
    struct factors_matrix *m = &((struct peer *)context)->a->powersgd.factors->matrix[0];
    for (int i = 0; i < m->b * RANK; i++) m->Q[i] *= 1e-14f;
}

/* A groupmate leaves between the phases. Nothing has changed for the others, which average in
 * another group, and count their gradients once. */
static void lost_between_phases(void **state)
{
    float gradient[VALUES];
    add_compressing(0), add_compressing(0), add_compressing(0);
    be_impatient(4, 3);
    expect(count);
    open_all();
    compress_all(RANK);
    fill_all();
    mean_without(2);
    memcpy(gradient, peers[0].values, sizeof gradient);
    /* Its P can be sent, its Q can not. */
    for (size_t i = 0; i < ROWS * COLUMNS; i++) peers[2].values[i] *= 1e16f;
    loop_call(loop, spoil_start, &peers[2]);
    begin_all();
    await_means(2);
    assert_true(await(&peers[2].done, 1));
    assert_int_equal(peers[2].status, PL_EFORMAT);
    assert_true(peers[0].attempts == 2 && peers[1].attempts == 2);
    for (int k = 0; k < ROWS * COLUMNS;
         k++) { /* the error is what its gradient and the mean differ by */
        const float error = peers[0].a->powersgd.factors->matrix[0].M[k];
        assert_true(fabs((double)error - ((double)gradient[k] - mean[k])) < 1e-5);
    }
}

/* Both form a group, since the rank is no part of the schema. It ends at once, in a sentence, and
 * no value has changed. */
static void two_ranks(void **state)
{
    float before[VALUES];
    add_compressing(0), add_compressing(0);
    expect(count);
    for (size_t i = 0; i < count; i++) peers[i].timeout = 20;
    open_all();
    compress_all(RANK);
    peers[1].tries = RANK + 1;
    loop_call(loop, compress_by, &peers[1]);
    fill_all();
    memcpy(before, peers[0].values, sizeof before);
    begin_all();
    for (size_t i = 0; i < count; i++) {
        assert_true(await(&peers[i].done, 1));
        assert_true(peers[i].status != PL_OK);
    }
    for (size_t i = 0; i < count; i++)
        if (!strstr(peers[i].err.text, "rank of PowerSGD")) fail_msg("%s", peers[i].err.text);
    assert_memory_equal(peers[0].values, before, sizeof before);
}

/* --- the run's rank --------------------------------------------------------------------------- */

static void on_rank(void *context, int rank, size_t votes)
{
    struct answer *a = context;
    a->rank = rank;
    a->votes = votes;
    note(&a->come);
}

static void ask(void *context)
{
    struct peer *p = context;
    p->status = averager_ask_rank(p->a, on_rank, &answers[p - peers]);
}

static struct answer asked(struct peer *p)
{
    struct answer *a = &answers[p - peers];
    memset(a, 0, sizeof *a);
    loop_call(loop, ask, p);
    assert_int_equal(p->status, PL_OK);
    assert_true(await(&a->come, 1));
    return *a;
}

static int has_factors_of(const struct peer *p, const struct peer *other)
{
    return !memcmp(p->a->powersgd.factors->matrix[0].Q, other->a->powersgd.factors->matrix[0].Q,
                   COLUMNS * RANK * sizeof(float));
}

/* One of three tells another rank. It does not choose the run's; nor do factors of another model
 * count at all. */
static void majority_decides_the_rank(void **state)
{
    struct answer a;
    for (int i = 0; i < 4; i++) add_compressing(0);
    open_all();
    a = asked(&peers[3]);
    assert_int_equal(a.votes, 0);
    compress_all(RANK);
    peers[0].tries = 9;
    loop_call(loop, compress_by, &peers[0]);
    for (int i = 0; i < 20; i++) { /* until all three are announced */
        a = asked(&peers[3]);
        if (a.votes == 2) break;
        usleep(200000);
    }
    assert_int_equal(a.votes, 2);
    assert_int_equal(a.rank, RANK);
    /* It begins with the factors of one of the two, as they are now. */
    peers[3].tries = a.rank;
    loop_call(loop, compress_by, &peers[3]);
    assert_int_equal(peers[3].status, PL_OK);
    assert_true(has_factors_of(&peers[3], &peers[1]) || has_factors_of(&peers[3], &peers[2]));
}

static void begin_early(void *context)
{
    struct peer *p = context;
    p->step.deadline = dht_node_time(p->dht) + 5;
    p->status = averager_begin(p->a, &p->step, on_done, p);
}

static void options(void **state)
{
    struct peer *p = add_compressing(0);
    open_all();
    loop_call(loop, begin_early, p);
    assert_int_equal(p->status, PL_EUSE); /* without a rank */
    p->tries = 0;
    loop_call(loop, compress_by, p);
    assert_int_equal(p->status, PL_EUSE);
    p = add_compressing(0);
    p->options.clip = 1;
    loop_call(loop, open_averager, p);
    assert_null(p->a);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(two_rounds, begin_test, end_test),
        cmocka_unit_test_setup_teardown(nothing_to_compress, begin_test, end_test),
        cmocka_unit_test_setup_teardown(lost_between_phases, begin_test, end_test),
        cmocka_unit_test_setup_teardown(two_ranks, begin_test, end_test),
        cmocka_unit_test_setup_teardown(majority_decides_the_rank, begin_test, end_test),
        cmocka_unit_test_setup_teardown(options, begin_test, end_test),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
