/* norm.cu - layer norm and LayerScale. A warp holds a row in registers, so x and dy are read once.
 * Rows that are too long for that, or not a multiple of four, take one thread block each. Parameter
 * gradients are summed column by column in a fixed order. */
#include "../ref/norm.h"

#include "vectorized.cuh"

struct statistics {
    float mean, inverse;
};

/* Of x (D), for all threads of the block. The mean first, then squares around it: a mean far from
 * zero costs no digits. */
static __device__ struct statistics row_statistics(const float *x, int D, float eps)
{
    struct statistics s;
    float sum = 0;
    for (int i = (int)threadIdx.x; i < D; i += (int)blockDim.x) sum += x[i];
    s.mean = cuda_block_sum(sum) / (float)D;
    sum = 0;
    for (int i = (int)threadIdx.x; i < D; i += (int)blockDim.x) {
        float c = x[i] - s.mean;
        sum = fmaf(c, c, sum);
    }
    s.inverse = 1 / sqrtf(cuda_block_sum(sum) / (float)D + eps);
    return s;
}

/* Threads per row of D, at least one warp. */
static unsigned row_threads(int D) { return D <= 64 ? 32 : D <= 512 ? 128 : CUDA_THREADS; }

/* ---- rows in registers: lane l of a warp has vectors l, l + 32, ... ---- */

#define WARPS (CUDA_THREADS / 32)

template <int EACH> struct held {
    cuda_vector<float, CUDA_VECTOR_WIDTH> at[EACH];
};

/* f(j, c) for the lane's vectors of a row; the j-th of them is vector c of the row. */
template <int EACH, class F> static __device__ void each_held (int vectors, F f)
{
    PL_UNROLL
    for (int j = 0; j < EACH; j++) {
        int c = (int)threadIdx.x % 32 + 32 * j;
        if (c < vectors) f(j, c);
    }
}

template <int EACH> static __device__ struct held<EACH> hold(const float *row, int vectors) {
    struct held<EACH> h = {};
    each_held
        <EACH>(vectors, [&](int j, int c) {
            h.at[j] = cuda_load<CUDA_VECTOR_WIDTH>(row + c * CUDA_VECTOR_WIDTH);
        });
    return h;
}

template <int EACH>
static __device__ struct statistics held_statistics(const struct held<EACH> &x, int vectors,
                                                    float eps)
{
    struct statistics s;
    float sum = 0, D = (float)(vectors * CUDA_VECTOR_WIDTH);
    each_held
        <EACH>(vectors, [&](int j, int) {
            PL_UNROLL
            for (int k = 0; k < CUDA_VECTOR_WIDTH; k++) sum += x.at[j].at[k];
        });
    s.mean = cuda_warp_sum(sum) / D;
    sum = 0;
    each_held
        <EACH>(vectors, [&](int j, int) {
            PL_UNROLL
            for (int k = 0; k < CUDA_VECTOR_WIDTH; k++) {
                float c = x.at[j].at[k] - s.mean;
                sum = fmaf(c, c, sum);
            }
        });
    s.inverse = 1 / sqrtf(cuda_warp_sum(sum) / D + eps);
    return s;
}

template <int EACH>
__global__ void __launch_bounds__(CUDA_THREADS)
    normalize_held(float *y, const float *x, const float *weight, const float *bias, int M,
                   int vectors, float eps)
{
    size_t D = (size_t)vectors * CUDA_VECTOR_WIDTH;
    for (int m = (int)(blockIdx.x * WARPS + threadIdx.x / 32); m < M; m += (int)gridDim.x * WARPS) {
        struct held<EACH> row = hold<EACH>(x + (size_t)m * D, vectors);
        struct statistics s = held_statistics(row, vectors, eps);
        each_held
            <EACH>(vectors, [&](int j, int c) {
                auto g = cuda_load<CUDA_VECTOR_WIDTH>(weight + c * CUDA_VECTOR_WIDTH);
                auto o = cuda_load<CUDA_VECTOR_WIDTH>(bias + c * CUDA_VECTOR_WIDTH);
                PL_UNROLL
                for (int k = 0; k < CUDA_VECTOR_WIDTH; k++)
                    o.at[k] = fmaf((row.at[j].at[k] - s.mean) * s.inverse, g.at[k], o.at[k]);
                cuda_store(y + (size_t)m * D + (size_t)(c * CUDA_VECTOR_WIDTH), o);
            });
    }
}

/* dx = inverse * (g - mean(g) - h * mean(g h)), see ref/norm.c. part: per chunk of rows (one thread
 * block) the sums for dweight, then all chunks' sums for dbias. */
template <int EACH>
__global__ void __launch_bounds__(CUDA_THREADS)
    backward_held(double *part, float *dx, const float *dy, const float *x, const float *weight,
                  int M, int vectors, float eps, int add)
{
    PL_SHARED(float, own, (WARPS * 64 * CUDA_VECTOR_WIDTH));
    int D = vectors * CUDA_VECTOR_WIDTH, lane = (int)threadIdx.x % 32, warp = (int)threadIdx.x / 32;
    int each = (int)(((unsigned)M + gridDim.x - 1) / gridDim.x), begin = (int)blockIdx.x * each;
    int end = M - begin > each ? begin + each : M;
    struct held<EACH> weight_sums = {}, bias_sums = {};
    for (int m = begin + warp; m < end; m += WARPS) {
        size_t at = (size_t)m * (size_t)D;
        struct held<EACH> row = hold<EACH>(x + at, vectors), d = hold<EACH>(dy + at, vectors);
        struct statistics s = held_statistics(row, vectors, eps);
        float sum_g = 0, sum_gh = 0;
        each_held
            <EACH>(vectors, [&](int j, int c) {
                auto g = cuda_load<CUDA_VECTOR_WIDTH>(weight + c * CUDA_VECTOR_WIDTH);
                PL_UNROLL
                for (int k = 0; k < CUDA_VECTOR_WIDTH; k++) {
                    float h = (row.at[j].at[k] - s.mean) * s.inverse, dk = d.at[j].at[k];
                    weight_sums.at[j].at[k] += dk * h;
                    bias_sums.at[j].at[k] += dk;
                    row.at[j].at[k] = h;
                    d.at[j].at[k] = dk * g.at[k];
                    sum_g += d.at[j].at[k];
                    sum_gh = fmaf(d.at[j].at[k], h, sum_gh);
                }
            });
        sum_g = cuda_warp_sum(sum_g) / (float)D;
        sum_gh = cuda_warp_sum(sum_gh) / (float)D;
        each_held
            <EACH>(vectors, [&](int j, int c) {
                cuda_vector<float, CUDA_VECTOR_WIDTH> out = {};
                if (add)
                    out = cuda_load<CUDA_VECTOR_WIDTH>(dx + at + (size_t)(c * CUDA_VECTOR_WIDTH));
                PL_UNROLL
                for (int k = 0; k < CUDA_VECTOR_WIDTH; k++)
                    out.at[k] += s.inverse * (d.at[j].at[k] - sum_g - row.at[j].at[k] * sum_gh);
                cuda_store(dx + at + (size_t)(c * CUDA_VECTOR_WIDTH), out);
            });
    }
    PL_UNROLL
    /* 128 columns at a time, one thread for each of their two sums */
    for (int j = 0; j < EACH; j++) {
        int t = (int)threadIdx.x, of = t / (32 * CUDA_VECTOR_WIDTH);
        int c = j * 32 * CUDA_VECTOR_WIDTH + t % (32 * CUDA_VECTOR_WIDTH);
        double sum = 0;
        __syncthreads();
        PL_UNROLL
        for (int k = 0; k < CUDA_VECTOR_WIDTH; k++) {
            own[warp * 64 * CUDA_VECTOR_WIDTH + lane * CUDA_VECTOR_WIDTH + k] =
                weight_sums.at[j].at[k];
            own[warp * 64 * CUDA_VECTOR_WIDTH + (32 + lane) * CUDA_VECTOR_WIDTH + k] =
                bias_sums.at[j].at[k];
        }
        __syncthreads();
        for (int w = 0; w < WARPS; w++) sum += own[w * 64 * CUDA_VECTOR_WIDTH + t];
        if (c < D) part[((size_t)of * gridDim.x + blockIdx.x) * (size_t)D + (size_t)c] = sum;
    }
}

#define HELD_VECTORS 256 /* per row that a warp holds: 8 per lane */

#define LAUNCH_HELD(kernel, vectors, blocks, ...) \
    ((vectors) <= 32    ? PL_LAUNCH(kernel<1>, blocks, CUDA_THREADS, __VA_ARGS__) \
     : (vectors) <= 64  ? PL_LAUNCH(kernel<2>, blocks, CUDA_THREADS, __VA_ARGS__) \
     : (vectors) <= 128 ? PL_LAUNCH(kernel<4>, blocks, CUDA_THREADS, __VA_ARGS__) \
                        : PL_LAUNCH(kernel<8>, blocks, CUDA_THREADS, __VA_ARGS__))

/* ---- one thread block per row ---- */

__global__ void normalize(float *y, const float *x, const float *weight, const float *bias, int M,
                          int D, float eps)
{
    for (int m = (int)blockIdx.x; m < M; m += (int)gridDim.x) {
        const float *row = x + (size_t)m * (size_t)D;
        float *out = y + (size_t)m * (size_t)D;
        struct statistics s = row_statistics(row, D, eps);
        for (int i = (int)threadIdx.x; i < D; i += (int)blockDim.x)
            out[i] = fmaf((row[i] - s.mean) * s.inverse, weight[i], bias[i]);
    }
}

int cuda_layer_norm(float *y, const float *x, const float *weight, const float *bias, int M, int D,
                    float eps)
{
    int vectors = D / CUDA_VECTOR_WIDTH;
    if (D % CUDA_VECTOR_WIDTH == 0 && vectors <= HELD_VECTORS &&
        cuda_is_vectorizable(y, x, weight, bias))
        return LAUNCH_HELD(normalize_held, vectors, ((unsigned)M + WARPS - 1) / WARPS, y, x, weight,
                           bias, M, vectors, eps);
    return PL_LAUNCH(normalize, (unsigned)M, row_threads(D), y, x, weight, bias, M, D, eps);
}

__global__ void gather_statistics(struct statistics *s, const float *x, int M, int D, float eps)
{
    for (int m = (int)blockIdx.x; m < M; m += (int)gridDim.x) {
        struct statistics mine = row_statistics(x + (size_t)m * (size_t)D, D, eps);
        if (threadIdx.x == 0) s[m] = mine;
    }
}

/* part: for dweight, then for dbias. */
__global__ void norm_param_grads(double *part, const float *dy, const float *x,
                                 const struct statistics *s, int M, int D)
{
    cuda_column_parts(part, M, D, [=](int r, int c) {
        size_t i = (size_t)r * (size_t)D + (size_t)c;
        return (double)(dy[i] * ((x[i] - s[r].mean) * s[r].inverse));
    });
    part += (size_t)gridDim.y * (size_t)D;
    cuda_column_parts(part, M, D,
                      [=](int r, int c) { return (double)dy[(size_t)r * (size_t)D + (size_t)c]; });
}

__global__ void norm_dx(float *dx, const float *dy, const float *x, const float *weight,
                        const struct statistics *s, int M, int D, int add)
{
    for (int m = (int)blockIdx.x; m < M; m += (int)gridDim.x) {
        size_t at = (size_t)m * (size_t)D;
        struct statistics r = s[m];
        float sum_g = 0, sum_gh = 0;
        for (int i = (int)threadIdx.x; i < D; i += (int)blockDim.x) {
            float g = dy[at + (size_t)i] * weight[i], h = (x[at + (size_t)i] - r.mean) * r.inverse;
            sum_g += g;
            sum_gh = fmaf(g, h, sum_gh);
        }
        sum_g = cuda_block_sum(sum_g) / (float)D;
        sum_gh = cuda_block_sum(sum_gh) / (float)D;
        for (int i = (int)threadIdx.x; i < D; i += (int)blockDim.x) {
            float g = dy[at + (size_t)i] * weight[i], h = (x[at + (size_t)i] - r.mean) * r.inverse;
            float d = r.inverse * (g - sum_g - h * sum_gh);
            dx[at + (size_t)i] = add ? dx[at + (size_t)i] + d : d;
        }
    }
}

static int backward_by_blocks(float *dx, float *dweight, float *dbias, const float *dy,
                              const float *x, const float *weight, int M, int D, float eps, int add)
{
    dim3 grid = cuda_column_grid(M, D);
    double *part = NULL;
    int rc;
    struct statistics *s = (struct statistics *)cuda_scratch(&rc, CUDA_SLOT_SUMS,
                                                             (size_t)M * sizeof *s);
    if (rc == PL_OK)
        rc = PL_LAUNCH(gather_statistics, (unsigned)M, row_threads(D), s, x, M, D, eps);
    /* parameter gradients first, because dx may be dy */
    if (rc == PL_OK) part = cuda_column_scratch(&rc, 2, grid, D);
    if (rc == PL_OK) rc = PL_LAUNCH(norm_param_grads, grid, CUDA_THREADS, part, dy, x, s, M, D);
    if (rc == PL_OK) rc = cuda_column_add(dweight, part, grid, D);
    if (rc == PL_OK) rc = cuda_column_add(dbias, part + (size_t)grid.y * (size_t)D, grid, D);
    if (rc == PL_OK)
        rc = PL_LAUNCH(norm_dx, (unsigned)M, row_threads(D), dx, dy, x, weight, s, M, D, add);
    return rc;
}

/* Rows per thread block: at least four per warp, and at most 1,024 partial sums. */
static unsigned row_chunks(int M)
{
    unsigned chunks = ((unsigned)M + 4 * WARPS - 1) / (4 * WARPS);
    return chunks < 1024 ? chunks : 1024;
}

int cuda_layer_norm_backward(float *dx, float *dweight, float *dbias, const float *dy,
                             const float *x, const float *weight, int M, int D, float eps, int add)
{
    int vectors = D / CUDA_VECTOR_WIDTH, rc;
    dim3 grid(1, row_chunks(M));
    double *part;
    if (D % CUDA_VECTOR_WIDTH || vectors > HELD_VECTORS || !cuda_is_vectorizable(dx, dy, x, weight))
        return backward_by_blocks(dx, dweight, dbias, dy, x, weight, M, D, eps, add);
    part = cuda_column_scratch(&rc, 2, grid, D);
    if (rc == PL_OK)
        rc = LAUNCH_HELD(backward_held, vectors, grid.y, part, dx, dy, x, weight, M, vectors, eps,
                         add);
    if (rc == PL_OK) rc = cuda_column_add(dweight, part, grid, D);
    if (rc == PL_OK) rc = cuda_column_add(dbias, part + (size_t)grid.y * (size_t)D, grid, D);
    return rc;
}

/* ---- LayerScale ---- */

template <int WIDTH>
__global__ void scale_add(float *y, const float *x, const float *s, int M, int vectors, float sign)
{
    cuda_each_row(M, vectors, [=](int m, int c) {
        size_t at = ((size_t)m * (size_t)vectors + (size_t)c) * WIDTH;
        auto to = cuda_load<WIDTH>(y + at), from = cuda_load<WIDTH>(x + at);
        auto by = cuda_load<WIDTH>(s + (size_t)c * WIDTH);
        PL_UNROLL
        for (int k = 0; k < WIDTH; k++) to.at[k] = fmaf(sign * by.at[k], from.at[k], to.at[k]);
        cuda_store(y + at, to);
    });
}

int cuda_scale_add(float *y, const float *x, const float *s, int M, int D, float sign)
{
    int vectorized = D % CUDA_VECTOR_WIDTH == 0 && cuda_is_vectorizable(y, x, s),
        vectors = vectorized ? D / CUDA_VECTOR_WIDTH : D;
    return CUDA_LAUNCH_VECTORIZED(vectorized, scale_add, cuda_row_grid(M, vectors), CUDA_THREADS, y,
                                  x, s, M, vectors, sign);
}

template <int WIDTH>
__global__ void scale_backward(double *part, float *dx, const float *dy, const float *x,
                               const float *s, int M, int vectors)
{
    size_t D = (size_t)vectors * WIDTH;
    part += (size_t)blockIdx.y * D;
    cuda_vector_column_parts<WIDTH>(
        M, vectors,
        [=](int r, int c, double *sum) {
            size_t at = (size_t)r * D + (size_t)c * WIDTH;
            auto d = cuda_load<WIDTH>(dy + at), from = cuda_load<WIDTH>(x + at);
            auto by = cuda_load<WIDTH>(s + (size_t)c * WIDTH);
            PL_UNROLL
            for (int k = 0; k < WIDTH; k++) {
                sum[k] += (double)d.at[k] * from.at[k];
                d.at[k] = by.at[k] * d.at[k];
            }
            cuda_store(dx + at, d);
        },
        [=](int c, int k, double sum) { part[c * WIDTH + k] = sum; });
}

int cuda_layer_scale_backward(float *dx, float *ds, const float *dy, const float *x, const float *s,
                              int M, int D)
{
    int vectorized = D % CUDA_VECTOR_WIDTH == 0 && cuda_is_vectorizable(dx, dy, x, s), rc;
    int vectors = vectorized ? D / CUDA_VECTOR_WIDTH : D;
    dim3 grid = cuda_column_grid(M, vectors);
    double *part = cuda_column_scratch(&rc, 1, grid, D);
    if (rc == PL_OK)
        rc = CUDA_LAUNCH_VECTORIZED(vectorized, scale_backward, grid, CUDA_THREADS, part, dx, dy, x,
                                    s, M, vectors);
    return rc == PL_OK ? cuda_column_add(ds, part, grid, D) : rc;
}
