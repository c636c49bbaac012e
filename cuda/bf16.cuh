/* bf16.cuh - bfloat16 (the upper half of a float32) on the device, and GEMMs with such operands. */
#ifndef PL_CUDA_BF16_CUH
#define PL_CUDA_BF16_CUH

#include "launch.cuh"

/* Rounds to nearest even; NaN stays NaN. Devices with bfloat16 tensor cores have one instruction
 * for it, instead of six. */
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

/* Whether GEMMs round their operands. */
int cuda_bf16(void);

/* ---- bf16_operands.cu ---- */

/* y = x (n), rounded. */
int cuda_to_bf16(uint16_t *y, const float *x, size_t n);
/* x (n) in bfloat16: a parameter's working copy, a known rounding, or rounded now into the slot.
 * What was last rounded into CUDA_SLOT_OPERAND is known until x is written, so an operation
 * requests that slot's operand first, and only one of it. */
const uint16_t *cuda_rounded(int *rc, enum cuda_slot slot, const float *x, size_t n);
/* The same if no pass is needed; NULL if one is. */
const uint16_t *cuda_rounded_known(const float *x, size_t n);
/* Where x (n) is to be rounded to now; it is known afterwards. */
uint16_t *cuda_round_into(int *rc, const float *x, size_t n);
/* The same for an operation whose x is the next GEMM's operand; NULL: rounding is not needed. */
uint16_t *cuda_round_copy(const float *x, size_t n);
/* GEMMs report what they have written. All other operations, and whatever frees memory, report that
 * nothing is known any more. */
void cuda_rounded_written(const void *p, size_t bytes);
void cuda_rounded_forget(void);

/* ---- linear.cu ---- */

/* db (N) += the column sums of dy (M,N), which is rounded into y in the same pass; y may be
 * NULL. */
int cuda_round_columns(uint16_t *y, float *db, const float *dy, int M, int N);

/* cuda_gemm of operands that are rounded already. C is overwritten in bfloat16, or, with add, in
 * float32 as there. */
int cuda_gemm_bf16(uint16_t *C, const uint16_t *A, int transposed_a, const uint16_t *B,
                   int transposed_b, int M, int N, int K);
int cuda_gemm_bf16(float *C, const uint16_t *A, int transposed_a, const uint16_t *B,
                   int transposed_b, int M, int N, int K, int add);
/* y (M,N) = x W^T + b, x and W rounded. b may be NULL. */
int cuda_linear16(float *y, const uint16_t *x, const uint16_t *W, const float *b, int M, int K,
                  int N);

#endif
