/* chunks.c - cosine transforms as two matrix products a chunk, one thread each, and the largest
 * entries by counting: a histogram of the sizes' bits finds the smallest size that is kept, eleven
 * bits at a time, without sorting anything. Chunks do not meet: any number of threads gives the
 * same bits. */
#include "fast.h"

#include <math.h>
#include <string.h>

#define ENTRIES_MAX (PL_CHUNK_SIDE_MAX * PL_CHUNK_SIDE_MAX)
#define SIDE PL_CHUNK_SIDE_MAX

struct bases {
    float h[SIDE * SIDE], w[SIDE * SIDE]; /* F_h, F_w */
};

static void fill_basis(float *F, size_t n, double *scratch)
{
    pl_dct_basis(scratch, n);
    for (size_t i = 0; i < n * n; i++) F[i] = (float)scratch[i];
}

/* F_h^T X F_w, or F_h X F_w^T */
static void transform(float *x, const struct bases *f, int h, int w, int inverse)
{
    float half[ENTRIES_MAX];
    fast_gemm(0, inverse, h, w, w, x, w, f->w, w, NULL, 0, half, w);
    fast_gemm(!inverse, 0, h, w, h, f->h, h, half, w, NULL, 0, x, w);
}

static void copy_rows(float *to, size_t to_step, const float *from, size_t from_step, size_t h,
                      size_t w)
{
    for (size_t i = 0; i < h; i++) memcpy(to + i * to_step, from + i * from_step, w * sizeof *to);
}

static int each_chunk(float *y, const float *x, const struct pl_chunks *c, int dct, int inverse)
{
    size_t h = c->h, w = c->w, across = c->columns / w, down = c->rows / h, m = h * w;
    size_t count = pl_chunks_count(c);
    struct bases *f = NULL;
    if (dct) {
        double *scratch = pl_alloc(SIDE * SIDE, sizeof *scratch);
        f = pl_alloc(1, sizeof *f);
        if (f && scratch) {
            fill_basis(f->h, h, scratch);
            fill_basis(f->w, w, scratch);
        } else {
            pl_free(f);
            f = NULL;
        }
        pl_free(scratch);
        if (!f) return PL_ENOMEM;
    }
#pragma omp parallel for schedule(static) num_threads(fast_threads()) if (count * m > 16384)
    for (size_t k = 0; k < count; k++) {
        size_t at = (k / across / down * c->rows + k / across % down * h) * c->columns +
                    k % across * w;
        float chunk[ENTRIES_MAX];
        if (inverse) memcpy(chunk, x + k * m, m * sizeof *chunk);
        else copy_rows(chunk, w, x + at, c->columns, h, w);
        if (dct) transform(chunk, f, (int)h, (int)w, inverse);
        if (inverse) copy_rows(y + at, c->columns, chunk, w, h, w);
        else memcpy(y + k * m, chunk, m * sizeof *chunk);
    }
    pl_free(f);
    return PL_OK;
}

int fast_chunk_cut(float *y, const float *x, const struct pl_chunks *c, int dct)
{
    return each_chunk(y, x, c, dct, 0);
}

int fast_chunk_paste(float *y, const float *x, const struct pl_chunks *c, int dct)
{
    int rc = each_chunk(y, x, c, dct, 1);
    fast_written(y, pl_chunks_count(c) * pl_chunk_entries(c) * sizeof *y);
    return rc;
}

/* ---- the largest ---- */

#define BINS 2048 /* eleven bits: three passes over the 31 of a size */

/* A float's size, in an integer of the same order. */
static uint32_t key_of(float x)
{
    uint32_t bits;
    memcpy(&bits, &x, 4);
    return bits & 0x7fffffff;
}

/* The k-th largest key, and in *equal how many keys of just this size are kept. */
static uint32_t least_kept(const uint32_t *key, int m, int k, int *equal)
{
    static const int shifts[] = { 20, 9, 0 };
    uint32_t found = 0, mask = 0;
    for (int pass = 0; pass < 3; pass++) {
        int count[BINS] = { 0 }, shift = shifts[pass], bin;
        uint32_t bins = pass == 2 ? 512 : BINS;
        for (int i = 0; i < m; i++)
            if ((key[i] & mask) == found) count[key[i] >> shift & (bins - 1)]++;
        for (bin = (int)bins - 1; count[bin] < k; bin--) k -= count[bin];
        found |= (uint32_t)bin << shift;
        mask |= (bins - 1) << shift;
    }
    *equal = k;
    return found;
}

static void topk(int32_t *index, float *value, const float *x, int m, int k)
{
    uint32_t key[ENTRIES_MAX], least;
    int equal, n = 0;
    for (int i = 0; i < m; i++) key[i] = key_of(x[i]);
    least = least_kept(key, m, k, &equal);
    for (int i = 0; n < k; i++) {
        if (key[i] < least || (key[i] == least && equal-- <= 0)) continue;
        index[n] = i;
        value[n++] = x[i];
    }
}

int fast_chunk_topk(int32_t *index, float *value, const float *x, size_t chunks, int m, int k)
{
#pragma omp parallel for schedule(static) num_threads(fast_threads()) if (chunks > 1)
    for (size_t c = 0; c < chunks; c++)
        topk(index + c * (size_t)k, value + c * (size_t)k, x + c * (size_t)m, m, k);
    return PL_OK;
}
