/* chunks.h - a tensor cut into small blocks, the cosine transform of each, and its largest entries.
 * [DeMo: Peng et al. 2024] [spec outer-steps 8, 10] */
#ifndef PL_OUTER_CHUNKS_H
#define PL_OUTER_CHUNKS_H

#include "../base.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Largest side of a chunk: 64 * 64 entries are numbered in 12 bits. */
#define PL_CHUNK_SIDE_MAX 64

/* The largest divisor of n that is at most `target`; a prime n above it gives 1. n, target >= 1. */
size_t pl_chunk_side(size_t n, size_t target);

/* A tensor seen as `batch` matrices (rows, columns), each of them as chunks (h, w). A vector is one
 * row; of more than two axes the last two are the matrix. */
struct pl_chunks {
    size_t batch, rows, columns, h, w;
};
struct pl_chunks pl_chunks_of(const int64_t *shape, int axes, size_t target);
/* How many chunks there are, and the entries of one. */
size_t pl_chunks_count(const struct pl_chunks *c);
size_t pl_chunk_entries(const struct pl_chunks *c);

/* cut: x, row-major, to chunks: (batch, rows / h, columns / w, h, w), each chunk's entries one
 * after the other. With `dct` 1 each becomes its orthonormal DCT-II along both axes:
 *
 *   F[j][k] = sqrt(2 / n) cos(pi (2 j + 1) k / (2 n)), F[j][0] = sqrt(1 / n)      F_h^T X F_w
 *
 * paste: back, with the inverse transform F_h C F_w^T. y and x, of equal size, do not overlap.
 * h, w <= PL_CHUNK_SIDE_MAX. Without `dct` equal bit for bit; with it each entry is within
 * 2^-24 (h + w + 8) of the root of the chunk's sum of squares. Returns PL_OK, PL_ENOMEM or
 * PL_EDEVICE. */
typedef int pl_chunk_cut_fn(float *y, const float *x, const struct pl_chunks *c, int dct);
typedef int pl_chunk_paste_fn(float *y, const float *x, const struct pl_chunks *c, int dct);

/* The k entries of largest |x| in each of `chunks` chunks of m entries: index (chunks, k),
 * ascending in each chunk, value (chunks, k). Of equal ones the lower index comes first. No NaN;
 * callers check. 1 <= k <= m <= PL_CHUNK_SIDE_MAX^2. Equal bit for bit. */
typedef int pl_chunk_topk_fn(int32_t *index, float *value, const float *x, size_t chunks, int m,
                             int k);

pl_chunk_cut_fn ref_chunk_cut, fast_chunk_cut, cuda_chunk_cut;
pl_chunk_paste_fn ref_chunk_paste, fast_chunk_paste, cuda_chunk_paste;
pl_chunk_topk_fn ref_chunk_topk, fast_chunk_topk, cuda_chunk_topk;

/* basis (n,n) = F. */
void pl_dct_basis(double *basis, size_t n);

#ifdef __cplusplus
}
#endif
#endif
