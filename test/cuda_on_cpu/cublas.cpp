/* cublas.cpp - see cublas_v2.h. */
#include "cublas_v2.h"

#include "../../ref/dtype.h"

#include <stdlib.h>

void emu_device_access(int begin);

cublasStatus_t cublasCreate(cublasHandle_t *handle)
{
    *handle = NULL;
    return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasSetStream(cublasHandle_t, cudaStream_t) { return CUBLAS_STATUS_SUCCESS; }
cublasStatus_t cublasSetMathMode(cublasHandle_t, cublasMath_t) { return CUBLAS_STATUS_SUCCESS; }

static size_t at(int row, int column, int ld) { return (size_t)column * (size_t)ld + (size_t)row; }

/* The operand as floats, its rows (m or n of the product) contiguous over k. */
static float *operand(const void *data, cudaDataType type, cublasOperation_t op, int rows, int k,
                      int ld, int is_a)
{
    float *out = (float *)malloc(((size_t)rows * (size_t)k + 1) * sizeof *out);
    int across =
        is_a ? op == CUBLAS_OP_N : op == CUBLAS_OP_T; /* element (row, i) lies at row + i ld */
    for (int r = 0; out && r < rows; r++)
    for (int i = 0; i < k; i++) {
        size_t j = across ? at(r, i, ld) : at(i, r, ld);
        out[(size_t)r * (size_t)k + (size_t)i] = type == CUDA_R_32F
            ? ((const float *)data)[j] : pl_bf16_to_float(((const uint16_t *)data)[j]);
    }
    return out;
}

cublasStatus_t cublasGemmEx(cublasHandle_t, cublasOperation_t op_a, cublasOperation_t op_b, int m,
                            int n, int k, const void *alpha, const void *A, cudaDataType type_a,
                            int lda, const void *B, cudaDataType type_b, int ldb, const void *beta,
                            void *C, cudaDataType type_c, int ldc, cublasComputeType_t,
                            cublasGemmAlgo_t)
{
    double al = *(const float *)alpha, be = *(const float *)beta;
    float *a, *b, *c = (float *)C;
    if (m < 1 || n < 1 || k < 1 || type_c != CUDA_R_32F || lda < (op_a == CUBLAS_OP_N ? m : k) ||
        ldb < (op_b == CUBLAS_OP_N ? k : n) || ldc < m)
        return CUBLAS_STATUS_INVALID_VALUE;
    emu_device_access(1);
    a = operand(A, type_a, op_a, m, k, lda, 1);
    b = operand(B, type_b, op_b, n, k, ldb, 0);
    for (int j = 0; a && b && j < n; j++)
    for (int i = 0; i < m; i++) {
        const float *p = a + (size_t)i * (size_t)k, *q = b + (size_t)j * (size_t)k;
        double s[4] = { 0 };
        int l = 0;
        for (; l + 4 <= k; l += 4)
            for (int e = 0; e < 4; e++) s[e] += (double)p[l + e] * q[l + e];
        for (; l < k; l++) s[0] += (double)p[l] * q[l];
        s[0] = al * ((s[0] + s[1]) + (s[2] + s[3]));
        /* with beta 0, C may hold anything, and NaN too */
        c[at(i, j, ldc)] = (float)(be != 0 ? s[0] + be * c[at(i, j, ldc)] : s[0]);
    }
    emu_device_access(0);
    free(a);
    free(b);
    return a && b ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_ALLOC_FAILED;
}
