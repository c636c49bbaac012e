/* bf16.cuh - bfloat16 on the device, a float's upper half, and products with operands in it. */
#ifndef PL_CUDA_BF16_CUH
#define PL_CUDA_BF16_CUH

#include "launch.cuh"

/* Rounded to nearest even; a NaN stays one. Devices that multiply it have an instruction for that,
 * instead of six. */
static __device__ uint16_t bf16_of_float(float x)
{
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
    uint16_t h;
    asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(h) : "f"(x));
    return h;
#else
    union {
        float f;
        uint32_t u;
    } v;
    v.f = x;
    return (uint16_t)(x != x ? v.u >> 16 | 0x40 : (v.u + 0x7fff + (v.u >> 16 & 1)) >> 16);
#endif
}

static __device__ float float_of_bf16(uint16_t h)
{
    union {
        float f;
        uint32_t u;
    } v;
    v.u = (uint32_t)h << 16;
    return v.f;
}

/* Whether products round their operands. */
int cuda_bf16(void);

/* ---- bf16_operands.cu ---- */

/* y = x (n), rounded. */
int cuda_to_bf16(uint16_t *y, const float *x, size_t n);
/* x (n) in bfloat16: parameters' working copy, what is known, or rounded into the slot. What was
 * rounded into CUDA_SLOT_OPERAND last is known until x is written, so an operation asks for that
 * slot's operand first, and for one of it. */
const uint16_t *cuda_rounded(int *rc, enum cuda_slot slot, const float *x, size_t n);
/* The same if no pass is needed; NULL: it is. */
const uint16_t *cuda_rounded_known(const float *x, size_t n);
/* Where x (n), which is to be known, has to be rounded to now. */
uint16_t *cuda_round_into(int *rc, const float *x, size_t n);
/* The same for an operation whose x the next product reads; NULL: it need not. */
uint16_t *cuda_round_copy(const float *x, size_t n);
/* Products say what they have written; all other operations, and whoever frees memory, that from
 * now on nothing is known. */
void cuda_rounded_written(const void *p, size_t bytes);
void cuda_rounded_forget(void);

/* ---- linear.cu ---- */

/* db (N) += the column sums of dy (M,N), which in the same pass is rounded into y; NULL: not. */
int cuda_round_columns(uint16_t *y, float *db, const float *dy, int M, int N);

/* cuda_product of operands that are rounded already. C is overwritten in bfloat16, or in float32
 * with add as there. */
int cuda_gemm_bf16(uint16_t *C, const uint16_t *A, int transposed_a, const uint16_t *B,
                   int transposed_b, int M, int N, int K);
int cuda_gemm_bf16(float *C, const uint16_t *A, int transposed_a, const uint16_t *B,
                   int transposed_b, int M, int N, int K, int add);
/* y (M,N) = x W^T + b, both rounded. b NULL: none. */
int cuda_linear16(float *y, const uint16_t *x, const uint16_t *W, const float *b, int M, int K,
                  int N);

#endif
