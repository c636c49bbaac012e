/* table_lookup_avx512.h - looks 64 codes at a time up in a table of 256 floats that stays in
 * registers (AVX-512 VBMI). Each of a float's four bytes has its own table of 256 bytes in four
 * registers; vpermi2b looks up in two of them, and the bytes are then interleaved into floats. This
 * takes half the shuffles of looking up whole floats. */
#ifndef PL_FAST_TABLE_LOOKUP_AVX512_H
#define PL_FAST_TABLE_LOOKUP_AVX512_H

#include "fast.h"
#include "isa.h"

#if defined(__x86_64__) && defined(__GNUC__)
#include <immintrin.h>

#define FAST_LUT512 1
#define VBMI __attribute__((target("avx512f,avx512bw,avx512dq,avx512vl,avx512vbmi")))

static inline int fast_has_lut512(void)
{
    return isa_chosen() == ISA_AVX512 && __builtin_cpu_supports("avx512vbmi");
}

struct lut512 {
    __m512i byte[4][4]; /* byte b of entries 64 q to 64 q + 63 */
};

VBMI FAST_INLINE void lut512_load(struct lut512 *t, const float table[PL_CODES])
{
    for (int q = 0; q < 4; q++)
        for (int b = 0; b < 4; b++) {
            __m512i all = _mm512_setzero_si512();
            for (int k = 3; k >= 0; k--) {
                __m512i v = _mm512_loadu_si512((const void *)(table + 64 * q + 16 * k));
                __m128i some = _mm512_cvtepi32_epi8(_mm512_srli_epi32(v, (unsigned)(8 * b)));
                all = _mm512_inserti32x4(all, some, 0);
                if (k) all = _mm512_alignr_epi64(all, all, 6); /* shift the bytes so far up */
            }
            t->byte[b][q] = all;
        }
}

/* The floats of 64 codes, in order. */
VBMI FAST_INLINE void lut512_lookup(__m512 y[4], const struct lut512 *t, const uint8_t *codes)
{
    /* an order in which the four bytes of a float end up adjacent */
    const __m512i order = _mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15);
    __m512i c = _mm512_permutexvar_epi32(order, _mm512_loadu_si512((const void *)codes)), v[4];
    __mmask64 upper = _mm512_movepi8_mask(c);
    for (int b = 0; b < 4; b++) {
        __m512i low = _mm512_permutex2var_epi8(t->byte[b][0], c, t->byte[b][1]);
        __m512i high = _mm512_permutex2var_epi8(t->byte[b][2], c, t->byte[b][3]);
        v[b] = _mm512_mask_blend_epi8(upper, low, high);
    }
    __m512i low01 = _mm512_unpacklo_epi8(v[0], v[1]), high01 = _mm512_unpackhi_epi8(v[0], v[1]);
    __m512i low23 = _mm512_unpacklo_epi8(v[2], v[3]), high23 = _mm512_unpackhi_epi8(v[2], v[3]);
    y[0] = _mm512_castsi512_ps(_mm512_unpacklo_epi16(low01, low23));
    y[1] = _mm512_castsi512_ps(_mm512_unpackhi_epi16(low01, low23));
    y[2] = _mm512_castsi512_ps(_mm512_unpacklo_epi16(high01, high23));
    y[3] = _mm512_castsi512_ps(_mm512_unpackhi_epi16(high01, high23));
}

#else
#define FAST_LUT512 0
#endif

#endif
