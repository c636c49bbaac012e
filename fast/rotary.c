/* rotary.c - rotary embedding. Cosine and sine of a token are expanded once, for both channels of a
 * pair and with the sine's sign, and used for all heads. A rotation is then one swap, one
 * multiplication and one fused multiply-add per register. */
#include "fast.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

struct rotary_ops {
    void (*rotate)(float *x, const float *c, const float *s, int G, int d, int R, int available);
};

#define SIMD_FILE "rotary_simd.inc"
#include "foreach_isa.inc"

#define SMALL 16384 /* elements below which waking threads costs more than it saves */
#define STRIP 256   /* channels of a head rotated at a time: their sines are on the stack */

static const struct rotary_ops *const ops[ISA_COUNT] = ISA_TABLE(ops);

int fast_rotary(float *x, const float *cosine, const float *sine, int B, int n, int G, int d, int R,
                int inverse)
{
    const struct rotary_ops *op = ops[isa_chosen()];
    assert(R % 2 == 0 && 0 <= R && R <= d);
#pragma omp parallel for schedule(static) \
    num_threads(fast_threads()) if ((double)B * n * G * d > SMALL)
    for (int token = 0; token < B * n; token++) {
        float *row = x + (size_t)token * (size_t)G * (size_t)d;
        for (int from = 0; from < R; from += STRIP) {
            size_t angle = (size_t)(token % n) * (size_t)(R / 2) + (size_t)from / 2;
            int width = R - from < STRIP ? R - from : STRIP;
            float c[STRIP + 16], s[STRIP + 16]; /* a register may read beyond the end */
            for (int i = 0; i < width / 2; i++) {
                c[2 * i] = c[2 * i + 1] = cosine[angle + (size_t)i];
                s[2 * i + 1] = inverse ? -sine[angle + (size_t)i] : sine[angle + (size_t)i];
                s[2 * i] = -s[2 * i + 1];
            }
            for (int i = width; i < width + 16; i++) c[i] = s[i] = 0;
            op->rotate(row + from, c, s, G, d, width, d - from);
        }
    }
    return PL_OK;
}
