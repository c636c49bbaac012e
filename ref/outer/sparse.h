/* sparse.h - the few entries that are sent of a tensor: their values in two bits, their indices in
 * twelve, and their sum over peers. [SparseLoCo: Sarfi et al. 2025] [spec outer-steps 8, 10]
 * Host memory. */
#ifndef PL_SPARSE_H
#define PL_SPARSE_H

#include "../backend.h"
#include "chunks.h"

#ifdef __cplusplus
extern "C" {
#endif

#define PL_SPARSE_BINS_MAX 256
#define PL_SPARSE_INDEX_BITS 12

/* ---- values as codes ---- */

struct pl_sparse_levels {
    double shift, scale;              /* mean of the values, width of a bin */
    double table[PL_SPARSE_BINS_MAX]; /* mean of the values in a bin, less shift; 0: an empty bin */
};

/* codes (n) of v (n): bins of equal width over `range` standard deviations around the mean.
 *
 *   scale = range |v - shift| / sqrt(n - 1) / bins; 0 or no number gives 1
 *   code = clamp(round((v - shift) / scale) + bins / 2, 0, bins - 1), ties to even
 *
 * A NaN or an infinity would decode to NaN everywhere: PL_EUSE. 2 <= bins <= PL_SPARSE_BINS_MAX. */
int pl_sparse_quantize(uint8_t *codes, struct pl_sparse_levels *levels, const float *v, size_t n,
                       int bins, double range);
/* The value of a code: table[code] + shift, both float32. */
float pl_sparse_level(const struct pl_sparse_levels *levels, int code);

/* ---- bytes ---- */

/* Pairs (i, j) of 12-bit indices in three bytes. An odd n, or an index that does not fit: PL_EUSE,
 * and nothing is written. out (n / 2 * 3). */
int pl_pack12(uint8_t *out, const int32_t *index, size_t n);
void pl_unpack12(int32_t *index, const uint8_t *in, size_t n);

/* Our form of a tensor with n values: four levels as float32; the indices, chunk after chunk,
 * ascending in each; the codes in the same order, four a byte, the first lowest. 14 bits a value
 * and 16 bytes. n is even. */
size_t pl_sparse_bytes(size_t n);
int pl_sparse_write(uint8_t *out, const float level[4], const int32_t *index, const uint8_t *codes,
                    size_t n);
/* PL_EPROTO: an index beyond a chunk of m entries, one twice in a chunk of k, or a level that is no
 * number. value (n): the codes' levels. */
int pl_sparse_read(int32_t *index, float *value, const uint8_t *in, size_t n, int m, int k);
/* The published form (20 bits a value): indices in 12 bits, in any order within a chunk, one code a
 * byte; shift and table are apart. Sorted by index in each chunk. PL_EPROTO as above, or for a code
 * that is not in the table. */
int pl_sparse_read_published(int32_t *index, float *value, const uint8_t *wire_index,
                             const uint8_t *wire_codes, const float *table, int bins, float shift,
                             size_t n, int m, int k);

/* ---- over peers ---- */

/* sum[c m + index] += factor value and senders[...] += 1 for the k entries of each chunk c. */
void pl_sparse_add(double *sum, uint16_t *senders, const int32_t *index, const float *value,
                   double factor, size_t chunks, int m, int k);
/* mean (n) = sum / senders, 0 where no peer sent; or sum / peers for all, if peers is not 0. */
void pl_sparse_mean(float *mean, const double *sum, const uint16_t *senders, size_t n, int peers);
/* min(1, median / (norm + 1e-8)) of each of n norms; the median is the lower of the two in the
 * middle. PL_ENOMEM without memory. */
int pl_median_factors(double *factor, const double *norm, int n);

/* What is to be sent of x (n, the backend's): all its chunks, all (n), as chunk_cut makes them, and
 * the k largest entries of each, index and value (chunks, k). The last three are the host's.
 * PL_OK, PL_ENOMEM or PL_EDEVICE. */
int pl_chunks_largest(const struct pl_backend *be, int32_t *index, float *value, float *all,
                      const float *x, const struct pl_chunks *c, int k, int dct);

#ifdef __cplusplus
}
#endif
#endif
