/* dtype.c - element types of tensors, and float32 to and from each.
 *
 *   float16    1 sign, 5 exponent (bias 15), 10 mantissa bits    up to 65504, steps of 2^-24 near 0
 *   bfloat16   the upper half of a float32: its range, 8 bits of precision
 *
 * All round to nearest, ties to even. [spec images-and-text 7.6] */
#include "dtype.h"

#include <math.h>
#include <string.h>

size_t pl_dtype_size(enum pl_dtype t)
{
    static const uint8_t size[PL_DTYPES] = {
        [PL_F64] = 8, [PL_F32] = 4, [PL_F16] = 2, [PL_BF16_T] = 2, [PL_I64] = 8,
        [PL_I32] = 4, [PL_I16] = 2, [PL_I8] = 1,  [PL_U8] = 1,     [PL_BOOL] = 1,
    };
    return size[t];
}

/* A float32 as its bits: 1 sign, 8 exponent (bias 127), 23 mantissa. C allows this only by
 * memcpy. */
static uint32_t bits_of(float x)
{
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bits;
}

static float of_bits(uint32_t bits)
{
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

/* Exponents are biased by 15 in float16 and by 127 in float32: 112 apart. */
float pl_half_to_float(uint16_t h)
{
    uint32_t sign = (uint32_t)(h >> 15) << 31, exponent = h >> 10 & 31, m = h & 1023;
    /* (-1)^sign 2^(exponent - 15) (1 + m / 1024) */
    if (exponent == 31) return of_bits(sign | 0x7f800000u | m << 13); /* infinity, NaN */
    if (exponent) return of_bits(sign | (exponent + 112) << 23 | m << 13);
    return of_bits(sign | bits_of((float)m * 0x1p-24f)); /* subnormal */
}

uint16_t pl_half_from_float(float x)
{
    uint16_t sign = (uint16_t)(bits_of(x) >> 16 & 0x8000);
    uint32_t bits = bits_of(x) & 0x7fffffff, m;
    if (bits > 0x7f800000) return sign | 0x7e00;  /* NaN */
    if (bits >= 0x477ff000) return sign | 0x7c00; /* 65520 and more round to infinity */
    if (bits < 0x38800000) /* below the least normal half, 2^-14: a multiple of 2^-24 */
        return (uint16_t)(sign | (uint16_t)rintf(of_bits(bits) * 0x1p24f));
    /* round to nearest even: add half a unit of the 13 bits that go, less one if the last kept is
     * even */
    m = bits - (112u << 23);
    return (uint16_t)(sign | (m + 0xfff + (m >> 13 & 1)) >> 13);
}

/* The 16 low bits of the mantissa are zero, so every bfloat16 is a float32 exactly. */
float pl_bf16_to_float(uint16_t h) { return of_bits((uint32_t)h << 16); }

/* The same rounding of 16 bits; a NaN must not round to infinity. */
uint16_t pl_bf16_from_float(float x)
{
    uint32_t bits = bits_of(x);
    if (isnan(x)) return (uint16_t)(bits >> 16 | 0x40);
    return (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

/* One element of any type; `data` need not be aligned, so elements are copied here and back. */
union element {
    double f64;
    float f32;
    uint16_t half;
    int64_t i64;
    int32_t i32;
    int16_t i16;
    int8_t i8;
    uint8_t u8;
};

/* One element, widened or rounded to float32. */
static float from_element(const union element *e, enum pl_dtype t)
{
    switch (t) {
    case PL_F64: return (float)e->f64;
    case PL_F32: return e->f32;
    case PL_F16: return pl_half_to_float(e->half);
    case PL_BF16_T: return pl_bf16_to_float(e->half);
    case PL_I64: return (float)e->i64;
    case PL_I32: return (float)e->i32;
    case PL_I16: return e->i16;
    case PL_I8: return e->i8;
    case PL_U8:
    case PL_BOOL: return e->u8;
    case PL_DTYPES: break;
    }
    return 0;
}

/* Element by element; the bytes need not be aligned: a tensor may begin anywhere in a file. */
void pl_to_float(float *out, enum pl_dtype t, const void *data, size_t n)
{
    const uint8_t *p = data;
    size_t size = pl_dtype_size(t);
    union element e;
    for (size_t i = 0; i < n; i++, p += size) {
        memcpy(&e, p, size);
        out[i] = from_element(&e, t);
    }
}

/* Towards zero, held within -2^bits..2^bits - 1. The bounds are exact in double; so is the upper
 * one less one unit below 2^53, and at 63 bits no float lies between. */
static int64_t truncated(float x, int bits)
{
    double limit = ldexp(1, bits);
    if (isnan(x)) return 0;
    if (x >= limit) return bits == 63 ? INT64_MAX : (int64_t)limit - 1;
    return x <= -limit ? (int64_t)-limit : (int64_t)x;
}

/* Floats round to nearest even; integers are cut towards zero and saturate. */
static union element to_element(float x, enum pl_dtype t)
{
    switch (t) {
    case PL_F64: return (union element){ .f64 = x };
    case PL_F32: return (union element){ .f32 = x };
    case PL_F16: return (union element){ .half = pl_half_from_float(x) };
    case PL_BF16_T: return (union element){ .half = pl_bf16_from_float(x) };
    case PL_I64: return (union element){ .i64 = truncated(x, 63) };
    case PL_I32: return (union element){ .i32 = (int32_t)truncated(x, 31) };
    case PL_I16: return (union element){ .i16 = (int16_t)truncated(x, 15) };
    case PL_I8: return (union element){ .i8 = (int8_t)truncated(x, 7) };
    case PL_U8: return (union element){ .u8 = x > 0 ? (uint8_t)truncated(x, 8) : 0 };
    case PL_BOOL: return (union element){ .u8 = x != 0 };
    case PL_DTYPES: break;
    }
    return (union element){ 0 };
}

void pl_from_float(void *data, enum pl_dtype t, const float *x, size_t n)
{
    uint8_t *p = data;
    size_t size = pl_dtype_size(t);
    for (size_t i = 0; i < n; i++, p += size) {
        union element e = to_element(x[i], t);
        memcpy(p, &e, size);
    }
}
