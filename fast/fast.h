/* fast.h - what the files of this room share: threads, precision, kernels chosen at run time.
 *
 * Results never depend on the number of threads. So work is cut into pieces by its sizes alone, a
 * piece is computed by one thread, and partial sums are added in the order of the pieces. */
#ifndef PL_FAST_H
#define PL_FAST_H

#include "../ref/backend.h"

/* Threads for parallel regions: `#pragma omp parallel for num_threads(fast_threads())`. */
int fast_threads(void);
/* 1 while PL_BF16 is set. */
int fast_bf16(void);
/* 1 if this CPU multiplies pairs of bfloat16 (AVX512-BF16) faster than float32. */
int fast_has_bf16(void);

/* A function so marked exists once for AVX-512, once for AVX2 with FMA, and once for any CPU; the
 * loader takes the best. Its loops are plain C, `#pragma omp simd` lets the compiler use whole
 * vectors, and fast_fma stays one rounding everywhere: all three give the same bits. */
#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__)
#define FAST_CLONES \
    __attribute__((noinline, target_clones("arch=x86-64-v4", "arch=x86-64-v3", "default")))
#else
#define FAST_CLONES
#endif
#define FAST_INLINE static inline __attribute__((always_inline))

FAST_INLINE float fast_fma(float a, float b, float c) { return __builtin_fmaf(a, b, c); }

/* Share i of `total` things among n, equal but for the last, multiples of `unit` but the last; late
 * shares may be empty. */
struct fast_range {
    int start, count;
};
FAST_INLINE struct fast_range fast_split(int total, int n, int unit, int i)
{
    int each = (total + n - 1) / n, start;
    each = (each + unit - 1) / unit * unit;
    start = i * each < total ? i * each : total;
    return (struct fast_range){ start, total - start < each ? total - start : each };
}
/* The same by the largest size of a piece. */
FAST_INLINE int fast_chunk_count(int total, int most) { return (total + most - 1) / most; }
FAST_INLINE struct fast_range fast_chunk(int total, int most, int unit, int i)
{
    return fast_split(total, fast_chunk_count(total, most), unit, i);
}

/* One product on one thread, row-major: C (m,n; rows ldc apart) = op(A) op(B) + bias (n), if not
 * NULL, or with `add` + C, over k terms; ta, tb: the operand is stored transposed. */
void fast_gemm(int ta, int tb, int m, int n, int k, const float *a, int lda, const float *b,
               int ldb, const float *bias, int add, float *c, int ldc);

/* y (M,N) = x W^T + b for M <= FAST_SKINNY_ROWS; 0: not on this CPU, nothing was done. */
#define FAST_SKINNY_ROWS 16
int fast_gemm_skinny(float *y, const float *x, const float *W, const float *b, int M, int K, int N);

/* C (m,n), rows beside each other, = op(A) op(B), operands rounded to bfloat16, + bias (n) if not
 * NULL, or with `add` + C. All threads. Only where fast_has_bf16(); PL_OK or PL_ENOMEM. */
int fast_gemm_bf16(int ta, int tb, int m, int n, int k, const float *a, int lda, const float *b,
                   int ldb, const float *bias, int add, float *c);

/* Scratch memory, not zeroed, kept for the next call; NULL without memory. NULL may be given
 * back. */
float *fast_scratch_alloc(size_t floats);
void fast_scratch_free(float *p);

/* db (N) += column sums of dy (M,N). */
void fast_column_sums(float *db, const float *dy, int M, int N);

#endif
