/* chunks.cu - a thread block for each chunk, which is in shared memory while it is transformed, or
 * searched for its largest entries: bit by bit the smallest size that is kept is found by counting,
 * and what is kept is written in order by a prefix sum. */
#include "../ref/outer/chunks.h"

#include "launch.cuh"
#include "bf16_weights.cuh"

#include <math.h>
#include <string.h>

#define SIDE PL_CHUNK_SIDE_MAX
#define ENTRIES (SIDE * SIDE)

static unsigned chunk_grid(size_t chunks)
{
    return (unsigned)(chunks < CUDA_BLOCKS_MOST ? chunks : CUDA_BLOCKS_MOST);
}

/* F_h^T X F_w, or back F_h X F_w^T; bases: F_h, then F_w. Each thread has some entries. */
__global__ void each_chunk(float *y, const float *x, const float *bases, size_t chunks, size_t rows,
                           size_t columns, int h, int w, int dct, int inverse)
{
    PL_SHARED(float, tile, ENTRIES);
    PL_SHARED(float, half, ENTRIES);
    const float *Fh = bases, *Fw = bases + (dct ? h * h : 0);
    size_t across = columns / (size_t)w, down = rows / (size_t)h;
    int m = h * w;
    for (size_t k = blockIdx.x; k < chunks; k += gridDim.x) {
        size_t at = (k / across / down * rows + k / across % down * (size_t)h) * columns +
                    k % across * (size_t)w;
        for (int i = (int)threadIdx.x; i < m; i += CUDA_THREADS)
            tile[i] = inverse ? x[k * (size_t)m + (size_t)i]
                              : x[at + (size_t)(i / w) * columns + (size_t)(i % w)];
        __syncthreads();
        if (dct) {
            for (int i = (int)threadIdx.x; i < m; i += CUDA_THREADS) {
                int row = i / w * w, to = i % w;
                float s = 0;
                for (int j = 0; j < w; j++)
                    s = fmaf(tile[row + j], inverse ? Fw[to * w + j] : Fw[j * w + to], s);
                half[i] = s;
            }
            __syncthreads();
            for (int i = (int)threadIdx.x; i < m; i += CUDA_THREADS) {
                int to = i / w, column = i % w;
                float s = 0;
                for (int j = 0; j < h; j++)
                    s = fmaf(half[j * w + column], inverse ? Fh[to * h + j] : Fh[j * h + to], s);
                tile[i] = s;
            }
            __syncthreads();
        }
        for (int i = (int)threadIdx.x; i < m; i += CUDA_THREADS)
            if (inverse) y[at + (size_t)(i / w) * columns + (size_t)(i % w)] = tile[i];
            else y[k * (size_t)m + (size_t)i] = tile[i];
        __syncthreads(); /* before the next chunk */
    }
}

static int launch(float *y, const float *x, const struct pl_chunks *c, int dct, int inverse)
{
    size_t h = c->h, w = c->w, count = h * h + w * w, chunks = pl_chunks_count(c);
    float *bases = NULL, *host;
    double *exact;
    int rc = PL_OK;
    cuda_written(y, chunks * h * w * sizeof *y);
    if (dct) {
        bases = (float *)cuda_scratch(&rc, CUDA_SLOT_LAYER, count * sizeof *bases);
        exact = (double *)pl_alloc(count, sizeof *exact);
        host = (float *)pl_alloc(count, sizeof *host);
        if (rc == PL_OK && !(exact && host)) rc = PL_ENOMEM;
        if (rc == PL_OK) {
            pl_dct_basis(exact, h);
            pl_dct_basis(exact + h * h, w);
            for (size_t i = 0; i < count; i++) host[i] = (float)exact[i];
            rc = cuda_upload(bases, host, count * sizeof *host);
        }
        pl_free(exact);
        pl_free(host);
    }
    return rc ? rc
              : PL_LAUNCH(each_chunk, chunk_grid(chunks), CUDA_THREADS, y, x, bases, chunks,
                          c->rows, c->columns, (int)h, (int)w, dct, inverse);
}

int cuda_chunk_cut(float *y, const float *x, const struct pl_chunks *c, int dct)
{
    return launch(y, x, c, dct, 0);
}

int cuda_chunk_paste(float *y, const float *x, const struct pl_chunks *c, int dct)
{
    return launch(y, x, c, dct, 1);
}

/* ---- the largest ---- */

static __device__ unsigned size_bits(float x)
{
    unsigned bits;
    memcpy(&bits, &x, sizeof bits);
    return bits & 0x7fffffffu;
}

/* before[t] becomes the sum of what threads 0..t-1 have in it. */
static __device__ int sum_before(cuda_shared<int> before, int own)
{
    int t = (int)threadIdx.x, value = own;
    before[t] = own;
    __syncthreads();
    for (int d = 1; d < CUDA_THREADS; d *= 2) {
        int other = t >= d ? before[t - d] : 0;
        __syncthreads();
        value += other;
        before[t] = value;
        __syncthreads();
    }
    return value - own;
}

__global__ void topk(int32_t *index, float *value, const float *x, size_t chunks, int m, int k)
{
    PL_SHARED(unsigned, key, ENTRIES); /* a float's size, in an integer of the same order */
    PL_SHARED(int, before, CUDA_THREADS);
    int each = (m + CUDA_THREADS - 1) / CUDA_THREADS, first = (int)threadIdx.x * each;
    int last = first + each < m ? first + each : m;
    for (size_t c = blockIdx.x; c < chunks; c += gridDim.x) {
        const float *chunk = x + c * (size_t)m;
        unsigned least = 0;
        int above = 0, equal = 0, to, ties, need;
        for (int i = (int)threadIdx.x; i < m; i += CUDA_THREADS) key[i] = size_bits(chunk[i]);
        __syncthreads();
        for (int bit = 30; bit >= 0; bit--) { /* the largest number that k keys reach */
            unsigned tried = least | 1u << bit;
            int reached = 0;
            for (int i = first; i < last; i++) reached += key[i] >= tried;
            if (cuda_block_sum(reached) >= k) least = tried;
        }
        for (int i = first; i < last; i++) {
            above += key[i] > least;
            equal += key[i] == least;
        }
        need = k - cuda_block_sum(above); /* of the equal ones, lowest index first */
        to = sum_before(before, above);
        ties = sum_before(before, equal);
        for (int i = first; i < last; i++) {
            size_t at = c * (size_t)k + (size_t)(to + (ties < need ? ties : need));
            if (key[i] < least || (key[i] == least && ties >= need)) continue;
            index[at] = i;
            value[at] = chunk[i];
            if (key[i] > least) to++;
            else ties++;
        }
        __syncthreads(); /* before the next chunk */
    }
}

int cuda_chunk_topk(int32_t *index, float *value, const float *x, size_t chunks, int m, int k)
{
    if (!chunks) return PL_OK;
    cuda_written(value, chunks * (size_t)k * sizeof *value);
    return PL_LAUNCH(topk, chunk_grid(chunks), CUDA_THREADS, index, value, x, chunks, m, k);
}
