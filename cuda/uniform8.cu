/* uniform8.cu - 8-bit codes in equal bins of (mean +- 3 deviations). Values that do not fit in a
 * stage are uploaded three times: for the mean, the deviation and the codes. */
#include "bucket_means.cuh"

#include <math.h>

/* Sums of (x - mean)^power, power 1 or 2. */
__global__ void add_up(double *part, const float *x, float mean, int power, size_t n)
{
    double sum = 0;
    CUDA_EACH (i, n) {
        float c = x[i] - mean;
        sum += power == 1 ? (double)x[i] : (double)c * c;
    }
    sum = cuda_block_sum(sum);
    if (threadIdx.x == 0) part[blockIdx.x] = sum;
}

__global__ void find_bins(uint8_t *codes, const float *x, float mean, float inverse, size_t n)
{
    CUDA_EACH (i, n) {
        float q = rintf((x[i] - mean) * inverse) + 128;
        codes[i] = q >= 255 ? 255 : q > 0 ? (uint8_t)q : 0; /* NaN: 0 */
    }
}

static int sum_piece(double *sum, const struct cuda_bins *w, float mean, int power, size_t n)
{
    double part[CUDA_BIN_PARTS];
    unsigned blocks = cuda_blocks(n) < CUDA_BIN_PARTS ? cuda_blocks(n) : CUDA_BIN_PARTS;
    int rc = PL_LAUNCH(add_up, blocks, CUDA_THREADS, w->part, w->x, mean, power, n);
    if (rc == PL_OK) rc = cuda_pipeline_download(part, w->part, blocks * sizeof *part);
    if (rc == PL_OK) rc = cuda_pipeline_sync();
    for (unsigned b = 0; rc == PL_OK && b < blocks; b++) *sum += part[b];
    return rc;
}

static int encode_piece(uint8_t *codes, const struct cuda_bins *w, float mean, float inverse,
                        size_t n)
{
    int rc = PL_LAUNCH(find_bins, cuda_blocks(n), CUDA_THREADS, w->codes, w->x, mean, inverse, n);
    if (rc == PL_OK) rc = cuda_bins_scatter(w, n);
    if (rc == PL_OK) rc = cuda_bins_sum(w);
    return rc == PL_OK ? cuda_pipeline_download(codes, w->codes, n) : rc;
}

static int all(uint8_t *codes, float table[PL_CODES], const struct cuda_bins *w, const float *x,
               size_t n, size_t piece)
{
    double total = 0, squares = 0;
    float mean, sigma, inverse;
    int rc = cuda_bins_each(w, x, n, piece, 1,
                            [&](size_t, size_t some) { return sum_piece(&total, w, 0, 1, some); });
    mean = (float)(total / (double)n);
    if (rc == PL_OK)
        rc = cuda_bins_each(w, x, n, piece, 0, [&](size_t, size_t some) {
            return sum_piece(&squares, w, mean, 2, some);
        });
    sigma = (float)sqrt(squares) / (float)sqrt((double)(n - 1));
    inverse = 1 / (6 * sigma / PL_CODES); /* infinite or NaN: 0 * inverse is NaN, code 0 */
    if (rc == PL_OK)
        rc = cuda_bins_each(w, x, n, piece, 0, [&](size_t at, size_t some) {
            return encode_piece(codes + at, w, mean, inverse, some);
        });
    return rc == PL_OK ? cuda_bins_end(table, w) : rc;
}

int cuda_uniform8_encode(uint8_t *codes, float table[PL_CODES], const float *x, size_t n)
{
    size_t most = cuda_bins_capacity(0), piece = n < most ? n : most;
    struct cuda_pipeline *pipeline;
    struct cuda_bins w;
    int rc = PL_ENOMEM;
    pipeline = piece ? cuda_pipeline_acquire(&rc, 1, cuda_bins_bytes(piece)) : NULL;
    if (!pipeline) return rc;
    rc = cuda_bins_begin(&w, cuda_pipeline_stage(pipeline, 0), piece);
    if (rc == PL_OK) rc = all(codes, table, &w, x, n, piece);
    return cuda_pipeline_release(pipeline, rc);
}
