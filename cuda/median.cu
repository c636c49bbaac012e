/* median.cu - a thread a coordinate finds its median bit by bit: the largest number below which no
 * more values lie than may. Nothing is sorted or moved; n values are read 32 times, from cache. */
#include "../ref/robust.h"

#include "streams.cuh"
#include "sort_keys.cuh"

#define PIECE_BYTES ((size_t)4 << 20)

/* m (w) and x (n,w) are floats' bits; x becomes keys on the way. */
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

/* Columns that go through a lane at a time. */
static size_t piece_of(int n, size_t d)
{
    size_t column = ((size_t)n + 1) * sizeof(float), room = cuda_lane_room(), most;
    if (room < 256 + column) return 0;
    most = ((room < PIECE_BYTES ? room : PIECE_BYTES) - 256) / column;
    if (!most) most = 1; /* of very many values */
    return d < most ? d : most;
}

int cuda_median(float *m, const float *x, int n, size_t d, int upper)
{
    size_t piece = piece_of(n, d), bytes = piece * ((size_t)n + 1) * sizeof *x + 256;
    struct cuda_lane *lane;
    int rc = PL_ENOMEM, side = 0;
    if (!d) return PL_OK;
    lane = piece ? cuda_lane_take(&rc, d > piece ? 2 : 1, bytes) : NULL;
    if (!lane) return rc;
    for (size_t at = 0; at < d && rc == PL_OK; at += piece, side = !side) {
        size_t w = d - at < piece ? d - at : piece;
        char *out = cuda_lane_side(lane, side), *in = out + CUDA_ALIGNED(w * sizeof *m);
        rc = cuda_lane_put_rows((float *)in, x + at, d, w, (size_t)n);
        if (rc == PL_OK)
            rc = PL_LAUNCH(find_median, cuda_blocks(w), CUDA_THREADS, (uint32_t *)out,
                           (uint32_t *)in, n, w, upper ? n / 2 : (n - 1) / 2);
        if (rc == PL_OK) rc = cuda_lane_get(m + at, out, w * sizeof *m);
    }
    return cuda_lane_give(lane, rc);
}
