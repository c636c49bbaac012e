/* pair_feedforward.c - activations, GEGLU, and the whole feed-forward layer. The layer's bounds
 * propagate those of its parts: an error e in a factor adds sum e |other|; an error in the gate is
 * multiplied by gelu's slope (at most 1.13) or that of its derivative (at most 0.8). */
#include "pair.h"
#include "pairs.h"

#include <math.h>
#include <string.h>

#define EPS 0x1p-24
#define GELU 4e-7       /* of |x|: the contract's */
#define GELU_SLOPE 1e-6 /* absolute: the contract's */
#define SLOPE_MAX 1.13  /* of |gelu'| */
#define BEND_MAX 0.8    /* of |gelu''| */

static const char *const kinds[] = { "gelu", "gelu_tanh", "quickgelu", "swish" };

/* Normal values, and those that break approximations: zeros, denormals, tails, boundaries. */
static struct pair_f32 arguments(struct pair *p, size_t n)
{
    static const float special[] = { 0,     -0.0f, 1e-42f, -1e-30f, 1e-6f, -1e-3f, 3.9f, -3.95f,
                                     5.58f, -5.6f, 9,      -9,      13.2f, -13.1f, 40,   -40,
                                     88,    -88,   104,    -104,    1e4f,  -1e4f };
    struct pair_f32 x = pair_normal(p, n, 3);
    for (size_t i = 0; i < n && i < PL_COUNT(special); i++) x.at[0][n - 1 - i] = special[i];
    pair_share(p, x.any);
    return x;
}

static void activations(struct pair *p, size_t n, enum pl_activation kind, int in_place)
{
    if (pair_case(p, "activation", "%s n%zu%s", kinds[kind], n, in_place ? " in place" : "")) {
        struct pair_f32 x = arguments(p, n), y = in_place ? x : pair_poison(p, n);
        float *size = pair_scratch(p, n);
        for (size_t i = 0; i < n; i++) size[i] = fmaxf(fabsf(x.at[0][i]), 1e-30f);
        pair_work(p, 0, 8.0 * (double)n);
        PAIR(p, activation, y.at[side], x.at[side], n, kind);
        pair_within(p, "y", y.any, 4e-7, size);
    }
    if (pair_case(p, "activation_backward", "%s n%zu%s", kinds[kind], n,
                  in_place ? " in place" : "")) {
        struct pair_f32 x = arguments(p, n), dy = pair_normal(p, n, 1);
        struct pair_f32 dx = in_place ? dy : pair_poison(p, n);
        float *size = pair_scratch(p, n);
        for (size_t i = 0; i < n; i++) size[i] = fabsf(dy.at[0][i]);
        pair_work(p, 0, 12.0 * (double)n);
        PAIR(p, activation_backward, dx.at[side], dy.at[side], x.at[side], n, kind);
        pair_within(p, "dx", dx.any, 1e-6, size);
    }
}

static void geglu(struct pair *p, int M, int C, int in_place)
{
    size_t mc = (size_t)M * (size_t)C;
    if (!in_place && pair_case(p, "geglu", "M%d C%d", M, C)) {
        struct pair_f32 z = arguments(p, 2 * mc), y = pair_poison(p, mc);
        float *size = pair_scratch(p, mc);
        for (size_t i = 0; i < mc; i++) {
            const float *u = z.at[0] + i / (size_t)C * 2 * (size_t)C + i % (size_t)C;
            size[i] = fabsf(u[0]) * fmaxf(fabsf(u[C]), 1e-30f);
        }
        pair_work(p, 0, 12.0 * (double)mc);
        PAIR(p, geglu, y.at[side], z.at[side], M, C);
        pair_within(p, "y", y.any, GELU + 0x1p-23, size); /* and the multiplication's rounding */
    }
    if (pair_case(p, "geglu_backward", "M%d C%d%s", M, C, in_place ? " in place" : "")) {
        struct pair_f32 z = arguments(p, 2 * mc), dy = pair_normal(p, mc, 1);
        struct pair_f32 dz = in_place ? z : pair_poison(p, 2 * mc);
        float *bound = pair_scratch(p, 2 * mc);
        for (size_t i = 0; i < mc; i++) {
            size_t at = i / (size_t)C * 2 * (size_t)C + i % (size_t)C;
            float u = fabsf(z.at[0][at]), g = fabsf(z.at[0][at + (size_t)C]),
                  d = fabsf(dy.at[0][i]);
            bound[at] = (float)((GELU + 0x1p-23) * d * fmaxf(g, 1e-30f));
            bound[at + (size_t)C] = (float)((GELU_SLOPE + SLOPE_MAX * 0x1p-22) * d * u);
        }
        pair_work(p, 0, 20.0 * (double)mc);
        PAIR(p, geglu_backward, dz.at[side], dy.at[side], z.at[side], M, C);
        pair_within(p, "dz", dz.any, 1, bound);
    }
}

/* One factor of a GEMM: value and error of its row i, term k, are at i * row + k * step. */
struct factor {
    const float *value, *error; /* error NULL: exact */
    int row, step;
};

/* Bounds of a GEMM over n terms, elements (rows, cols): the errors of its factors and its own.
 * start: the values that the sums start from, per column (bias) or element, or NULL. */
static void grow(float *bound, struct factor a, struct factor b, int rows, int cols, int n,
                 const float *start, int start_row, int bf16)
{
    for (int i = 0; i < rows; i++)
        for (int j = 0; j < cols; j++) {
            double came = 0,
                   first = start ? fabs(start[(size_t)i * (size_t)start_row + (size_t)j]) : 0;
            double absolute = first, squares = first * first, made;
            for (int k = 0; k < n; k++) {
                size_t at_a = (size_t)i * (size_t)a.row + (size_t)k * (size_t)a.step;
                size_t at_b = (size_t)j * (size_t)b.row + (size_t)k * (size_t)b.step;
                double t = fabs((double)a.value[at_a] * b.value[at_b]);
                absolute += t;
                squares += t * t;
                if (a.error) came += a.error[at_a] * fabs(b.value[at_b]);
                if (b.error) came += b.error[at_b] * fabs(a.value[at_a]);
            }
            made = (n + 8) * EPS * absolute;
            if (bf16) made = fmax(made, 0x1p-6 * sqrt(squares));
            bound[(size_t)i * (size_t)cols + (size_t)j] = (float)(came + made);
        }
}

/* Hidden values and their errors, as the layer has them on the way. */
struct inside {
    float *z, *z_error; /* (M,2C) */
    float *h, *h_error; /* (M,C) */
};

static double gelu(double x) { return x * (1 + erf(x / sqrt(2))) / 2; }
static double gelu_slope(double x)
{
    return (1 + erf(x / sqrt(2))) / 2 + x * exp(-x * x / 2) / sqrt(2 * 3.14159265358979323846);
}

static struct inside compute_inside(struct pair *p, const float *x, const struct pl_ffn *w, int M,
                                    int D, int C, int bf16)
{
    size_t mc = (size_t)M * (size_t)C;
    struct inside in = { pair_scratch(p, 2 * mc), pair_scratch(p, 2 * mc), pair_scratch(p, mc),
                         pair_scratch(p, mc) };
    p->side[0]->linear(in.z, x, w->W1, w->b1, M, D, 2 * C);
    grow(in.z_error, (struct factor){ x, NULL, D, 1 }, (struct factor){ w->W1, NULL, D, 1 }, M,
         2 * C, D, w->b1, 0, bf16);
    for (size_t i = 0; i < mc; i++) {
        size_t at = i / (size_t)C * 2 * (size_t)C + i % (size_t)C;
        double u = in.z[at], g = in.z[at + (size_t)C];
        in.h[i] = (float)(u * gelu(g));
        in.h_error[i] = (float)(in.z_error[at] * fabs(gelu(g)) +
                                fabs(u) * SLOPE_MAX * in.z_error[at + (size_t)C] +
                                2 * GELU * fabs(u * g));
    }
    return in;
}

struct layer {
    struct pair_f32 W1, b1, W2, b2;
    struct pl_ffn at[2];
};

static struct layer layer(struct pair *p, int D, int C, double deviation)
{
    size_t dc = (size_t)D * (size_t)C;
    struct layer l = {
        .W1 = pair_normal(p, 2 * dc, deviation / sqrt(D)),
        .b1 = pair_normal(p, 2 * (size_t)C, deviation),
        .W2 = pair_normal(p, dc, deviation / sqrt(C)),
        .b2 = pair_normal(p, (size_t)D, deviation),
    };
    for (int s = 0; s < 2; s++)
        l.at[s] = (struct pl_ffn){ l.W1.at[s], l.b1.at[s], l.W2.at[s], l.b2.at[s] };
    return l;
}

static void pair_ffn(struct pair *p, int M, int D, int C, int with_z, int bf16)
{
    size_t md = (size_t)M * (size_t)D;
    if (!pair_case(p, "ffn", "M%d D%d C%d%s%s", M, D, C, with_z ? " z" : "", bf16 ? " bf16" : ""))
        return;
    struct layer w = layer(p, D, C, 1);
    struct pair_f32 x = pair_normal(p, md, 1), y = pair_poison(p, md);
    struct pair_f32 z = pair_poison(p, 2 * (size_t)M * (size_t)C);
    float *keep[2] = { with_z ? z.at[0] : NULL, with_z ? z.at[1] : NULL };
    struct inside in = compute_inside(p, x.at[0], &w.at[0], M, D, C, bf16);
    float *bound = pair_scratch(p, md);
    grow(bound, (struct factor){ in.h, in.h_error, C, 1 },
         (struct factor){ w.W2.at[0], NULL, C, 1 }, M, D, C, w.b2.at[0], 0, bf16);
    pair_work(p, 6.0 * (double)md * C, 0);
    if (bf16) p->side[1]->set_precision(PL_BF16);
    PAIR(p, ffn, y.at[side], keep[side], x.at[side], &w.at[side], M, D, C);
    if (bf16) p->side[1]->set_precision(PL_FLOAT32);
    pair_within(p, "y", y.any, 1, bound);
    if (with_z) pair_within(p, "z", z.any, 1, in.z_error);
}

/* With z given, both sides start from the reference's, so its error does not count. */
static void ffn_backward(struct pair *p, int M, int D, int C, int with_y, int with_z, int bf16)
{
    size_t md = (size_t)M * (size_t)D, mc = (size_t)M * (size_t)C, dc = (size_t)D * (size_t)C;
    if (!pair_case(p, "ffn_backward", "M%d D%d C%d%s%s%s", M, D, C, with_y ? " y" : "",
                   with_z ? " z" : "", bf16 ? " bf16" : ""))
        return;
    struct layer w = layer(p, D, C, 1), dw = layer(p, D, C, 1);
    struct pair_f32 x = pair_normal(p, md, 1), dy = pair_normal(p, md, 1), dx = pair_poison(p, md);
    struct pair_f32 y = pair_poison(p, md);
    float *to[2] = { with_y ? y.at[0] : NULL, with_y ? y.at[1] : NULL };
    struct inside in = compute_inside(p, x.at[0], &w.at[0], M, D, C, bf16);
    struct pair_f32 z = with_z ? pair_values(p, in.z, 2 * mc) : pair_poison(p, 2 * mc);
    float *kept[2] = { with_z ? z.at[0] : NULL, with_z ? z.at[1] : NULL };
    float *dh = pair_scratch(p, mc), *dh_error = pair_scratch(p, mc);
    float *dz = pair_scratch(p, 2 * mc), *dz_error = pair_scratch(p, 2 * mc),
          *bound = pair_scratch(p, md);
    float *of_W1 = pair_scratch(p, 2 * dc), *of_b1 = pair_scratch(p, 2 * (size_t)C);
    float *of_W2 = pair_scratch(p, dc), *of_b2 = pair_scratch(p, (size_t)D), one = 1;
    p->side[0]->linear_dx(dh, dy.at[0], w.W2.at[0], M, C, D, 0);
    grow(dh_error, (struct factor){ dy.at[0], NULL, D, 1 },
         (struct factor){ w.W2.at[0], NULL, 1, C }, M, C, D, NULL, 0, bf16);
    for (size_t i = 0; i < mc; i++) {
        size_t at = i / (size_t)C * 2 * (size_t)C + i % (size_t)C, gate = at + (size_t)C;
        double u = in.z[at], g = in.z[gate], d = dh[i], eu = in.z_error[at], eg = in.z_error[gate];
        dz[at] = (float)(d * gelu(g));
        dz[gate] = (float)(d * u * gelu_slope(g));
        dz_error[at] = (float)(dh_error[i] * fabs(gelu(g)) +
                               fabs(d) * (SLOPE_MAX * eg + 2 * GELU * fabs(g)));
        dz_error[gate] = (float)(SLOPE_MAX * (dh_error[i] * fabs(u) + fabs(d) * eu) +
                                 fabs(d * u) * (BEND_MAX * eg + 2 * GELU_SLOPE));
    }
    grow(bound, (struct factor){ dz, dz_error, 2 * C, 1 },
         (struct factor){ w.W1.at[0], NULL, 1, D }, M, D, 2 * C, NULL, 0, bf16);
    grow(of_W1, (struct factor){ dz, dz_error, 1, 2 * C }, (struct factor){ x.at[0], NULL, 1, D },
         2 * C, D, M, dw.W1.at[0], D, bf16);
    grow(of_W2, (struct factor){ dy.at[0], NULL, 1, D }, (struct factor){ in.h, in.h_error, 1, C },
         D, C, M, dw.W2.at[0], C, bf16);
    grow(of_b1, (struct factor){ dz, dz_error, 1, 2 * C }, (struct factor){ &one, NULL, 0, 0 },
         2 * C, 1, M, dw.b1.at[0], 1, 0);
    grow(of_b2, (struct factor){ dy.at[0], NULL, 1, D }, (struct factor){ &one, NULL, 0, 0 }, D, 1,
         M, dw.b2.at[0], 1, 0);
    pair_work(p, (with_y ? 18.0 : 16.0) * (double)md * C, 0);
    if (bf16) p->side[1]->set_precision(PL_BF16);
    PAIR(p, ffn_backward, to[side], dx.at[side], &dw.at[side], dy.at[side], kept[side], x.at[side],
         &w.at[side], M, D, C);
    if (bf16) p->side[1]->set_precision(PL_FLOAT32);
    if (with_y) {
        float *of_y = pair_scratch(p, md);
        grow(of_y, (struct factor){ in.h, in.h_error, C, 1 },
             (struct factor){ w.W2.at[0], NULL, C, 1 }, M, D, C, w.b2.at[0], 0, bf16);
        pair_within(p, "y", y.any, 1, of_y);
    }
    if (with_z) pair_finite(p, "z", z.any); /* used up: its contents are the backend's business */
    pair_within(p, "dx", dx.any, 1, bound);
    pair_within(p, "dW1", dw.W1.any, 1, of_W1);
    pair_within(p, "db1", dw.b1.any, 1, of_b1);
    pair_within(p, "dW2", dw.W2.any, 1, of_W2);
    pair_within(p, "db2", dw.b2.any, 1, of_b2);
}

/* The sizes of the demo and the reference run are too large to compare every element. Rows of y and
 * dx are independent, so a few rows of the reference represent them; only these rows get a
 * gradient, so dW is complete, too. Bounds: the GEMMs', for one after the other, relative to the
 * largest value. */
#define ROWS 4
static double largest(const float *x, size_t n)
{
    double most = 0;
    for (size_t i = 0; i < n; i++) most = fmax(most, fabs(x[i]));
    return most;
}

static void compare(struct pair *p, const char *name, struct pair_any any, const float *want,
                    double bound)
{
    bound *= largest(want, any.n);
    for (size_t i = 0; i < any.n; i++) pair_element(p, name, any, i, want[i], bound);
}

static void compare_rows(struct pair *p, const char *name, struct pair_any any, const int *rows,
                         const float *want, int D, double bound)
{
    bound *= largest(want, ROWS * (size_t)D);
    for (int i = 0; i < ROWS * D; i++)
        pair_element(p, name, any, (size_t)rows[i / D] * (size_t)D + (size_t)(i % D), want[i],
                     bound);
}

static void ffn_large(struct pair *p, int M, int D, int C, int gradients, int bf16)
{
    size_t md = (size_t)M * (size_t)D, dc = (size_t)D * (size_t)C;
    double bound = bf16 ? 0x1p-5 : (2 * C + D) * 0x1p-22;
    int rows[ROWS];
    if (!pair_case(p, gradients ? "ffn_backward" : "ffn", "M%d D%d C%d%s%s", M, D, C,
                   gradients ? " y" : "", bf16 ? " bf16" : ""))
        return;
    struct layer w = layer(p, D, C, 1);
    struct pair_f32 x = pair_normal(p, md, 1), y = pair_poison(p, md);
    float *few_x = pair_scratch(p, ROWS * (size_t)D), *few_y = pair_scratch(p, ROWS * (size_t)D);
    float *few_dy = pair_scratch(p, ROWS * (size_t)D), *few_dx = pair_scratch(p, ROWS * (size_t)D);
    for (int i = 0; i < ROWS; i++) {
        rows[i] = pair_int(p, i * M / ROWS, (i + 1) * M / ROWS - 1);
        memcpy(few_x + i * D, x.at[0] + (size_t)rows[i] * (size_t)D, (size_t)D * sizeof *few_x);
        for (int k = 0; k < D; k++) few_dy[i * D + k] = (float)pl_rng_normal(&p->rng);
    }
    pair_large(p);
    if (bf16) p->side[1]->set_precision(PL_BF16);
    if (!gradients) {
        pair_work(p, 6.0 * (double)md * C, 0);
        PAIR(p, ffn, y.at[side], NULL, x.at[side], &w.at[side], M, D, C);
        p->side[0]->ffn(few_y, NULL, few_x, &w.at[0], ROWS, D, C);
    } else {
        struct pair_f32 dy = pair_poison(p, md), dx = pair_poison(p, md);
        struct layer dw = layer(p, D, C, 0);
        struct pl_ffn few = { pair_scratch(p, 2 * dc), pair_scratch(p, 2 * (size_t)C),
                              pair_scratch(p, dc), pair_scratch(p, (size_t)D) };
        memset(dy.at[0], 0, md * sizeof(float));
        for (int i = 0; i < ROWS; i++)
            memcpy(dy.at[0] + (size_t)rows[i] * (size_t)D, few_dy + i * D,
                   (size_t)D * sizeof *few_dy);
        pair_share(p, dy.any);
        pair_work(p, 18.0 * (double)md * C, 0);
        PAIR(p, ffn_backward, y.at[side], dx.at[side], &dw.at[side], dy.at[side], NULL, x.at[side],
             &w.at[side], M, D, C);
        p->side[0]->ffn_backward(few_y, few_dx, &few, few_dy, NULL, few_x, &w.at[0], ROWS, D, C);
        for (size_t i = 0; i < md; i++)
            if (dy.at[0][i - i % (size_t)D] == 0) pair_element(p, "dx", dx.any, i, 0, 0);
        compare_rows(p, "dx", dx.any, rows, few_dx, D, bound);
        compare(p, "dW1", dw.W1.any, few.W1, bound);
        compare(p, "dW2", dw.W2.any, few.W2, bound);
        compare(p, "db1", dw.b1.any, few.b1, bound);
        compare(p, "db2", dw.b2.any, few.b2, bound);
    }
    if (bf16) p->side[1]->set_precision(PL_FLOAT32);
    compare_rows(p, "y", y.any, rows, few_y, D, bound);
}

static const struct {
    int M, D, C;
} shapes[] = {
    { 1, 1, 1 },      { 3, 5, 7 },     { 33, 17, 65 }, { 11, 12, 20 },
    { 9, 8, 12 },     { 5, 7, 4 }, /* as many in packs as there are turns */
    { 130, 64, 129 }, { 70, 33, 300 }, { 50, 20, 80 }, { 210, 34, 48 },
    /* the last two: whole registers of channels, so that a GEMM's tile can gate them */
};
static const struct {
    int M, D, C;
} large[] = { { 5120, 128, 512 }, { 1280, 1024, 4096 } };

void pair_feedforward(struct pair *p)
{
    static const size_t sizes[] = { 1, 37, 4099, 1u << 20 };
    int precisions = 1;
    for (size_t i = 0; i < PL_COUNT(sizes); i++)
        for (int kind = PL_GELU; kind <= PL_SWISH; kind++)
            for (int in_place = 0; in_place <= 1; in_place++)
                activations(p, sizes[i], (enum pl_activation)kind, in_place);
    for (int in_place = 0; in_place <= 1; in_place++) {
        geglu(p, 1, 1, in_place);
        geglu(p, 5, 33, in_place);
        geglu(p, pair_int(p, 2, 80), pair_int(p, 2, 300), in_place);
        geglu(p, 1280, 1024, in_place);
    }
    if (p->side[1]->set_precision(PL_BF16) == PL_OK) precisions = 2;
    p->side[1]->set_precision(PL_FLOAT32);
    for (int bf16 = 0; bf16 < precisions; bf16++) {
        for (size_t i = 0; i < PL_COUNT(shapes) + 2; i++) {
            int chosen = i < PL_COUNT(shapes);
            int M = chosen ? shapes[i].M : pair_int(p, 1, 150);
            int D = chosen ? shapes[i].D : pair_int(p, 1, 60);
            int C = chosen ? shapes[i].C : pair_int(p, 1, 150);
            for (int with_z = 0; with_z <= 1; with_z++) {
                pair_ffn(p, M, D, C, with_z, bf16);
                ffn_backward(p, M, D, C, i % 2, with_z, bf16);
            }
        }
        for (size_t i = 0; !pair_quick(p) && i < PL_COUNT(large); i++)
            for (int gradients = 0; gradients <= 1; gradients++)
                ffn_large(p, large[i].M, large[i].D, large[i].C, gradients, bf16);
    }
}
