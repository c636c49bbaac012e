/* pair_attention.c - masked attention, its gradients, and the cached step of generation. */
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
    { 2, 11, 2, 7, { PL_MASK_NONE, 1, 4, 0, 0 }, 1 },
    { 1, 50, 12, 64, { PL_MASK_NONE, 50, 0, 0, 0 }, 0 },        /* CLIP's image tower */
    { 1, 3 + 25, 2, 9, { PL_MASK_ROW, 3, 5, 0, 0 }, 1 },
    { 2, 3 + 17, 3, 16, { PL_MASK_COL, 3, 5, 0, 0 }, 0 },       /* ends within a row */
    { 1, 2 + 36, 1, 24, { PL_MASK_CONV, 2, 6, 3, 1 }, 1 },
    { 1, 2 + 49, 2, 12, { PL_MASK_CONV, 2, 7, 5, 2 }, 0 },
    { 1, 3 + 36, 2, 10, { PL_MASK_CONV_CORNER, 3, 6, 3, 1 }, 0 },
    { 1, 5, 2, 6, { PL_MASK_ROW, 9, 3, 0, 0 }, 0 },             /* within the text */
    { 1, 4 + 1, 2, 6, { PL_MASK_COL, 4, 1, 0, 0 }, 0 },         /* a grid of one cell */
    { 3, 17 + 63, 4, 32, { PL_MASK_ROW, 17, 8, 0, 0 }, 0 },     /* the demo's */
    { 3, 17 + 63, 4, 32, { PL_MASK_COL, 17, 8, 0, 0 }, 0 },
    { 3, 17 + 63, 4, 32, { PL_MASK_CONV, 17, 8, 5, 1 }, 0 },
    { 1, 320, 8, 64, { PL_MASK_COL, 65, 16, 0, 0 }, 0 },
    { 1, 600, 1, 20, { PL_MASK_FULL, 17, 25, 0, 0 }, 1 },       /* one head, many queries */
    { 1, 530, 1, 70, { PL_MASK_NONE, 530, 0, 0, 0 }, 2 },
    { 1, 300, 1, 12, { PL_MASK_ROW, 3, 70, 0, 0 }, 1 },         /* a wide grid */
    { 1, 64, 1, 8, { PL_MASK_ROW, 0, 8, 0, 0 }, 0 },            /* no text */
    { 2, 20, 2, 9, { PL_MASK_COL, 17, 7, 0, 0 }, 0 },           /* fewer cells than columns */
};

/* Too long for the reference: one head of one sequence stands for all. */
static const struct shape large[] = {
    { 64, 80, 4, 32, { PL_MASK_ROW, 17, 8, 0, 0 }, 0 },
    { 1, 1280, 16, 64, { PL_MASK_ROW, 257, 32, 0, 0 }, 0 },
    { 1, 1280, 16, 64, { PL_MASK_COL, 257, 32, 0, 0 }, 0 },
    { 1, 1280, 16, 64, { PL_MASK_CONV, 257, 32, 11, 1 }, 0 },
    { 1, 1024, 12, 64, { PL_MASK_FULL, 1024, 0, 0, 0 }, 0 },    /* GPT-2 */
    { 1, 1024, 1, 512, { PL_MASK_NONE, 1024, 0, 0, 0 }, 0 },    /* VQGAN */
};

static const char *const kinds[] = { "full", "row", "col", "conv", "corner", "none" };

static size_t count(const struct shape *s, int per_position)
{
    return (size_t)s->B * (size_t)s->n * (size_t)s->H * (size_t)s->d * (size_t)per_position;
}

static int starts(struct pair *p, const char *op, const struct shape *s)
{
    return pair_case(p, op, "%s B%d n%d H%d d%d P%d F%d k%d,%d%s", kinds[s->mask.kind], s->B, s->n,
                     s->H, s->d, s->mask.P, s->mask.F, s->mask.kernel, s->mask.dilation,
                     s->hide == 2 ? " no keys"
                     : s->hide    ? " hidden keys"
                                  : "");
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

/* Scores and weighted sums, two products each; `products` of them. */
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
                         double allowed)
{
    size_t d = (size_t)s->d, row = (size_t)s->H * d;
    for (size_t i = 0; i < (size_t)s->n * (size_t)parts; i++)
        for (size_t c = 0; c < d; c++)
            pair_element(p, name, any,
                         ((size_t)b * (size_t)s->n * (size_t)parts + i) * row + (size_t)h * d + c,
                         want[i * d + c], allowed);
}

static void forward(struct pair *p, const struct shape *s, int is_large, int with_lse)
{
    size_t n = count(s, 1), heads = (size_t)s->B * (size_t)s->H * (size_t)s->n;
    double bound, of_lse;
    if (!starts(p, "attention", s)) return;
    struct pair_f32 qkv = pair_normal(p, 3 * n, 1), o = pair_poison(p, n),
                    lse = pair_poison(p, heads);
    struct pair_u8 hide = key_mask(p, s);
    float *none[2] = { NULL, NULL }, **kept = with_lse ? lse.at : none;
    const uint8_t *hidden[2] = { s->hide ? hide.at[0] : NULL, s->hide ? hide.at[1] : NULL };
    work(p, s, 2);
    if (is_large) pair_large(p);
    /* v is a third of qkv, and normal like the rest: its largest is within a few percent */
    bound = 2e-6 * largest(qkv.at[0], 3 * n);
    PAIR(p, attention, o.at[side], kept[side], qkv.at[side], s->B, s->n, s->H, s->d, &s->mask,
         hidden[side]);
    /* scores of (d + 8) * 2^-24 times sum |q||k| / sqrt(d), which stays below 2 sqrt(d) here */
    of_lse = (s->d + 8) * 0x1p-24 * 2 * sqrt(s->d) + 1e-6;
    if (!is_large) {
        pair_within(p, "o", o.any, bound, NULL);
        if (with_lse) pair_within(p, "lse", lse.any, of_lse, NULL);
        return;
    }
    {
        int b = s->B / 2, h = s->H / 2;
        float *one = pair_scratch(p, 3 * (size_t)s->n * (size_t)s->d);
        float *want = pair_scratch(p, (size_t)s->n * (size_t)s->d);
        float *want_lse = pair_scratch(p, (size_t)s->n);
        one_head(one, qkv.at[0], s, 3, b, h);
        p->side[0]->attention(want, want_lse, one, 1, s->n, 1, s->d, &s->mask, NULL);
        compare_head(p, "o", o.any, s, 1, b, h, want, bound);
        for (int i = 0; i < s->n; i++)
            pair_element(p, "lse", lse.any, (size_t)((b * s->H + h) * s->n + i), want_lse[i],
                         of_lse);
    }
}

static void backward(struct pair *p, const struct shape *s, int is_large)
{
    size_t n = count(s, 1), heads = (size_t)s->B * (size_t)s->H * (size_t)s->n;
    if (!starts(p, "attention_backward", s)) return;
    struct pair_f32 qkv = pair_normal(p, 3 * n, 1), dout = pair_normal(p, n, 1);
    struct pair_f32 o = pair_poison(p, n), lse = pair_poison(p, heads),
                    dqkv = pair_poison(p, 3 * n);
    struct pair_u8 hide = key_mask(p, s);
    const uint8_t *hidden[2] = { s->hide ? hide.at[0] : NULL, s->hide ? hide.at[1] : NULL };
    size_t nd = (size_t)s->n * (size_t)s->d;
    int b = s->B / 2, h = s->H / 2;
    float *want = NULL;
    work(p, s, 5); /* the scores again, and four products of gradients */
    if (is_large) { /* what the forward pass leaves, head by head */
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
    PAIR(p, attention_backward, dqkv.at[side], dout.at[side], qkv.at[side], o.at[side],
         lse.at[side], s->B, s->n, s->H, s->d, &s->mask, hidden[side]);
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
    compare_head(p, "dqkv", dqkv.any, s, 3, b, h, want, 1e-5 * largest(want, 3 * nd));
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
        for (size_t i = 0; i < (size_t)at * (size_t)s->d; i++) { /* later places stay NaN */
            size_t to = head * (size_t)s->n * (size_t)s->d + i;
            k.at[0][to] = (float)pl_rng_normal(&p->rng);
            v.at[0][to] = (float)pl_rng_normal(&p->rng);
        }
    pair_share(p, k.any);
    pair_share(p, v.any);
    pair_work(p, 0, 8.0 * (double)one * (at + 1));
    PAIR(p, attention_step, o.at[side], k.at[side], v.at[side], qkv.at[side], s->B, s->n, s->H,
         s->d, at, &s->mask);
    pair_within(p, "o", o.any, 2e-6 * 4, NULL); /* |v| of so many draws reaches about 4 */
    pair_exact(p, "k_cache", k.any);
    pair_exact(p, "v_cache", v.any);
}

static void all(struct pair *p, const struct shape *s)
{
    forward(p, s, 0, 1);
    backward(p, s, 0);
    if (s->mask.kind == PL_MASK_NONE || s->hide) return; /* generation is causal */
    step(p, s, 0);
    if (s->n > 1) step(p, s, s->n - 1);
    if (s->n > 2) step(p, s, pair_int(p, 1, s->n - 2));
}

void pair_attention(struct pair *p)
{
    for (size_t i = 0; i < PL_COUNT(shapes); i++) all(p, &shapes[i]);
    forward(p, &shapes[1], 0, 0);
    for (int i = 0; i < 8; i++) {
        int P = pair_int(p, 1, 12), F = pair_int(p, 1, 9);
        struct shape s = { pair_int(p, 1, 3), pair_int(p, 1, P + F * F), pair_int(p, 1, 4),
                           pair_int(p, 1, 40),
                           { (enum pl_mask_kind)pair_int(p, 0, PL_MASK_NONE), P, F,
                             2 * pair_int(p, 0, 3) + 1, pair_int(p, 1, 2) },
                           pair_int(p, 0, 1) };
        all(p, &s);
    }
    for (size_t i = 0; !pair_quick(p) && i < PL_COUNT(large); i++) {
        forward(p, &large[i], 1, 1);
        backward(p, &large[i], 1);
    }
    if (pair_quick(p)) return;
    step(p, &large[1], 1279);
    step(p, &large[2], 1000);
}
