/* reversible.c - blocks that are undone instead of stored. [RevNet: Gomez et al. 2017] [Reformer:
 * Kitaev et al. 2020, section 3] [TTT 2.1, memory; 3.1]
 *
 *   both streams begin as the input:          a = b = x
 *   block l, forward:                         backward, in reverse order:
 *     1.  a += s_f Attn_l(b)                    2.  b -= s_g FFN_l(a)
 *     2.  b += s_g FFN_l(a)                     1.  a -= s_f Attn_l(b)
 *   the output is their mean:                 y = (a + b) / 2
 *
 * Step 2 changes only b and reads only a, which is still there afterwards: so FFN_l(a) can be
 * computed again and subtracted, and then step 1 likewise. A model of any depth stores one pair
 * of streams, for the price of one more forward pass. s_f and s_g are LayerScale, (D) each.
 *
 * Gradients follow the same two steps: with da, db those of the block's outputs,
 *
 *     2.  da += FFN_l'(a)^T (s_g db)            db stays
 *     1.  db += Attn_l'(b)^T (s_f da)           da stays
 *
 * The gradients of s_f, s_g and the layers' parameters are added by the branches (branch.c).
 *
 * Rounding: (b + y) - y is not always b, so a rebuilt input is off in its last bits, and more so
 * the more blocks there are. That is why PL_RECOMPUTED exists: it stores the streams. */
#include "reversible.h"

#include <assert.h>

float *pl_stack_input(const struct pl_stack *s) { return s->a[0]; }
/* Two buffers of the branches that are free between two passes: the norm's result holds the output,
 * and the gradient of a branch's output is spare. */
float *pl_stack_output(const struct pl_stack *s) { return s->scratch.norm; }
float *pl_stack_spare(const struct pl_stack *s) { return s->scratch.dy; }

static size_t stream_size(const struct pl_stack *s, int B, int n)
{
    assert(B * n <= s->capacity);
    return (size_t)B * (size_t)n * (size_t)s->blocks.config->D;
}

/* The stream before block l. A pass that saves nothing updates one buffer per stream in place.
 * a[0] is the first buffer of stream a. Stream b uses b[L], since b[0] may be a[0] itself: both
 * streams begin as x. */
static float *stream_a(const struct pl_stack *s, int l, int save) { return s->a[save ? l : 0]; }
static float *stream_b(const struct pl_stack *s, int l, int save)
{
    return s->b[save ? l : s->blocks.config->L];
}

/* next = stream + sign * scale * y; next may be the stream itself. scale_param: the index of
 * LayerScale's parameter, s_f or s_g. */
static int add_scaled(const struct pl_stack *s, float *next, const float *stream, const float *y,
                      size_t scale_param, int B, int n, float sign)
{
    const struct pl_backend *be = s->blocks.be;
    int rc = next == stream ? PL_OK : be->copy(next, stream, stream_size(s, B, n));
    if (rc) return rc;
    return be->scale_add(next, y, pl_params_value(s->blocks.params, scale_param), B * n,
                         s->blocks.config->D, sign);
}

/* --- one block, forward and backward ---------------------------------------------------------- */

int pl_stack_block(struct pl_stack *s, int l, int B, int n, int save)
{
    const struct pl_block *block = &s->blocks.list[l];
    const struct pl_attention_saved *attn = &s->attn[save ? l : 0];
    struct pl_ffn_saved ffn = s->ffn[save ? l : 0];
    float *a = stream_a(s, l, save), *b = stream_b(s, l, save);
    float *next_a = stream_a(s, l + 1, save), *next_b = stream_b(s, l + 1, save);
    int rc;
    /* z = W1 h + b1 (M,8D) is the largest saved value; without backward it is not written. */
    if (!save) ffn.z = NULL;
    /* 1.  a += s_f Attn(b) */
    if ((rc = pl_attention_branch(&s->blocks, l, attn, &s->scratch, b, B, n)) ||
        (rc = add_scaled(s, next_a, a, attn->y, block->f_scale, B, n, 1)))
        return rc;
    /* 2.  b += s_g FFN(a) */
    if ((rc = pl_ffn_branch(&s->blocks, l, &ffn, &s->scratch, next_a, B, n))) return rc;
    return add_scaled(s, next_b, b, ffn.y, block->g_scale, B, n, 1);
}

/* In PL_REVERSIBLE, a[0] to a[L] are one buffer, and so are b[0] to b[L]: on entry they hold the
 * block's outputs, and each `undo` turns a stream back into the block's input. */
static int block_backward(struct pl_stack *s, int l, int B, int n)
{
    const struct pl_block *block = &s->blocks.list[l];
    const struct pl_attention_saved *attn = &s->attn[l];
    const struct pl_ffn_saved *ffn = &s->ffn[l];
    float *a = s->a[l + 1], *b = s->b[l]; /* FFN read the new a, attention the old b */
    int undo = s->mode == PL_REVERSIBLE, rc;
    /* 2.  da += gradient through FFN;  b -= s_g y. pl_ffn_branch_backward recomputes y = FFN(a)
     *     into ffn->y, unless it is stored, and adds to da. */
    if ((rc = pl_ffn_branch_backward(&s->blocks, l, ffn, &s->scratch, s->da, s->db, a, B, n)) ||
        (undo && (rc = add_scaled(s, b, b, ffn->y, block->g_scale, B, n, -1))))
        return rc;
    /* 1.  y = Attn(b) once more, since attention's backward reads q, k, v and the rows' log sums;
     * db += gradient through it;  a -= s_f y */
    if ((s->mode != PL_STORED &&
         (rc = pl_attention_branch(&s->blocks, l, attn, &s->scratch, b, B, n))) ||
        (rc = pl_attention_branch_backward(&s->blocks, l, attn, &s->scratch, s->db, s->da, b, B,
                                           n)))
        return rc;
    return undo ? add_scaled(s, a, a, attn->y, block->f_scale, B, n, -1) : PL_OK;
}

/* --- all blocks ------------------------------------------------------------------------------- */

/* a = b = x. The input is in a[0]; in the modes that store streams, b[0] is the same buffer, which
 * no block writes. */
int pl_stack_begin(struct pl_stack *s, int B, int n, int save)
{
    const float *x = pl_stack_input(s);
    float *b = stream_b(s, 0, save);
    return b == x ? PL_OK : s->blocks.be->copy(b, x, stream_size(s, B, n));
}

/* y = (a + b) / 2, in the buffer of the last norm's result, which is no longer needed. */
int pl_stack_end(struct pl_stack *s, int B, int n, int save)
{
    const struct pl_backend *be = s->blocks.be;
    int L = s->blocks.config->L, rc;
    size_t size = stream_size(s, B, n);
    float *y = pl_stack_output(s);
    if ((rc = be->copy(y, stream_a(s, L, save), size)) ||
        (rc = be->axpy(y, 1, stream_b(s, L, save), size)))
        return rc;
    return be->scale(y, 0.5f, size);
}

int pl_stack_forward(struct pl_stack *s, int B, int n, int save)
{
    int rc = pl_stack_begin(s, B, n, save);
    for (int l = 0; l < s->blocks.config->L && rc == PL_OK; l++)
        rc = pl_stack_block(s, l, B, n, save);
    return rc ? rc : pl_stack_end(s, B, n, save);
}

int pl_stack_backward(struct pl_stack *s, int B, int n)
{
    const struct pl_backend *be = s->blocks.be;
    size_t size = stream_size(s, B, n);
    int rc;
    assert(s->training && s->blocks.params->grad);
    /* y = (a + b) / 2:  da = db = dy / 2 */
    if ((rc = be->scale(s->da, 0.5f, size)) || (rc = be->copy(s->db, s->da, size))) return rc;
    for (int l = s->blocks.config->L - 1; l >= 0; l--)
        if ((rc = block_backward(s, l, B, n))) return rc;
    /* x was the start of both streams, a = b = x, so dx = da + db */
    return be->axpy(s->da, 1, s->db, size);
}
