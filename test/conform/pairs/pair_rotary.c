/* pair_rotary.c - the rotation of queries, keys and values. */
#include "pair.h"
#include "pairs.h"

#include <math.h>

static const struct {
    int B, n, G, d, R;
} shapes[] = {
    { 1, 1, 1, 2, 2 },      { 1, 3, 1, 5, 0 }, /* a head too narrow to turn */
    { 2, 7, 3, 10, 6 },                        /* channels left alone */
    { 1, 9, 2, 17, 12 },    { 1, 3, 2, 600, 514 },
    { 2, 2, 1, 300, 300 }, /* more channels than a block of them */
    { 64, 80, 12, 32, 30 }, { 1, 1280, 48, 64, 60 },
};

static void one(struct pair *p, int B, int n, int G, int d, int R, int inverse)
{
    size_t all = (size_t)B * (size_t)n * (size_t)G * (size_t)d, table = (size_t)n * (size_t)(R / 2);
    if (!pair_case(p, "rotary", "B%d n%d G%d d%d R%d%s", B, n, G, d, R, inverse ? " inverse" : ""))
        return;
    struct pair_f32 x = pair_normal(p, all, 1);
    struct pair_f32 c = pair_poison(p, table), s = pair_poison(p, table);
    float *length = pair_scratch(p, all);
    for (size_t i = 0; i < table; i++) {
        double angle = 8192 * pl_rng_uniform(&p->rng);
        c.at[0][i] = (float)cos(angle);
        s.at[0][i] = (float)sin(angle);
    }
    pair_share(p, c.any);
    pair_share(p, s.any);
    for (size_t i = 0; i < all; i++) { /* channels that stay have a bound of zero */
        size_t in_head = i % (size_t)d, mate = in_head % 2 ? i - 1 : i + 1;
        if (in_head < (size_t)R) length[i] = hypotf(x.at[0][i], x.at[0][mate]);
    }
    pair_work(p, 0, 8.0 * (double)all);
    PAIR(p, rotary, x.at[side], c.at[side], s.at[side], B, n, G, d, R, inverse);
    pair_within(p, "x", x.any, 4 * 0x1p-23, length);
}

void pair_rotary(struct pair *p)
{
    for (int inverse = 0; inverse <= 1; inverse++) {
        for (size_t i = 0; i < PL_COUNT(shapes); i++)
            one(p, shapes[i].B, shapes[i].n, shapes[i].G, shapes[i].d, shapes[i].R, inverse);
        for (int i = 0; i < 3; i++) {
            int B = pair_int(p, 1, 3), n = pair_int(p, 1, 20), G = pair_int(p, 1, 6);
            int d = pair_int(p, 1, 70);
            one(p, B, n, G, d, pl_rotary_channels(d), inverse);
        }
    }
}
