/* linear.cu - cuBLAS, in float32 without TF32, or with operands rounded to bfloat16: parameters
 * once a step (weights.cu), everything else once a product. Sums stay in float32. cuBLAS counts
 * columns first, so a row-major C = A B is its C' = B' A'. */
#include "../ref/linear.h"

#include "device.cuh"
#include "launch.cuh"
#include "weights.cuh"

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
    if (rc == PL_OK) /* no TF32, and bfloat16's sums stay in float32 to the end */
        rc = blas_status(cublasSetMathMode(
            handle, (cublasMath_t)(CUBLAS_DEFAULT_MATH |
                                   CUBLAS_MATH_DISALLOW_REDUCED_PRECISION_REDUCTION)));
    return rc;
}

static const void *rounded(int *rc, enum cuda_slot slot, const float *x, size_t n)
{
    uint16_t *y = (uint16_t *)cuda_weights_bf16(rc, x);
    if (y || *rc != PL_OK) return y;
    y = (uint16_t *)cuda_scratch(rc, slot, n * sizeof *y);
    if (*rc == PL_OK) *rc = cuda_to_bf16(y, x, n);
    return y;
}

static int product(float *C, int c_step, const void *A, int transposed_a, const void *B,
                   int transposed_b, cudaDataType type, int M, int N, int K, int add)
{
    float one = 1, beta = add ? 1 : 0;
    return blas_status(cublasGemmEx(
        handles[cuda_number()], transposed_b ? CUBLAS_OP_T : CUBLAS_OP_N,
        transposed_a ? CUBLAS_OP_T : CUBLAS_OP_N, N, M, K, &one, B, type, transposed_b ? K : N, A,
        type, transposed_a ? M : K, &beta, C,
        CUDA_R_32F, c_step, CUBLAS_COMPUTE_32F, CUBLAS_GEMM_DEFAULT));
}

int cuda_product32(float *C, int c_step, const float *A, int transposed_a, const float *B,
                   int transposed_b, int M, int N, int K, int add)
{
    return product(C, c_step, A, transposed_a, B, transposed_b, CUDA_R_32F, M, N, K, add);
}

int cuda_product(float *C, int c_step, const float *A, int transposed_a, const float *B,
                 int transposed_b, int M, int N, int K, int add)
{
    const void *a, *b;
    int rc;
    if (!bf16) return cuda_product32(C, c_step, A, transposed_a, B, transposed_b, M, N, K, add);
    a = rounded(&rc, CUDA_SLOT_OPERAND, A, (size_t)M * (size_t)K);
    if (rc != PL_OK) return rc;
    b = rounded(&rc, CUDA_SLOT_OPERAND2, B, (size_t)K * (size_t)N);
    if (rc != PL_OK) return rc;
    return product(C, c_step, a, transposed_a, b, transposed_b, CUDA_R_16BF, M, N, K, add);
}

__global__ void spread_bias(float *y, const float *b, size_t n, int N)
{
    CUDA_EACH(i, n) y[i] = b[i % (size_t)N];
}

int cuda_linear(float *y, const float *x, const float *W, const float *b, int M, int K, int N)
{
    size_t n = (size_t)M * (size_t)N;
    int rc = b ? PL_LAUNCH(spread_bias, cuda_blocks(n), CUDA_THREADS, y, b, n, N) : PL_OK;
    return rc == PL_OK ? cuda_product(y, N, x, 0, W, 1, M, N, K, b != NULL) : rc;
}

int cuda_linear_dx(float *dx, const float *dy, const float *W, int M, int K, int N, int add)
{
    return cuda_product(dx, K, dy, 0, W, 0, M, K, N, add);
}

__global__ void bias_gradient(double *part, const float *dy, int M, int N)
{
    cuda_column_parts(part, M, N,
                      [=](int r, int c) { return (double)dy[(size_t)r * (size_t)N + (size_t)c]; });
}

int cuda_linear_dw(float *dW, float *db, const float *dy, const float *x, int M, int K, int N)
{
    int rc = cuda_product(dW, K, dy, 1, x, 0, N, K, M, 1);
    if (rc == PL_OK && db) {
        dim3 grid = cuda_column_grid(M, N);
        double *part = cuda_column_scratch(&rc, 1, grid, N);
        if (rc == PL_OK) rc = PL_LAUNCH(bias_gradient, grid, CUDA_THREADS, part, dy, M, N);
        if (rc == PL_OK) rc = cuda_column_add(db, part, grid, N);
    }
    return rc;
}
