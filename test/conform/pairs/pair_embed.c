/* pair_embed.c - rows of a table and their gradients: copies and sums in a given order, so
 * exact. */
#include "pair.h"
#include "pairs.h"

static const struct {
    int M, D, rows;
} shapes[] = {
    { 1, 1, 1 },
    { 37, 5, 3 },    /* every row many times */
    { 7, 33, 1000 }, /* most rows never */
    { 600, 2, 5 },   /* rows that go on for several strides of a block */
    { 5120, 128, 2372 + 512 },
    { 1280, 1024, 32356 + 8192 },
};

static void both(struct pair *p, int M, int D, int rows)
{
    size_t md = (size_t)M * (size_t)D, table = (size_t)rows * (size_t)D;
    if (pair_case(p, "embed", "M%d D%d rows%d", M, D, rows)) {
        struct pair_f32 t = pair_uniform(p, table, -1, 1), y = pair_poison(p, md);
        struct pair_i32 ids = pair_ids(p, (size_t)M, 0, rows - 1);
        pair_work(p, 0, 8.0 * (double)md);
        PAIR(p, embed, y.at[side], t.at[side], ids.at[side], M, D, rows);
        pair_exact(p, "y", y.any);
    }
    if (pair_case(p, "embed_backward", "M%d D%d rows%d", M, D, rows)) {
        struct pair_f32 t = pair_uniform(p, table, -1, 1), dy = pair_normal(p, md, 1);
        struct pair_i32 ids = pair_ids(p, (size_t)M, 0, rows - 1);
        pair_work(p, 0, 12.0 * (double)md);
        PAIR(p, embed_backward, t.at[side], dy.at[side], ids.at[side], M, D, rows);
        pair_exact(p, "dtable", t.any);
    }
}

void pair_embed(struct pair *p)
{
    for (size_t i = 0; i < PL_COUNT(shapes); i++) both(p, shapes[i].M, shapes[i].D, shapes[i].rows);
    for (int i = 0; i < 3; i++) {
        int M = pair_int(p, 1, 300), D = pair_int(p, 1, 100), rows = pair_int(p, 1, 60);
        both(p, M, D, rows);
    }
}
