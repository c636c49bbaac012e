/* uniform8.cu - the 8-bit code of a part. Its bins' means are sums in the order of the index, which
 * a device does not like; so values are first laid out by bin, in that order, and then every bin is
 * a warp's, all of them at once.
 *
 * What does not fit on a lane goes through it in pieces, once for each of mean, deviation and
 * codes; bins' sums go on from piece to piece. */
#include "../ref/compress.h"

#include "lanes.cuh"

#include <math.h>

#define TILE 4096      /* values that a block lays out */
#define SUM_BLOCKS 256 /* partial sums, which the host adds up */

/* A piece's on the device. The first two live as long as the call. */
struct work {
    float *table;    /* (PL_CODES): bins' sums so far */
    uint64_t *count; /* (PL_CODES): how many those are */
    double *part;    /* (SUM_BLOCKS) */
    uint32_t *begin; /* (PL_CODES + 1): where a bin's values begin */
    uint32_t *place; /* (tiles, PL_CODES): how many a tile has of a bin, then all tiles before it */
    float *x, *sorted;
    uint8_t *codes;
};

/* Sums of (x - mean)^power, power 1 or 2. */
__global__ void add_up(double *part, const float *x, float mean, int power, size_t n)
{
    double sum = 0;
    CUDA_EACH(i, n) {
        float c = x[i] - mean;
        sum += power == 1 ? (double)x[i] : (double)c * c;
    }
    sum = cuda_block_sum(sum);
    if (threadIdx.x == 0) part[blockIdx.x] = sum;
}

__global__ void find_bins(uint8_t *codes, const float *x, float mean, float inverse, size_t n)
{
    CUDA_EACH(i, n) {
        float q = rintf((x[i] - mean) * inverse) + 128;
        codes[i] = q >= 255 ? 255 : q > 0 ? (uint8_t)q : 0; /* NaN: 0 */
    }
}

/* ---- by bin: thread k looks for code k, and all threads of a warp read the same byte ---- */

__global__ void count_bins(uint32_t *place, const uint8_t *codes, size_t n)
{
    size_t at = blockIdx.x * (size_t)TILE, end = n - at > TILE ? at + TILE : n;
    uint32_t count = 0;
    for (size_t i = at; i < end; i++) count += codes[i] == threadIdx.x;
    place[blockIdx.x * (size_t)PL_CODES + threadIdx.x] = count;
}

/* One block. */
__global__ void place_bins(uint32_t *place, uint32_t *begin, int tiles)
{
    PL_SHARED(uint32_t, all, PL_CODES);
    uint32_t before = 0;
    int k = (int)threadIdx.x;
    for (int t = 0; t < tiles; t++) {
        uint32_t count = place[t * PL_CODES + k];
        place[t * PL_CODES + k] = before;
        before += count;
    }
    all[k] = before;
    __syncthreads();
    before = 0;
    for (int i = 0; i < k; i++) before += all[i];
    begin[k] = before;
    if (k == PL_CODES - 1) begin[PL_CODES] = before + all[k];
}

__global__ void lay_out(float *sorted, const uint32_t *place, const uint32_t *begin,
                        const uint8_t *codes, const float *x, size_t n)
{
    size_t at = blockIdx.x * (size_t)TILE, end = n - at > TILE ? at + TILE : n;
    uint32_t to = begin[threadIdx.x] + place[blockIdx.x * (size_t)PL_CODES + threadIdx.x];
    for (size_t i = at; i < end; i++)
        if (codes[i] == threadIdx.x) sorted[to++] = x[i];
}

/* A warp a bin: 32 values in one load, then added one by one. */
__global__ void sum_bins(float *table, uint64_t *count, const float *sorted, const uint32_t *begin)
{
    uint32_t bin = (blockIdx.x * blockDim.x + threadIdx.x) / 32, lane = threadIdx.x % 32;
    uint32_t end = begin[bin + 1];
    float sum = table[bin];
    for (uint32_t at = begin[bin]; at < end; at += 32) {
        int some = end - at < 32 ? (int)(end - at) : 32;
        float own = lane < (uint32_t)some ? sorted[at + lane] : 0;
        for (int i = 0; i < some; i++) sum += __shfl_sync(0xffffffffu, own, i);
    }
    __syncwarp();
    if (lane == 0) {
        table[bin] = sum;
        count[bin] += end - begin[bin];
    }
}

/* ---- pieces ---- */

static size_t tiles_of(size_t n) { return pl_blocks(n, TILE); }

#define FIXED                                                                                      \
    CUDA_ALIGNED(PL_CODES * (sizeof(uint64_t) + sizeof(float)) + SUM_BLOCKS * sizeof(double) +     \
                 (PL_CODES + 1) * sizeof(uint32_t))

static size_t bytes_for(size_t n)
{
    return FIXED + CUDA_ALIGNED(tiles_of(n) * PL_CODES * sizeof(uint32_t)) +
           2 * CUDA_ALIGNED(n * sizeof(float)) + n;
}

/* As many values as a lane has room for, whole tiles if not all. */
static size_t piece_of(size_t n)
{
    size_t room = cuda_lane_room(), tile = TILE * (2 * sizeof(float) + 1) + PL_CODES * 4;
    size_t tiles = room > FIXED + 1024 ? (room - FIXED - 1024) / tile : 0;
    return n < tiles * TILE ? n : tiles * TILE;
}

static struct work work_in(char *p, size_t piece)
{
    struct work w;
    char *after = p + FIXED;
    w.count = (uint64_t *)p;
    w.part = (double *)(w.count + PL_CODES);
    w.table = (float *)(w.part + SUM_BLOCKS);
    w.begin = (uint32_t *)(w.table + PL_CODES);
    w.place = (uint32_t *)after;
    after += CUDA_ALIGNED(tiles_of(piece) * PL_CODES * sizeof *w.place);
    w.x = (float *)after;
    after += CUDA_ALIGNED(piece * sizeof *w.x);
    w.sorted = (float *)after;
    after += CUDA_ALIGNED(piece * sizeof *w.sorted);
    w.codes = (uint8_t *)after;
    return w;
}

static int sum_piece(double *sum, const struct work *w, float mean, int power, size_t n)
{
    double part[SUM_BLOCKS];
    unsigned blocks = cuda_blocks(n) < SUM_BLOCKS ? cuda_blocks(n) : SUM_BLOCKS;
    int rc = PL_LAUNCH(add_up, blocks, CUDA_THREADS, w->part, w->x, mean, power, n);
    if (rc == PL_OK) rc = cuda_lane_get(part, w->part, blocks * sizeof *part);
    if (rc == PL_OK) rc = cuda_lane_sync();
    for (unsigned b = 0; rc == PL_OK && b < blocks; b++) *sum += part[b];
    return rc;
}

static int encode_piece(uint8_t *codes, const struct work *w, float mean, float inverse, size_t n)
{
    unsigned tiles = (unsigned)tiles_of(n);
    int rc = PL_LAUNCH(find_bins, cuda_blocks(n), CUDA_THREADS, w->codes, w->x, mean, inverse, n);
    if (rc == PL_OK) rc = PL_LAUNCH(count_bins, tiles, PL_CODES, w->place, w->codes, n);
    if (rc == PL_OK) rc = PL_LAUNCH(place_bins, 1, PL_CODES, w->place, w->begin, (int)tiles);
    if (rc == PL_OK)
        rc = PL_LAUNCH(lay_out, tiles, PL_CODES, w->sorted, w->place, w->begin, w->codes, w->x, n);
    if (rc == PL_OK)
        rc = PL_LAUNCH(sum_bins, PL_CODES * 32 / CUDA_THREADS, CUDA_THREADS, w->table, w->count,
                       w->sorted, w->begin);
    return rc == PL_OK ? cuda_lane_get(codes, w->codes, n) : rc;
}

/* Piece after piece; the only one is brought up once. */
template <class F>
static int each_piece(const struct work *w, const float *x, size_t n, size_t piece, int first, F f)
{
    int rc = PL_OK;
    for (size_t at = 0; at < n && rc == PL_OK; at += piece) {
        size_t some = n - at < piece ? n - at : piece;
        if (first || piece < n) rc = cuda_lane_put(w->x, x + at, some * sizeof *x);
        if (rc == PL_OK) rc = f(at, some);
    }
    return rc;
}

static int all(uint8_t *codes, float table[PL_CODES], const struct work *w, const float *x,
               size_t n, size_t piece)
{
    double total = 0, squares = 0;
    float mean, sigma, inverse;
    uint64_t count[PL_CODES];
    int rc = cuda_status(cudaMemsetAsync(w->count, 0, FIXED, cuda_stream()));
    if (rc == PL_OK)
        rc = each_piece(w, x, n, piece, 1,
                        [&](size_t, size_t some) { return sum_piece(&total, w, 0, 1, some); });
    mean = (float)(total / (double)n);
    if (rc == PL_OK)
        rc = each_piece(w, x, n, piece, 0,
                        [&](size_t, size_t some) { return sum_piece(&squares, w, mean, 2, some); });
    sigma = (float)sqrt(squares) / (float)sqrt((double)(n - 1));
    inverse = 1 / (6 * sigma / PL_CODES); /* infinite or NaN: 0 * inverse is NaN, code 0 */
    if (rc == PL_OK)
        rc = each_piece(w, x, n, piece, 0, [&](size_t at, size_t some) {
            return encode_piece(codes + at, w, mean, inverse, some);
        });
    if (rc == PL_OK) rc = cuda_lane_get(table, w->table, PL_CODES * sizeof *table);
    if (rc == PL_OK) rc = cuda_lane_get(count, w->count, sizeof count);
    if (rc == PL_OK) rc = cuda_lane_sync();
    for (int k = 0; rc == PL_OK && k < PL_CODES; k++)
        if (count[k]) table[k] /= (float)count[k];
    return rc;
}

int cuda_uniform8_encode(uint8_t *codes, float table[PL_CODES], const float *x, size_t n)
{
    size_t piece = piece_of(n);
    struct cuda_lane *lane;
    struct work w;
    int rc = PL_ENOMEM;
    lane = piece ? cuda_lane_take(&rc, 1, bytes_for(piece)) : NULL;
    if (!lane) return rc;
    w = work_in(cuda_lane_side(lane, 0), piece);
    return cuda_lane_give(lane, all(codes, table, &w, x, n, piece));
}
