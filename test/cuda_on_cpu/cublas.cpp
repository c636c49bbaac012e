/* cublas.cpp - GEMM in plain loops over k, for all combinations that cuda/ uses. */
#include "cublas_v2.h"

#include "../../ref/dtype.h"

#include <stdlib.h>

struct emu_blas {
    cudaStream_t stream;
    int device;
};

cublasStatus_t cublasCreate(cublasHandle_t *handle)
{
    *handle = (struct emu_blas *)calloc(1, sizeof **handle);
    if (!*handle) return CUBLAS_STATUS_ALLOC_FAILED;
    (*handle)->device = emu_device();
    return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasSetStream(cublasHandle_t handle, cudaStream_t stream)
{
    handle->stream = stream;
    return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasSetMathMode(cublasHandle_t, cublasMath_t) { return CUBLAS_STATUS_SUCCESS; }

static size_t at(int row, int column, int ld) { return (size_t)column * (size_t)ld + (size_t)row; }

/* The operand as floats; its rows (m or n of the GEMM) are contiguous over k. */
static float *operand(const void *data, cudaDataType type, cublasOperation_t op, int rows, int k,
                      int ld, int is_a)
{
    float *out = (float *)malloc(((size_t)rows * (size_t)k + 1) * sizeof *out);
    int across = is_a ? op == CUBLAS_OP_N
                      : op == CUBLAS_OP_T; /* element (row, i) is at row + i ld */
    for (int r = 0; out && r < rows; r++)
        for (int i = 0; i < k; i++) {
            size_t j = across ? at(r, i, ld) : at(i, r, ld);
            out[(size_t)r * (size_t)k + (size_t)i] = type == CUDA_R_32F
                                                         ? ((const float *)data)[j]
                                                         : pl_bf16_to_float(
                                                               ((const uint16_t *)data)[j]);
        }
    return out;
}

/* Whether all of a column-major matrix of this many rows and columns is in device memory. */
static int is_there(const void *p, cudaDataType type, int rows, int columns, int ld)
{
    size_t each = type == CUDA_R_32F ? 4 : 2, last = at(rows - 1, columns - 1, ld);
    return emu_lies_on(p, (last + 1) * each, emu_device(), EMU_OWN);
}

struct gemm {
    cublasOperation_t op_a, op_b;
    int m, n, k, lda, ldb, ldc, device;
    float alpha, beta;
    const void *A, *B;
    cudaDataType type_a, type_b, type_c;
    void *C;
};

static void do_gemm(void *g_)
{
    const struct gemm *g = (const struct gemm *)g_;
    int m = g->m, n = g->n, k = g->k;
    double al = g->alpha, be = g->beta;
    float *a, *b, *c = (float *)g->C;
    uint16_t *c16 = (uint16_t *)g->C;
    int wide = g->type_c == CUDA_R_32F;
    emu_device_access(1, g->device);
    a = operand(g->A, g->type_a, g->op_a, m, k, g->lda, 1);
    b = operand(g->B, g->type_b, g->op_b, n, k, g->ldb, 0);
    for (int j = 0; a && b && j < n; j++)
        for (int i = 0; i < m; i++) {
            const float *p = a + (size_t)i * (size_t)k, *q = b + (size_t)j * (size_t)k;
            double s[4] = { 0 };
            int l = 0;
            for (; l + 4 <= k; l += 4)
                for (int e = 0; e < 4; e++) s[e] += (double)p[l + e] * q[l + e];
            for (; l < k; l++) s[0] += (double)p[l] * q[l];
            s[0] = al * ((s[0] + s[1]) + (s[2] + s[3]));
            size_t to = at(i, j, g->ldc);
            /* with beta 0, C may hold anything, even NaN */
            if (be != 0) s[0] += be * (wide ? c[to] : pl_bf16_to_float(c16[to]));
            if (wide) c[to] = (float)s[0];
            else c16[to] = pl_bf16_from_float((float)s[0]);
        }
    emu_device_access(0, g->device);
    if (!a || !b) emu_fault(cudaErrorMemoryAllocation);
    free(a);
    free(b);
}

cublasStatus_t cublasGemmEx(cublasHandle_t handle, cublasOperation_t op_a, cublasOperation_t op_b,
                            int m, int n, int k, const void *alpha, const void *A,
                            cudaDataType type_a, int lda, const void *B, cudaDataType type_b,
                            int ldb, const void *beta, void *C, cudaDataType type_c, int ldc,
                            cublasComputeType_t, cublasGemmAlgo_t)
{
    struct gemm *g;
    if (m < 1 || n < 1 || k < 1 || type_a != type_b || (type_c != CUDA_R_32F && type_c != type_a) ||
        lda < (op_a == CUBLAS_OP_N ? m : k) || ldb < (op_b == CUBLAS_OP_N ? k : n) || ldc < m ||
        handle->device != emu_device() ||
        !is_there(A, type_a, op_a == CUBLAS_OP_N ? m : k, op_a == CUBLAS_OP_N ? k : m, lda) ||
        !is_there(B, type_b, op_b == CUBLAS_OP_N ? k : n, op_b == CUBLAS_OP_N ? n : k, ldb) ||
        !is_there(C, type_c, m, n, ldc))
        return CUBLAS_STATUS_INVALID_VALUE;
    g = (struct gemm *)malloc(sizeof *g);
    if (!g) return CUBLAS_STATUS_ALLOC_FAILED;
    *g = { op_a,
           op_b,
           m,
           n,
           k,
           lda,
           ldb,
           ldc,
           handle->device,
           *(const float *)alpha,
           *(const float *)beta,
           A,
           B,
           type_a,
           type_b,
           type_c,
           C };
    return emu_enqueue(handle->stream, do_gemm, g, free) == cudaSuccess
               ? CUBLAS_STATUS_SUCCESS
               : CUBLAS_STATUS_ALLOC_FAILED;
}
