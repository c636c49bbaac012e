/* bucket_means.cu - a stable counting sort by code (count, prefix sum, scatter), then one warp per
 * bucket. */
#include "bucket_means.cuh"

#define TILE CUDA_BIN_TILE

/* Thread k counts code k, and all threads of a warp read the same byte. */

__global__ void count_bins(uint32_t *offset, const uint8_t *codes, size_t n)
{
    size_t at = blockIdx.x * (size_t)TILE, end = n - at > TILE ? at + TILE : n;
    uint32_t count = 0;
    for (size_t i = at; i < end; i++) count += codes[i] == threadIdx.x;
    offset[blockIdx.x * (size_t)PL_CODES + threadIdx.x] = count;
}

/* Prefix sums over tiles and buckets; one thread block. */
__global__ void scan_bins(uint32_t *offset, uint32_t *begin, int tiles)
{
    PL_SHARED(uint32_t, all, PL_CODES);
    uint32_t before = 0;
    int k = (int)threadIdx.x;
    for (int t = 0; t < tiles; t++) {
        uint32_t count = offset[t * PL_CODES + k];
        offset[t * PL_CODES + k] = before;
        before += count;
    }
    all[k] = before;
    __syncthreads();
    before = 0;
    for (int i = 0; i < k; i++) before += all[i];
    begin[k] = before;
    if (k == PL_CODES - 1) begin[PL_CODES] = before + all[k];
}

__global__ void scatter_values(float *sorted, const uint32_t *offset, const uint32_t *begin,
                               const uint8_t *codes, const float *x, size_t n)
{
    size_t at = blockIdx.x * (size_t)TILE, end = n - at > TILE ? at + TILE : n;
    uint32_t to = begin[threadIdx.x] + offset[blockIdx.x * (size_t)PL_CODES + threadIdx.x];
    for (size_t i = at; i < end; i++)
        if (codes[i] == threadIdx.x) sorted[to++] = x[i];
}

/* One warp per bucket: 32 values in one load, then added one by one. */
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

static size_t tiles_of(size_t n) { return pl_blocks(n, TILE); }

#define FIXED \
    CUDA_ALIGNED((sizeof(uint64_t) + sizeof(float)) * PL_CODES + CUDA_BIN_PARTS * sizeof(double) + \
                 (PL_CODES + 1) * sizeof(uint32_t))

size_t cuda_bins_bytes(size_t n)
{
    return FIXED + CUDA_ALIGNED(tiles_of(n) * PL_CODES * sizeof(uint32_t)) +
           2 * CUDA_ALIGNED(n * sizeof(float)) + CUDA_ALIGNED(n);
}

size_t cuda_bins_capacity(size_t extra)
{
    size_t capacity = cuda_pipeline_capacity(), used = FIXED + 1024 + extra;
    size_t tile = TILE * (2 * sizeof(float) + 1) + PL_CODES * sizeof(uint32_t);
    return capacity > used ? (capacity - used) / tile * TILE : 0;
}

int cuda_bins_begin(struct cuda_bins *w, char *buffer, size_t piece)
{
    char *after = buffer + FIXED;
    w->count = (uint64_t *)buffer;
    w->part = (double *)(w->count + PL_CODES);
    w->table = (float *)(w->part + CUDA_BIN_PARTS);
    w->begin = (uint32_t *)(w->table + PL_CODES);
    w->offset = (uint32_t *)after;
    after += CUDA_ALIGNED(tiles_of(piece) * PL_CODES * sizeof *w->offset);
    w->x = (float *)after;
    after += CUDA_ALIGNED(piece * sizeof *w->x);
    w->sorted = (float *)after;
    after += CUDA_ALIGNED(piece * sizeof *w->sorted);
    w->codes = (uint8_t *)after;
    return cuda_status(cudaMemsetAsync(buffer, 0, FIXED, cuda_stream()));
}

int cuda_bins_scatter(const struct cuda_bins *w, size_t n)
{
    unsigned tiles = (unsigned)tiles_of(n);
    int rc = PL_LAUNCH(count_bins, tiles, PL_CODES, w->offset, w->codes, n);
    if (rc == PL_OK) rc = PL_LAUNCH(scan_bins, 1, PL_CODES, w->offset, w->begin, (int)tiles);
    if (rc != PL_OK) return rc;
    return PL_LAUNCH(scatter_values, tiles, PL_CODES, w->sorted, w->offset, w->begin, w->codes,
                     w->x, n);
}

int cuda_bins_sum(const struct cuda_bins *w)
{
    return PL_LAUNCH(sum_bins, PL_CODES * 32 / CUDA_THREADS, CUDA_THREADS, w->table, w->count,
                     w->sorted, w->begin);
}

int cuda_bins_end(float table[PL_CODES], const struct cuda_bins *w)
{
    uint64_t count[PL_CODES];
    int rc = cuda_pipeline_download(table, w->table, PL_CODES * sizeof *table);
    if (rc == PL_OK) rc = cuda_pipeline_download(count, w->count, sizeof count);
    if (rc == PL_OK) rc = cuda_pipeline_sync();
    for (int k = 0; rc == PL_OK && k < PL_CODES; k++)
        if (count[k]) table[k] /= (float)count[k];
    return rc;
}
