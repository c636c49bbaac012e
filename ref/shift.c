/* shift.c - token shift: a token sees part of its neighbours' channels for free, before attention
 * looks further. Text takes half from the token before; an image token takes a quarter from the one
 * above and a quarter from the one to the left.
 *
 *   y[p][c] = x[origin(p, c)][c]          dx[origin(p, c)][c] += dy[p][c]
 *
 * Every channel has one origin, so the backward pass is the same move in the other direction. */
#include "shift.h"

#include <assert.h>
#include <string.h>

/* The position that channel c of position p is taken from; -1: a zero. */
static int origin(int p, int c, int D, int P, int F)
{
    int half = (D + 1) / 2, quarter = (D + 3) / 4, cell = p - P;
    if (cell < 0) return c < half ? p - 1 : p; /* p - 1 = -1 before the start token */
    if (c < quarter) return cell / F > 0 ? p - F : -1;
    if (c < 2 * quarter) return cell % F > 0 ? p - 1 : -1;
    return p;
}

int ref_shift(float *y_, const float *x_, int B, int n, int D, int P, int F)
{
    float(*y)[n][D] = (float(*)[n][D])y_;
    const float(*x)[n][D] = (const float(*)[n][D])x_;
    assert(y_ != x_ && n <= P + F * F);
    for (int b = 0; b < B; b++)
        for (int p = 0; p < n; p++)
            for (int c = 0; c < D; c++) {
                int from = origin(p, c, D, P, F);
                y[b][p][c] = from < 0 ? 0 : x[b][from][c];
            }
    return PL_OK;
}

int ref_shift_backward(float *dx_, const float *dy_, int B, int n, int D, int P, int F)
{
    float(*dx)[n][D] = (float(*)[n][D])dx_;
    const float(*dy)[n][D] = (const float(*)[n][D])dy_;
    assert(dx_ != dy_ && n <= P + F * F);
    memset(dx_, 0, (size_t)B * (size_t)n * (size_t)D * sizeof *dx_);
    for (int b = 0; b < B; b++)
        for (int p = 0; p < n; p++)
            for (int c = 0; c < D; c++) {
                int from = origin(p, c, D, P, F);
                if (from >= 0) dx[b][from][c] += dy[b][p][c];
            }
    return PL_OK;
}
