/* fast.h - what the files of this folder share: threads, precision, kernels chosen at run time.
 *
 * Results never depend on the number of threads: a sum is split by its sizes alone, one thread
 * computes each part, and the parts are added in order. */
#ifndef PL_FAST_H
#define PL_FAST_H

#include "../ref/backend.h"

/* Threads for parallel regions: `#pragma omp parallel for num_threads(fast_threads())`. */
int fast_threads(void);
/* 1 if matrix products round their operands to bfloat16 (PL_BF16). */
int fast_bf16(void);
/* 1 if this CPU multiplies bfloat16 faster than float32: by AMX, AVX512-BF16 or BFMMLA. */
int fast_has_bf16(void);
/* The functions in the backend's table under these names. */
int fast_set_threads(int n);
int fast_set_precision(enum pl_precision p);
int fast_parallel_for(int n, int (*task)(void *context, int i), void *context);

/* Marks a function that is compiled three times: for AVX-512, for AVX2 with FMA, and for any CPU.
 * The loader picks one. Loops are plain C with `#pragma omp simd`, and fast_fma rounds once
 * everywhere, so all three give the same bits. */
#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__)
#define FAST_CLONES \
    __attribute__((noinline, target_clones("arch=x86-64-v4", "arch=x86-64-v3", "default")))
#else
#define FAST_CLONES
#endif
#define FAST_INLINE static inline __attribute__((always_inline))

FAST_INLINE float fast_fma(float a, float b, float c) { return __builtin_fmaf(a, b, c); }

/* Part i of `total` elements split among n: all equal but the last, multiples of `unit` but the
 * last. Late parts may be empty. */
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
/* The same, given the largest size of a part. */
FAST_INLINE int fast_chunk_count(int total, int most) { return (total + most - 1) / most; }
FAST_INLINE struct fast_range fast_chunk(int total, int most, int unit, int i)
{
    return fast_split(total, fast_chunk_count(total, most), unit, i);
}

/* GEMM on one thread, row-major: C (m,n; rows ldc apart) = op(A) op(B) over k terms, + bias (n) if
 * not NULL, or with `add` + C. ta, tb: the operand is stored transposed. */
void fast_gemm(int ta, int tb, int m, int n, int k, const float *a, int lda, const float *b,
               int ldb, const float *bias, int add, float *c, int ldc);

/* y (M,N) = x W^T + b for M <= FAST_SKINNY_ROWS. Returns 0 if this CPU lacks it; nothing was done
 * then. */
#define FAST_SKINNY_ROWS 16
int fast_gemm_skinny(float *y, const float *x, const float *W, const float *b, int M, int K, int N);

/* C (m,n), contiguous, = op(A) op(B) with operands rounded to bfloat16, + bias (n) if not NULL, or
 * with `add` + C. On all threads. Requires fast_has_bf16(). PL_OK or PL_ENOMEM. */
int fast_gemm_bf16(int ta, int tb, int m, int n, int k, const float *a, int lda, const float *b,
                   int ldb, const float *bias, int add, float *c);

/* Scratch memory, not zeroed, cached for the next call. NULL without memory; free accepts NULL. */
float *fast_scratch_alloc(size_t floats);
void fast_scratch_free(float *p);

/* What operations that may write to parameters call when they have written: copies of weights that
 * are kept in another form are made again (packed_weights.c). */
void fast_written(const void *p, size_t bytes);

/* to (n) += each of `count` slots, in order; they begin `stride` floats apart. */
void fast_add_slots(float *to, const float *slots, size_t stride, size_t n, int count);

/* db (N) += column sums of dy (M,N). */
void fast_column_sums(float *db, const float *dy, int M, int N);

#endif
