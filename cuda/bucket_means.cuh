/* bucket_means.cuh - values in 256 bins, and the mean of each bin: what the two 8-bit codes of a part have
 * in common. A bin's mean is a sum in the order of the index, which a device does not like; so
 * values are first laid out by bin, in that order, and then every bin is a warp's, all of them at
 * once.
 *
 * What does not fit on a lane goes through it in pieces; bins' sums go on from piece to piece. */
#ifndef PL_CUDA_BUCKET_MEANS_CUH
#define PL_CUDA_BUCKET_MEANS_CUH

#include "../ref/compress.h"

#include "streams.cuh"

#define CUDA_BIN_TILE 4096 /* values that a block lays out */
#define CUDA_BIN_PARTS 256 /* room for doubles */

/* Of a piece, on the device. The first two live as long as the call. */
struct cuda_bins {
    float *table;    /* (PL_CODES): bins' sums so far */
    uint64_t *count; /* (PL_CODES): how many those are */
    double *part;    /* (CUDA_BIN_PARTS), the caller's */
    uint32_t *begin; /* (PL_CODES + 1): where a bin's values begin */
    uint32_t
        *offset; /* (tiles, PL_CODES): how many a tile has of a bin, then all tiles before it */
    float *x, *sorted;
    uint8_t *codes;
};

/* Bytes of a lane's side for pieces of n values; the most values that a side has room for, whole
 * tiles, beside `apart` bytes of the caller's. */
size_t cuda_bins_bytes(size_t n);
size_t cuda_bins_capacity(size_t extra);
/* In the side's buffer; nothing is summed up yet. */
int cuda_bins_begin(struct cuda_bins *w, char *buffer, size_t piece);
/* sorted <- n values of x by their codes; those of one code stay in their order. */
int cuda_bins_scatter(const struct cuda_bins *w, size_t n);
/* Of what has been laid out, adds bins' values to their sums. */
int cuda_bins_sum(const struct cuda_bins *w);
/* The means, 0 for an empty bin; table is host memory. Waits. */
int cuda_bins_end(float table[PL_CODES], const struct cuda_bins *w);

/* Piece after piece of x: f(at, some). The only one is brought up if it has not been. */
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
