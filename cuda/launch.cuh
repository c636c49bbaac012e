/* launch.cuh - what every file of this room needs: how a kernel is started, how trouble becomes a
 * status, scratch memory, and sums over a block.
 *
 * The same sources are compiled for the CPU against test/cuda_on_cpu, which brings its own
 * PL_LAUNCH and PL_SHARED; so kernels are started and shared memory is declared in no other way.
 * Names of the room's own that other files see begin with cuda_. */
#ifndef PL_CUDA_LAUNCH_CUH
#define PL_CUDA_LAUNCH_CUH

#include "../ref/base.h"

#include <cuda_runtime.h>

/* Everything runs in order on one stream of the thread's device; be->sync waits for it. Only while
 * a thread holds a lane (streams.cuh) is its stream another one: NULL ends that. */
cudaStream_t cuda_stream(void);
void cuda_set_stream(cudaStream_t stream);
/* A status for what CUDA says; anything but success and lack of memory is the device's failure. Its
 * words are kept for be->memory_error. */
int cuda_status(cudaError_t error);

#ifndef PL_LAUNCH
/* Starts a kernel; the value is a status. A fault while it runs is seen by a later call or sync. */
#define PL_LAUNCH(kernel, grid, block, ...) \
    (kernel<<<(grid), (block), 0, cuda_stream()>>>(__VA_ARGS__), cuda_status(cudaGetLastError()))
/* Aligned to what a matrix unit reads at a time (tensor_core.cuh). */
#define PL_SHARED(type, name, count) __shared__ __align__(16) type name[count]
/* Before a loop over a thread's own small arrays: unrolled, they lie in registers. */
#define PL_UNROLL _Pragma("unroll")
/* Before one that is seldom run: the registers it would take belong to others. */
#define PL_ROLLED _Pragma("unroll 1")
/* A shared array handed to a function. */
template <class T> using cuda_shared = T *;
/* Where a device's memory is read or written several elements at a time: at p, as a `type`, which a
 * device refuses if p isn't aligned to all of it. */
#define PL_WIDE(type, p) ((type *)(p))
#endif

/* Device memory for the length of one call, kept from call to call and grown when needed; calls on
 * one stream follow each other, so they share it. Who calls another file's function holds another
 * slot than that one. NULL with *rc = PL_ENOMEM when there is none left. */
enum cuda_slot {
    CUDA_SLOT_SUMS,    /* partial sums, statistics */
    CUDA_SLOT_LAYER,   /* what a layer keeps between its products */
    CUDA_SLOT_PATCHES, /* a convolution's */
    CUDA_SLOT_OPERAND, /* a product's operands in bfloat16 */
    CUDA_SLOT_OPERAND2,
    CUDA_SLOT_COLUMNS, /* columns' partial sums */
    CUDA_SLOT_PEER,    /* another device's values */
    CUDA_SLOTS
};
void *cuda_scratch(int *rc, enum cuda_slot slot, size_t bytes);
/* How much of it to ask for where any amount will do: `most`, or an eighth of what --gpu-memory
 * allows. It depends on nothing else, so that the same call gives the same bits. */
size_t cuda_scratch_share(size_t most);

/* Moves between host and device, in order with the kernels; finished when the call returns. */
int cuda_upload(void *device, const void *host, size_t bytes);
int cuda_download(void *host, const void *device, size_t bytes);

/* Row-major C (M,N) = A (M,K) B (K,N), or + C with `add`; transposed_x: x lies as (K,M), or (N,K).
 * Rows of C lie c_step apart. Operands are rounded to bfloat16 if that was asked for. */
int cuda_gemm(float *C, int c_step, const float *A, int transposed_a, const float *B,
              int transposed_b, int M, int N, int K, int add);
/* The same with operands as they are, whatever the precision asked for. */
int cuda_gemm_float32(float *C, int c_step, const float *A, int transposed_a, const float *B,
                      int transposed_b, int M, int N, int K, int add);

#define CUDA_THREADS 256 /* of a block, where nothing else is said; a multiple of 32 always */

/* Blocks for n threads' worth of work; kernels stride over what is beyond. The emulated device has
 * few, so that they do in tests. */
#ifndef CUDA_BLOCKS_MOST
#define CUDA_BLOCKS_MOST 8192
#endif
static inline unsigned cuda_blocks(size_t n)
{
    size_t blocks = (n + CUDA_THREADS - 1) / CUDA_THREADS;
    return (unsigned)(blocks < CUDA_BLOCKS_MOST ? blocks : CUDA_BLOCKS_MOST);
}
/* for each of n elements, i, that is this thread's */
#define CUDA_EACH(i, n) \
    for (size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x; i < (n); \
         i += gridDim.x * (size_t)blockDim.x)

/* ---- over a block; every thread gets the result, summed in one fixed order ---- */

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
    __syncthreads(); /* the sum before this one has been read by all */
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
    return cuda_warp_max(v); /* in any order it is the same */
}

/* ---- sums over rows, column by column ---- */

/* Rows are cut into chunks, so that the whole device works on a few columns: a block takes 32
 * columns of a chunk, and its 8 warps take turns at the rows. Sums in double, always in the same
 * order. part (chunks, columns) is left for cuda_column_add. Launch with cuda_column_grid. */
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
dim3 cuda_column_grid(int rows, int columns); /* follows from the sizes alone */
/* For so many sums at once, each (grid.y, columns). */
double *cuda_column_scratch(int *rc, int sums, dim3 grid, int columns);
/* sum[c] += the chunks' parts. */
int cuda_column_add(float *sum, const double *part, dim3 grid, int columns);

#endif
