/* launch.cuh - what every file of this folder needs: kernel launches, error codes, scratch memory,
 * and reductions.
 *
 * The same sources are compiled for the CPU against test/cuda_on_cpu, which has its own PL_LAUNCH
 * and PL_SHARED; so kernels are launched and shared memory is declared only through these macros.
 * Names that other files see begin with cuda_. */
#ifndef PL_CUDA_LAUNCH_CUH
#define PL_CUDA_LAUNCH_CUH

#include "../ref/base.h"

#include <cuda_runtime.h>

/* All operations run in order on one stream of the thread's device; be->sync waits for it. While a
 * thread holds a pipeline (streams.cuh), this is the pipeline's stream; cuda_set_stream(NULL) ends
 * that. */
cudaStream_t cuda_stream(void);
void cuda_set_stream(cudaStream_t stream);
/* Converts a CUDA error to a status: PL_ENOMEM for lack of memory, otherwise PL_EDEVICE. Its text
 * is kept for be->memory_error. */
int cuda_status(cudaError_t error);

#ifndef PL_LAUNCH
/* Launches a kernel and returns a status. A fault during execution is reported by a later call or
 * by sync. */
#define PL_LAUNCH(kernel, grid, block, ...) \
    (kernel<<<(grid), (block), 0, cuda_stream()>>>(__VA_ARGS__), cuda_status(cudaGetLastError()))
/* Aligned to what ldmatrix reads at a time (tensor_core.cuh). */
#define PL_SHARED(type, name, count) __shared__ __align__(16) type name[count]
/* Before a loop over a thread's own small arrays: unrolled, they are in registers. */
#define PL_UNROLL _Pragma("unroll")
/* Before a loop that rarely runs: unrolling it would waste registers. */
#define PL_ROLLED _Pragma("unroll 1")
/* A shared array as an argument of a function. */
template <class T> using cuda_shared = T *;
/* Access to several elements at p as one `type`; p must be aligned to all of it. */
#define PL_WIDE(type, p) ((type *)(p))
#endif

/* Device memory for the duration of one call, cached and grown as needed. Calls on one stream run
 * in order, so they share it. A function that calls into another file uses another slot than that
 * file. NULL with *rc = PL_ENOMEM when there is no memory. */
enum cuda_slot {
    CUDA_SLOT_SUMS,    /* partial sums, row statistics */
    CUDA_SLOT_LAYER,   /* a layer's intermediate results */
    CUDA_SLOT_PATCHES, /* a convolution's patch matrix */
    CUDA_SLOT_OPERAND, /* a GEMM's operands in bfloat16 */
    CUDA_SLOT_OPERAND2,
    CUDA_SLOT_COLUMNS, /* columns' partial sums */
    CUDA_SLOT_PEER,    /* values copied from another device */
    CUDA_SLOTS
};
void *cuda_scratch(int *rc, enum cuda_slot slot, size_t bytes);
/* How much scratch to request where any amount will do: `most`, or an eighth of --gpu-memory if
 * that is less. Depends on nothing else, so that the same call gives the same bits. */
size_t cuda_scratch_share(size_t most);

/* Copies between host and device, in order with the kernels; finished when the call returns. */
int cuda_upload(void *device, const void *host, size_t bytes);
int cuda_download(void *host, const void *device, size_t bytes);

/* Row-major GEMM: C (M,N) = A (M,K) B (K,N), or + C with `add`. transposed_a: A is stored as (K,M);
 * transposed_b: B is stored as (N,K). Rows of C are c_step apart. Operands are rounded to bfloat16
 * if PL_BF16 is set. */
int cuda_gemm(float *C, int c_step, const float *A, int transposed_a, const float *B,
              int transposed_b, int M, int N, int K, int add);
/* The same, always in float32. */
int cuda_gemm_float32(float *C, int c_step, const float *A, int transposed_a, const float *B,
                      int transposed_b, int M, int N, int K, int add);

#define CUDA_THREADS 256 /* per block by default; always a multiple of 32 */

/* Thread blocks for n threads' worth of work; kernels use grid-stride loops beyond the limit. The
 * emulated device has a low limit, so that tests reach these loops. */
#ifndef CUDA_BLOCKS_MOST
#define CUDA_BLOCKS_MOST 8192
#endif
static inline unsigned cuda_blocks(size_t n)
{
    size_t blocks = (n + CUDA_THREADS - 1) / CUDA_THREADS;
    return (unsigned)(blocks < CUDA_BLOCKS_MOST ? blocks : CUDA_BLOCKS_MOST);
}
/* A grid-stride loop: i takes this thread's share of 0..n-1. */
#define CUDA_EACH(i, n) \
    for (size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x; i < (n); \
         i += gridDim.x * (size_t)blockDim.x)

/* ---- reductions over a block: every thread gets the result, summed in a fixed order ---- */

template <class T> __device__ T cuda_warp_sum(T v)
{
    for (int distance = 16; distance; distance /= 2) v += __shfl_xor_sync(0xffffffffu, v, distance);
    return v;
}

template <class T> __device__ T cuda_block_sum(T v)
{
    PL_SHARED(T, part, 32);
    int warps = (int)blockDim.x / 32;
    v = cuda_warp_sum(v);
    __syncthreads(); /* all threads have read the previous sum */
    if (threadIdx.x % 32 == 0) part[threadIdx.x / 32] = v;
    __syncthreads();
    v = part[0];
    for (int w = 1; w < warps; w++) v += part[w];
    return v;
}

template <class T> __device__ T cuda_warp_max(T v)
{
    for (int distance = 16; distance; distance /= 2) {
        T other = __shfl_xor_sync(0xffffffffu, v, distance);
        if (other > v) v = other;
    }
    return v;
}

template <class T> __device__ T cuda_block_max(T v)
{
    PL_SHARED(T, part, 32);
    int warps = (int)blockDim.x / 32, lane = (int)threadIdx.x % 32;
    v = cuda_warp_max(v);
    __syncthreads();
    if (lane == 0) part[threadIdx.x / 32] = v;
    __syncthreads();
    v = part[lane < warps ? lane : 0];
    return cuda_warp_max(v); /* a maximum does not depend on the order */
}

/* ---- sums over rows, column by column ---- */

/* Rows are cut into chunks, so that a matrix of few columns still occupies the whole device. A
 * block takes 32 columns of a chunk, and its 8 warps share the rows. Sums are in double, in a fixed
 * order. part (chunks, columns) is input for cuda_column_add. Launch with cuda_column_grid. */
template <class F> __device__ void cuda_column_parts(double *part, int rows, int columns, F f)
{
    PL_SHARED(double, own, CUDA_THREADS);
    int lane = (int)threadIdx.x % 32, warp = (int)threadIdx.x / 32, c = (int)blockIdx.x * 32 + lane;
    int each = (int)(((unsigned)rows + gridDim.y - 1) / gridDim.y), begin = (int)blockIdx.y * each;
    int end = rows - begin > each ? begin + each : rows;
    double s = 0;
    for (int r = begin + warp; c < columns && r < end; r += CUDA_THREADS / 32) s += f(r, c);
    __syncthreads();
    own[threadIdx.x] = s;
    __syncthreads();
    if (warp == 0 && c < columns) {
        s = 0;
        for (int w = 0; w < CUDA_THREADS / 32; w++) s += own[w * 32 + lane];
        part[(size_t)blockIdx.y * (size_t)columns + (size_t)c] = s;
    }
}
dim3 cuda_column_grid(int rows, int columns); /* depends on the sizes alone */
/* For `sums` sums at once, each (grid.y, columns). */
double *cuda_column_scratch(int *rc, int sums, dim3 grid, int columns);
/* sum[c] += the sum of the chunks' parts. */
int cuda_column_add(float *sum, const double *part, dim3 grid, int columns);

#endif
