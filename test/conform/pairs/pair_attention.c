/* pair_attention.c - masked attention, its gradients, and the cached step of generation. */
#include "pair.h"
#include "pairs.h"

#include <math.h>
#include <string.h>

struct shape {
    int B, n, H, d;
    struct pl_mask mask;
    int hide; /* 1: with a key mask; 2: one that leaves some queries no key at all */
};

static const struct shape shapes[] = {
    { 1, 1, 1, 1, { PL_MASK_FULL, 1, 0, 0, 0 }, 0 },
    { 2, 13, 3, 5, { PL_MASK_FULL, 13, 0, 0, 0 }, 1 },
    { 1, 9, 2, 8, { PL_MASK_FULL, 9, 0, 0, 0 }, 2 },
    { 1, 270, 1, 24, { PL_MASK_FULL, 270, 0, 0, 0 }, 2 }, /* tiles of queries that see nothing */
    { 2, 11, 2, 7, { PL_MASK_NONE, 1, 4, 0, 0 }, 1 },
    { 1, 50, 12, 64, { PL_MASK_NONE, 50, 0, 0, 0 }, 0 }, /* CLIP's image tower */
    { 1, 3 + 25, 2, 9, { PL_MASK_ROW, 3, 5, 0, 0 }, 1 },
    { 2, 3 + 17, 3, 16, { PL_MASK_COL, 3, 5, 0, 0 }, 0 }, /* ends within a row */
    { 1, 2 + 36, 1, 24, { PL_MASK_CONV, 2, 6, 3, 1 }, 1 },
    { 1, 2 + 49, 2, 12, { PL_MASK_CONV, 2, 7, 5, 2 }, 0 },
    { 1, 3 + 36, 2, 10, { PL_MASK_CONV_CORNER, 3, 6, 3, 1 }, 0 },
    { 1, 5, 2, 6, { PL_MASK_ROW, 9, 3, 0, 0 }, 0 },         /* within the text */
    { 1, 4 + 1, 2, 6, { PL_MASK_COL, 4, 1, 0, 0 }, 0 },     /* a grid of one cell */
    { 3, 17 + 63, 4, 32, { PL_MASK_ROW, 17, 8, 0, 0 }, 0 }, /* the demo's */
    { 3, 17 + 63, 4, 32, { PL_MASK_COL, 17, 8, 0, 0 }, 0 },
    { 3, 17 + 63, 4, 32, { PL_MASK_CONV, 17, 8, 5, 1 }, 0 },
    { 1, 320, 8, 64, { PL_MASK_COL, 65, 16, 0, 0 }, 0 },
    { 1, 600, 1, 20, { PL_MASK_FULL, 17, 25, 0, 0 }, 1 }, /* one head, many queries */
    { 1, 530, 1, 70, { PL_MASK_NONE, 530, 0, 0, 0 }, 2 },
    { 1, 300, 1, 12, { PL_MASK_ROW, 3, 70, 0, 0 }, 1 }, /* a wide grid */
    { 1, 64, 1, 8, { PL_MASK_ROW, 0, 8, 0, 0 }, 0 },    /* no text */
    { 2, 20, 2, 9, { PL_MASK_COL, 17, 7, 0, 0 }, 0 },   /* fewer cells than columns */
};

/* Too long for the reference: one head of one sequence stands for all. */
static const struct shape large[] = {
    { 64, 80, 4, 32, { PL_MASK_ROW, 17, 8, 0, 0 }, 0 },
    { 1, 1280, 16, 64, { PL_MASK_ROW, 257, 32, 0, 0 }, 0 },
    { 1, 1280, 16, 64, { PL_MASK_COL, 257, 32, 0, 0 }, 0 },
    { 1, 1280, 16, 64, { PL_MASK_CONV, 257, 32, 11, 1 }, 0 },
    { 1, 1024, 12, 64, { PL_MASK_FULL, 1024, 0, 0, 0 }, 0 }, /* GPT-2 */
    { 1, 1024, 1, 512, { PL_MASK_NONE, 1024, 0, 0, 0 }, 0 }, /* VQGAN */
};

static const char *const kinds[] = { "full", "row", "col", "conv", "corner", "none" };

static size_t count(const struct shape *s, int per_position)
{
    return (size_t)s->B * (size_t)s->n * (size_t)s->H * (size_t)s->d * (size_t)per_position;
}

static int starts(struct pair *p, const char *op, const struct shape *s, int bf16)
{
    return pair_case(p, op, "%s B%d n%d H%d d%d P%d F%d k%d,%d%s%s", kinds[s->mask.kind], s->B,
                     s->n, s->H, s->d, s->mask.P, s->mask.F, s->mask.kernel, s->mask.dilation,
                     s->hide == 2 ? " no keys"
                     : s->hide    ? " hidden keys"
                                  : "",
                     bf16 ? " bf16" : "");
}

/* Only the operation itself runs in bfloat16; inputs from other operations are given. */
static void precision(struct pair *p, int bf16)
{
    p->side[1]->set_precision(bf16 ? PL_BF16 : PL_FLOAT32);
}

/* The key mask of the contract's shape, or no buffer at all. */
static struct pair_u8 key_mask(struct pair *p, const struct shape *s)
{
    int whole = s->mask.kind == PL_MASK_FULL || s->mask.kind == PL_MASK_NONE;
    size_t n = (size_t)s->B * (size_t)(whole ? s->n : s->mask.P);
    struct pair_u8 m = { { NULL, NULL }, { 0, 0 } };
    if (!s->hide) return m;
    m = pair_u8_poison(p, n);
    for (size_t i = 0; i < n; i++) m.at[0][i] = pair_int(p, 0, 3) > 0;
    if (s->hide == 2) memset(m.at[0], 0, n / 2); /* the first queries see hidden keys only */
    pair_share(p, m.any);
    return m;
}

/* Scores and weighted sums are two GEMMs each; `products` of them. */
static void work(struct pair *p, const struct shape *s, double products)
{
    double pairs = (double)pl_mask_count(&s->mask, s->n);
    if (s->mask.kind == PL_MASK_NONE) pairs = (double)s->n * s->n;
    pair_work(p, 2 * products * s->B * s->H * pairs * s->d, 0);
}

static double largest(const float *x, size_t n)
{
    double most = 0;
    for (size_t i = 0; i < n; i++) most = fmax(most, fabs(x[i]));
    return most;
}

/* (b,n,parts,h,d) of all to (n,parts,d) of one head. */
static void one_head(float *to, const float *from, const struct shape *s, int parts, int b, int h)
{
    size_t d = (size_t)s->d, row = (size_t)s->H * d;
    for (size_t i = 0; i < (size_t)s->n * (size_t)parts; i++)
        memcpy(to + i * d,
               from + ((size_t)b * (size_t)s->n * (size_t)parts + i) * row + (size_t)h * d,
               d * sizeof *to);
}

static void compare_head(struct pair *p, const char *name, struct pair_any any,
                         const struct shape *s, int parts, int b, int h, const float *want,
                         double allowed, const float *more)
{
    size_t d = (size_t)s->d, row = (size_t)s->H * d;
    for (size_t i = 0; i < (size_t)s->n * (size_t)parts; i++)
        for (size_t c = 0; c < d; c++)
            pair_element(p, name, any,
                         ((size_t)b * (size_t)s->n * (size_t)parts + i) * row + (size_t)h * d + c,
                         want[i * d + c], allowed + more[i * d + c]);
}

/* ---- bounds with operands in bfloat16: of each product 2^-6 of the root of the sum of its terms'
 * squares, carried through what follows it (ref/attention.h) ---- */

#define ROUNDED 0x1p-6

/* One head's vectors, (n,3,d) and (n,d); hidden: its sequence's key mask or NULL. */
struct one {
    const float *qkv, *dout;
    const uint8_t *hidden;
    int n, d;
};
static double of(const struct one *x, int part, int i, int c)
{
    return x->qkv[((size_t)i * 3 + (size_t)part) * (size_t)x->d + (size_t)c];
}

static int sees(const struct shape *s, const uint8_t *hidden, int i, int j)
{
    int whole = s->mask.kind == PL_MASK_FULL || s->mask.kind == PL_MASK_NONE;
    if (!pl_mask_allowed(&s->mask, i, j)) return 0;
    return !hidden || (!whole && (i < s->mask.P || j >= s->mask.P)) || hidden[j];
}

/* Of query i: weights of the keys and the errors of their scores. 0: it sees no key, and all weigh
 * the same, without error. */
static int weights(double *w, double *error, const struct shape *s, const struct one *x, int i)
{
    double most = -INFINITY, sum = 0;
    for (int j = 0; j < x->n; j++) {
        double score = 0, squares = 0;
        w[j] = -INFINITY;
        if (!sees(s, x->hidden, i, j)) continue;
        for (int c = 0; c < x->d; c++) {
            double term = of(x, 0, i, c) * of(x, 1, j, c);
            score += term;
            squares += term * term;
        }
        w[j] = score / sqrt(x->d);
        error[j] = ROUNDED * sqrt(squares / x->d);
        most = fmax(most, w[j]);
    }
    for (int j = 0; j < x->n; j++) {
        if (most == -INFINITY) w[j] = 0;
        if (w[j] == -INFINITY || most == -INFINITY) error[j] = 0;
        w[j] = w[j] == -INFINITY ? 0 : exp(w[j] - fmax(most, w[j]));
        if (w[j] == 0) error[j] = 0;
        sum += w[j];
    }
    for (int j = 0; j < x->n; j++) w[j] /= sum;
    return most != -INFINITY;
}

/* o (n,d) and lse (n): their bounds. */
static void forward_bounds(struct pair *p, float *o, float *lse, const struct shape *s,
                           const struct one *x)
{
    double *w = (double *)(void *)pair_scratch(p, 4 * (size_t)x->n), *error = w + x->n;
    for (int i = 0; i < x->n; i++) {
        double mean_error = 0; /* a query's rounding is common to its scores */
        weights(w, error, s, x, i);
        for (int j = 0; j < x->n; j++) mean_error += w[j] * error[j];
        lse[i] = (float)mean_error;
        for (int c = 0; c < x->d; c++) {
            double mean = 0, bound = 0;
            for (int j = 0; j < x->n; j++) mean += w[j] * of(x, 2, j, c);
            for (int j = 0; j < x->n; j++) {
                double v = of(x, 2, j, c), of_weight = error[j] * (v - mean);
                bound += w[j] * w[j] * (of_weight * of_weight + ROUNDED * ROUNDED * v * v);
            }
            o[(size_t)i * (size_t)x->d + (size_t)c] = (float)sqrt(bound);
        }
    }
}

/* dqkv (n,3,d): its bounds' squares are added up, query by query. */
static void backward_bounds(struct pair *p, float *dqkv, const struct shape *s, const struct one *x)
{
    size_t n = (size_t)x->n, d = (size_t)x->d;
    double *w = (double *)(void *)pair_scratch(p, 8 * n), *error = w + n, *dp = error + n,
           *of_dp = dp + n;
    double *squares = (double *)(void *)pair_scratch(p, 6 * n * d);
    for (int i = 0; i < x->n; i++) {
        const float *dout = x->dout + (size_t)i * d;
        double delta = 0;
        int some = weights(w, error, s, x, i);
        for (int j = 0; j < x->n; j++) {
            dp[j] = of_dp[j] = 0;
            if (w[j] == 0) continue;
            for (int c = 0; c < x->d; c++) {
                double term = dout[c] * of(x, 2, j, c);
                dp[j] += term;
                of_dp[j] += term * term;
            }
            delta += w[j] * dp[j];
        }
        for (int j = 0; j < x->n; j++) {
            double rounded = ROUNDED * ROUNDED, of_weight = error[j] * error[j] + rounded;
            double ds = w[j] * (dp[j] - delta);
            double of_ds = (ds * ds * of_weight + w[j] * w[j] * rounded * of_dp[j]) / x->d;
            double *of_query = squares + 3 * (size_t)i * d, *of_key = squares + 3 * (size_t)j * d;
            if (w[j] == 0) continue;
            for (int c = 0; c < x->d; c++) {
                double q = of(x, 0, i, c), k = of(x, 1, j, c), out = dout[c];
                if (some) {
                    of_query[c] += of_ds * k * k;
                    of_key[d + (size_t)c] += of_ds * q * q;
                }
                of_key[2 * d + (size_t)c] += w[j] * w[j] * out * out * of_weight;
            }
        }
    }
    for (size_t i = 0; i < 3 * n * d; i++) dqkv[i] = (float)sqrt(squares[i]);
}

/* Copies (n,parts,d) of one head into (B,n,parts,H,d), with float32's bound. */
static void to_all(float *all, const float *one, const struct shape *s, int parts, int b, int h,
                   double more)
{
    size_t d = (size_t)s->d, row = (size_t)s->H * d, vectors = (size_t)s->n * (size_t)parts;
    for (size_t i = 0; i < vectors; i++)
        for (size_t c = 0; c < d; c++)
            all[((size_t)b * vectors + i) * row + (size_t)h * d + c] = one[i * d + c] + (float)more;
}

/* The bounds of all heads: o and lse, or dqkv if there is dout. */
static void bounds(struct pair *p, float *o, float *lse, double of_o, double of_lse, float *dqkv,
                   double of_dqkv, const struct shape *s, const float *qkv, const float *dout,
                   const uint8_t *hidden)
{
    size_t nd = (size_t)s->n * (size_t)s->d;
    int whole = s->mask.kind == PL_MASK_FULL || s->mask.kind == PL_MASK_NONE;
    float *one = pair_scratch(p, 3 * nd), *out1 = pair_scratch(p, nd);
    float *of_one = pair_scratch(p, 3 * nd), *of_lse1 = pair_scratch(p, (size_t)s->n);
    for (int b = 0; b < s->B; b++)
        for (int h = 0; h < s->H; h++) {
            struct one x = { one, out1,
                             hidden ? hidden + (size_t)b * (size_t)(whole ? s->n : s->mask.P)
                                    : NULL,
                             s->n, s->d };
            one_head(one, qkv, s, 3, b, h);
            if (dout) {
                one_head(out1, dout, s, 1, b, h);
                backward_bounds(p, of_one, s, &x);
                to_all(dqkv, of_one, s, 3, b, h, of_dqkv);
                continue;
            }
            forward_bounds(p, of_one, of_lse1, s, &x);
            to_all(o, of_one, s, 1, b, h, of_o);
            for (int i = 0; i < s->n; i++)
                lse[((size_t)b * (size_t)s->H + (size_t)h) * (size_t)s->n + (size_t)i] =
                    of_lse1[i] + (float)of_lse;
        }
}

static void forward(struct pair *p, const struct shape *s, int is_large, int with_lse, int bf16)
{
    size_t n = count(s, 1), heads = (size_t)s->B * (size_t)s->H * (size_t)s->n;
    double bound, of_lse;
    if (!starts(p, "attention", s, bf16)) return;
    struct pair_f32 qkv = pair_normal(p, 3 * n, 1), o = pair_poison(p, n),
                    lse = pair_poison(p, heads);
    struct pair_u8 hide = key_mask(p, s);
    float *none[2] = { NULL, NULL }, **kept = with_lse ? lse.at : none;
    const uint8_t *hidden[2] = { s->hide ? hide.at[0] : NULL, s->hide ? hide.at[1] : NULL };
    work(p, s, 2);
    if (is_large) pair_large(p);
    /* v is a third of qkv, and normal like the rest: its largest is within a few percent */
    bound = 2e-6 * largest(qkv.at[0], 3 * n);
    precision(p, bf16);
    PAIR(p, attention, o.at[side], kept[side], qkv.at[side], s->B, s->n, s->H, s->d, &s->mask,
         hidden[side]);
    precision(p, 0);
    /* scores of (d + 8) * 2^-24 times sum |q||k| / sqrt(d), which stays below 2 sqrt(d) here */
    of_lse = (s->d + 8) * 0x1p-24 * 2 * sqrt(s->d) + 1e-6;
    if (!is_large && bf16) {
        float *of_each = pair_scratch(p, n), *of_each_lse = pair_scratch(p, heads);
        bounds(p, of_each, of_each_lse, bound, of_lse, NULL, 0, s, qkv.at[0], NULL, hidden[0]);
        pair_within(p, "o", o.any, 1, of_each);
        if (with_lse) pair_within(p, "lse", lse.any, 1, of_each_lse);
    } else if (!is_large) {
        pair_within(p, "o", o.any, bound, NULL);
        if (with_lse) pair_within(p, "lse", lse.any, of_lse, NULL);
    } else {
        int b = s->B / 2, h = s->H / 2;
        float *one = pair_scratch(p, 3 * (size_t)s->n * (size_t)s->d);
        float *want = pair_scratch(p, (size_t)s->n * (size_t)s->d);
        float *want_lse = pair_scratch(p, (size_t)s->n);
        one_head(one, qkv.at[0], s, 3, b, h);
        float *of_o = pair_scratch(p, (size_t)s->n * (size_t)s->d);
        float *of_each_lse = pair_scratch(p, (size_t)s->n);
        struct one x = { one, NULL, NULL, s->n, s->d };
        p->side[0]->attention(want, want_lse, one, 1, s->n, 1, s->d, &s->mask, NULL);
        if (bf16) forward_bounds(p, of_o, of_each_lse, s, &x);
        compare_head(p, "o", o.any, s, 1, b, h, want, bound, of_o);
        for (int i = 0; i < s->n; i++)
            pair_element(p, "lse", lse.any, (size_t)((b * s->H + h) * s->n + i), want_lse[i],
                         of_lse + of_each_lse[i]);
    }
}

static void backward(struct pair *p, const struct shape *s, int is_large, int bf16)
{
    size_t n = count(s, 1), heads = (size_t)s->B * (size_t)s->H * (size_t)s->n;
    if (!starts(p, "attention_backward", s, bf16)) return;
    struct pair_f32 qkv = pair_normal(p, 3 * n, 1), dout = pair_normal(p, n, 1);
    struct pair_f32 o = pair_poison(p, n), lse = pair_poison(p, heads),
                    dqkv = pair_poison(p, 3 * n);
    struct pair_u8 hide = key_mask(p, s);
    const uint8_t *hidden[2] = { s->hide ? hide.at[0] : NULL, s->hide ? hide.at[1] : NULL };
    size_t nd = (size_t)s->n * (size_t)s->d;
    int b = s->B / 2, h = s->H / 2;
    float *want = NULL;
    work(p, s, 5);  /* the scores again, and four GEMMs for gradients */
    if (is_large) { /* the forward pass's results, head by head */
        pair_large(p);
        p->side[1]->attention(o.at[1], lse.at[1], qkv.at[1], s->B, s->n, s->H, s->d, &s->mask,
                              NULL);
        pair_take(p, o.any);
        pair_take(p, lse.any);
    } else {
        p->side[0]->attention(o.at[0], lse.at[0], qkv.at[0], s->B, s->n, s->H, s->d, &s->mask,
                              hidden[0]);
        pair_share(p, o.any);
        pair_share(p, lse.any);
    }
    precision(p, bf16);
    PAIR(p, attention_backward, dqkv.at[side], dout.at[side], qkv.at[side], o.at[side],
         lse.at[side], s->B, s->n, s->H, s->d, &s->mask, hidden[side]);
    precision(p, 0);
    if (!is_large && bf16) {
        float *of_each = pair_scratch(p, 3 * n);
        double most = largest(pair_result(p, dqkv.any, 0), 3 * n);
        bounds(p, NULL, NULL, 0, 0, of_each, 1e-5 * most, s, qkv.at[0], dout.at[0], hidden[0]);
        pair_within(p, "dqkv", dqkv.any, 1, of_each);
        return;
    }
    if (!is_large) {
        pair_of_largest(p, "dqkv", dqkv.any, 1e-5);
        return;
    }
    float *q1 = pair_scratch(p, 3 * nd), *do1 = pair_scratch(p, nd), *o1 = pair_scratch(p, nd);
    float *lse1 = pair_scratch(p, (size_t)s->n);
    want = pair_scratch(p, 3 * nd);
    one_head(q1, qkv.at[0], s, 3, b, h);
    one_head(do1, dout.at[0], s, 1, b, h);
    p->side[0]->attention(o1, lse1, q1, 1, s->n, 1, s->d, &s->mask, NULL);
    p->side[0]->attention_backward(want, do1, q1, o1, lse1, 1, s->n, 1, s->d, &s->mask, NULL);
    float *of_dqkv = pair_scratch(p, 3 * nd);
    struct one x = { q1, do1, NULL, s->n, s->d };
    if (bf16) backward_bounds(p, of_dqkv, s, &x);
    compare_head(p, "dqkv", dqkv.any, s, 3, b, h, want, 1e-5 * largest(want, 3 * nd), of_dqkv);
}

/* A sequence of n positions token by token would hide what one step gets wrong: positions 0..p-1
 * come from the caches alone. */
static void step(struct pair *p, const struct shape *s, int at)
{
    size_t one = (size_t)s->B * (size_t)s->H * (size_t)s->d, cache = count(s, 1);
    if (!pair_case(p, "attention_step", "%s p%d B%d S%d H%d d%d P%d F%d", kinds[s->mask.kind], at,
                   s->B, s->n, s->H, s->d, s->mask.P, s->mask.F))
        return;
    struct pair_f32 k = pair_poison(p, cache), v = pair_poison(p, cache), o = pair_poison(p, one);
    struct pair_f32 qkv = pair_normal(p, 3 * one, 1);
    for (size_t head = 0; head < (size_t)s->B * (size_t)s->H; head++)
        for (size_t i = 0; i < (size_t)at * (size_t)s->d; i++) { /* later positions stay NaN */
            size_t to = head * (size_t)s->n * (size_t)s->d + i;
            k.at[0][to] = (float)pl_rng_normal(&p->rng);
            v.at[0][to] = (float)pl_rng_normal(&p->rng);
        }
    pair_share(p, k.any);
    pair_share(p, v.any);
    pair_work(p, 0, 8.0 * (double)one * (at + 1));
    PAIR(p, attention_step, o.at[side], k.at[side], v.at[side], qkv.at[side], s->B, s->n, s->H,
         s->d, at, &s->mask);
    pair_within(p, "o", o.any, 2e-6 * 4, NULL); /* |v| of this many draws reaches about 4 */
    pair_exact(p, "k_cache", k.any);
    pair_exact(p, "v_cache", v.any);
}

static void all(struct pair *p, const struct shape *s)
{
    forward(p, s, 0, 1, 0);
    backward(p, s, 0, 0);
    if (s->mask.kind == PL_MASK_NONE || s->hide) return; /* generation is causal */
    step(p, s, 0);
    if (s->n > 1) step(p, s, s->n - 1);
    if (s->n > 2) step(p, s, pair_int(p, 1, s->n - 2));
}

static struct shape any_shape(struct pair *p, int text, int side, int channels)
{
    int P = pair_int(p, 1, text), F = pair_int(p, 1, side);
    struct shape s = { pair_int(p, 1, 3),
                       pair_int(p, 1, P + F * F),
                       pair_int(p, 1, 4),
                       pair_int(p, 1, channels),
                       { (enum pl_mask_kind)pair_int(p, 0, PL_MASK_NONE), P, F,
                         2 * pair_int(p, 0, 3) + 1, pair_int(p, 1, 2) },
                       pair_int(p, 0, 1) };
    return s;
}

static void in_bf16(struct pair *p)
{
    for (size_t i = 0; i < PL_COUNT(shapes); i++) {
        forward(p, &shapes[i], 0, 1, 1);
        backward(p, &shapes[i], 0, 1);
    }
    forward(p, &shapes[1], 0, 0, 1);
    for (int i = 0; i < 12; i++) { /* beyond a tile or two, of text and of cells */
        struct shape s = any_shape(p, 150, 14, 64);
        forward(p, &s, 0, 1, 1);
        backward(p, &s, 0, 1);
    }
    for (size_t i = 0; !pair_quick(p) && i < PL_COUNT(large); i++) {
        /* bounds in double take long: a row's and a window's, but all where times count */
        if (pair_bench(p) ? large[i].d > 64 : i != 1 && i != 3) continue;
        forward(p, &large[i], 1, 1, 1);
        backward(p, &large[i], 1, 1);
    }
}

void pair_attention(struct pair *p)
{
    for (size_t i = 0; i < PL_COUNT(shapes); i++) all(p, &shapes[i]);
    forward(p, &shapes[1], 0, 0, 0);
    for (int i = 0; i < 8; i++) {
        struct shape s = any_shape(p, 12, 9, 40);
        all(p, &s);
    }
    for (size_t i = 0; !pair_quick(p) && i < PL_COUNT(large); i++) {
        forward(p, &large[i], 1, 1, 0);
        backward(p, &large[i], 1, 0);
    }
    if (!pair_quick(p)) {
        step(p, &large[1], 1279);
        step(p, &large[2], 1000);
    }
    if (p->side[1]->set_precision(PL_BF16) != PL_OK) return;
    precision(p, 0);
    in_bf16(p);
}
