/* shift.c - token shift: every token is three runs of channels, each copied whole from a
 * neighbour. */
#include "fast.h"

#include <assert.h>

#define SMALL 16384 /* elements below which waking threads costs more than it saves */

/* Channels [from,to) of y from the same channels of x, or zeros if x is NULL. */
FAST_INLINE void copy_channels(float *y, const float *x, int from, int to)
{
    if (x) {
#pragma omp simd
        for (int c = from; c < to; c++) y[c] = x[c];
    } else {
#pragma omp simd
        for (int c = from; c < to; c++) y[c] = 0;
    }
}

/* One sequence. `back` 0: channels come from the token before, above, to the left. 1, the
 * transpose: gradients return from the token behind, below, to the right. */
FAST_CLONES static void shift_sequence(float *y, const float *x, int n, int D, int P, int F,
                                       int backward)
{
    int half = (D + 1) / 2, quarter = (D + 3) / 4, second = 2 * quarter < D ? 2 * quarter : D;
    int text = P < n ? P : n;
    for (int p = 0; p < text; p++, x += D, y += D) {
        int inside = backward ? p + 1 < text : p > 0;
        copy_channels(y, !inside ? NULL : backward ? x + D : x - D, 0, half);
        copy_channels(y, x, half, D);
    }
    for (int cell = 0; cell < n - text; cell++, x += D, y += D) {
        int up = backward ? cell + F < n - text : cell >= F;
        int left = backward ? cell % F < F - 1 && cell + 1 < n - text : cell % F > 0;
        ptrdiff_t row = (ptrdiff_t)F * D;
        copy_channels(y, !up ? NULL : backward ? x + row : x - row, 0, quarter);
        copy_channels(y, !left ? NULL : backward ? x + D : x - D, quarter, second);
        copy_channels(y, x, second, D);
    }
}

static void shift(float *y, const float *x, int B, int n, int D, int P, int F, int backward)
{
    size_t each = (size_t)n * (size_t)D;
    assert(y != x && n <= P + F * F);
#pragma omp parallel for schedule(static) num_threads(fast_threads()) if ((size_t)B * each > SMALL)
    for (int b = 0; b < B; b++)
        shift_sequence(y + (size_t)b * each, x + (size_t)b * each, n, D, P, F, backward);
}

int fast_shift(float *y, const float *x, int B, int n, int D, int P, int F)
{
    shift(y, x, B, n, D, P, F, 0);
    return PL_OK;
}

int fast_shift_backward(float *dx, const float *dy, int B, int n, int D, int P, int F)
{
    shift(dx, dy, B, n, D, P, F, 1);
    return PL_OK;
}
