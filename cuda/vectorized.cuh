/* vectorized.cuh - several adjacent elements in one load or store. A device reaches its memory
 * bandwidth only with enough bytes in flight: four floats per thread are enough, one is not.
 * Computing an index once per vector, or once for all rows of a thread, also saves 64-bit
 * divisions, each as expensive as moving several floats. */
#ifndef PL_CUDA_VECTORIZED_CUH
#define PL_CUDA_VECTORIZED_CUH

#include "launch.cuh"

#include <string.h>

#define CUDA_VECTOR_WIDTH 4 /* elements; rows that are not a multiple of it use the scalar kernel */

template <class T, int WIDTH> struct alignas(WIDTH * sizeof(T)) cuda_vector {
    T at[WIDTH];
};
template <int WIDTH, class T> static __device__ cuda_vector<T, WIDTH> cuda_load(const T *from)
{
    typedef const cuda_vector<T, WIDTH> vector;
    return *PL_WIDE(vector, from);
}
/* Stores a vector in one instruction: the compiler sometimes splits a vector store. `to` is global
 * memory. */
static __device__ void cuda_store_word(uint4 *to, uint4 v)
{
#if defined(PL_EMULATED)
    memcpy(to, &v, sizeof v);
#else
    asm volatile("st.global.v4.u32 [%0], {%1, %2, %3, %4};"
                 :
                 : "l"(to), "r"(v.x), "r"(v.y), "r"(v.z), "r"(v.w)
                 : "memory");
#endif
}
static __device__ void cuda_store_word(uint2 *to, uint2 v)
{
#if defined(PL_EMULATED)
    memcpy(to, &v, sizeof v);
#else
    asm volatile("st.global.v2.u32 [%0], {%1, %2};" : : "l"(to), "r"(v.x), "r"(v.y) : "memory");
#endif
}
static __device__ void cuda_store_word(uint32_t *to, uint32_t v)
{
#if defined(PL_EMULATED)
    memcpy(to, &v, sizeof v);
#else
    asm volatile("st.global.u32 [%0], %1;" : : "l"(to), "r"(v) : "memory");
#endif
}

template <size_t BYTES> struct cuda_word_of;
template <> struct cuda_word_of<4> {
    typedef uint32_t type;
};
template <> struct cuda_word_of<8> {
    typedef uint2 type;
};
template <> struct cuda_word_of<16> {
    typedef uint4 type;
};
template <int WIDTH, class T> static __device__ void cuda_store(T *to, cuda_vector<T, WIDTH> p)
{
    if constexpr (WIDTH == 1) *to = p.at[0];
    else {
        typedef typename cuda_word_of<sizeof p>::type piece;
        piece whole;
        memcpy(&whole, &p, sizeof whole);
        cuda_store_word(PL_WIDE(piece, to), whole);
    }
}

/* Whether p is aligned for vectors, as are rows of a multiple of CUDA_VECTOR_WIDTH elements. */
template <class T> static inline int cuda_is_vectorizable(const T *p)
{
    return (uintptr_t)p % (CUDA_VECTOR_WIDTH * sizeof(T)) == 0;
}
template <class T, class... More>
static inline int cuda_is_vectorizable(const T *p, const More *...more)
{
    return cuda_is_vectorizable(p) && cuda_is_vectorizable(more...);
}

/* Launches a kernel template's vectorized form, or its scalar one. */
#define CUDA_LAUNCH_VECTORIZED(vectorized, kernel, grid, block, ...) \
    ((vectorized) ? PL_LAUNCH(kernel<CUDA_VECTOR_WIDTH>, grid, block, __VA_ARGS__) \
                  : PL_LAUNCH(kernel<1>, grid, block, __VA_ARGS__))

/* ---- a whole buffer ---- */

template <int WIDTH> struct cuda_width {
    static constexpr int is = WIDTH;
};
/* f(i, cuda_width<W>) for this thread's share of n elements: W of them from i on, one by one at the
 * end. */
template <int WIDTH, class F> static __device__ void cuda_each_vector(size_t n, F f)
{
    CUDA_EACH (k, (n + WIDTH - 1) / WIDTH) {
        size_t i = k * WIDTH;
        if (i + WIDTH <= n) f(i, cuda_width<WIDTH>());
        else
            for (; i < n; i++) f(i, cuda_width<1>());
    }
}
static inline unsigned cuda_vector_blocks(int vectorized, size_t n)
{
    return cuda_blocks(vectorized ? (n + CUDA_VECTOR_WIDTH - 1) / CUDA_VECTOR_WIDTH : n);
}

/* ---- rows ---- */

/* f(m, c) for this thread's rows m, all at the same column c, counted in vectors. A block covers as
 * many rows at a time as it has threads for. */
template <class F> static __device__ void cuda_each_row(int rows, int vectors, F f)
{
    int many = vectors < (int)blockDim.x, each = many ? (int)blockDim.x / vectors : 1;
    int c = many ? (int)threadIdx.x % vectors : (int)(blockIdx.x * blockDim.x + threadIdx.x);
    int m = many ? (int)threadIdx.x / vectors : 0;
    if (m >= each || c >= vectors) return;
    for (m += (int)blockIdx.y * each; m < rows; m += (int)gridDim.y * each) f(m, c);
}
static inline dim3 cuda_row_grid(int rows, int vectors)
{
    int each = vectors < CUDA_THREADS ? CUDA_THREADS / vectors : 1;
    unsigned across = ((unsigned)vectors + CUDA_THREADS - 1) / CUDA_THREADS;
    unsigned down = ((unsigned)rows + (unsigned)each - 1) / (unsigned)each;
    unsigned most = CUDA_BLOCKS_MOST / across + 1;
    return dim3(across, down < most ? down : most);
}

/* Sums over rows as in cuda_column_parts, SUMS of them per vector of columns: f(r, c, sum) adds to
 * sum[SUMS], put(c, k, sum) stores the k-th sum of a chunk of rows for cuda_column_add. Launch with
 * cuda_column_grid(rows, vectors). */
template <int SUMS, class F, class P>
static __device__ void cuda_vector_column_parts(int rows, int vectors, F f, P put)
{
    PL_SHARED(double, own, (SUMS * CUDA_THREADS));
    int lane = (int)threadIdx.x % 32, warp = (int)threadIdx.x / 32, c = (int)blockIdx.x * 32 + lane;
    int each = (int)(((unsigned)rows + gridDim.y - 1) / gridDim.y), begin = (int)blockIdx.y * each;
    int end = rows - begin > each ? begin + each : rows;
    double sum[SUMS] = { 0 };
    for (int r = begin + warp; c < vectors && r < end; r += CUDA_THREADS / 32) f(r, c, sum);
    PL_UNROLL
    for (int k = 0; k < SUMS; k++) own[k * CUDA_THREADS + (int)threadIdx.x] = sum[k];
    __syncthreads();
    for (int k = warp; k < SUMS && c < vectors; k += CUDA_THREADS / 32) {
        double s = 0;
        for (int w = 0; w < CUDA_THREADS / 32; w++) s += own[k * CUDA_THREADS + w * 32 + lane];
        put(c, k, s);
    }
}

#endif
