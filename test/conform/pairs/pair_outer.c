/* pair_outer.c - outer steps, E3M0 and chunks against the reference's: peers with different hardware
 * must make the same of the same messages, so all but the cosine transform is equal bit for bit. */
#include "pair.h"
#include "pairs.h"

#include <math.h>
#include <string.h>

static const size_t lengths[] = { 1, 2, 7, 63, 1000, 4097, 70003, 1 << 20 };

static void steps(struct pair *p, size_t n, float mu, float nu)
{
    if (pair_case(p, "outer_nesterov", "n%zu mu%g nu%g", n, mu, nu)) {
        struct pair_f32 phi = pair_normal(p, n, 1), b = pair_normal(p, n, 0.1);
        struct pair_f32 g = pair_normal(p, n, 0.1);
        pair_work(p, 0, 20.0 * (double)n);
        PAIR(p, outer_nesterov, phi.at[side], b.at[side], g.at[side], n, mu, nu);
        pair_exact(p, "phi", phi.any);
        pair_exact(p, "b", b.any);
    }
    if (pair_case(p, "outer_mix", "n%zu alpha%g", n, mu)) {
        struct pair_f32 theta = pair_normal(p, n, 1), phi = pair_normal(p, n, 1);
        pair_work(p, 0, 12.0 * (double)n);
        PAIR(p, outer_mix, theta.at[side], phi.at[side], n, mu);
        pair_exact(p, "theta", theta.any);
    }
    if (pair_case(p, "outer_gossip", "n%zu mu%g nu%g", n, mu, nu)) {
        struct pair_f32 phi = pair_normal(p, n, 1), b = pair_normal(p, n, 0.1);
        struct pair_f32 change = pair_normal(p, n, 0.1), mean = pair_normal(p, n, 1);
        pair_work(p, 0, 24.0 * (double)n);
        PAIR(p, outer_gossip, phi.at[side], b.at[side], change.at[side], mean.at[side], n, mu, nu,
             0.6f);
        pair_exact(p, "phi", phi.any);
        pair_exact(p, "b", b.any);
    }
    if (pair_case(p, "sign_step", "n%zu", n)) {
        struct pair_f32 x = pair_normal(p, n, 1), u = pair_normal(p, n, 1);
        for (size_t i = 0; i < n; i += 3) u.at[0][i] = i % 2 ? 0.0f : -0.0f;
        pair_share(p, u.any);
        pair_work(p, 0, 12.0 * (double)n);
        PAIR(p, sign_step, x.at[side], u.at[side], n, nu);
        pair_exact(p, "x", x.any);
    }
}

/* Values of many sizes, exact ties, blocks of zeros, and numbers below the normal ones. */
static void fill_uneven(struct pair *p, float *x, size_t n, size_t block)
{
    for (size_t i = 0; i < n; i++) {
        double size = ldexp(1, (int)pl_rng_below(&p->rng, 12) - 10);
        x[i] = (float)(pl_rng_normal(&p->rng) * size);
        if (i % 5 == 1) x[i] = i % 2 ? (float)size : (float)(-0.75 * size);
        if (i / block % 4 == 1) x[i] = i % 2 ? -0.0f : 0.0f;
        if (i / block % 4 == 2) x[i] *= 1e-38f;
        if (i / block % 4 == 3) x[i] *= 1e38f / 64;
    }
}

static void e3m0(struct pair *p, size_t n, size_t block)
{
    size_t bytes = pl_e3m0_bytes(n, block);
    if (pair_case(p, "e3m0_encode", "n%zu block%zu", n, block)) {
        struct pair_u8 out = pair_u8_poison(p, bytes);
        struct pair_f32 x = pair_normal(p, n, 1);
        fill_uneven(p, x.at[0], n, block);
        pair_share(p, x.any);
        pair_work(p, 0, 4.5 * (double)n);
        PAIR(p, e3m0_encode, out.at[side], x.at[side], n, block);
        pair_exact(p, "bytes", out.any);
    }
    if (pair_case(p, "e3m0_decode", "n%zu block%zu", n, block)) {
        uint8_t *draws = (uint8_t *)pair_scratch(p, (bytes + 3) / 4);
        struct pair_f32 x = pair_poison(p, n);
        struct pair_u8 in;
        for (size_t i = 0; i < bytes; i++) draws[i] = (uint8_t)pl_rng_below(&p->rng, 256);
        for (size_t at = 0, k = 0; at < n; at += block, k++) { /* scales that are numbers */
            float s = (float)ldexp(1 + pl_rng_uniform(&p->rng),
                                   (int)pl_rng_below(&p->rng, 270) - 145);
            memcpy(draws + k * (4 + (block + 1) / 2), &s, 4);
        }
        in = pair_u8_values(p, draws, bytes);
        pair_work(p, 0, 4.5 * (double)n);
        PAIR(p, e3m0_decode, x.at[side], in.at[side], n, block);
        pair_exact(p, "x", x.any);
    }
}

static const struct {
    int64_t shape[4];
    int axes;
    size_t target;
} tensors[] = {
    { { 1 }, 1, 64 },           { { 45 }, 1, 64 },         { { 67, 13 }, 2, 64 }, /* a prime side */
    { { 3, 5, 7, 9 }, 4, 4 },   { { 64, 96 }, 2, 64 },     { { 50, 26 }, 2, 64 },
    { { 2, 128, 192 }, 3, 32 }, { { 1024, 1024 }, 2, 64 },
};

/* Sums in float32 of h and w terms: as the contract allows, of the root of the chunk's squares. */
static void bound(const struct pl_chunks *c, float *scale, const float *x, int is_cut)
{
    size_t m = pl_chunk_entries(c), across = c->columns / c->w, down = c->rows / c->h;
    for (size_t k = 0; k < pl_chunks_count(c); k++) {
        size_t first = (k / across / down * c->rows + k / across % down * c->h) * c->columns +
                       k % across * c->w;
        double squares = 0;
        for (size_t i = 0; i < m; i++) {
            double v = is_cut ? x[k * m + i] : x[first + i / c->w * c->columns + i % c->w];
            squares += v * v;
        }
        for (size_t i = 0; i < m; i++)
            scale[is_cut ? k * m + i : first + i / c->w * c->columns + i % c->w] =
                (float)(sqrt(squares) * 0x1p-24 * (double)(c->h + c->w + 8));
    }
}

static void chunks(struct pair *p, size_t t, int dct)
{
    struct pl_chunks c = pl_chunks_of(tensors[t].shape, tensors[t].axes, tensors[t].target);
    size_t n = c.batch * c.rows * c.columns;
    double flops = dct ? 2.0 * (double)n * (double)(c.h + c.w) : 0;
    for (int paste = 0; paste <= 1; paste++) {
        struct pair_f32 x, y;
        float *scale;
        if (!pair_case(p, paste ? "chunk_paste" : "chunk_cut", "%zux%zux%zu by %zux%zu dct%d",
                       c.batch, c.rows, c.columns, c.h, c.w, dct))
            continue;
        x = pair_normal(p, n, 1);
        y = pair_poison(p, n);
        scale = pair_scratch(p, n);
        pair_work(p, flops, 8.0 * (double)n);
        if (paste) PAIR(p, chunk_paste, y.at[side], x.at[side], &c, dct);
        else PAIR(p, chunk_cut, y.at[side], x.at[side], &c, dct);
        if (!dct) {
            pair_exact(p, "y", y.any);
            continue;
        }
        bound(&c, scale, pair_before(p, x.any), paste);
        if (paste) { /* the input is in chunks, the output is not */
            float *moved = pair_scratch(p, n);
            ref_chunk_paste(moved, scale, &c, 0);
            memcpy(scale, moved, n * sizeof *scale);
        } else {
            float *moved = pair_scratch(p, n);
            ref_chunk_cut(moved, scale, &c, 0);
            memcpy(scale, moved, n * sizeof *scale);
        }
        pair_within(p, "y", y.any, 1, scale);
    }
}

static const struct {
    size_t chunks;
    int m, k;
} picks[] = {
    { 1, 1, 1 },    { 3, 2, 1 },     { 5, 13, 13 },     { 2, 45, 32 },     { 7, 64, 7 },
    { 3, 1024, 9 }, { 2, 4096, 64 }, { 4, 4096, 4096 }, { 1, 4000, 3999 }, { 256, 4096, 64 },
};

/* With many equal entries the lower index wins. */
static void topk(struct pair *p, size_t c, int ties)
{
    size_t n = picks[c].chunks * (size_t)picks[c].m, kept = picks[c].chunks * (size_t)picks[c].k;
    struct pair_f32 x, value;
    struct pair_i32 index;
    if (!pair_case(p, "chunk_topk", "%zu of %d: %d%s", picks[c].chunks, picks[c].m, picks[c].k,
                   ties ? " ties" : ""))
        return;
    x = pair_normal(p, n, 1);
    for (size_t i = 0; ties && i < n; i++)
        x.at[0][i] = (float)((int)pl_rng_below(&p->rng, 5) - 2) * (i % 3 ? 1 : 1e-40f);
    pair_share(p, x.any);
    value = pair_poison(p, kept);
    index = pair_ids(p, kept, -2, -1);
    pair_work(p, 0, 4.0 * (double)n);
    PAIR(p, chunk_topk, index.at[side], value.at[side], x.at[side], picks[c].chunks, picks[c].m,
         picks[c].k);
    pair_exact(p, "index", index.any);
    pair_exact(p, "value", value.any);
}

void pair_outer(struct pair *p)
{
    for (size_t i = 0; i < PL_COUNT(lengths); i++) {
        steps(p, lengths[i], 0.9f, 0.7f);
        steps(p, lengths[i], 0, 1);
        e3m0(p, lengths[i], 4096);
        e3m0(p, lengths[i], 7);
        e3m0(p, lengths[i], 64);
    }
    for (size_t t = 0; t < PL_COUNT(tensors); t++)
        for (int dct = 0; dct <= 1; dct++) chunks(p, t, dct);
    for (size_t c = 0; c < PL_COUNT(picks); c++)
        for (int ties = 0; ties <= 1; ties++) topk(p, c, ties);
    for (int i = 0; i < 6; i++) { /* drawn shapes */
        size_t n = (size_t)pair_int(p, 1, 3000);
        steps(p, n, 0.5f, 0.3f);
        e3m0(p, n, (size_t)pair_int(p, 1, 300));
    }
}
