/* bucket_means.cuh - values in 256 buckets, and the mean of each: shared by both 8-bit encoders.
 * The result is a sum in index order, which does not parallelize; so values are first sorted by
 * bucket, stably, and then one warp sums each bucket, all buckets at once.
 *
 * Values that do not fit in a stage are processed in chunks; bucket sums continue from chunk to
 * chunk. */
#ifndef PL_CUDA_BUCKET_MEANS_CUH
#define PL_CUDA_BUCKET_MEANS_CUH

#include "../ref/compress.h"

#include "streams.cuh"

#define CUDA_BIN_TILE 4096 /* values that one thread block scatters */
#define CUDA_BIN_PARTS 256 /* doubles for the caller */

/* One chunk, on the device. table and count live as long as the call. */
struct cuda_bins {
    float *table;    /* (PL_CODES): sums so far */
    uint64_t *count; /* (PL_CODES): number of values so far */
    double *part;    /* (CUDA_BIN_PARTS), for the caller */
    uint32_t *begin; /* (PL_CODES + 1): where a bucket's values begin */
    uint32_t
        *offset; /* (tiles, PL_CODES): a tile's count of a bucket, then its prefix sum over tiles */
    float *x, *sorted;
    uint8_t *codes;
};

/* Bytes of a stage for chunks of n values; and the most values that fit in a stage with `extra`
 * bytes for the caller, a multiple of a tile. */
size_t cuda_bins_bytes(size_t n);
size_t cuda_bins_capacity(size_t extra);
/* Lays out the stage's buffer and clears the sums. */
int cuda_bins_begin(struct cuda_bins *w, char *buffer, size_t piece);
/* sorted = n values of x ordered by code; values of one code keep their order. */
int cuda_bins_scatter(const struct cuda_bins *w, size_t n);
/* Adds the sorted values to the sums of their buckets. */
int cuda_bins_sum(const struct cuda_bins *w);
/* The means, 0 for an empty bucket; table is in host memory. Waits for the device. */
int cuda_bins_end(float table[PL_CODES], const struct cuda_bins *w);

/* f(at, some) for each chunk of x. A single chunk is uploaded only once. */
template <class F>
static int cuda_bins_each(const struct cuda_bins *w, const float *x, size_t n, size_t piece,
                          int first, F f)
{
    int rc = PL_OK;
    for (size_t at = 0; at < n && rc == PL_OK; at += piece) {
        size_t some = n - at < piece ? n - at : piece;
        if (first || piece < n) rc = cuda_pipeline_upload(w->x, x + at, some * sizeof *x);
        if (rc == PL_OK) rc = f(at, some);
    }
    return rc;
}

#endif
