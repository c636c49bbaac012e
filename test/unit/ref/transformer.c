/* transformer.c - the reference's layers beyond the golden values: every gradient against
 * differences of its own forward pass, empty rows, shared buffers, shapes at the edge. */
#include "ref/backend.h"
#include "ref/rng.h"
#include "test/unit/unit.h"

#include <math.h>

static struct pl_rng rng;

static int seed(void **state)
{
    pl_rng_init(&rng, 11, 0);
    return 0;
}

static void normal(float *x, size_t n)
{
    for (size_t i = 0; i < n; i++) x[i] = (float)pl_rng_normal(&rng);
}

static double product(const float *a, const float *b, size_t n)
{
    double sum = 0;
    for (size_t i = 0; i < n; i++) sum += (double)a[i] * b[i];
    return sum;
}

/* The function that is differentiated: a sum of outputs times fixed numbers, in double. */
typedef double value_fn(void *of);

/* Gradient g of f over the n inputs x, against central differences. Steps of 2^-6 leave an error of
 * about h^2/6 of the third derivative, plus the rounding of float32 results. */
static void slopes(const char *what, value_fn *f, void *of, float *x, const float *g, size_t n,
                   double allowed)
{
    const float h = 0x1p-6f;
    for (size_t i = 0; i < n; i++) {
        float was = x[i];
        double far[4], d1, d2;
        for (int k = 0; k < 4; k++) {
            static const float at[] = { 1, -1, 2, -2 };
            x[i] = was + at[k] * h;
            far[k] = f(of);
        }
        x[i] = was;
        d1 = (far[0] - far[1]) / (2 * h);
        d2 = (far[2] - far[3]) / (4 * h);
        d1 = (4 * d1 - d2) / 3; /* the h^2 term falls out */
        if (!(fabs(d1 - g[i]) <= allowed))
            fail_msg("%s[%zu]: gradient %g, differences say %g", what, i, (double)g[i], d1);
    }
}

/* ------------------------------------------------------------------------------- activations */

struct activation {
    enum pl_activation kind;
    float x[40], dy[40];
};

static double activation_value(void *of)
{
    struct activation *a = of;
    float y[40];
    ref_activation(y, a->x, 40, a->kind);
    return product(y, a->dy, 40);
}

static void activations(void **state)
{
    static const float at[] = { -100, -2, -0.5f, 0, 0.5f, 2, 100 };
    static const float want[4][7] = {
        /* from the definitions, in double */
        { 0, -0.0455002639f, -0.1542687694f, 0, 0.3457312306f, 1.9544997361f, 100 },
        { 0, -0.0454023059f, -0.1542859902f, 0, 0.3457140098f, 1.9545976941f, 100 },
        { 0, -0.0643413769f, -0.1496115634f, 0, 0.3503884366f, 1.9356586231f, 100 },
        { 0, -0.2384058440f, -0.1887703344f, 0, 0.3112296656f, 1.7615941560f, 100 },
    };
    for (int kind = PL_GELU; kind <= PL_SWISH; kind++) {
        struct activation a = { .kind = (enum pl_activation)kind };
        float y[7], dx[40];
        ref_activation(y, at, 7, a.kind);
        for (int i = 0; i < 7; i++) assert_float_equal(y[i], want[kind][i], 2e-7);
        normal(a.x, 40);
        normal(a.dy, 40);
        memcpy(dx, a.dy, sizeof dx);
        ref_activation_backward(dx, dx, a.x, 40, a.kind); /* dx may be dy */
        slopes("activation", activation_value, &a, a.x, dx, 40, 3e-5);
        memcpy(dx, a.x, sizeof dx);
        ref_activation(dx, dx, 40, a.kind); /* y may be x */
        assert_float_equal(product(dx, a.dy, 40), activation_value(&a), 0);
    }
}

static void geglu_in_place(void **state)
{
    float z[3 * 10], dy[3 * 5], dz[3 * 10];
    normal(z, 30);
    normal(dy, 15);
    ref_geglu_backward(dz, dy, z, 3, 5);
    ref_geglu_backward(z, dy, z, 3, 5);
    assert_memory_equal(z, dz, sizeof z);
}

/* ------------------------------------------------------------------------------------- norm */

enum { NORM_M = 3, NORM_D = 7 };

struct norm {
    float x[NORM_M * NORM_D], dy[NORM_M * NORM_D], weight[NORM_D], bias[NORM_D];
};

static double norm_value(void *of)
{
    struct norm *n = of;
    float y[NORM_M * NORM_D];
    ref_layer_norm(y, n->x, n->weight, n->bias, NORM_M, NORM_D, 1e-5f);
    return product(y, n->dy, NORM_M * NORM_D);
}

static void layer_norm(void **state)
{
    struct norm n;
    float dx[NORM_M * NORM_D], added[NORM_M * NORM_D], dweight[NORM_D] = { 0 },
                                                       dbias[NORM_D] = { 0 };
    normal(n.x, NORM_M * NORM_D);
    normal(n.dy, NORM_M * NORM_D);
    normal(n.weight, NORM_D);
    normal(n.bias, NORM_D);
    ref_layer_norm_backward(dx, dweight, dbias, n.dy, n.x, n.weight, NORM_M, NORM_D, 1e-5f, 0);
    slopes("x", norm_value, &n, n.x, dx, NORM_M * NORM_D, 2e-4);
    slopes("weight", norm_value, &n, n.weight, dweight, NORM_D, 1e-4);
    slopes("bias", norm_value, &n, n.bias, dbias, NORM_D, 1e-4);

    for (int i = 0; i < NORM_M * NORM_D; i++) added[i] = 8;
    ref_layer_norm_backward(added, dweight, dbias, n.dy, n.x, n.weight, NORM_M, NORM_D, 1e-5f, 1);
    for (int i = 0; i < NORM_M * NORM_D; i++) assert_float_equal(added[i], 8 + dx[i], 1e-6);
    ref_layer_norm_backward(n.dy, dweight, dbias, n.dy, n.x, n.weight, NORM_M, NORM_D, 1e-5f, 0);
    assert_memory_equal(n.dy, dx, sizeof dx); /* dx may be dy */
}

/* ------------------------------------------------------------------------------------ shift */

/* The backward pass is the forward pass transposed: <shift x, y> = <x, shift' y>. */
static void shift(void **state)
{
    enum { B = 2, MOST = 3 + 9, WIDE = 9 };
    for (int D = 1; D <= WIDE; D++)
        for (int n = 1; n <= MOST; n++) {
            float x[B * MOST * WIDE], y[B * MOST * WIDE], out[B * MOST * WIDE],
                back[B * MOST * WIDE];
            size_t all = (size_t)(B * n * D);
            normal(x, all);
            normal(y, all);
            assert_int_equal(ref_shift(out, x, B, n, D, 3, 3), PL_OK);
            assert_int_equal(ref_shift_backward(back, y, B, n, D, 3, 3), PL_OK);
            assert_float_equal(product(out, y, all), product(x, back, all), 1e-5);
            for (int b = 0; b < B; b++) /* the start token has nothing before it */
                for (int c = 0; c < D; c++) {
                    float want = c < (D + 1) / 2 ? 0 : x[b * n * D + c];
                    assert_true(out[b * n * D + c] == want);
                }
        }
}

static void embedding(void **state)
{
    static const int32_t ids[] = { 2, 0, 2, 2 };
    float table[3 * 2] = { 1, 2, 3, 4, 5, 6 }, y[8], d[6] = { 1, 1, 1, 1, 1, 1 };
    const float dy[8] = { 1, 2, 10, 20, 100, 200, 1000, 2000 };
    ref_embed(y, table, ids, 4, 2, 3);
    assert_memory_equal(y, ((float[]){ 5, 6, 1, 2, 5, 6, 5, 6 }), sizeof y);
    ref_embed_backward(d, dy, ids, 4, 2, 3);
    assert_memory_equal(d, ((float[]){ 11, 21, 1, 1, 1102, 2203 }), sizeof d);
}

/* -------------------------------------------------------------------------------- attention */

enum { AB = 2, AN = 9, AH = 2, AD = 4, A_QKV = AB * AN * 3 * AH * AD, A_O = AB * AN * AH * AD };

struct attention {
    struct pl_mask mask;
    const uint8_t *key_mask;
    float qkv[A_QKV], dout[A_O];
};

static double attention_value(void *of)
{
    struct attention *a = of;
    float o[A_O];
    ref_attention(o, NULL, a->qkv, AB, AN, AH, AD, &a->mask, a->key_mask);
    return product(o, a->dout, A_O);
}

/* Positions 0..2 are text, 3..8 cells of a 3-wide grid. */
static void attention_slopes(void **state)
{
    static const char *const names[] = { "full",  "axial_row",  "axial_col",
                                         "conv3", "conv3_v166", NULL };
    /* of two sequences; (B,n) for full and none, of which the other kinds read the first (B,P) */
    static const uint8_t hidden[AB * AN] = { 0, 1, 0, 1, 1, 0, 1, 1, 0, 1, 0, 0, 0, 1, 1, 0, 0, 1 };
    static const uint8_t blind[AB * AN] = { 0 };
    static const uint8_t *const masks[] = { NULL, hidden, blind };
    for (size_t i = 0; i < PL_COUNT(names); i++)
        for (size_t k = 0; k < PL_COUNT(masks); k++) {
            struct attention a = { .mask = { .kind = PL_MASK_NONE }, .key_mask = masks[k] };
            float o[A_O], lse[AB * AH * AN], dqkv[A_QKV];
            if (names[i]) assert_int_equal(pl_mask_parse(&a.mask, names[i], NULL), PL_OK);
            a.mask.P = a.mask.F = 3;
            normal(a.qkv, A_QKV);
            normal(a.dout, A_O);
            assert_int_equal(ref_attention(o, lse, a.qkv, AB, AN, AH, AD, &a.mask, a.key_mask),
                             PL_OK);
            assert_int_equal(ref_attention_backward(dqkv, a.dout, a.qkv, o, lse, AB, AN, AH, AD,
                                                    &a.mask, a.key_mask),
                             PL_OK);
            slopes(names[i] ? names[i] : "none", attention_value, &a, a.qkv, dqkv, A_QKV, 1e-4);
        }
}

/* A query without keys: the mean of all values, later ones too. */
static void query_without_keys_takes_the_mean(void **state)
{
    static const uint8_t key_mask[AB * AN] = {
        0, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1
    };
    struct pl_mask mask = { .kind = PL_MASK_FULL, .P = 3, .F = 3 };
    float qkv[A_QKV], o[A_O], lse[AB * AH * AN];
    normal(qkv, A_QKV);
    ref_attention(o, lse, qkv, AB, AN, AH, AD, &mask, key_mask);
    for (int h = 0; h < AH; h++) {
        assert_float_equal(lse[h * AN], log(AN), 1e-6);
        for (int i = 0; i < AD; i++) {
            double mean = 0;
            for (int p = 0; p < AN; p++) mean += qkv[((p * 3 + 2) * AH + h) * AD + i] / (double)AN;
            assert_float_equal(o[h * AD + i], mean, 1e-6);
        }
    }
}

static void attention_steps(void **state)
{
    static const char *const names[] = { "full", "axial_row", "axial_col", "conv3",
                                         "conv3d2_v166" };
    for (size_t i = 0; i < PL_COUNT(names); i++) {
        struct pl_mask mask = { .P = 3, .F = 3 };
        float qkv[A_QKV], o[A_O], step[AB * AH * AD], one[AB * 3 * AH * AD];
        float k_cache[AB * AH * AN * AD], v_cache[AB * AH * AN * AD];
        assert_int_equal(pl_mask_parse(&mask, names[i], NULL), PL_OK);
        normal(qkv, A_QKV);
        ref_attention(o, NULL, qkv, AB, AN, AH, AD, &mask, NULL);
        for (size_t k = 0; k < PL_COUNT(k_cache); k++)
            k_cache[k] = v_cache[k] = NAN; /* never read */
        for (int p = 0; p < AN; p++) {
            enum { ROW = 3 * AH * AD };
            for (int b = 0; b < AB; b++)
                memcpy(one + b * ROW, qkv + (b * AN + p) * ROW, ROW * sizeof *one);
            assert_int_equal(ref_attention_step(step, k_cache, v_cache, one, AB, AN, AH, AD, p,
                                                &mask),
                             PL_OK);
            for (int b = 0; b < AB; b++)
                assert_memory_equal(step + b * AH * AD, o + (b * AN + p) * AH * AD,
                                    AH * AD * sizeof *o);
        }
    }
}

/* ------------------------------------------------------------------------------------- loss */

enum { LB = 2, LS = 5, LD = 3, LV = 9, LX = LB * LS * LD };

struct loss {
    float x[LX], W[LV * LD], b[LV];
    int32_t label[LB * LS];
};

static const struct pl_loss_segment segments[2] = { { 0, 2, 0, 4, 0.125f },
                                                    { 2, 5, 4, 9, 0.875f } };

static double loss_value(void *of)
{
    struct loss *l = of;
    double part[2];
    ref_loss(part, NULL, NULL, NULL, NULL, l->x, l->W, l->b, l->label, segments, 2, LB, LS, LD, LV);
    return 0.125 * part[0] + 0.875 * part[1];
}

static void loss(void **state)
{
    /* one position without a label, in the second segment */
    struct loss l = { .label = { 0, 3, 4, -1, 8, 2, 2, 7, 5, 4 } };
    float logp[LB * LS], dx[LX], dW[LV * LD] = { 0 }, db[LV] = { 0 };
    double part[2], text = 0, image = 0;
    normal(l.x, LX);
    normal(l.W, LV * LD);
    normal(l.b, LV);
    assert_int_equal(ref_loss(part, logp, dx, dW, db, l.x, l.W, l.b, l.label, segments, 2, LB, LS,
                              LD, LV),
                     PL_OK);
    for (int b = 0; b < LB; b++)
        for (int p = 0; p < LS; p++) *(p < 2 ? &text : &image) -= logp[b * LS + p];
    assert_float_equal(part[0], text / 4, 1e-6);
    assert_float_equal(part[1], image / 5, 1e-6);
    assert_true(logp[3] == 0);
    slopes("x", loss_value, &l, l.x, dx, LX, 1e-5);
    slopes("W", loss_value, &l, l.W, dW, LV * LD, 1e-5);
    slopes("b", loss_value, &l, l.b, db, LV, 1e-5);
    ref_loss(part, NULL, dx, dW, db, l.x, l.W, l.b, l.label, segments, 2, LB, LS, LD, LV);
    slopes("x again", loss_value, &l, l.x, dx, LX, 1e-5); /* overwritten; dW is added to */
    for (int i = 0; i < LV; i++) db[i] /= 2;
    slopes("b twice", loss_value, &l, l.b, db, LV, 1e-5);
}

static void loss_without_labels(void **state)
{
    struct loss l = { .label = { -1, -1, 4, 5, 8, -1, -1, 7, 5, 4 } };
    float dx[LX], dW[LV * LD] = { 0 }, db[LV] = { 0 };
    double part[2];
    normal(l.x, LX);
    normal(l.W, LV * LD);
    ref_loss(part, NULL, dx, dW, db, l.x, l.W, l.b, l.label, segments, 2, LB, LS, LD, LV);
    assert_true(part[0] == 0 && isfinite(part[1]));
    for (int i = 0; i < 2 * LD; i++) assert_true(dx[i] == 0);
    for (int i = 0; i < 4; i++) assert_true(db[i] == 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(activations),
        cmocka_unit_test(geglu_in_place),
        cmocka_unit_test(layer_norm),
        cmocka_unit_test(shift),
        cmocka_unit_test(embedding),
        cmocka_unit_test(attention_slopes),
        cmocka_unit_test(query_without_keys_takes_the_mean),
        cmocka_unit_test(attention_steps),
        cmocka_unit_test(loss),
        cmocka_unit_test(loss_without_labels),
    };
    return cmocka_run_group_tests_name("transformer", tests, seed, NULL);
}
