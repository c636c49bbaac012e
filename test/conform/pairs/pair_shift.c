/* pair_shift.c - token shift: every channel is a copy, so exact. */
#include "pair.h"
#include "pairs.h"

static const struct {
    int B, n, D, P, F;
} shapes[] = {
    { 1, 1, 1, 1, 1 },      { 1, 5, 6, 9, 2 },      /* a prefix that ends within the text */
    { 2, 3 + 25, 7, 3, 5 }, { 2, 3 + 13, 9, 3, 5 }, /* one that ends within a row of the image */
    { 1, 4 + 1, 10, 4, 1 },                         /* a grid of one cell */
    { 3, 17, 8, 17, 0 },                            /* text alone */
    { 2, 3 + 9, 1, 3, 3 },  { 2, 3 + 9, 2, 3, 3 },  /* no channel for each of the four parts */
    { 2, 3 + 9, 3, 3, 3 },  { 2, 3 + 9, 5, 3, 3 },
    { 64, 80, 128, 17, 8 }, { 1, 1280, 1024, 257, 32 },
};

static void both(struct pair *p, int B, int n, int D, int P, int F)
{
    size_t all = (size_t)B * (size_t)n * (size_t)D;
    if (pair_case(p, "shift", "B%d n%d D%d P%d F%d", B, n, D, P, F)) {
        struct pair_f32 x = pair_normal(p, all, 1), y = pair_poison(p, all);
        pair_work(p, 0, 8.0 * (double)all);
        PAIR(p, shift, y.at[side], x.at[side], B, n, D, P, F);
        pair_exact(p, "y", y.any);
    }
    if (pair_case(p, "shift_backward", "B%d n%d D%d P%d F%d", B, n, D, P, F)) {
        struct pair_f32 dy = pair_normal(p, all, 1), dx = pair_poison(p, all);
        pair_work(p, 0, 8.0 * (double)all);
        PAIR(p, shift_backward, dx.at[side], dy.at[side], B, n, D, P, F);
        /* Each channel of a position goes to at most one position: it is added to zero only. */
        pair_exact(p, "dx", dx.any);
    }
}

void pair_shift(struct pair *p)
{
    for (size_t i = 0; i < PL_COUNT(shapes); i++)
        both(p, shapes[i].B, shapes[i].n, shapes[i].D, shapes[i].P, shapes[i].F);
    for (int i = 0; i < 4; i++) {
        int P = pair_int(p, 1, 9), F = pair_int(p, 1, 7), B = pair_int(p, 1, 3);
        int n = pair_int(p, 1, P + F * F), D = pair_int(p, 1, 40);
        both(p, B, n, D, P, F);
    }
}
