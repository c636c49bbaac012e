/* meanstd16.cu - compression to float16 around each row's mean and deviation. One thread block per
 * row reads its values three times, twice from cache. Whole rows alternate between the two stages
 * of a pipeline. */
#include "../ref/compress.h"

#include "float16.cuh"
#include "streams.cuh"

#include <float.h>

#define HALF_MAX 65504.0f

__global__ void encode_rows(uint16_t *halves, float *mean, float *deviation, const float *x,
                            size_t rows, size_t D)
{
    for (size_t r = blockIdx.x; r < rows; r += gridDim.x) {
        const float *row = x + r * D;
        double sum = 0, squares = 0;
        float m, s;
        for (size_t i = threadIdx.x; i < D; i += blockDim.x) sum += (double)row[i];
        m = (float)(cuda_block_sum(sum) / (double)D);
        for (size_t i = threadIdx.x; i < D; i += blockDim.x) {
            float c = row[i] - m;
            squares += (double)c * c;
        }
        s = (float)sqrt(cuda_block_sum(squares)) / (float)sqrt((double)D);
        if (s < FLT_EPSILON) s = FLT_EPSILON; /* NaN stays NaN */
        for (size_t i = threadIdx.x; i < D; i += blockDim.x) {
            float z = (row[i] - m) / s;
            z = z < -HALF_MAX ? -HALF_MAX : z > HALF_MAX ? HALF_MAX : z;
            halves[r * D + i] = half_of_float(z);
        }
        if (threadIdx.x == 0) {
            mean[r] = m;
            deviation[r] = s;
        }
    }
}

/* Value i is the (before + i)-th of its rows; mean and deviation start with the first of these
 * rows. */
template <class T>
__global__ void decode_some(T *out, const uint16_t *halves, const float *mean,
                            const float *deviation, size_t before, size_t D, size_t n)
{
    CUDA_EACH (i, n) {
        size_t r = (before + i) / D;
        out[i] = (T)float_of_half(halves[i]) * (T)deviation[r] + (T)mean[r];
    }
}

__global__ void decode_halves(uint16_t *out, const uint16_t *halves, const float *mean,
                              const float *deviation, size_t before, size_t D, size_t n)
{
    CUDA_EACH (i, n) {
        size_t r = (before + i) / D;
        float product = float_of_half(half_of_float(float_of_half(halves[i]) * deviation[r]));
        out[i] = half_of_float(product + mean[r]);
    }
}

/* Uploads whole rows. A row larger than a stage is left to the host. */
int cuda_meanstd16_encode(void *halves, float *mean, float *deviation, const float *x, size_t rows,
                          size_t D)
{
    size_t each = D * (sizeof *x + 2) + 2 * sizeof *mean, slack = 4 * 256,
           capacity = cuda_pipeline_capacity();
    size_t most, piece;
    struct cuda_pipeline *pipeline;
    int rc = PL_ENOMEM, stage = 0;
    if (!rows) return PL_OK;
    most = capacity > slack ? (capacity - slack) / each : 0;
    if (most > CUDA_CHUNK_BYTES / each) /* smaller chunks where they suffice: copies start sooner */
        most = CUDA_CHUNK_BYTES / each ? CUDA_CHUNK_BYTES / each : 1;
    piece = rows < most ? rows : most;
    pipeline = piece ? cuda_pipeline_acquire(&rc, rows > piece ? 2 : 1, piece * each + slack)
                     : NULL;
    if (!pipeline) return rc;
    for (size_t at = 0; at < rows && rc == PL_OK; at += piece, stage = !stage) {
        size_t some = rows - at < piece ? rows - at : piece;
        char *p = cuda_pipeline_stage(pipeline, stage);
        float *in = (float *)p, *m = (float *)(p += CUDA_ALIGNED(some * D * sizeof *in));
        float *s = (float *)(p += CUDA_ALIGNED(some * sizeof *m));
        uint16_t *h = (uint16_t *)(p + CUDA_ALIGNED(some * sizeof *s));
        rc = cuda_pipeline_upload(in, x + at * D, some * D * sizeof *in);
        if (rc == PL_OK)
            rc = PL_LAUNCH(encode_rows, cuda_blocks(some * CUDA_THREADS), CUDA_THREADS, h, m, s,
                           (const float *)in, some, D);
        if (rc == PL_OK) rc = cuda_pipeline_download(mean + at, m, some * sizeof *m);
        if (rc == PL_OK) rc = cuda_pipeline_download(deviation + at, s, some * sizeof *s);
        if (rc == PL_OK) rc = cuda_pipeline_download((char *)halves + 2 * at * D, h, 2 * some * D);
    }
    return cuda_pipeline_release(pipeline, rc);
}

static int decode_piece(char *out, enum pl_dtype type, const uint16_t *halves, const float *mean,
                        const float *deviation, size_t before, size_t D, size_t n)
{
    unsigned blocks = cuda_blocks(n);
    if (type == PL_F64)
        return PL_LAUNCH(decode_some<double>, blocks, CUDA_THREADS, (double *)out, halves, mean,
                         deviation, before, D, n);
    if (type == PL_F32)
        return PL_LAUNCH(decode_some<float>, blocks, CUDA_THREADS, (float *)out, halves, mean,
                         deviation, before, D, n);
    return PL_LAUNCH(decode_halves, blocks, CUDA_THREADS, (uint16_t *)out, halves, mean, deviation,
                     before, D, n);
}

int cuda_meanstd16_decode(void *out, enum pl_dtype type, const void *halves, const float *mean,
                          const float *deviation, size_t rows, size_t D)
{
    size_t n = rows * D, size = pl_dtype_size(type), most, piece;
    size_t each = size + 2 + 2 * sizeof *mean, slack = 4 * 256 + 4 * sizeof *mean; /* D may be 1 */
    size_t capacity = cuda_pipeline_capacity() < CUDA_CHUNK_BYTES ? cuda_pipeline_capacity()
                                                                  : CUDA_CHUNK_BYTES;
    struct cuda_pipeline *pipeline;
    int rc = PL_ENOMEM, stage = 0;
    if (!n) return PL_OK;
    most = capacity > slack ? (capacity - slack) / each : 0;
    piece = n < most ? n : most;
    pipeline = piece ? cuda_pipeline_acquire(&rc, n > piece ? 2 : 1, piece * each + slack) : NULL;
    if (!pipeline) return rc;
    for (size_t at = 0; at < n && rc == PL_OK; at += piece, stage = !stage) {
        size_t some = n - at < piece ? n - at : piece, row = at / D;
        size_t own = (at + some - 1) / D - row + 1; /* rows that are partly in this chunk */
        char *p = cuda_pipeline_stage(pipeline, stage), *to = p;
        float *m = (float *)(p += CUDA_ALIGNED(some * size));
        float *s = (float *)(p += CUDA_ALIGNED(own * sizeof *m));
        uint16_t *h = (uint16_t *)(p + CUDA_ALIGNED(own * sizeof *s));
        rc = cuda_pipeline_upload(m, mean + row, own * sizeof *m);
        if (rc == PL_OK) rc = cuda_pipeline_upload(s, deviation + row, own * sizeof *s);
        if (rc == PL_OK) rc = cuda_pipeline_upload(h, (const char *)halves + 2 * at, 2 * some);
        if (rc == PL_OK) rc = decode_piece(to, type, h, m, s, at - row * D, D, some);
        if (rc == PL_OK) rc = cuda_pipeline_download((char *)out + at * size, to, some * size);
    }
    return cuda_pipeline_release(pipeline, rc);
}
