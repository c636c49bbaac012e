/* linear.cu - linear layers by cuBLAS, in float32 without TF32, or with operands rounded to
 * bfloat16: parameters once per step (bf16_weights.cu), other operands once per GEMM. Sums stay in
 * float32. cuBLAS is column-major, so a row-major C = A B is its C' = B' A'. */
#include "../ref/linear.h"

#include "bf16.cuh"
#include "device.cuh"
#include "vectorized.cuh"
#include "bf16_weights.cuh"

#include <cublas_v2.h>
#include <stdio.h>

static cublasHandle_t handles[CUDA_DEVICES_MAX];
static int bf16;

void cuda_set_bf16(int on) { bf16 = on; }

static int blas_status(cublasStatus_t s)
{
    char why[64];
    if (s == CUBLAS_STATUS_SUCCESS) return PL_OK;
    snprintf(why, sizeof why, "cuBLAS: status %d", (int)s);
    cuda_failed(why);
    return s == CUBLAS_STATUS_ALLOC_FAILED ? PL_ENOMEM : PL_EDEVICE;
}

int cuda_linear_open(void)
{
    cublasHandle_t *own = &handles[cuda_number()], handle;
    int rc;
    if (*own) return PL_OK;
    rc = blas_status(cublasCreate(own));
    if (rc != PL_OK) return rc;
    handle = *own;
    rc = blas_status(cublasSetStream(handle, cuda_stream()));
    if (rc == PL_OK) /* no TF32; sums of bfloat16 GEMMs stay in float32 throughout */
        rc = blas_status(
            cublasSetMathMode(handle,
                              (cublasMath_t)(CUBLAS_DEFAULT_MATH |
                                             CUBLAS_MATH_DISALLOW_REDUCED_PRECISION_REDUCTION)));
    return rc;
}

int cuda_bf16(void) { return bf16; }

static int product(void *C, cudaDataType type_c, int c_step, const void *A, int transposed_a,
                   const void *B, int transposed_b, cudaDataType type, int M, int N, int K, int add)
{
    float one = 1, beta = add ? 1 : 0;
    return blas_status(
        cublasGemmEx(handles[cuda_number()], transposed_b ? CUBLAS_OP_T : CUBLAS_OP_N,
                     transposed_a ? CUBLAS_OP_T : CUBLAS_OP_N, N, M, K, &one, B, type,
                     transposed_b ? K : N, A, type, transposed_a ? M : K, &beta, C, type_c, c_step,
                     CUBLAS_COMPUTE_32F, CUBLAS_GEMM_DEFAULT));
}

int cuda_gemm_float32(float *C, int c_step, const float *A, int transposed_a, const float *B,
                      int transposed_b, int M, int N, int K, int add)
{
    return product(C, CUDA_R_32F, c_step, A, transposed_a, B, transposed_b, CUDA_R_32F, M, N, K,
                   add);
}

int cuda_gemm_bf16(uint16_t *C, const uint16_t *A, int transposed_a, const uint16_t *B,
                   int transposed_b, int M, int N, int K)
{
    return product(C, CUDA_R_16BF, N, A, transposed_a, B, transposed_b, CUDA_R_16BF, M, N, K, 0);
}

int cuda_gemm_bf16(float *C, const uint16_t *A, int transposed_a, const uint16_t *B,
                   int transposed_b, int M, int N, int K, int add)
{
    return product(C, CUDA_R_32F, N, A, transposed_a, B, transposed_b, CUDA_R_16BF, M, N, K, add);
}

int cuda_gemm(float *C, int c_step, const float *A, int transposed_a, const float *B,
              int transposed_b, int M, int N, int K, int add)
{
    const uint16_t *a, *b;
    int rc;
    if (!bf16) return cuda_gemm_float32(C, c_step, A, transposed_a, B, transposed_b, M, N, K, add);
    a = cuda_rounded(&rc, CUDA_SLOT_OPERAND, A, (size_t)M * (size_t)K);
    if (rc != PL_OK) return rc;
    b = cuda_rounded(&rc, CUDA_SLOT_OPERAND2, B, (size_t)K * (size_t)N);
    if (rc != PL_OK) return rc;
    return product(C, CUDA_R_32F, c_step, a, transposed_a, b, transposed_b, CUDA_R_16BF, M, N, K,
                   add);
}

template <int WIDTH> __global__ void spread_bias(float *y, const float *b, int M, int vectors)
{
    cuda_each_row(M, vectors, [=](int m, int c) {
        cuda_store(y + ((size_t)m * (size_t)vectors + (size_t)c) * WIDTH,
                   cuda_load<WIDTH>(b + (size_t)c * WIDTH));
    });
}

/* Fills y with what the GEMM adds to: the bias, or zeros. */
static int begin_with(float *y, const float *b, int M, int N)
{
    int vectorized = N % CUDA_VECTOR_WIDTH == 0 && cuda_is_vectorizable(y, b),
        vectors = vectorized ? N / CUDA_VECTOR_WIDTH : N;
    if (!b) return PL_OK;
    return CUDA_LAUNCH_VECTORIZED(vectorized, spread_bias, cuda_row_grid(M, vectors), CUDA_THREADS,
                                  y, b, M, vectors);
}

int cuda_linear(float *y, const float *x, const float *W, const float *b, int M, int K, int N)
{
    int rc = begin_with(y, b, M, N);
    if (rc == PL_OK) rc = cuda_gemm(y, N, x, 0, W, 1, M, N, K, b != NULL);
    cuda_rounded_written(y, (size_t)M * (size_t)N * sizeof *y);
    return rc;
}

int cuda_linear16(float *y, const uint16_t *x, const uint16_t *W, const float *b, int M, int K,
                  int N)
{
    int rc = begin_with(y, b, M, N);
    return rc == PL_OK ? cuda_gemm_bf16(y, x, 0, W, 1, M, N, K, b != NULL) : rc;
}

int cuda_linear_dx(float *dx, const float *dy, const float *W, int M, int K, int N, int add)
{
    int rc = cuda_gemm(dx, K, dy, 0, W, 0, M, K, N, add);
    cuda_rounded_written(dx, (size_t)M * (size_t)K * sizeof *dx);
    return rc;
}

/* y NULL: only the sums. */
template <int WIDTH>
__global__ void sum_columns(double *part, uint16_t *y, const float *dy, int M, int vectors)
{
    size_t N = (size_t)vectors * WIDTH;
    part += (size_t)blockIdx.y * N;
    cuda_vector_column_parts<WIDTH>(
        M, vectors,
        [=](int r, int c, double *sum) {
            size_t at = (size_t)r * N + (size_t)c * WIDTH;
            cuda_vector<float, WIDTH> d = cuda_load<WIDTH>(dy + at);
            cuda_vector<uint16_t, WIDTH> h;
            PL_UNROLL
            for (int k = 0; k < WIDTH; k++) {
                sum[k] += d.at[k];
                h.at[k] = bf16_of_float(d.at[k]);
            }
            if (y) cuda_store(y + at, h);
        },
        [=](int c, int k, double s) { part[c * WIDTH + k] = s; });
}

int cuda_round_columns(uint16_t *y, float *db, const float *dy, int M, int N)
{
    int vectorized = N % CUDA_VECTOR_WIDTH == 0 && cuda_is_vectorizable(dy) &&
                     (!y || cuda_is_vectorizable(y)),
        rc;
    int vectors = vectorized ? N / CUDA_VECTOR_WIDTH : N;
    dim3 grid = cuda_column_grid(M, vectors);
    double *part = cuda_column_scratch(&rc, 1, grid, N);
    if (rc == PL_OK)
        rc = CUDA_LAUNCH_VECTORIZED(vectorized, sum_columns, grid, CUDA_THREADS, part, y, dy, M,
                                    vectors);
    return rc == PL_OK ? cuda_column_add(db, part, grid, N) : rc;
}

/* dy in bfloat16, and its column sums, in one pass where possible. */
static const uint16_t *round_gradient(int *rc, float *db, const float *dy, int M, int N)
{
    size_t n = (size_t)M * (size_t)N;
    const uint16_t *known = cuda_rounded_known(dy, n);
    uint16_t *y = known || !db ? NULL : cuda_round_into(rc, dy, n);
    if (known || !db) {
        known = cuda_rounded(rc, CUDA_SLOT_OPERAND, dy, n);
        if (*rc != PL_OK || !db) return known;
    } else if (*rc != PL_OK) return NULL;
    *rc = cuda_round_columns(y, db, dy, M, N);
    if (*rc != PL_OK) cuda_rounded_forget(); /* it was not written */
    return y ? y : known;
}

int cuda_linear_dw(float *dW, float *db, const float *dy, const float *x, int M, int K, int N)
{
    int rc = PL_OK;
    if (!bf16) {
        rc = cuda_gemm_float32(dW, K, dy, 1, x, 0, N, K, M, 1);
        if (rc == PL_OK && db) rc = cuda_round_columns(NULL, db, dy, M, N);
    } else {
        const uint16_t *a = round_gradient(&rc, db, dy, M, N), *b = NULL;
        if (rc == PL_OK) b = cuda_rounded(&rc, CUDA_SLOT_OPERAND2, x, (size_t)M * (size_t)K);
        if (rc == PL_OK) rc = cuda_gemm_bf16(dW, a, 1, b, 0, N, K, M, 1);
    }
    cuda_rounded_written(dW, (size_t)N * (size_t)K * sizeof *dW);
    if (db) cuda_rounded_written(db, (size_t)N * sizeof *db);
    return rc;
}
