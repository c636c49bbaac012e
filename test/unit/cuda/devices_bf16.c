/* devices_bf16.c - the bfloat16 copies that a device keeps: the parameters' working copy, and the
 * operands that GEMMs remember; and memory at any alignment, in both precisions. On an emulated
 * device. */
#include "runtime/transfer.h"
#include "runtime/optimizer.h"
#include "ref/model/params.h"
#include "test/unit/unit.h"

#include <math.h>

#include "devices.h"

/* --- parameters in bfloat16 ------------------------------------------------------------------- */

enum { M = 3, K = 40, N = 8 };

/* A GEMM with W, registered as parameters, and with the same values elsewhere: the same bits. */
static void same_product(const float *x, const float *W, float *elsewhere, float *y)
{
    float a[M * N], b[M * N];
    assert_int_equal(be.linear(y, x, W, NULL, M, K, N), PL_OK);
    assert_int_equal(be.get(a, y, sizeof a), PL_OK);
    assert_int_equal(be.copy(elsewhere, W, K * N), PL_OK);
    assert_int_equal(be.linear(y, x, elsewhere, NULL, M, K, N), PL_OK);
    assert_int_equal(be.get(b, y, sizeof b), PL_OK);
    assert_memory_equal(a, b, sizeof a);
}

static void working_copy_follows(void **state)
{
    struct pl_params p = { .count = 0 };
    const int64_t shape[] = { N, K }, more[] = { 3 };
    struct pl_optimizer_options adam = pl_adam_options(0, 32), lamb = pl_lamb_options();
    struct pl_optimizer *o;
    float *x, *y, *elsewhere, *W, values[K * N], full[M * N], rounded[M * N];
    double difference = 0, square = 0;
    uint64_t ticket;
    if (!set_streams) skip();
    assert_int_equal(pl_params_add(&p, "first", 1, more, 0), PL_OK);
    assert_int_equal(pl_params_add(&p, "w", 2, shape, 1), PL_OK);
    assert_int_equal(pl_params_allocate(&p, &be, 1), PL_OK);
    W = pl_params_value(&p, 1);
    x = be.alloc(M * K * sizeof *x);
    y = be.alloc(M * N * sizeof *y);
    elsewhere = be.alloc(K * N * sizeof *y);
    normal(values, K * N, 1);
    assert_int_equal(be.put(x, values, M * K * sizeof *x), PL_OK);
    assert_int_equal(be.put(W, values, sizeof values), PL_OK);
    assert_int_equal(be.linear(y, x, W, NULL, M, K, N), PL_OK);
    assert_int_equal(be.get(full, y, sizeof full), PL_OK);
    assert_int_equal(be.set_precision(PL_BF16), PL_OK);
    assert_int_equal(be.linear(y, x, W, NULL, M, K, N), PL_OK);
    assert_int_equal(be.get(rounded, y, sizeof rounded), PL_OK);
    for (int i = 0; i < M * N; i++) {
        difference += (rounded[i] - full[i]) * (rounded[i] - full[i]);
        square += full[i] * full[i];
    }
    assert_true(difference > 0 &&
                sqrt(difference) < 0x1p-7 * sqrt(square)); /* two roundings of 2^-9 */
    same_product(x, W, elsewhere, y);
    normal(values, K * N, 2); /* each way in which parameters change */
    assert_int_equal(be.put(W, values, sizeof values), PL_OK);
    same_product(x, W, elsewhere, y);
    assert_int_equal(be.axpy(W, 0.5f, x, 20), PL_OK);
    same_product(x, W, elsewhere, y);
    assert_int_equal(be.scale(W, 3, 20), PL_OK);
    same_product(x, W, elsewhere, y);
    assert_int_equal(be.copy(W, x, 20), PL_OK);
    same_product(x, W, elsewhere, y);
    assert_int_equal(pl_params_constant(&p, 1, 0.3f), PL_OK);
    same_product(x, W, elsewhere, y);
    normal(values, K * N, 3);
    assert_int_equal(pl_put_begin(&be, &ticket, W, values, sizeof values), PL_OK);
    assert_int_equal(pl_copy_join(&be), PL_OK);
    same_product(x, W, elsewhere, y);
    assert_int_equal(be.put(pl_params_grad(&p, 1), values, sizeof values), PL_OK);
    assert_int_equal(pl_optimizer_open_params(&o, &p, &adam, NULL), PL_OK);
    assert_int_equal(pl_optimizer_step(o, p.value, p.grad, 0.1), PL_OK);
    pl_optimizer_close(o);
    same_product(x, W, elsewhere, y);
    assert_int_equal(pl_optimizer_open_params(&o, &p, &lamb, NULL), PL_OK);
    assert_int_equal(pl_optimizer_step(o, p.value, p.grad, 0.1), PL_OK);
    pl_optimizer_close(o);
    same_product(x, W, elsewhere, y);
    assert_int_equal(be.set_precision(PL_FLOAT32), PL_OK);
    pl_params_clear(&p);
    be.free(x);
    be.free(y);
    be.free(elsewhere);
}

/* --- operands that GEMMs remember in bfloat16 ------------------------------------------------- */

enum { ROWS = 6, WIDE = 16, OUT = 8 }; /* x (ROWS,WIDE), W (OUT,WIDE) */

/* A GEMM with x, whether its rounding is known or not, and with the same values elsewhere: the same
 * bits. */
static void same_with(const float *x, const float *W, float *elsewhere, float *y, int line)
{
    float a[ROWS * OUT], b[ROWS * OUT];
    assert_int_equal(be.linear(y, x, W, NULL, ROWS, WIDE, OUT), PL_OK);
    assert_int_equal(be.get(a, y, sizeof a), PL_OK);
    assert_int_equal(be.copy(elsewhere, x, ROWS * WIDE), PL_OK);
    assert_int_equal(be.linear(y, elsewhere, W, NULL, ROWS, WIDE, OUT), PL_OK);
    assert_int_equal(be.get(b, y, sizeof b), PL_OK);
    if (memcmp(a, b, sizeof a)) fail_msg("after line %d a product read old values", line);
}

/* shift leaves x in bfloat16; then `how` changes x, and a GEMM reads it. */
#define FOLLOWS(how) \
    do { \
        assert_int_equal(be.shift(x, from, 1, ROWS, WIDE, 2, 2), PL_OK); \
        assert_int_equal(how, PL_OK); \
        same_with(x, W, elsewhere, y, __LINE__); \
    } while (0)

static int other_precision(float *x, const float *from, const float *W)
{
    struct pl_ffn w = { (float *)W, (float *)W, (float *)W, (float *)W };
    int rc = be.set_precision(PL_FLOAT32);
    if (!rc) rc = be.ffn(x, NULL, from, &w, ROWS, 2, 4);
    return rc ? rc : be.set_precision(PL_BF16);
}

static void rounded_copies_follow_their_values(void **state)
{
    enum { SIZE = ROWS * WIDE, BYTES = SIZE * sizeof(float), LARGE = 1 << 22 };
    float values[3 * SIZE], *x, *from, *W, *y, *elsewhere, *dy, *again, *qkv;
    float a[SIZE], b[SIZE], *last;
    struct pl_ffn layer, gradient;
    uint64_t ticket;
    if (!set_streams) skip();
    be.free(be.alloc(LARGE));
    x = be.alloc(LARGE); /* alloc will most likely return this address again after it is freed */
    from = be.alloc(2 * BYTES);
    W = be.alloc(2 * BYTES);
    y = be.alloc(BYTES);
    dy = be.alloc(BYTES);
    elsewhere = be.alloc(BYTES);
    qkv = be.alloc(3 * BYTES);
    assert_true(x && from && W && y && dy && elsewhere && qkv);
    last = x + (ROWS - 2) * WIDE;
    layer = (struct pl_ffn){ W, from, W, from };
    gradient = (struct pl_ffn){ dy, dy, dy, dy };
    normal(values, 3 * SIZE, 7);
    assert_int_equal(be.put(from, values, 2 * BYTES), PL_OK);
    assert_int_equal(be.put(qkv, values, 3 * BYTES), PL_OK);
    assert_int_equal(be.put(W, values + 3, OUT * WIDE * sizeof *W), PL_OK);
    assert_int_equal(be.set_precision(PL_BF16), PL_OK);
    FOLLOWS(PL_OK);
    FOLLOWS(be.put(x + 3, values, 20));
    FOLLOWS(pl_put_begin(&be, &ticket, x + 3, values, 20) || pl_copy_join(&be));
    FOLLOWS(be.scale(x, 3, 2));
    FOLLOWS(be.axpy(x, 1, from, SIZE));
    FOLLOWS(be.fill(x + SIZE - 1, 1, 1));
    FOLLOWS(be.layer_norm(x, x, from, from + WIDE, ROWS, WIDE, 1e-5f));
    /* GEMMs that know their operand, and overwrite other rows of it */
    FOLLOWS(be.linear(last, x, W, NULL, 2, WIDE, OUT));
    FOLLOWS(be.linear_dx(last, x, W, 2, WIDE, OUT, 0));
    FOLLOWS(be.linear_dw(last, NULL, x, from, 2, 4, 8));
    FOLLOWS(be.linear_dw(dy, last, x, from, 2, 4, 8));
    FOLLOWS(be.ffn(last, NULL, x, &layer, 2, WIDE, 2));
    FOLLOWS(be.ffn_backward(NULL, last, &gradient, from, NULL, x, &layer, 2, WIDE, 2));
    FOLLOWS(other_precision(x, from, W));
    /* what attention leaves, two channels at a time and one */
    for (int d = 1; d <= 8; d += 7) {
        struct pl_mask causal = { .kind = PL_MASK_FULL, .P = ROWS };
        assert_int_equal(be.attention(x, NULL, qkv, 1, ROWS, WIDE / d, d, &causal, NULL), PL_OK);
        same_with(x, W, elsewhere, y, __LINE__);
        /* its rounding slot holds other values */
        assert_int_equal(be.linear(y, W, from, NULL, ROWS, WIDE, OUT), PL_OK);
        assert_int_equal(be.attention(x + 1, NULL, qkv, 1, ROWS, WIDE / d, d, &causal, NULL),
                         PL_OK);
        same_with(x + 1, W, elsewhere, y, __LINE__);
    }
    /* a gradient that both GEMMs read, and one that an inverse rotation leaves */
    for (int back = 0; back < 2; back++) {
        assert_int_equal(be.copy(dy, from, SIZE), PL_OK);
        if (back) assert_int_equal(be.rotary(dy, from, from, 1, ROWS, 2, 4, 4, 1), PL_OK);
        assert_int_equal(be.copy(y, from, SIZE), PL_OK);
        assert_int_equal(be.linear_dw(y, back ? NULL : x, dy, from, ROWS, 4, OUT), PL_OK);
        assert_int_equal(be.linear_dx(elsewhere, dy, W, ROWS, WIDE, OUT, 0), PL_OK);
        assert_int_equal(be.get(a, elsewhere, BYTES), PL_OK);
        assert_int_equal(be.scale(dy, 1, SIZE), PL_OK); /* nothing is known from here on */
        assert_int_equal(be.linear_dx(elsewhere, dy, W, ROWS, WIDE, OUT, 0), PL_OK);
        assert_int_equal(be.get(b, elsewhere, BYTES), PL_OK);
        assert_memory_equal(a, b, BYTES);
    }
    /* memory that was freed and allocated again for something else */
    assert_int_equal(be.shift(x, from, 1, ROWS, WIDE, 2, 2), PL_OK);
    be.free(x);
    again = be.alloc(LARGE);
    assert_non_null(again);
    same_with(again, W, elsewhere, y, __LINE__);
    assert_int_equal(be.set_precision(PL_FLOAT32), PL_OK);
    be.free(again);
    be.free(from);
    be.free(W);
    be.free(y);
    be.free(dy);
    be.free(elsewhere);
    be.free(qkv);
}

/* --- memory at any alignment ------------------------------------------------------------------ */

/* Every operation with vectorized kernels, in each side's own memory: at[k] (FLOATS) each, starting
 * at any float. */
enum { TALL = 21, BROAD = 48, FLOATS = 2 * TALL * BROAD, ANYWHERE = 8 };

static void step_through(const struct pl_backend *b, float *const at[ANYWHERE], const int32_t *ids,
                         uint8_t *code[2], float *absmax[2])
{
    struct pl_lamb lamb = {
        .lr = 0.1, .beta1 = 0.9, .beta2 = 0.96, .eps = 1e-6, .decay = 0.045, .clamp = 1e4, .clip = 1
    };
    struct pl_adam adam = {
        .lr = 0.1, .beta1 = 0.9, .beta2 = 0.999, .eps = 1e-3, .bias1 = 1, .bias2 = 1, .clip = 1
    };
    struct pl_moments coded = { .code = { code[0], code[1] },
                                .absmax = { absmax[0], absmax[1] },
                                .block = 64,
                                .rule = PL_RULE_RUN };
    struct pl_moments plain = { .value = { at[6], at[7] } };
    struct pl_lamb_norms norms;
    size_t n = TALL * BROAD;
    double sum;
    float book[PL_CODES];
    pl_codebook(book, PL_MAP_SIGNED, PL_RULE_RUN);
    assert_int_equal(b->fill(at[5], 0.5f, n - 1), PL_OK);
    assert_int_equal(b->axpy(at[5], 0.3f, at[0], n - 2), PL_OK);
    assert_int_equal(b->scale(at[5], 1.5f, n - 3), PL_OK);
    assert_int_equal(b->sumsq(&sum, at[5], n), PL_OK);
    assert_int_equal(b->fill(at[5], (float)sum / (float)n, 1), PL_OK); /* compared, too */
    assert_int_equal(b->embed(at[4], at[0], ids, TALL, BROAD, TALL), PL_OK);
    assert_int_equal(b->layer_norm(at[4], at[4], at[1], at[2], TALL, BROAD, 1e-5f), PL_OK);
    assert_int_equal(b->layer_norm_backward(at[4], at[2], at[3], at[1], at[0], at[5], TALL, BROAD,
                                            1e-5f, 1),
                     PL_OK);
    assert_int_equal(b->layer_norm(at[3], at[4], at[1], at[2], TALL, BROAD, 1e-5f), PL_OK);
    assert_int_equal(b->scale_add(at[5], at[4], at[1], TALL, BROAD, -1), PL_OK);
    assert_int_equal(b->layer_scale_backward(at[5], at[3], at[5], at[4], at[1], TALL, BROAD),
                     PL_OK);
    assert_int_equal(b->shift(at[4], at[5], 1, TALL, BROAD, 5, 4), PL_OK);
    assert_int_equal(b->shift_backward(at[5], at[4], 1, TALL, BROAD, 5, 4), PL_OK);
    assert_int_equal(b->rotary(at[5], at[0], at[1], 1, TALL, 6, 8, 6, 1), PL_OK);
    assert_int_equal(b->linear(at[0], at[4], at[5], at[1], TALL, BROAD, 12), PL_OK);
    assert_int_equal(b->linear_dw(at[2], at[3], at[4], at[5], TALL, 8, BROAD), PL_OK);
    assert_int_equal(b->geglu(at[4], at[0], TALL, BROAD), PL_OK);
    assert_int_equal(b->geglu_backward(at[0], at[4], at[0], TALL, BROAD), PL_OK);
    assert_int_equal(b->lamb(&norms, at[2], at[3], at[1], &plain, n - 1, &lamb), PL_OK);
    assert_int_equal(b->adam(at[2], at[1], &plain, n - 1, &adam), PL_OK);
    assert_int_equal(b->quantize(code[0], absmax[0], at[6], n, 64, PL_MAP_SIGNED, PL_RULE_RUN),
                     PL_OK);
    assert_int_equal(b->quantize(code[1], absmax[1], at[7], n, 64, PL_MAP_UNSIGNED, PL_RULE_RUN),
                     PL_OK);
    assert_int_equal(b->dequantize(at[6], code[0], absmax[0], n, 64, book), PL_OK);
    assert_int_equal(b->lamb(&norms, at[2], at[3], at[1], &coded, n - 1, &lamb), PL_OK);
    assert_int_equal(b->adam(at[2], at[1], &coded, n - 1, &adam), PL_OK);
}

/* How many floats past alloc's address buffer k begins; the codes of both moments follow the
 * floats' buffers. First all aligned; then all offset, by different amounts; then each alone. */
static int floats_offset(int run, int k)
{
    if (run > 3) return run - 4 == k;
    return run && k < ANYWHERE ? (run + k) % 4 : run;
}

static void begins_anywhere(void **state)
{
    static float mine[ANYWHERE][FLOATS + 4], theirs[FLOATS];
    static uint8_t codes[2][FLOATS];
    float scales[2][FLOATS], *at[ANYWHERE], *base[ANYWHERE], *absmax[2];
    int32_t ids[TALL], *device_ids;
    uint8_t *code[2];
    if (!set_streams) skip();
    for (int i = 0; i < TALL; i++) ids[i] = i * 5 % TALL;
    device_ids = be.alloc(sizeof ids);
    assert_int_equal(be.put(device_ids, ids, sizeof ids), PL_OK);
    for (int run = 0; run < 4 + ANYWHERE + 2; run++) {
        for (int k = 0; k < ANYWHERE; k++) {
            normal(mine[k], FLOATS, 50 + (uint64_t)k);
            for (int i = 0; k == 7 && i < FLOATS; i++) mine[k][i] = fabsf(mine[k][i]);
            base[k] = be.alloc((FLOATS + 4) * sizeof(float));
            at[k] = base[k] + floats_offset(run, k);
            assert_int_equal(be.put(at[k], mine[k], FLOATS * sizeof(float)), PL_OK);
        }
        for (int k = 0; k < 2; k++) {
            code[k] = be.alloc(FLOATS + 4);
            absmax[k] = be.alloc(FLOATS * sizeof(float));
        }
        step_through(&be, at, device_ids,
                     (uint8_t *[]){ code[0] + floats_offset(run, ANYWHERE),
                                    code[1] + floats_offset(run, ANYWHERE + 1) },
                     absmax);
        step_through(&host,
                     (float *[]){ mine[0], mine[1], mine[2], mine[3], mine[4], mine[5], mine[6],
                                  mine[7] },
                     ids, (uint8_t *[]){ codes[0], codes[1] }, (float *[]){ scales[0], scales[1] });
        for (int k = 0; k < ANYWHERE; k++) {
            assert_int_equal(be.get(theirs, at[k], FLOATS * sizeof(float)), PL_OK);
            for (int i = 0; i < FLOATS; i++)
                if (!(fabsf(theirs[i] - mine[k][i]) <= 1e-3f * (1 + fabsf(mine[k][i]))))
                    fail_msg("run %d: buffer %d, %d: %g, expected %g", run, k, i, (double)theirs[i],
                             (double)mine[k][i]);
            be.free(base[k]);
        }
        for (int k = 0; k < 2; k++) be.free(code[k]), be.free(absmax[k]);
    }
    be.free(device_ids);
}

/* Attention on tensor cores reads and writes two channels at a time where they are aligned for it:
 * the same bits from any float on. */
static void attention_begins_anywhere(void **state)
{
    enum { POSITIONS = 20, HEADS = 2, D = 6, ALL = POSITIONS * HEADS * D };
    static float values[3 * ALL], out[2][3 * ALL], made[2][ALL];
    struct pl_mask mask = { .kind = PL_MASK_COL, .P = 5, .F = 4 };
    if (!set_streams) skip();
    normal(values, 3 * ALL, 21);
    assert_int_equal(be.set_precision(PL_BF16), PL_OK);
    for (int off = 0; off < 2; off++) {
        float *memory[5], *qkv, *o, *dout, *dqkv, *lse;
        for (int k = 0; k < 5; k++) memory[k] = be.alloc((3 * ALL + 1) * sizeof(float));
        qkv = memory[0] + off, o = memory[1] + off, dout = memory[2] + off, dqkv = memory[3] + off;
        lse = memory[4];
        assert_int_equal(be.put(qkv, values, sizeof values), PL_OK);
        assert_int_equal(be.put(dout, values + ALL, ALL * sizeof(float)), PL_OK);
        assert_int_equal(be.attention(o, lse, qkv, 1, POSITIONS, HEADS, D, &mask, NULL), PL_OK);
        assert_int_equal(be.attention_backward(dqkv, dout, qkv, o, lse, 1, POSITIONS, HEADS, D,
                                               &mask, NULL),
                         PL_OK);
        assert_int_equal(be.get(made[off], o, sizeof made[off]), PL_OK);
        assert_int_equal(be.get(out[off], dqkv, sizeof out[off]), PL_OK);
        for (int k = 0; k < 5; k++) be.free(memory[k]);
    }
    assert_int_equal(be.set_precision(PL_FLOAT32), PL_OK);
    assert_memory_equal(made[0], made[1], sizeof made[0]);
    assert_memory_equal(out[0], out[1], sizeof out[0]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(working_copy_follows),
        cmocka_unit_test(rounded_copies_follow_their_values),
        cmocka_unit_test(begins_anywhere),
        cmocka_unit_test(attention_begins_anywhere),
    };
    return cmocka_run_group_tests(tests, open_devices, NULL);
}
