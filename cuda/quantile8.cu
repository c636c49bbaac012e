/* quantile8.cu - 8-bit codes in bins of equally many values. Bin boundaries are quantiles, found by
 * a radix sort: four digits of eight bits, each pass the stable scatter of bucket_means.cu. */
#include "bucket_means.cuh"
#include "sort_keys.cuh"

#include <math.h>

/* x: the bits of floats. */
__global__ void take_digit(uint8_t *digit, const uint32_t *x, int shift, size_t n)
{
    CUDA_EACH (i, n) digit[i] = (uint8_t)(key_of(x[i]) >> shift);
}

/* The 257 quantiles at j/256 of m sorted values, with the reference's own arithmetic. */
__global__ void take_quantiles(float *out, const float *x, size_t m)
{
    CUDA_EACH (j, PL_CODES + 1) {
        float at = (float)(m - 1) * ((float)j / PL_CODES), g = at - floorf(at), a, b, d;
        size_t i = (size_t)at;
        a = x[i < m ? i : m - 1];
        b = x[i + 1 < m ? i + 1 : m - 1];
        d = b - a;
        out[j] = g < 0.5f ? a + d * g : b - d * (1 - g);
    }
}

/* The number of inner boundaries, 1 to 255, below x. */
__global__ void find_codes(uint8_t *codes, const float *x, const float *border, size_t n)
{
    PL_SHARED(float, own, PL_CODES);
    for (int k = (int)threadIdx.x; k < PL_CODES; k += (int)blockDim.x) own[k] = border[k];
    __syncthreads();
    CUDA_EACH (i, n) {
        int q = 0;
        for (int half = PL_CODES / 2; half; half /= 2)
            if (own[q + half] < x[i]) q += half;
        codes[i] = (uint8_t)q;
    }
}

/* An even number of passes, so the result is in x. */
static int quantiles(float *out, const struct cuda_bins *w, size_t m)
{
    struct cuda_bins here = *w;
    int rc = PL_OK;
    for (int shift = 0; shift < 32 && rc == PL_OK; shift += 8) {
        float *swap = here.x;
        rc = PL_LAUNCH(take_digit, cuda_blocks(m), CUDA_THREADS, here.codes,
                       (const uint32_t *)here.x, shift, m);
        if (rc == PL_OK) rc = cuda_bins_scatter(&here, m);
        here.x = here.sorted;
        here.sorted = swap;
    }
    if (rc != PL_OK) return rc;
    return PL_LAUNCH(take_quantiles, cuda_blocks(PL_CODES + 1), CUDA_THREADS, out, w->x, m);
}

/* border (the boundaries) and pool (the chunks' quantiles) are in device memory. */
static int all(uint8_t *codes, float table[PL_CODES], const struct cuda_bins *w, float *border,
               float *pool, const float *x, size_t n, size_t chunk, size_t piece)
{
    size_t m = pl_blocks(n, chunk) * (PL_CODES + 1);
    int rc = cuda_bins_each(w, x, n, chunk, 1, [&](size_t at, size_t some) {
        return quantiles(pool + at / chunk * (PL_CODES + 1), w, some);
    });
    if (rc == PL_OK)
        rc = cuda_status(
            cudaMemcpyAsync(w->x, pool, m * sizeof *pool, cudaMemcpyDeviceToDevice, cuda_stream()));
    if (rc == PL_OK) rc = quantiles(border, w, m);
    if (rc == PL_OK)
        rc = cuda_bins_each(w, x, n, piece, 1, [&](size_t at, size_t some) {
            int each = PL_LAUNCH(find_codes, cuda_blocks(some), CUDA_THREADS, w->codes, w->x,
                                 border, some);
            if (each == PL_OK) each = cuda_bins_scatter(w, some);
            if (each == PL_OK) each = cuda_bins_sum(w);
            return each == PL_OK ? cuda_pipeline_download(codes + at, w->codes, some) : each;
        });
    return rc == PL_OK ? cuda_bins_end(table, w) : rc;
}

/* Each chunk is sorted as a whole, and so are the quantiles of all chunks. If they do not fit in a
 * stage (9e7 values with stages of 32 MiB) the host computes them. */
int cuda_quantile8_encode(uint8_t *codes, float table[PL_CODES], const float *x, size_t n)
{
    size_t chunk = pl_quantile8_chunk(n), m = pl_blocks(n, chunk) * (PL_CODES + 1);
    size_t extra = CUDA_ALIGNED((PL_CODES + 1 + m) * sizeof *x), piece = chunk > m ? chunk : m;
    struct cuda_pipeline *pipeline;
    struct cuda_bins w;
    char *buffer;
    int rc = PL_ENOMEM;
    pipeline = piece <= cuda_bins_capacity(extra)
                   ? cuda_pipeline_acquire(&rc, 1, extra + cuda_bins_bytes(piece))
                   : NULL;
    if (!pipeline) return rc;
    buffer = cuda_pipeline_stage(pipeline, 0);
    rc = cuda_bins_begin(&w, buffer + extra, piece);
    if (rc == PL_OK)
        rc = all(codes, table, &w, (float *)buffer, (float *)buffer + PL_CODES + 1, x, n, chunk,
                 piece);
    return cuda_pipeline_release(pipeline, rc);
}
