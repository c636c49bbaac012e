/* cuda_streams.c - CUDA's operations on host memory, on an emulated device: in chunks when little
 * memory is allowed, in every order that streams permit, from more threads than there are
 * pipelines, and on the host when there is no memory at all. Values are chosen so that sums are
 * exact in every order: all results but CenteredClip's equal the reference's bit for bit. */
#include <math.h>
#include <pthread.h>
#include <unistd.h>

#include "test/unit/unit.h"

#include "devices.h"

enum {
    N = 20001,
    PEERS = 5,
    D = 4001,
    ROWS = 59,
    WIDE = N / ROWS
};                               /* several chunks of what is allowed below, and a remainder */
#define LITTLE ((size_t)4 << 20) /* bytes: a pipeline stage then has 64 KiB */

static const long orders[] = { -1, -2, 1, 2, 3 }; /* early, late, seeds */

/* A part, and the results of a round's operations on it. */
struct part {
    float x[N], sum[N], delta[N], decoded[N], lookup[N], table[PL_CODES];
    uint8_t halves[2 * N + 1], codes[N]; /* halves start at an odd address, as in a packet */
    float row_mean[ROWS], row_deviation[ROWS], rows_back[N], quantile_table[PL_CODES];
    uint8_t row_halves[2 * N + 1], quantile_codes[N];
    float peers[PEERS * D], median[D];
    double v[D];
    struct pl_clip_result clipped;
};

static struct part *new_part(uint64_t seed)
{
    struct part *p = calloc(1, sizeof *p);
    struct pl_rng rng;
    assert_non_null(p);
    pl_rng_init(&rng, seed, 0);
    for (int i = 0; i < N; i++) {
        p->x[i] = (float)((int)(pl_rng_u64(&rng) % 2001) - 1000) / 1024;
        p->sum[i] = (float)((int)(pl_rng_u64(&rng) % 2001) - 1000) / 512;
    }
    for (int i = 0; i < PEERS * D; i++)
        p->peers[i] = (float)((int)(pl_rng_u64(&rng) % 201) - 100) / 64 + (float)(i / D == 4);
    return p;
}

static int work(struct part *p, const struct pl_backend *on)
{
    struct pl_clip how = { .tau = 30, .iterations = 6, .stop_norm = -1, .stop_largest = -1 };
    struct pl_coded halves = { .method = PL_COMPRESS_FLOAT16, .data = p->halves + 1 };
    struct pl_coded codes = { .method = PL_COMPRESS_UNIFORM8, .data = p->codes };
    int rc = on->float16_encode(p->halves + 1, p->x, N);
    if (!rc) rc = on->float16_decode(p->decoded, p->halves + 1, N);
    if (!rc) rc = on->uniform8_encode(p->codes, p->table, p->x, N);
    if (!rc) rc = on->table8_decode(p->lookup, p->codes, p->table, N);
    if (!rc) rc = on->quantile8_encode(p->quantile_codes, p->quantile_table, p->x, N);
    if (!rc)
        rc = on->meanstd16_encode(p->row_halves + 1, p->row_mean, p->row_deviation, p->x, ROWS,
                                  WIDE);
    if (!rc)
        rc = on->meanstd16_decode(p->rows_back, PL_F32, p->row_halves + 1, p->row_mean,
                                  p->row_deviation, ROWS, WIDE);
    memcpy(codes.table, p->table, sizeof codes.table);
    if (!rc) rc = on->average_add(p->sum, &halves, 1.7f, N);
    if (!rc) rc = on->average_add(p->sum, &codes, 0.3f, N);
    if (!rc) rc = on->average_delta(p->delta, p->sum, 2, &codes, N);
    if (!rc) rc = on->median(p->median, p->peers, PEERS, D, 0);
    for (int k = 0; k < D; k++) p->v[k] = p->median[k];
    return rc ? rc : on->centered_clip(p->v, &p->clipped, p->peers, NULL, PEERS, D, &how);
}

static void same(const struct part *a, const struct part *b)
{
    assert_memory_equal(a->halves, b->halves, sizeof a->halves);
    assert_memory_equal(a->codes, b->codes, sizeof a->codes);
    assert_memory_equal(a->table, b->table, sizeof a->table);
    assert_memory_equal(a->decoded, b->decoded, sizeof a->decoded);
    assert_memory_equal(a->lookup, b->lookup, sizeof a->lookup);
    assert_memory_equal(a->quantile_codes, b->quantile_codes, sizeof a->quantile_codes);
    assert_memory_equal(a->quantile_table, b->quantile_table, sizeof a->quantile_table);
    assert_memory_equal(a->row_mean, b->row_mean, sizeof a->row_mean);
    assert_memory_equal(a->row_deviation, b->row_deviation, sizeof a->row_deviation);
    assert_memory_equal(a->row_halves, b->row_halves, sizeof a->row_halves);
    assert_memory_equal(a->rows_back, b->rows_back, sizeof a->rows_back);
    assert_memory_equal(a->sum, b->sum, sizeof a->sum);
    assert_memory_equal(a->delta, b->delta, sizeof a->delta);
    assert_memory_equal(a->median, b->median, sizeof a->median);
    assert_int_equal(a->clipped.iterations, b->clipped.iterations);
    assert_int_equal(a->clipped.clipped, b->clipped.clipped);
    assert_true(a->clipped.clipped > 0);
    for (int k = 0; k < D; k++) /* the radius over a distance, a root, is not exact */
        assert_true(fabs(a->v[k] - b->v[k]) <= 1e-12 * sqrt(D) * 3);
}

static void in_pieces(void **state)
{
    struct part *want = new_part(1);
    if (!set_streams) {
        free(want);
        skip();
    }
    assert_int_equal(work(want, &host), PL_OK);
    for (size_t k = 0; k < PL_COUNT(orders); k++)
        for (int little = 0; little <= 1; little++) {
            struct part *got = new_part(1);
            set_streams(orders[k]);
            assert_int_equal(be.set_memory(little ? LITTLE : 0), PL_OK);
            assert_int_equal(work(got, &be), PL_OK);
            same(want, got);
            free(got);
        }
    assert_int_equal(be.set_memory(0), PL_OK);
    set_streams(-1);
    free(want);
}

struct worker {
    pthread_t thread;
    struct part *part;
    int rc;
};

static void *run(void *w_)
{
    struct worker *w = w_;
    w->rc = work(w->part, &be);
    return NULL;
}

/* While operations of a training step run in device memory. */
static void many_threads(void **state)
{
    struct worker workers[7];
    float *y, sum[8] = { 0 };
    if (!set_streams) skip();
    assert_non_null(y = be.alloc(8 * sizeof *y));
    for (size_t k = 0; k < 2; k++) {
        set_streams(orders[k]);
        assert_int_equal(be.fill(y, 0, 8), PL_OK);
        for (size_t i = 0; i < PL_COUNT(workers); i++) {
            workers[i].part = new_part(i + 1);
            assert_int_equal(pthread_create(&workers[i].thread, NULL, run, &workers[i]), 0);
        }
        for (int i = 0; i < 100; i++) {
            assert_int_equal(be.scale(y, 0.5f, 8), PL_OK);
            assert_int_equal(be.fill(y, (float)i, 8), PL_OK);
        }
        assert_int_equal(be.get(sum, y, sizeof sum), PL_OK);
        assert_true(sum[7] == 99);
        for (size_t i = 0; i < PL_COUNT(workers); i++) {
            struct part *want = new_part(i + 1);
            assert_int_equal(pthread_join(workers[i].thread, NULL), 0);
            assert_int_equal(workers[i].rc, PL_OK);
            assert_int_equal(work(want, &host), PL_OK);
            same(want, workers[i].part);
            free(want);
            free(workers[i].part);
        }
    }
    set_streams(-1);
    be.free(y);
}

/* A full device does not fail a round. */
static void no_memory(void **state)
{
    struct part *want = new_part(3), *got = new_part(3);
    if (set_streams) {
        assert_int_equal(be.set_memory(64), PL_OK);
        assert_null(be.alloc(65));
        assert_int_equal(work(want, &host), PL_OK);
        assert_int_equal(work(got, &be), PL_OK);
        same(want, got);
        assert_memory_equal(want->v, got->v, sizeof want->v);
        assert_int_equal(be.set_memory(0), PL_OK);
    }
    free(want);
    free(got);
    if (!set_streams) skip();
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(in_pieces), cmocka_unit_test(many_threads),
                                        cmocka_unit_test(no_memory) };
    return cmocka_run_group_tests(tests, open_device, NULL);
}
