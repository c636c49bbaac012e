/* vector_math.h - erf, exp and functions of them as plain C that a compiler vectorizes: no
 * branches, no tables, a division only where a multiplication cannot replace it. */
#ifndef PL_FAST_VECTOR_MATH_H
#define PL_FAST_VECTOR_MATH_H

#include "fast.h"

FAST_INLINE float fast_bits(int32_t i)
{
    union {
        int32_t i;
        float f;
    } u = { .i = i };
    return u.f;
}

/* The bits of x rounded to bfloat16, whose own are the upper 16: nearest, ties to even; NaN stays
 * NaN. */
FAST_INLINE uint32_t fast_bf16_bits(float x)
{
    union {
        float f;
        uint32_t u;
    } v = { .f = x };
    uint32_t nearest = (v.u + 0x7FFFu + (v.u >> 16 & 1)) & 0xFFFF0000u;
    return (v.u & 0x7FFFFFFFu) > 0x7F800000u ? 0x7FC00000u : nearest;
}

/* 2^y to 1 ulp for -126 <= y <= 127; smaller y count as -126. */
FAST_INLINE float fast_exp2(float y)
{
    const float magic = 12582912.0f; /* adding 1.5 * 2^23 rounds to an integer */
    union {
        float f;
        int32_t i;
    } shifted;
    float r, p;
    y = y > -126.0f ? y : -126.0f;
    shifted.f = y + magic;
    r = y - (shifted.f - magic);
    /* Minimax in relative error for 2^r on |r| <= 1/2, constant term 1: off by 2e-9 before
     * rounding. */
    p = fast_fma(1.535336206e-4f, r, 1.339887459e-3f);
    p = fast_fma(p, r, 9.618437359e-3f);
    p = fast_fma(p, r, 5.550332471e-2f);
    p = fast_fma(p, r, 2.402264791e-1f);
    p = fast_fma(p, r, 6.931472029e-1f);
    p = fast_fma(p, r, 1.0f);
    return p * fast_bits((int32_t)((uint32_t)(shifted.i + 127)
                                   << 23)); /* magic's high bits are shifted out */
}

/* e^x for x <= 88. log2(e) is split in two, otherwise the error of one multiplication would grow
 * with |x|. */
FAST_INLINE float fast_exp(float x)
{
    float high = x * 1.44269502f;
    float low = fast_fma(x, 1.44269502f, -high) + x * 1.92596303e-8f;
    return fast_exp2(high) * fast_fma(low, 0.693147182f, 1.0f);
}

/* erf to 1.6e-7: sign(x) (1 - 2^P(|x|)), P fitted to log2(erfc) on 0..3.95; beyond, erf is 1. */
FAST_INLINE float fast_erf(float x)
{
    float a = __builtin_fabsf(x), p;
    a = a < 3.95f ? a : 3.95f;
    p = fast_fma(-4.536092147e-5f, a, 4.455241874e-4f);
    p = fast_fma(p, a, -1.489487783e-3f);
    p = fast_fma(p, a, -7.745652468e-4f);
    p = fast_fma(p, a, 0.02825363352f);
    p = fast_fma(p, a, -0.1484815970f);
    p = fast_fma(p, a, -0.9184163964f);
    p = fast_fma(p, a, -1.627908593f);
    return __builtin_copysignf(1.0f - fast_exp2(p * a), x);
}

/* 1 / (1 + e^-x), and *complement, 1 minus it, without the cancellation of a subtraction. */
FAST_INLINE float fast_sigmoid(float x, float *complement)
{
    float e, s;
    x = x > -87.0f ? x : -87.0f;
    e = fast_exp(-x);
    s = 1.0f / (1.0f + e);
    *complement = e * s;
    return s;
}

/* The cumulative distribution function and the density of the standard normal distribution. */
FAST_INLINE float fast_normal_cdf(float x) { return 0.5f + 0.5f * fast_erf(x * 0.707106781f); }
FAST_INLINE float fast_normal_pdf(float x)
{
    float square = x * x;
    return 0.398942280f * fast_exp(-0.5f * (square < 170.0f ? square : 170.0f));
}

#endif
