/* cublas_v2.h - stands in for cuBLAS: the GEMMs that cuda/ calls, in plain loops with sums in
 * double. */
#ifndef CUDA_ON_CPU_CUBLAS_H
#define CUDA_ON_CPU_CUBLAS_H

#include "cuda_runtime.h"

typedef struct emu_blas *cublasHandle_t;
enum cublasStatus_t {
    CUBLAS_STATUS_SUCCESS,
    CUBLAS_STATUS_ALLOC_FAILED = 3,
    CUBLAS_STATUS_INVALID_VALUE = 7
};
enum cublasOperation_t { CUBLAS_OP_N, CUBLAS_OP_T };
enum cublasMath_t { CUBLAS_DEFAULT_MATH, CUBLAS_MATH_DISALLOW_REDUCED_PRECISION_REDUCTION = 16 };
enum cublasComputeType_t { CUBLAS_COMPUTE_32F = 68 };
enum cublasGemmAlgo_t { CUBLAS_GEMM_DEFAULT = -1 };
enum cudaDataType { CUDA_R_32F = 0, CUDA_R_16BF = 14 };

cublasStatus_t cublasCreate(cublasHandle_t *handle);
cublasStatus_t cublasSetStream(cublasHandle_t handle, cudaStream_t stream);
cublasStatus_t cublasSetMathMode(cublasHandle_t handle, cublasMath_t mode);

/* C (m,n) = alpha op(A) (m,k) op(B) (k,n) + beta C, columns contiguous. */
cublasStatus_t cublasGemmEx(cublasHandle_t handle, cublasOperation_t op_a, cublasOperation_t op_b,
                            int m, int n, int k, const void *alpha, const void *A,
                            cudaDataType type_a, int lda, const void *B, cudaDataType type_b,
                            int ldb, const void *beta, void *C, cudaDataType type_c, int ldc,
                            cublasComputeType_t compute, cublasGemmAlgo_t algo);

#endif
