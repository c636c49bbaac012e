/* pair_linear.c - a linear layer and its two gradients against the reference's. */
#include "pair.h"
#include "pairs.h"

#include <math.h>
#include <stdio.h>

struct shape {
    int M, K, N;
};

static const struct shape shapes[] = {
    { 1, 1, 1 },       { 3, 5, 7 },       { 13, 33, 67 }, /* one more than a tile each way */
    { 1, 257, 300 },                                      /* one token: generation */
    { 130, 17, 129 },  { 40, 1031, 19 }, /* longer than a slab of the summed dimension */
    { 50, 768, 579 },  /* CLIP's image: few rows by weights of several panels and slabs, */
    { 77, 1536, 130 }, /* with lines that get in each other's way */
    { 128, 513, 65 },  { 320, 128, 384 }, /* the demo's qkv */
    { 320, 512, 128 },
};

/* Too large to sum every element in double: samples represent them. */
static const struct shape large[] = {
    { 5120, 128, 1024 },  /* the demo's W1 */
    { 5120, 512, 128 },   /* the demo's W2 */
    { 1280, 1024, 3072 }, /* the reference run's qkv */
    { 1280, 1024, 8192 }, /* the reference run's W1 */
    { 1280, 4096, 1024 }, /* the reference run's W2 */
    { 256, 1024, 32356 }, /* the reference run's text logits */
};
#define SAMPLES 2000

enum kind { FORWARD, DX, DW };
static const char *const names[] = { "linear", "linear_dx", "linear_dw" };

/* One GEMM r (rows, cols), summed over n: r[i][j] = start + sum a_i b_j. */
struct product {
    struct pair_f32 r, a, b, bias; /* bias: linear's b, or dw's db */
    int rows, cols, n;
    int a_row, a_step, b_row, b_step; /* strides of a_i's and b_j's n terms */
    int add, with_bias;
};

static size_t size(int a, int b) { return (size_t)a * (size_t)b; }

static struct product prepare(struct pair *p, enum kind kind, struct shape s, int add)
{
    struct product q = { .add = add, .with_bias = kind != DX && add };
    switch (kind) {
    case FORWARD: /* y = x W^T (+ b) */
        q.rows = s.M, q.cols = s.N, q.n = s.K, q.add = 0;
        q.a = pair_normal(p, size(s.M, s.K), 1), q.b = pair_normal(p, size(s.N, s.K), 1);
        q.a_row = q.b_row = s.K, q.a_step = q.b_step = 1;
        q.r = pair_poison(p, size(s.M, s.N));
        if (q.with_bias) q.bias = pair_normal(p, (size_t)s.N, 1);
        break;
    case DX: /* dx = dy W, or added */
        q.rows = s.M, q.cols = s.K, q.n = s.N;
        q.a = pair_normal(p, size(s.M, s.N), 1), q.b = pair_normal(p, size(s.N, s.K), 1);
        q.a_row = s.N, q.a_step = 1, q.b_row = 1, q.b_step = s.K;
        q.r = add ? pair_normal(p, size(s.M, s.K), 1) : pair_poison(p, size(s.M, s.K));
        break;
    case DW: /* dW += dy^T x (db += column sums of dy) */
        q.rows = s.N, q.cols = s.K, q.n = s.M, q.add = 1;
        q.a = pair_normal(p, size(s.M, s.N), 1), q.b = pair_normal(p, size(s.M, s.K), 1);
        q.a_row = 1, q.a_step = s.N, q.b_row = 1, q.b_step = s.K;
        q.r = pair_normal(p, size(s.N, s.K), 1);
        if (q.with_bias) q.bias = pair_normal(p, (size_t)s.N, 1);
        break;
    }
    pair_work(p, 2.0 * s.M * s.K * s.N, 0);
    return q;
}

static void run(struct pair *p, enum kind kind, struct shape h, struct product *q)
{
    float *none[2] = { NULL, NULL }, **bias = q->with_bias ? q->bias.at : none;
    switch (kind) {
    case FORWARD:
        PAIR(p, linear, q->r.at[side], q->a.at[side], q->b.at[side], bias[side], h.M, h.K, h.N);
        break;
    case DX:
        PAIR(p, linear_dx, q->r.at[side], q->a.at[side], q->b.at[side], h.M, h.K, h.N, q->add);
        break;
    case DW:
        PAIR(p, linear_dw, q->r.at[side], bias[side], q->a.at[side], q->b.at[side], h.M, h.K, h.N);
        break;
    }
}

/* An element in double, and the parts of its bound: the sum of absolute terms, and the root of the
 * sum of squares. */
static double element(const struct product *q, enum kind kind, const float *start, int i, int j,
                      double *absolute, double *root)
{
    const float *a = q->a.at[0] + size(i, q->a_row), *b = q->b.at[0] + size(j, q->b_row);
    double first = q->add ? start[size(i, q->cols) + (size_t)j] : 0, sum, squares;
    if (kind == FORWARD && q->with_bias) first = q->bias.at[0][j];
    sum = first, *absolute = fabs(first), squares = first * first;
    for (int k = 0; k < q->n; k++) {
        double t = (double)a[size(k, q->a_step)] * b[size(k, q->b_step)];
        sum += t;
        *absolute += fabs(t);
        squares += t * t;
    }
    *root = sqrt(squares);
    return sum;
}

/* The contract's bounds, in float32 and in bfloat16. */
static double allowed(const struct product *q, int bf16, double absolute, double root)
{
    double exact = (q->n + 8) * 0x1p-24 * absolute;
    return bf16 ? fmax(0x1p-6 * root, exact) : exact;
}

static void compare(struct pair *p, const struct product *q, enum kind kind, const float *start,
                    int bf16, int sampled)
{
    size_t all = size(q->rows, q->cols), count = sampled && all > SAMPLES ? SAMPLES : all;
    for (size_t k = 0; k < count; k++) {
        size_t at = count == all ? k : (size_t)pl_rng_below(&p->rng, all);
        double absolute, root, want;
        want = element(q, kind, start, (int)(at / (size_t)q->cols), (int)(at % (size_t)q->cols),
                       &absolute, &root);
        if (!sampled) want = pair_result(p, q->r.any, 0)[at]; /* the reference ran */
        pair_element(p, "product", q->r.any, at, want, allowed(q, bf16, absolute, root));
    }
    if (kind != DW || !q->with_bias) return;
    for (int i = 0; i < q->rows; i++) { /* db is a plain sum, in float32 whatever the precision */
        double sum = pair_before(p, q->bias.any)[i], absolute = fabs(sum);
        for (int k = 0; k < q->n; k++) {
            double t = q->a.at[0][size(i, q->a_row) + size(k, q->a_step)];
            sum += t;
            absolute += fabs(t);
        }
        pair_element(p, "db", q->bias.any, (size_t)i, sum, (q->n + 8) * 0x1p-24 * absolute);
    }
}

static void one(struct pair *p, enum kind kind, struct shape h, int add, int bf16, int is_large)
{
    const struct pl_backend *be = p->side[1];
    struct product q;
    if (!pair_case(p, names[kind], "M%d K%d N%d%s%s", h.M, h.K, h.N,
                   !add         ? ""
                   : kind == DX ? " add"
                                : " bias",
                   bf16 ? " bf16" : ""))
        return;
    q = prepare(p, kind, h, add);
    if (is_large) pair_large(p);
    if (bf16) be->set_precision(PL_BF16);
    run(p, kind, h, &q);
    if (bf16) be->set_precision(PL_FLOAT32);
    compare(p, &q, kind, pair_before(p, q.r.any), bf16, is_large);
}

void pair_linear(struct pair *p)
{
    int precisions = 1;
    if (p->side[1]->set_precision(PL_BF16) == PL_OK) precisions = 2;
    p->side[1]->set_precision(PL_FLOAT32);
    for (int bf16 = 0; bf16 < precisions; bf16++)
        for (size_t i = 0; i < PL_COUNT(shapes) + 4; i++) {
            struct shape h;
            if (i < PL_COUNT(shapes)) h = shapes[i];
            else
                h = (struct shape){ pair_int(p, 1, 150), pair_int(p, 1, 600), pair_int(p, 1, 150) };
            for (int kind = FORWARD; kind <= DW; kind++)
                for (int add = 0; add <= 1; add++) one(p, (enum kind)kind, h, add, bf16, 0);
        }
    for (int bf16 = 0; bf16 < precisions; bf16++)
        for (size_t i = 0; !pair_quick(p) && i < PL_COUNT(large); i++)
            for (int kind = FORWARD; kind <= DW; kind++)
                one(p, (enum kind)kind, large[i], 1, bf16, 1);
}
