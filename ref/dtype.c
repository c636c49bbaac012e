/* dtype.c - element types of tensors, and float32 to and from each: float16 has 5 bits of exponent
 * and 10 of mantissa, bfloat16 is the upper half of a float32. All round to nearest even. */
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

float pl_half_to_float(uint16_t h)
{
    uint32_t sign = (uint32_t)(h >> 15) << 31, exponent = h >> 10 & 31, m = h & 1023;
    if (exponent == 31) return of_bits(sign | 0x7f800000u | m << 13);
    if (exponent) return of_bits(sign | (exponent + 112) << 23 | m << 13);
    return of_bits(sign | bits_of((float)m * 0x1p-24f));
}

uint16_t pl_half_from_float(float x)
{
    uint16_t sign = (uint16_t)(bits_of(x) >> 16 & 0x8000);
    uint32_t bits = bits_of(x) & 0x7fffffff, m;
    if (bits > 0x7f800000) return sign | 0x7e00;
    if (bits >= 0x477ff000) return sign | 0x7c00; /* 65520 and more round to infinity */
    if (bits < 0x38800000) /* below the least normal half, 2^-14: a multiple of 2^-24 */
        return (uint16_t)(sign | (uint16_t)rintf(of_bits(bits) * 0x1p24f));
    m = bits - (112u << 23);
    return (uint16_t)(sign | (m + 0xfff + (m >> 13 & 1)) >> 13);
}

float pl_bf16_to_float(uint16_t h) { return of_bits((uint32_t)h << 16); }

uint16_t pl_bf16_from_float(float x)
{
    uint32_t bits = bits_of(x);
    if (isnan(x)) return (uint16_t)(bits >> 16 | 0x40);
    return (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

void pl_to_float(float *out, enum pl_dtype t, const void *data, size_t n)
{
    const uint8_t *p = data;
    for (size_t i = 0; i < n; i++, p += pl_dtype_size(t)) {
        double d;
        int64_t l;
        int32_t w;
        int16_t s;
        uint16_t h;
        switch (t) {
        case PL_F64:
            memcpy(&d, p, 8);
            out[i] = (float)d;
            break;
        case PL_F32: memcpy(&out[i], p, 4); break;
        case PL_F16:
            memcpy(&h, p, 2);
            out[i] = pl_half_to_float(h);
            break;
        case PL_BF16_T:
            memcpy(&h, p, 2);
            out[i] = pl_bf16_to_float(h);
            break;
        case PL_I64:
            memcpy(&l, p, 8);
            out[i] = (float)l;
            break;
        case PL_I32:
            memcpy(&w, p, 4);
            out[i] = (float)w;
            break;
        case PL_I16:
            memcpy(&s, p, 2);
            out[i] = s;
            break;
        case PL_I8: out[i] = *(const int8_t *)p; break;
        case PL_U8:
        case PL_BOOL: out[i] = *p; break;
        case PL_DTYPES: break;
        }
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

void pl_from_float(void *data, enum pl_dtype t, const float *x, size_t n)
{
    uint8_t *p = data;
    for (size_t i = 0; i < n; i++, p += pl_dtype_size(t)) {
        double d = x[i];
        int64_t l;
        int32_t w;
        int16_t s;
        uint16_t h;
        switch (t) {
        case PL_F64: memcpy(p, &d, 8); break;
        case PL_F32: memcpy(p, &x[i], 4); break;
        case PL_F16:
            h = pl_half_from_float(x[i]);
            memcpy(p, &h, 2);
            break;
        case PL_BF16_T:
            h = pl_bf16_from_float(x[i]);
            memcpy(p, &h, 2);
            break;
        case PL_I64:
            l = truncated(x[i], 63);
            memcpy(p, &l, 8);
            break;
        case PL_I32:
            w = (int32_t)truncated(x[i], 31);
            memcpy(p, &w, 4);
            break;
        case PL_I16:
            s = (int16_t)truncated(x[i], 15);
            memcpy(p, &s, 2);
            break;
        case PL_I8: *p = (uint8_t)truncated(x[i], 7); break;
        case PL_U8: *p = x[i] > 0 ? (uint8_t)truncated(x[i], 8) : 0; break;
        case PL_BOOL: *p = x[i] != 0; break;
        case PL_DTYPES: break;
        }
    }
}
