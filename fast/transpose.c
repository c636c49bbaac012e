/* transpose.c - matrix transpose in squares of 32 x 32, so that cache lines of both matrices are
 * used whole. */
#include "fast.h"

#define SQUARE 32

int fast_transpose(float *y, int y_step, const float *x, int x_step, int B, int R, int C)
{
    int down = fast_chunk_count(R, SQUARE), across = fast_chunk_count(C, SQUARE);
#pragma omp parallel for num_threads(fast_threads()) schedule(static)
    for (long i = 0; i < (long)B * down * across; i++) {
        long b = i / ((long)down * across);
        int r0 = (int)(i / across % down) * SQUARE, r1 = r0 + SQUARE < R ? r0 + SQUARE : R;
        int c0 = (int)(i % across) * SQUARE, c1 = c0 + SQUARE < C ? c0 + SQUARE : C;
        for (int c = c0; c < c1; c++) {
            float *to = y + (b * C + c) * y_step;
            const float *from = x + b * R * x_step + c;
            for (int r = r0; r < r1; r++) to[r] = from[(long)r * x_step];
        }
    }
    fast_written(y, (size_t)B * (size_t)C * (size_t)y_step * sizeof *y);
    return PL_OK;
}
