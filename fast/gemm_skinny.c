/* gemm_skinny.c - y = x W^T + b for a few rows of x, as in generation. Each row of W is read once,
 * in place, and multiplied with all rows of x while it is in L1. This is bound by memory bandwidth
 * up to about 4 rows; beyond, 3 x 4 accumulators keep both FMA units busy. */
#include "fast.h"

#if defined(__x86_64__) && defined(__GNUC__)
#include <immintrin.h>

#define PIECE 64 /* rows of W; a multiple of 4 */
#define TARGET __attribute__((target("avx2,fma")))

TARGET FAST_INLINE float reduce_add(__m256 s)
{
    __m128 t = _mm_add_ps(_mm256_castps256_ps128(s), _mm256_extractf128_ps(s, 1));
    t = _mm_add_ps(t, _mm_movehl_ps(t, t));
    return _mm_cvtss_f32(_mm_add_ss(t, _mm_shuffle_ps(t, t, 1)));
}

/* `rows` <= 3 of x against `cols` <= 4 of W; both are constants where this is inlined. */
TARGET FAST_INLINE void micro_kernel(float *y, const float *x, const float *W, const float *b,
                                     int rows, int cols, size_t K, size_t N)
{
    __m256 sum[3][4];
    size_t k = 0;
    for (int i = 0; i < 3; i++)
        for (int j = 0; j < 4; j++) sum[i][j] = _mm256_setzero_ps();
    for (; k + 8 <= K; k += 8) {
        __m256 w[4];
        for (int j = 0; j < cols; j++) w[j] = _mm256_loadu_ps(W + (size_t)j * K + k);
        for (int i = 0; i < rows; i++) {
            __m256 a = _mm256_loadu_ps(x + (size_t)i * K + k);
            for (int j = 0; j < cols; j++) sum[i][j] = _mm256_fmadd_ps(a, w[j], sum[i][j]);
        }
    }
    for (int i = 0; i < rows; i++)
        for (int j = 0; j < cols; j++) {
            float rest = 0;
            for (size_t r = k; r < K; r++)
                rest = fast_fma(x[(size_t)i * K + r], W[(size_t)j * K + r], rest);
            y[(size_t)i * N + (size_t)j] = reduce_add(sum[i][j]) + rest + (b ? b[j] : 0);
        }
}

TARGET FAST_INLINE void all_rows(float *y, const float *x, const float *W, const float *b, int M,
                                 int cols, size_t K, size_t N)
{
    int m = 0;
    for (; m + 3 <= M; m += 3)
        micro_kernel(y + (size_t)m * N, x + (size_t)m * K, W, b, 3, cols, K, N);
    if (M - m == 2) micro_kernel(y + (size_t)m * N, x + (size_t)m * K, W, b, 2, cols, K, N);
    if (M - m == 1) micro_kernel(y + (size_t)m * N, x + (size_t)m * K, W, b, 1, cols, K, N);
}

TARGET static void multiply_columns(float *y, const float *x, const float *W, const float *b, int M,
                                    int count, size_t K, size_t N)
{
    int n = 0;
    for (; n + 4 <= count; n += 4)
        all_rows(y + n, x, W + (size_t)n * K, b ? b + n : NULL, M, 4, K, N);
    for (; n < count; n++) all_rows(y + n, x, W + (size_t)n * K, b ? b + n : NULL, M, 1, K, N);
}

int fast_gemm_skinny(float *y, const float *x, const float *W, const float *b, int M, int K, int N)
{
    if (!__builtin_cpu_supports("avx2") || !__builtin_cpu_supports("fma")) return 0;
#pragma omp parallel for schedule(static) \
    num_threads(fast_threads()) if ((double)M * K * N > 100000.0)
    for (int n = 0; n < N; n += PIECE)
        multiply_columns(y + n, x, W + (size_t)n * (size_t)K, b ? b + n : NULL, M,
                         N - n < PIECE ? N - n : PIECE, (size_t)K, (size_t)N);
    return 1;
}
#else
int fast_gemm_skinny(float *y, const float *x, const float *W, const float *b, int M, int K, int N)
{
    (void)y, (void)x, (void)W, (void)b, (void)M, (void)K, (void)N;
    return 0;
}
#endif
