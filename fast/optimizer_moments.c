/* optimizer_moments.c - runs an optimizer's update over moments in 8-bit blocks: decode, update,
 * encode, one block at a time in L1. */
#include "optimizer_moments.h"

#include <omp.h>
#include <stdlib.h>

#define PIECE 65536 /* elements per unit of work; one block if that is more */

struct walk {
    const struct pl_moments *moments;
    size_t n, piece;
    fast_update_fn *update;
    const void *context;
    const struct fast_coder *coder[2];
    float book[2][PL_CODES];
};

static void step_coded(const struct walk *w, size_t at, size_t end, float *m, float *v,
                       double *sums)
{
    const struct pl_moments *s = w->moments;
    for (; at < end; at += s->block) {
        size_t b = at / s->block, some = end - at < s->block ? end - at : s->block;
        fast_block_decode(m, s->code[0] + at, s->absmax[0][b], some, w->book[0]);
        fast_block_decode(v, s->code[1] + at, s->absmax[1][b], some, w->book[1]);
        w->update(w->context, m, v, at, some, sums);
        s->absmax[0][b] = fast_absmax(m, some);
        s->absmax[1][b] = fast_absmax(v, some);
        fast_block_encode(w->coder[0], s->code[0] + at, m, s->absmax[0][b], some);
        fast_block_encode(w->coder[1], s->code[1] + at, v, s->absmax[1][b], some);
    }
}

/* scratch: two blocks per thread; NULL for moments in float32. */
static void step_pieces(const struct walk *w, float *scratch, double (*sums)[2])
{
    const struct pl_moments *s = w->moments;
    size_t block = (s->block + 15) / 16 * 16;
#pragma omp parallel for schedule(static) num_threads(fast_threads()) if (w->n > w->piece)
    for (size_t at = 0; at < w->n; at += w->piece) {
        size_t end = w->n - at < w->piece ? w->n : at + w->piece;
        double *sum = sums[at / w->piece];
        if (scratch) {
            float *m = scratch + (size_t)omp_get_thread_num() * 2 * block;
            step_coded(w, at, end, m, m + block, sum);
        } else w->update(w->context, s->value[0] + at, s->value[1] + at, at, end - at, sum);
    }
}

int fast_moments(double total[2], const struct pl_moments *s, size_t n, fast_update_fn *update,
                 const void *context)
{
    struct walk w = { .moments = s, .n = n, .piece = PIECE, .update = update, .context = context };
    int coded = !s->value[0], rc = PL_OK;
    float *scratch = NULL;
    double(*sums)[2];
    size_t pieces;
    if (coded) {
        w.coder[0] = fast_coder(PL_MAP_SIGNED, s->rule);
        w.coder[1] = fast_coder(PL_MAP_UNSIGNED, s->rule);
        if (!w.coder[0] || !w.coder[1]) return PL_EUSE;
        pl_codebook(w.book[0], PL_MAP_SIGNED, s->rule);
        pl_codebook(w.book[1], PL_MAP_UNSIGNED, s->rule);
        w.piece = s->block < PIECE ? PIECE / s->block * s->block : s->block;
        scratch = pl_alloc((size_t)fast_threads() * 2, (s->block + 15) / 16 * 16 * sizeof *scratch);
        if (!scratch) rc = PL_ENOMEM;
    }
    pieces = pl_blocks(n, w.piece);
    sums = calloc(pieces, sizeof *sums);
    if (!sums) rc = PL_ENOMEM;
    if (!rc) step_pieces(&w, scratch, sums);
    total[0] = total[1] = 0;
    for (size_t k = 0; k < pieces && !rc; k++) {
        total[0] += sums[k][0];
        total[1] += sums[k][1];
    }
    free(sums);
    pl_free(scratch);
    return rc;
}
