/* median.cu - the median of each coordinate by binary search over its bits, one thread per
 * coordinate: the largest number below which no more than `rank` values lie. Nothing is sorted or
 * moved; n values are read 32 times, from cache. */
#include "../ref/centered_clip.h"

#include "streams.cuh"
#include "sort_keys.cuh"

#define PIECE_BYTES ((size_t)4 << 20)

/* m (w) and x (n,w) hold floats' bits; x is converted to keys. */
__global__ void find_median(uint32_t *m, uint32_t *x, int n, size_t w, int rank)
{
    CUDA_EACH (k, w) {
        uint32_t found = 0;
        for (int i = 0; i < n; i++) x[(size_t)i * w + k] = key_of(x[(size_t)i * w + k]);
        for (int bit = 31; bit >= 0; bit--) {
            uint32_t more = found | 1u << bit;
            int below = 0;
            for (int i = 0; i < n; i++) below += x[(size_t)i * w + k] < more;
            if (below <= rank) found = more;
        }
        m[k] = of_key(found);
    }
}

/* Columns per chunk. */
static size_t piece_of(int n, size_t d)
{
    size_t column = ((size_t)n + 1) * sizeof(float), capacity = cuda_pipeline_capacity(), most;
    if (capacity < 256 + column) return 0;
    most = ((capacity < PIECE_BYTES ? capacity : PIECE_BYTES) - 256) / column;
    if (!most) most = 1; /* with very many values */
    return d < most ? d : most;
}

int cuda_median(float *m, const float *x, int n, size_t d, int upper)
{
    size_t piece = piece_of(n, d), bytes = piece * ((size_t)n + 1) * sizeof *x + 256;
    struct cuda_pipeline *pipeline;
    int rc = PL_ENOMEM, stage = 0;
    if (!d) return PL_OK;
    pipeline = piece ? cuda_pipeline_acquire(&rc, d > piece ? 2 : 1, bytes) : NULL;
    if (!pipeline) return rc;
    for (size_t at = 0; at < d && rc == PL_OK; at += piece, stage = !stage) {
        size_t w = d - at < piece ? d - at : piece;
        char *out = cuda_pipeline_stage(pipeline, stage), *in = out + CUDA_ALIGNED(w * sizeof *m);
        rc = cuda_pipeline_upload_rows((float *)in, x + at, d, w, (size_t)n);
        if (rc == PL_OK)
            rc = PL_LAUNCH(find_median, cuda_blocks(w), CUDA_THREADS, (uint32_t *)out,
                           (uint32_t *)in, n, w, upper ? n / 2 : (n - 1) / 2);
        if (rc == PL_OK) rc = cuda_pipeline_download(m + at, out, w * sizeof *m);
    }
    return cuda_pipeline_release(pipeline, rc);
}
