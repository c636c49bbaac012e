/* prenorm_stack.c - a stack of pre-norm blocks, and the two ways to provide the values for
 * backward.
 *
 *   stored       every block's values stay in memory until backward: B n (8 D + 2 hidden) floats
 *                a block
 *   recomputed   only x_l, the input of block l, is saved: B n D floats a block. Backward runs each
 *                block again from x_l just before it (activation checkpointing), for a third more
 *                operations. The values of one block are in memory, not of all.
 *
 * Both give the same bits. [TTT 2.1, memory] */
#include "prenorm_internal.h"

#include <string.h>

/* Buffers of one block: B n (8 D + 2 hidden + H) floats for backward, B n (6 D + hidden)
 * without. */
static int take_buffers(struct pl_prenorm_made *m, const struct pl_prenorm *s, size_t M,
                        int backward)
{
    size_t D = (size_t)s->D, hidden = (size_t)s->hidden;
    memset(m, 0, sizeof *m);
    m->ln_1 = pl_scratch_take(s->scratch, M * D);
    m->qkv = pl_scratch_take(s->scratch, 3 * M * D);
    m->o = pl_scratch_take(s->scratch, M * D);
    m->y = pl_scratch_take(s->scratch, M * D);
    m->fc = pl_scratch_take(s->scratch, M * hidden);
    /* Without backward nothing is read twice: ln_2 may overwrite ln_1, and act fc. */
    if (!backward) {
        m->ln_2 = m->ln_1;
        m->act = m->fc;
        return m->ln_1 && m->qkv && m->o && m->y && m->fc ? PL_OK : PL_ENOMEM;
    }
    m->lse = pl_scratch_take(s->scratch, M * (size_t)s->H);
    m->middle = pl_scratch_take(s->scratch, M * D);
    m->ln_2 = pl_scratch_take(s->scratch, M * D);
    m->act = pl_scratch_take(s->scratch, M * hidden);
    return m->ln_1 && m->qkv && m->o && m->y && m->fc && m->lse && m->middle && m->ln_2 && m->act
               ? PL_OK
               : PL_ENOMEM;
}

static void give_buffers(struct pl_prenorm_made *m, const struct pl_prenorm *s)
{
    if (m->act != m->fc) pl_scratch_give(s->scratch, m->act);
    if (m->ln_2 != m->ln_1) pl_scratch_give(s->scratch, m->ln_2);
    pl_scratch_give(s->scratch, m->ln_1);
    pl_scratch_give(s->scratch, m->qkv);
    pl_scratch_give(s->scratch, m->o);
    pl_scratch_give(s->scratch, m->lse);
    pl_scratch_give(s->scratch, m->y);
    pl_scratch_give(s->scratch, m->middle);
    pl_scratch_give(s->scratch, m->fc);
}
/* Stored: each block's values stay in buffers of their own until backward. */
static int forward_stored(struct pl_prenorm *s, float *x, float *inputs, int B, int n,
                          const uint8_t *key_mask)
{
    const struct pl_backend *be = s->params->be;
    size_t floats = (size_t)B * (size_t)n * (size_t)s->D;
    int rc = PL_OK;
    pl_prenorm_forget(s);
    if (!(s->made = pl_alloc((size_t)s->layers, sizeof *s->made))) return PL_ENOMEM;
    for (int l = 0; l < s->layers && !rc; l++) {
        struct pl_prenorm_made *m = &s->made[l];
        /* x_l, then x_l+1 = middle + y */
        rc = be->copy(inputs + (size_t)l * floats, x, floats);
        if (!rc) rc = take_buffers(m, s, (size_t)B * (size_t)n, 1);
        if (!rc) rc = prenorm_block(s, l, m, x, B, n, key_mask);
        if (!rc) rc = be->copy(x, m->middle, floats);
        if (!rc) rc = be->axpy(x, 1, m->y, floats);
        if (!rc) prenorm_show(s, l, "out", x, floats);
    }
    if (rc) pl_prenorm_forget(s);
    return rc;
}

/* Frees the values of a stored forward pass, whether or not a backward pass has used them. */
void pl_prenorm_forget(struct pl_prenorm *s)
{
    for (int l = 0; s->made && l < s->layers; l++) give_buffers(&s->made[l], s);
    pl_free(s->made);
    s->made = NULL;
}

/* x_l+1 = block_l(x_l), in place. */
int pl_prenorm_forward(struct pl_prenorm *s, float *x, float *inputs, int B, int n,
                       const uint8_t *key_mask)
{
    const struct pl_backend *be = s->params->be;
    size_t floats = (size_t)B * (size_t)n * (size_t)s->D;
    struct pl_prenorm_made m;
    int rc;
    if (inputs && s->stored) return forward_stored(s, x, inputs, B, n, key_mask);
    rc = take_buffers(&m, s, (size_t)B * (size_t)n, 0);
    for (int l = 0; l < s->layers && !rc; l++) {
        /* x_l, from which backward runs the block again */
        if (inputs) rc = be->copy(inputs + (size_t)l * floats, x, floats);
        /* x += Attn(LN_1(x)),  x += FFN(LN_2(x)) */
        if (!rc) rc = prenorm_attention(s, l, &m, x, B, n, key_mask);
        if (!rc) rc = be->axpy(x, 1, m.y, floats);
        if (!rc) rc = prenorm_ffn(s, l, &m, x, B * n);
        if (!rc) rc = be->axpy(x, 1, m.y, floats);
        if (!rc) prenorm_show(s, l, "out", x, floats);
    }
    give_buffers(&m, s);
    return rc;
}
/* dx runs through the blocks from the last to the first. */
int pl_prenorm_backward(struct pl_prenorm *s, float *dx, const float *inputs, int B, int n,
                        const uint8_t *key_mask)
{
    size_t M = (size_t)B * (size_t)n, floats = M * (size_t)s->D;
    size_t widest = (size_t)(s->hidden > 3 * s->D ? s->hidden : 3 * s->D);
    float *d = pl_scratch_take(s->scratch, floats), *wide = pl_scratch_take(s->scratch, M * widest);
    struct pl_prenorm_made again = { 0 };
    /* recomputed: one block's buffers serve all blocks in turn */
    int rc = d && wide ? PL_OK : PL_ENOMEM;
    if (!rc && !s->made) rc = take_buffers(&again, s, M, 1);
    for (int l = s->layers - 1; l >= 0 && !rc; l--) {
        const struct pl_prenorm_made *m = s->made ? &s->made[l] : &again;
        const float *x = inputs + (size_t)l * floats;
        /* recomputed: the values of block l once more, from its input */
        if (!s->made) rc = prenorm_block(s, l, m, x, B, n, key_mask);
        /* dx_l+1 to dx_l */
        if (!rc) rc = prenorm_block_backward(s, l, m, dx, x, d, wide, B, n, key_mask);
    }
    pl_prenorm_forget(s);
    give_buffers(&again, s);
    pl_scratch_give(s->scratch, d);
    pl_scratch_give(s->scratch, wide);
    return rc;
}
