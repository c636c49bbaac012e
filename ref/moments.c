/* moments.c - 8-bit optimizers: the state is stored as codes, and is float32 only while a step uses
 * it. [8-bit optimizers 2] [TTT 2.1, memory]
 *
 *   1. dequantize   m, v = book[code] absmax
 *   2. update       the optimizer's own equations, lamb.c or adam.c
 *   3. quantize     code, absmax of the new m, v
 *
 * Two moments take 2 bytes a parameter instead of 8. A chunk at a time bounds the floats that exist
 * at once; blocks are quantized alone, so chunks of whole blocks change nothing. */
#include "moments.h"

#include <assert.h>

int pl_moments_step(const struct pl_moments *s, size_t n, size_t chunk, pl_moments_step_fn *step,
                    void *context)
{
    static const enum pl_map map[2] = { PL_MAP_SIGNED, PL_MAP_UNSIGNED };
    float book[2][PL_CODES], *value[2];
    /* float32 moments need step 2 alone */
    if (s->value[0]) {
        step(context, s->value[0], s->value[1], 0, n);
        return PL_OK;
    }
    if (!chunk || chunk > n) chunk = n;
    assert(chunk == n || chunk % s->block == 0);
    for (int k = 0; k < 2; k++) {
        value[k] = pl_alloc(chunk, sizeof *value[k]);
        pl_codebook(book[k], map[k], s->rule);
    }
    for (size_t at = 0; value[0] && value[1] && at < n; at += chunk) {
        size_t some = n - at < chunk ? n - at : chunk, b = at / s->block;
        /* 1. */
        for (int k = 0; k < 2; k++)
            ref_dequantize(value[k], s->code[k] + at, s->absmax[k] + b, some, s->block, book[k]);
        /* 2. */
        step(context, value[0], value[1], at, some);
        /* 3. */
        for (int k = 0; k < 2; k++)
            ref_quantize(s->code[k] + at, s->absmax[k] + b, value[k], some, s->block, map[k],
                         s->rule);
    }
    pl_free(value[0]);
    pl_free(value[1]);
    return value[0] && value[1] ? PL_OK : PL_ENOMEM;
}
