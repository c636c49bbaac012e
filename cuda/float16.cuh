/* float16.cuh - float16 on the device by integer arithmetic, as in ref/dtype.c: the same bits on
 * every device. For compress.cu and average.cu. */
#ifndef PL_CUDA_FLOAT16_CUH
#define PL_CUDA_FLOAT16_CUH

#include "launch.cuh"

union cuda_bits {
    float f;
    uint32_t u;
};

static __device__ float float_of_half(uint16_t h)
{
    uint32_t sign = (uint32_t)(h >> 15) << 31, exponent = h >> 10 & 31, m = h & 1023;
    union cuda_bits v;
    if (exponent == 31) v.u = 0x7f800000u | m << 13;
    else if (exponent) v.u = (exponent + 112) << 23 | m << 13;
    else v.f = (float)m * 0x1p-24f;
    v.u |= sign;
    return v.f;
}

/* Rounds to nearest even; 65520 and more become infinite. */
static __device__ uint16_t half_of_float(float x)
{
    union cuda_bits v;
    uint16_t sign;
    v.f = x;
    sign = (uint16_t)(v.u >> 16 & 0x8000);
    v.u &= 0x7fffffff;
    if (v.u > 0x7f800000) return sign | 0x7e00;
    if (v.u >= 0x477ff000) return sign | 0x7c00;
    if (v.u < 0x38800000) /* below the smallest normal half, 2^-14: a multiple of 2^-24 */
        return (uint16_t)(sign | (uint16_t)rintf(v.f * 0x1p24f));
    v.u -= 112u << 23;
    return (uint16_t)(sign | (v.u + 0xfff + (v.u >> 13 & 1)) >> 13);
}

#endif
