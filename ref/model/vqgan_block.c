/* vqgan_block.c - the kinds of blocks of a VQGAN: their parameters, and which function runs them
 * forward and backward. [VQGAN] [spec images-and-text 1.1]
 *
 *   CONV       y = W * x + b, K x K                    NORM    group norm
 *   RES        x + two convolutions, vqgan_res.c       SWISH   x sigmoid(x)
 *   ATTN       x + attention over places, vqgan_attn.c
 *   DOWN       a 3x3 convolution with stride 2: half the height and width
 *   UP         every place four times, then a 3x3 convolution
 *
 * Backward passes compute the cheap parts (norms, swish) again instead of saving them: a map of the
 * first level is the largest buffer there is. */
#include "vqgan_block_internal.h"

#include <assert.h>
#include <stdio.h>

/* A weight (out,in,K,K), or (out) of a norm, and its bias (out): "encoder.down.0.block.1" and
 * "conv1" become "encoder.down.0.block.1.conv1.weight". */
static int declare(struct pl_params *p, size_t *index, const char *prefix, const char *part,
                   int dims, int out, int in, int K)
{
    int64_t shape[4] = { out, in, K, K };
    char name[PL_NAME_MAX];
    int rc;
    const char *dot = *prefix && *part ? "." : "", *last = *prefix || *part ? "." : "";
    *index = p->count;
    snprintf(name, sizeof name, "%s%s%s%sweight", prefix, dot, part, last);
    if ((rc = pl_params_add(p, name, dims, shape, 0))) return rc;
    snprintf(name, sizeof name, "%s%s%s%sbias", prefix, dot, part, last);
    return pl_params_add(p, name, 1, shape, 0);
}

/* The order is that of taming-transformers' state_dict; `at` numbers the parts. */
int pl_vq_declare(struct pl_vq_block *b, struct pl_params *p)
{
    static const char *const products[] = { "q", "k", "v", "proj_out" };
    size_t *at = b->param;
    int rc = PL_OK;
    switch (b->kind) {
    case PL_VQ_SWISH: return PL_OK;
    case PL_VQ_NORM: return declare(p, at, b->name, "", 1, b->in, 0, 0);
    case PL_VQ_CONV: return declare(p, at, b->name, "", 4, b->out, b->in, b->K);
    case PL_VQ_DOWN:
    case PL_VQ_UP: return declare(p, at, b->name, "conv", 4, b->out, b->in, 3);
    /* x + conv2(swish(norm2(conv1(swish(norm1(x)))))); a 1x1 shortcut where the width changes */
    case PL_VQ_RES:
        rc = declare(p, &at[0], b->name, "norm1", 1, b->in, 0, 0);
        if (!rc) rc = declare(p, &at[1], b->name, "conv1", 4, b->out, b->in, 3);
        if (!rc) rc = declare(p, &at[2], b->name, "norm2", 1, b->out, 0, 0);
        if (!rc) rc = declare(p, &at[3], b->name, "conv2", 4, b->out, b->out, 3);
        if (!rc && b->in != b->out)
            rc = declare(p, &at[4], b->name, "nin_shortcut", 4, b->out, b->in, 1);
        return rc;
    /* q, k, v and the output projection are 1x1 convolutions */
    case PL_VQ_ATTN:
        rc = declare(p, &at[0], b->name, "norm", 1, b->in, 0, 0);
        for (size_t i = 0; !rc && i < PL_COUNT(products); i++)
            rc = declare(p, &at[i + 1], b->name, products[i], 4, b->in, b->in, 1);
        return rc;
    }
    return rc;
}

/* Stride 2 over H + 1 rows of which the last is zeros, likewise columns: an even size is halved.
 * taming-transformers pads below and to the right only. */
static struct pl_conv halving(const struct pl_maps *x, int out)
{
    struct pl_conv c = vq_same_size(x, out, 3);
    c.stride = 2;
    c.top = c.left = 0;
    return c;
}

int pl_vq_forward(const struct pl_vq_block *block, const struct pl_params *p,
                  struct pl_scratch *scratch, struct pl_maps *y, const struct pl_maps *x,
                  struct pl_vq_saved *saved)
{
    struct vq_pass s = { p->be, p, scratch, block };
    struct pl_conv half = halving(x, block->out);
    struct pl_maps twice;
    int H = x->H, W = x->W, rc;
    assert(x->C == block->in || block->kind == PL_VQ_SWISH);
    /* The size of y follows from the kind alone: DOWN H/2 x W/2, UP 2H x 2W, otherwise that of
     * x. */
    if (block->kind == PL_VQ_DOWN) {
        H = pl_conv_height(&half);
        W = pl_conv_width(&half);
    } else if (block->kind == PL_VQ_UP) {
        H *= 2;
        W *= 2;
    }
    /* Saved for the backward pass: x, and more in some cases below. */
    if (saved) *saved = (struct pl_vq_saved){ .x = *x };
    *y = vq_take(&s, x->B, block->kind == PL_VQ_SWISH ? x->C : block->out, H, W);
    if (!y->at) return PL_ENOMEM;
    switch (block->kind) {
    case PL_VQ_CONV: return vq_conv(&s, 0, y, x, block->K);
    case PL_VQ_RES: return vq_res_forward(&s, y, x, saved);
    case PL_VQ_ATTN: return vq_attn_forward(&s, y, x, saved);
    case PL_VQ_DOWN: return s.be->conv(y->at, x->at, vq_weight(&s, 0), vq_bias(&s, 0), &half);
    case PL_VQ_NORM: return vq_norm(&s, 0, y, x);
    case PL_VQ_SWISH: return s.be->activation(y->at, x->at, pl_maps_floats(x), PL_SWISH);
    case PL_VQ_UP:
        /* each place becomes 2 x 2 equal ones, and the convolution smooths them */
        twice = vq_take(&s, x->B, x->C, H, W);
        if (!twice.at) return PL_ENOMEM;
        rc = s.be->upsample(twice.at, x->at, x->B * x->C, x->H, x->W);
        if (!rc) rc = vq_conv(&s, 0, y, &twice, 3);
        if (saved) saved->middle = twice.at;
        else vq_give(&s, &twice);
        return rc;
    }
    return PL_OK;
}

/* dx from dy; the gradients of the block's parameters are added to. `dx` NULL: the input is a
 * picture, whose gradient nothing reads. */
int pl_vq_backward(const struct pl_vq_block *block, const struct pl_params *p,
                   struct pl_scratch *scratch, struct pl_maps *dx, const struct pl_maps *dy,
                   struct pl_vq_saved *saved)
{
    struct vq_pass s = { p->be, p, scratch, block };
    const struct pl_maps *x = &saved->x;
    struct pl_conv half = halving(x, block->out);
    /* dx has the size of x, whatever the block did to it */
    struct pl_maps out = vq_take(&s, x->B, x->C, x->H, x->W), twice, dtwice;
    int rc = PL_OK;
    if (!out.at) return PL_ENOMEM;
    switch (block->kind) {
    /* dW += dy * x summed over places, db += sum dy, dx = W transposed * dy */
    case PL_VQ_CONV: rc = vq_conv_backward(&s, 0, dx ? &out : NULL, dy, x, block->K); break;
    case PL_VQ_RES: rc = vq_res_backward(&s, &out, dy, saved); break;
    case PL_VQ_ATTN: rc = vq_attn_backward(&s, &out, dy, saved); break;
    case PL_VQ_DOWN: /* dw += dy * x,  dx = w transposed * dy, with the same stride */
        rc = s.be->conv_dw(vq_dweight(&s, 0), vq_dbias(&s, 0), dy->at, x->at, &half);
        if (!rc) rc = s.be->conv_dx(out.at, dy->at, vq_weight(&s, 0), &half);
        break;
    case PL_VQ_NORM: rc = vq_norm_backward(&s, 0, &out, dy, x); break;
    case PL_VQ_SWISH: /* dx = dy (s + x s (1 - s)), s = sigmoid(x) */
        rc = s.be->activation_backward(out.at, dy->at, x->at, pl_maps_floats(x), PL_SWISH);
        break;
    case PL_VQ_UP:
        twice = (struct pl_maps){ saved->middle, x->B, x->C, dy->H, dy->W };
        dtwice = vq_take(&s, x->B, x->C, dy->H, dy->W);
        if (!dtwice.at) return PL_ENOMEM;
        /* the four copies of a place: its gradient is the sum of theirs */
        rc = vq_conv_backward(&s, 0, &dtwice, dy, &twice, 3);
        if (!rc) rc = s.be->upsample_backward(out.at, dtwice.at, x->B * x->C, x->H, x->W);
        vq_give(&s, &twice);
        vq_give(&s, &dtwice);
        break;
    }
    if (dx) *dx = out;
    else vq_give(&s, &out);
    return rc;
}
