/* chunks.c - few numbers that say much of a matrix. Neighbouring weights move together, so the
 * cosine transform of a small block of changes has a few large coefficients and many small ones:
 * those few are sent. Blocks, and not the whole matrix, because a block's transform costs h + w
 * products an entry, and because an index within it takes 12 bits.
 * [DeMo: Peng et al. 2024] [spec outer-steps 8] */
#include "chunks.h"

#include "../dgc.h"

#include <assert.h>
#include <math.h>
#include <stdlib.h>

#define ENTRIES_MAX (PL_CHUNK_SIDE_MAX * PL_CHUNK_SIDE_MAX)

/* A divisor, so that all chunks are alike and none is padded. The published code's rule: peers that
 * cut otherwise would number other entries. */
size_t pl_chunk_side(size_t n, size_t target)
{
    size_t side = n < target ? n : target;
    while (n % side) side--;
    return side;
}

/* A tensor (.., rows, columns) is a batch of matrices, a vector one row: shape (a,b,c) gives a
 * matrices of b rows and c columns, each cut into chunks of h x w. */
struct pl_chunks pl_chunks_of(const int64_t *shape, int axes, size_t target)
{
    struct pl_chunks c = { .batch = 1, .rows = 1, .columns = 1 };
    for (int i = 0; i < axes - 2; i++) c.batch *= (size_t)shape[i];
    if (axes > 1) c.rows = (size_t)shape[axes - 2];
    if (axes > 0) c.columns = (size_t)shape[axes - 1];
    c.h = pl_chunk_side(c.rows, target);
    c.w = pl_chunk_side(c.columns, target);
    return c;
}

size_t pl_chunks_count(const struct pl_chunks *c)
{
    return c->batch * (c->rows / c->h) * (c->columns / c->w);
}

size_t pl_chunk_entries(const struct pl_chunks *c) { return c->h * c->w; }

/* The orthonormal cosine transform (DCT-II) as a matrix:
 *
 *   F[j][0] = sqrt(1 / n)
 *   F[j][k] = sqrt(2 / n) cos(pi (2 j + 1) k / (2 n)),  k > 0
 *
 * Column k is a cosine of k half periods over n samples; columns have length 1 and are
 * orthogonal. */
void pl_dct_basis(double *basis, size_t n)
{
    const double pi = 3.14159265358979323846, N = (double)n;
    for (size_t j = 0; j < n; j++)
        for (size_t k = 0; k < n; k++)
            basis[j * n + k] = k ? sqrt(2 / N) * cos(pi * (2 * (double)j + 1) * (double)k / (2 * N))
                                 : sqrt(1 / N);
}

/* F_h^T X F_w, or the inverse F_h X F_w^T: first along the rows of X, then along its columns. F is
 * orthonormal, so its inverse is its transpose. */
static void transform(double *x, size_t h, size_t w, const double *Fh, const double *Fw,
                      int inverse)
{
    double row[PL_CHUNK_SIDE_MAX];
    for (size_t i = 0; i < h; i++) { /* X F_w: sum_j X[i][j] F[j][k] */
        for (size_t k = 0; k < w; k++) {
            row[k] = 0;
            for (size_t j = 0; j < w; j++)
                row[k] += x[i * w + j] * (inverse ? Fw[k * w + j] : Fw[j * w + k]);
        }
        for (size_t k = 0; k < w; k++) x[i * w + k] = row[k];
    }
    for (size_t i = 0; i < w; i++) { /* F_h^T (X F_w) */
        for (size_t k = 0; k < h; k++) {
            row[k] = 0;
            for (size_t j = 0; j < h; j++)
                row[k] += x[j * w + i] * (inverse ? Fh[k * h + j] : Fh[j * h + k]);
        }
        for (size_t k = 0; k < h; k++) x[k * w + i] = row[k];
    }
}

/* Where the first entry of the chunk'th chunk lies in the row-major tensor. Chunks are numbered
 * matrix by matrix, from left to right, then down. */
static size_t first_entry(const struct pl_chunks *c, size_t chunk)
{
    size_t across = c->columns / c->w, down = c->rows / c->h;
    size_t column = chunk % across, row = chunk / across % down, matrix = chunk / across / down;
    return (matrix * c->rows + row * c->h) * c->columns + column * c->w;
}

/* Each chunk is copied out, transformed, and copied to where it belongs; they do not overlap. */
static int each_chunk(float *y, const float *x, const struct pl_chunks *c, int dct, int inverse)
{
    size_t h = c->h, w = c->w;
    double *bases = pl_alloc(h * h + w * w, sizeof *bases), *Fh = bases, *Fw = bases + h * h;
    double chunk[ENTRIES_MAX];
    if (!bases) return PL_ENOMEM;
    assert(h <= PL_CHUNK_SIDE_MAX && w <= PL_CHUNK_SIDE_MAX);
    pl_dct_basis(Fh, h);
    pl_dct_basis(Fw, w);
    for (size_t k = 0; k < pl_chunks_count(c); k++) {
        size_t at = first_entry(c, k);
        for (size_t i = 0; i < h * w; i++)
            chunk[i] = inverse ? x[k * h * w + i] : x[at + i / w * c->columns + i % w];
        if (dct) transform(chunk, h, w, Fh, Fw, inverse);
        for (size_t i = 0; i < h * w; i++)
            if (inverse) y[at + i / w * c->columns + i % w] = (float)chunk[i];
            else y[k * h * w + i] = (float)chunk[i];
    }
    pl_free(bases);
    return PL_OK;
}

/* y = the chunks of x, one after the other, each transformed if dct is 1. */
int ref_chunk_cut(float *y, const float *x, const struct pl_chunks *c, int dct)
{
    return each_chunk(y, x, c, dct, 0);
}

/* The inverse: ref_chunk_paste(ref_chunk_cut(x)) is x, but for the transform's rounding. */
int ref_chunk_paste(float *y, const float *x, const struct pl_chunks *c, int dct)
{
    return each_chunk(y, x, c, dct, 1);
}

/* The k entries of each chunk with the largest |x|. Sorting m entries to keep k is slow and easy to
 * check; fast/chunks.c finds the k-th size by its bits. */
int ref_chunk_topk(int32_t *index, float *value, const float *x, size_t chunks, int m, int k)
{
    struct pl_entry entries[ENTRIES_MAX];
    assert(1 <= k && k <= m && m <= ENTRIES_MAX);
    for (size_t c = 0; c < chunks; c++) {
        const float *chunk = x + c * (size_t)m;
        for (int i = 0; i < m; i++) entries[i] = (struct pl_entry){ fabsf(chunk[i]), (uint32_t)i };
        pl_largest_first(entries, (size_t)m, (size_t)k);
        for (int i = 0; i < k; i++) {
            *index++ = (int32_t)entries[i].index;
            *value++ = chunk[entries[i].index];
        }
    }
    return PL_OK;
}
