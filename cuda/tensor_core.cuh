/* tensor_core.cuh - tensor cores: matrix products by a warp of 32 lanes, operands in bfloat16, sums
 * in float32. [PTX ISA: mma.m16n8k16 with floating point type; ldmatrix; cvt] sm_80 or later; call
 * cuda_matrix_code first to see whether a kernel was compiled for that.
 *
 * A word holds two values, the first in its low half. With g = lane / 4 and t = lane % 4 a
 * lane holds
 *   of A (16 x 16)  a[0]: row g, columns 2t, 2t+1   a[1]: row g+8   a[2], a[3]: columns 8 on
 *   of B (16 x 8)   b0: rows 2t, 2t+1 of column g   b1: rows 8 on
 *   of D (16 x 8)   d[0], d[1]: row g, columns 2t, 2t+1   d[2], d[3]: row g+8
 * so two adjacent D, rounded, have the layout of an A: one product's result is the next one's
 * operand. */
#ifndef PL_CUDA_TENSOR_CORE_CUH
#define PL_CUDA_TENSOR_CORE_CUH

#include "launch.cuh"

#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
#define MATRIX_UNITS 1
#else
#define MATRIX_UNITS 0
#endif

/* Whether this kernel has code for tensor cores; without it the instructions trap. */
template <class K> static inline int cuda_matrix_code(K *kernel)
{
    struct cudaFuncAttributes a;
    if (cuda_status(cudaFuncGetAttributes(&a, kernel)) != PL_OK) {
        cudaGetLastError(); /* clear the error: a later launch must not report it */
        return 0;
    }
    return a.ptxVersion >= 80;
}

/* Rounds to nearest even; `low` is the word's first value. */
static __device__ __forceinline__ uint32_t cuda_word(float low, float high)
{
#if defined(PL_EMULATED)
    return emu_word(low, high);
#elif MATRIX_UNITS
    uint32_t w;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(w) : "f"(high), "f"(low));
    return w;
#else
    (void)low, (void)high;
    __trap();
    return 0;
#endif
}

/* d += a b. All lanes of the warp must call it together. */
static __device__ __forceinline__ void cuda_multiply(float d[4], const uint32_t a[4], uint32_t b0,
                                                     uint32_t b1)
{
#if defined(PL_EMULATED)
    emu_multiply(d, a, b0, b1);
#elif MATRIX_UNITS
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 "
                 "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
#else
    (void)d, (void)a, (void)b0, (void)b1;
    __trap();
#endif
}

/* Loads four matrices of 8 x 8 values. Lane 8m + r points to row r of matrix m: its first word, a
 * multiple of four. r[m] receives row g, columns 2t, 2t+1 of matrix m; with `transposed`, rows 2t,
 * 2t+1 of column g. All lanes of the warp must call it together. */
template <int transposed>
static __device__ __forceinline__ void cuda_load_matrices(uint32_t r[4],
                                                          cuda_shared<uint32_t> words, int at)
{
#if defined(PL_EMULATED)
    emu_load_matrices(r, words, at, transposed);
#elif MATRIX_UNITS
    uint32_t address = (uint32_t)__cvta_generic_to_shared(words + at);
    if (transposed)
        asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                     : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                     : "r"(address)
                     : "memory");
    else
        asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                     : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                     : "r"(address)
                     : "memory");
#else
    (void)r, (void)words, (void)at;
    __trap();
#endif
}

#endif
