/* sparse.c - 14 bits for a value that is sent, nothing for the rest: 146 times fewer than float32
 * if 64 of 4096 are. Two bits suffice for the values, because the largest entries of a chunk lie in
 * two clusters, one on each side of zero: in effect a sign and a magnitude for each side. The error
 * goes back into the error feedback. [SparseLoCo: Sarfi et al. 2025] [spec outer-steps 10] */
#include "sparse.h"
#include "../byte_order.h"
#include "../small.h"

#include <assert.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define NORM_EPS 1e-8 /* the published code's */

/* Of the n entries v that one tensor sends, in sums of double:
 *
 *   shift = mean(v),  sigma = |v - shift| / sqrt(n - 1)
 *   scale = range sigma / bins                          range 6, 4 bins: 1.5 sigma a bin
 *   code  = clamp(round((v - shift) / scale) + bins / 2, 0, bins - 1)
 *   table[code] = mean of v - shift over the entries with that code
 *
 * A value is decoded to its bin's mean, not to the bin's middle: the mean has the least squared
 * error. A NaN or an infinity would make every value one, so it is refused. */
int pl_sparse_quantize(uint8_t *codes, struct pl_sparse_levels *levels, const float *v, size_t n,
                       int bins, double range)
{
    size_t count[PL_SPARSE_BINS_MAX] = { 0 };
    double shift = 0, squares = 0, scale;
    assert(2 <= bins && bins <= PL_SPARSE_BINS_MAX);
    memset(levels, 0, sizeof *levels);
    for (size_t i = 0; i < n; i++) shift += v[i];
    if (n) shift /= (double)n;
    for (size_t i = 0; i < n; i++) squares += (v[i] - shift) * (v[i] - shift);
    if (!isfinite(squares)) return PL_EUSE;
    /* the bins together are `range` sigma wide */
    scale = n > 1 ? range * sqrt(squares / (double)(n - 1)) / bins : 0;
    if (!isfinite((float)scale) || (float)scale == 0) scale = 1; /* of float32, as published */
    /* ties to even, as torch.round */
    for (size_t i = 0; i < n; i++) {
        double code = rint((v[i] - shift) / scale + bins / 2);
        codes[i] = (uint8_t)(code < 0 ? 0 : code > bins - 1 ? bins - 1 : code);
        levels->table[codes[i]] += v[i] - shift;
        count[codes[i]]++;
    }
    for (int c = 0; c < bins; c++)
        if (count[c]) levels->table[c] /= (double)count[c];
    levels->shift = shift;
    levels->scale = scale;
    return PL_OK;
}

/* The value of a code: table[code] + shift, added in float32 as published. */
float pl_sparse_level(const struct pl_sparse_levels *levels, int code)
{
    return (float)levels->table[code] + (float)levels->shift;
}

/* Two indices i, j of 12 bits in three bytes, the low bits first:
 *
 *   byte 0   i & 255
 *   byte 1   i >> 8 | (j & 15) << 4
 *   byte 2   j >> 4 */
int pl_pack12(uint8_t *out, const int32_t *index, size_t n)
{
    if (n % 2) return PL_EUSE;
    for (size_t i = 0; i < n; i++)
        if (index[i] < 0 || index[i] >= 1 << PL_SPARSE_INDEX_BITS) return PL_EUSE;
    for (size_t i = 0; i < n; i += 2) {
        uint32_t a = (uint32_t)index[i], b = (uint32_t)index[i + 1];
        *out++ = (uint8_t)a;
        *out++ = (uint8_t)(a >> 8 | (b & 15) << 4);
        *out++ = (uint8_t)(b >> 4);
    }
    return PL_OK;
}

void pl_unpack12(int32_t *index, const uint8_t *in, size_t n)
{
    for (size_t i = 0; i + 1 < n; i += 2, in += 3) {
        index[i] = in[0] | (in[1] & 15) << 8;
        index[i + 1] = in[1] >> 4 | in[2] << 4;
    }
}

/* 4 levels as float32 | n indices of 12 bits | n codes of 2 bits: 14 bits an entry, and 16
 * bytes. */
size_t pl_sparse_bytes(size_t n) { return 4 * sizeof(float) + n / 2 * 3 + (n + 3) / 4; }

/* Codes lie four a byte, the first in the lowest bits. */
int pl_sparse_write(uint8_t *out, const float level[4], const int32_t *index, const uint8_t *codes,
                    size_t n)
{
    uint8_t *at = out + 4 * sizeof(float);
    int rc = pl_pack12(at, index, n);
    if (rc) return rc;
    pl_copy_little(out, level, sizeof *level, 4);
    at += n / 2 * 3;
    memset(at, 0, (n + 3) / 4);
    for (size_t i = 0; i < n; i++) at[i / 4] |= (uint8_t)((codes[i] & 3) << 2 * (i % 4));
    return PL_OK;
}

/* Each chunk's k indices are ascending and within its m entries. */
static int are_indices(const int32_t *index, size_t n, int m, int k)
{
    for (size_t i = 0; i < n; i++)
        if (index[i] >= m || (i % (size_t)k && index[i] <= index[i - 1])) return 0;
    return 1;
}

/* Indices come from strangers, and would be written through: each is checked before it is used. */
int pl_sparse_read(int32_t *index, float *value, const uint8_t *in, size_t n, int m, int k)
{
    const uint8_t *codes = in + 4 * sizeof(float) + n / 2 * 3;
    float level[4];
    pl_copy_little(level, in, sizeof *level, 4);
    for (int c = 0; c < 4; c++)
        if (!isfinite(level[c])) return PL_EPROTO;
    pl_unpack12(index, in + sizeof level, n);
    for (size_t i = 0; i < n; i++) value[i] = level[codes[i / 4] >> 2 * (i % 4) & 3];
    return are_indices(index, n, m, k) ? PL_OK : PL_EPROTO;
}

struct entry {
    int32_t index;
    float value;
};

static int by_index(const void *p, const void *q)
{
    const struct entry *a = p, *b = q;
    return (a->index > b->index) - (a->index < b->index);
}

/* The published code's wire: codes as uint8, and indices in the order of their sizes. Here they are
 * sorted within each chunk, as our own form has them; an index that comes twice is then refused. */
int pl_sparse_read_published(int32_t *index, float *value, const uint8_t *wire_index,
                             const uint8_t *wire_codes, const float *table, int bins, float shift,
                             size_t n, int m, int k)
{
    struct entry *entries = pl_alloc(n, sizeof *entries);
    int rc = entries ? PL_OK : PL_ENOMEM;
    if (!rc) pl_unpack12(index, wire_index, n);
    for (size_t i = 0; !rc && i < n; i++) {
        if (wire_codes[i] >= bins) rc = PL_EPROTO;
        else entries[i] = (struct entry){ index[i], table[wire_codes[i]] + shift };
        if (!rc && !isfinite(entries[i].value)) rc = PL_EPROTO;
    }
    for (size_t i = 0; !rc && i < n; i += (size_t)k)
        qsort(entries + i, n - i < (size_t)k ? n - i : (size_t)k, sizeof *entries, by_index);
    for (size_t i = 0; !rc && i < n; i++) {
        index[i] = entries[i].index;
        value[i] = entries[i].value;
    }
    pl_free(entries);
    return rc ? rc : are_indices(index, n, m, k) ? PL_OK : PL_EPROTO;
}

/* sum_r f_r v_r[i], and how many sent i */
void pl_sparse_add(double *sum, uint16_t *senders, const int32_t *index, const float *value,
                   double factor, size_t chunks, int m, int k)
{
    for (size_t c = 0; c < chunks; c++)
        for (int j = 0; j < k; j++) {
            size_t i = c * (size_t)k + (size_t)j, at = c * (size_t)m + (size_t)index[i];
            sum[at] += factor * value[i];
            senders[at]++;
        }
}

/* G[i] = sum[i] / senders of i. With little overlap that is up to R times the mean over all. */
void pl_sparse_mean(float *mean, const double *sum, const uint16_t *senders, size_t n, int peers)
{
    for (size_t i = 0; i < n; i++) {
        int over = peers ? peers : senders[i];
        mean[i] = over ? (float)(sum[i] / over) : 0;
    }
}

/* f_r = min(1, median(n) / (n_r + 1e-8)) for norms n_r = |q_r|: a peer whose message is larger than
 * the median one is scaled down to it, so that no message counts for more than the median one. The
 * median is torch.median's: the lower of the two middle ones. */
int pl_median_factors(double *factor, const double *norm, int n)
{
    double *sorted = pl_alloc((size_t)n, sizeof *sorted), median;
    if (!sorted) return PL_ENOMEM;
    memcpy(sorted, norm, (size_t)n * sizeof *sorted);
    qsort(sorted, (size_t)n, sizeof *sorted, pl_ascending);
    median = n ? sorted[(n - 1) / 2] : 0;
    for (int i = 0; i < n; i++) factor[i] = fmin(1, median / (norm[i] + NORM_EPS));
    pl_free(sorted);
    return PL_OK;
}

int pl_chunks_largest(const struct pl_backend *be, int32_t *index, float *value, float *all,
                      const float *x, const struct pl_chunks *c, int k, int dct)
{
    const size_t count = pl_chunks_count(c), m = pl_chunk_entries(c), kept = count * (size_t)k;
    float *cut = be->alloc(count * m * sizeof *cut), *values = be->alloc(kept * sizeof *values);
    int32_t *at = be->alloc(kept * sizeof *at);
    int rc = cut && values && at ? PL_OK : PL_ENOMEM;
    if (!rc) rc = be->chunk_cut(cut, x, c, dct);
    if (!rc) rc = be->chunk_topk(at, values, cut, count, (int)m, k);
    if (!rc) rc = be->get(index, at, kept * sizeof *index);
    if (!rc) rc = be->get(value, values, kept * sizeof *value);
    if (!rc) rc = be->get(all, cut, count * m * sizeof *all);
    be->free(cut), be->free(values), be->free(at);
    return rc;
}
