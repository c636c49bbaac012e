/* conv_bf16.c - convolution by im2col, which only machines with AMX choose: here over AMX's GEMM by
 * its definition. Every operand ends where its memory does. */
#define FAST_BF16_PLAIN
#pragma GCC diagnostic ignored "-Wunknown-pragmas"
#pragma GCC diagnostic ignored "-Wpsabi"
#include "fast/conv_bf16.c"
#include "fast/gemm_bf16_amx.c"
#include "ref/rng.h"
#include "test/unit/data/exact_bytes.h"
#include "test/unit/unit.h"

#include <math.h>

static int has_amx = 1;
int fast_threads(void) { return 1; }
int fast_bf16(void) { return 1; }
int isa_has_amx(void) { return has_amx; }
int fast_bf16_multiply(const struct fast_bf16_gemm *g) { return fast_amx_multiply(g); }

/* Scratch that ends where an inaccessible page begins; freed at the end of the test. */
static struct {
    uint8_t *at;
    size_t bytes;
} scratch[64];
static int taken;

float *fast_scratch_alloc(size_t n)
{
    assert_true(taken < 64);
    scratch[taken].bytes = n * sizeof(float);
    scratch[taken].at = exact_alloc(n * sizeof(float));
    assert_non_null(scratch[taken].at);
    return (float *)(void *)scratch[taken++].at;
}

void fast_scratch_free(float *p) {}

static void free_scratch(void)
{
    while (taken--) exact_free(scratch[taken].at, scratch[taken].bytes);
    taken = 0;
}

const uint32_t *fast_packed_weights(const struct fast_packing *packing, size_t count,
                                    void (*pack)(uint32_t *to, const void *context),
                                    const void *context)
{
    return NULL; /* no operand is a registered weight */
}

static double rounded(float x)
{
    int e;
    double m = frexp(x, &e);
    return isfinite(x) ? ldexp(nearbyint(ldexp(m, 8)), e - 8) : (double)x;
}

static float *draw(size_t n, uint64_t stream)
{
    float *x = malloc(n * sizeof *x + 1); /* n may be 0 */
    struct pl_rng rng;
    pl_rng_init(&rng, 1, stream);
    for (size_t i = 0; i < n; i++) x[i] = (float)pl_rng_normal(&rng);
    return x;
}

/* The terms of y at (o, r, q) of an image, or of dx at (i, h, w): each tap whose other end exists. */
static void check(const struct pl_conv *c, int transposed)
{
    int H = pl_conv_height(c), W = pl_conv_width(c), K = c->K;
    size_t in = (size_t)c->C * (size_t)c->H * (size_t)c->W, out = (size_t)c->O * (size_t)(H * W);
    float *x = draw((size_t)c->B * in, 1), *dy = draw((size_t)c->B * out, 2);
    float *w = draw((size_t)c->O * (size_t)c->C * (size_t)(K * K), 3), *b = draw((size_t)c->O, 4);
    double *sum = calloc((size_t)c->B * (transposed ? in : out) + 1, 2 * sizeof *sum);
    float *got = transposed ? x : dy;
    for (int n = 0; n < c->B; n++)
        for (int o = 0; o < c->O; o++)
            for (int i = 0; i < c->C; i++)
                for (int r = 0; r < H; r++)
                    for (int q = 0; q < W; q++)
                        for (int t = 0; t < K * K; t++) {
                            int h = r * c->stride + t / K - c->top;
                            int v = q * c->stride + t % K - c->left;
                            if (h < 0 || h >= c->H || v < 0 || v >= c->W) continue;
                            size_t from = (size_t)n * in + (size_t)((i * c->H + h) * c->W + v);
                            size_t to = (size_t)n * out + (size_t)((o * H + r) * W + q);
                            double one = rounded(w[(o * c->C + i) * K * K + t]) *
                                         rounded(transposed ? dy[to] : x[from]);
                            double *at = sum + 2 * (transposed ? from : to);
                            at[0] += one;
                            at[1] += fabs(one);
                        }
    size_t count = (size_t)c->B * (transposed ? in : out);
    for (size_t k = 0; k < count; k++) got[k] = NAN; /* all of it is written */
    assert_int_equal(conv_bf16(got, transposed ? dy : x, w, transposed ? NULL : b, c, transposed),
                     PL_OK);
    for (size_t k = 0; k < count; k++) {
        double bias = transposed ? 0 : b[k / (size_t)(H * W) % (size_t)c->O];
        double bound = (K * K * (transposed ? c->O : c->C) + 8) * 0x1p-24 *
                       (sum[2 * k + 1] + fabs(bias));
        if (!(fabs(got[k] - sum[2 * k] - bias) <= bound))
            fail_msg("K %d, stride %d, value %zu: %g, not %g", K, c->stride, k, got[k],
                     sum[2 * k] + bias);
    }
    free(x), free(dy), free(w), free(b), free(sum);
    free_scratch();
}

/* B, C, H, W, O, K, stride, top, left, bottom, right */
static void every_border(void **state)
{
    static const struct pl_conv shapes[] = {
        { 2, 3, 5, 7, 17, 3, 1, 1, 1, 1, 1 },  { 1, 5, 6, 6, 16, 3, 2, 0, 0, 1, 1 },
        { 1, 64, 3, 2, 16, 1, 2, 0, 0, 0, 0 }, { 1, 4, 4, 4, 16, 4, 1, 1, 2, 2, 1 },
        { 1, 2, 3, 3, 16, 3, 1, 4, 3, 5, 3 }, /* padding beyond the kernel */
        { 1, 3, 2, 2, 33, 4, 3, 3, 0, 0, 3 },  { 1, 8, 1, 1, 16, 3, 1, 1, 1, 1, 1 },
        { 1, 2, 3, 50, 16, 3, 1, 2, 2, 2, 2 }, { 0, 8, 4, 4, 16, 3, 1, 1, 1, 1, 1 },
        { 1, 9, 3, 3, 1, 3, 1, 0, 0, 0, 0 },
    };
    for (size_t k = 0; k < PL_COUNT(shapes); k++) {
        check(&shapes[k], 0);
        if (is_convolution(&shapes[k])) check(&shapes[k], 1);
    }
}

/* Columns of all rows do not fit: the second piece begins at a later row, and is shorter. */
static void pieces_of_rows(void **state)
{
    struct pl_conv c = { 1, 256, 9, 128, 1, 3, 1, 1, 1, 1, 1 };
    assert_true((COLUMNS / (256 * 9 * 128)) == 7);
    check(&c, 0);
}

/* Only what is wide and deep enough, and gradients without negative padding. */
static void choice(void **state)
{
    struct pl_conv c = { 1, 8, 4, 4, 16, 3, 1, 1, 1, 1, 1 }, d = c;
    assert_true(conv_bf16_is_faster(&c, 0));
    assert_false(conv_bf16_is_faster(&c, 1)); /* 8 channels come out */
    d.C = 4, d.K = 4;                         /* 64 terms */
    assert_true(conv_bf16_is_faster(&d, 0));
    d.C = 7, d.K = 3;
    assert_false(conv_bf16_is_faster(&d, 0));
    d.C = 16;
    assert_true(conv_bf16_is_faster(&d, 1));
    for (int *side = &d.top; side <= &d.right; side++) {
        *side = 3;
        assert_false(conv_bf16_is_faster(&d, 1));
        assert_true(conv_bf16_is_faster(&d, 0));
        *side = 2;
        assert_true(conv_bf16_is_faster(&d, 1));
    }
    d.stride = 2;
    assert_false(conv_bf16_is_faster(&d, 1));
    has_amx = 0;
    assert_false(conv_bf16_is_faster(&c, 0));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_border),
        cmocka_unit_test(pieces_of_rows),
        cmocka_unit_test(choice),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
