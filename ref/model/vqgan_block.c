/* vqgan_block.c - the layers of a VQGAN, forward beside backward. [Esser et al. 2021, table 7]
 *
 *   RES    y = x + conv2(swish(norm2(conv1(swish(norm1(x))))))
 *   ATTN   y = x + proj_out(attention(q, k, v)),  q, k, v = 1x1 convolutions of norm(x)
 *   DOWN, UP   half or twice the size
 *
 * Backward passes compute the cheap parts (norms, swish) again instead of saving them: a map of the
 * first level is the largest buffer there is. */
#include "vqgan_block.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

/* One pass over one block: everything the helpers need to know. */
struct pass {
    const struct pl_backend *be;
    const struct pl_params *p;
    struct pl_scratch *scratch;
    const struct pl_vq_block *block;
};

size_t pl_maps_floats(const struct pl_maps *m)
{
    return (size_t)m->B * (size_t)m->C * (size_t)m->H * (size_t)m->W;
}

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
    case PL_VQ_RES:
        rc = declare(p, &at[0], b->name, "norm1", 1, b->in, 0, 0);
        if (!rc) rc = declare(p, &at[1], b->name, "conv1", 4, b->out, b->in, 3);
        if (!rc) rc = declare(p, &at[2], b->name, "norm2", 1, b->out, 0, 0);
        if (!rc) rc = declare(p, &at[3], b->name, "conv2", 4, b->out, b->out, 3);
        if (!rc && b->in != b->out)
            rc = declare(p, &at[4], b->name, "nin_shortcut", 4, b->out, b->in, 1);
        return rc;
    case PL_VQ_ATTN:
        rc = declare(p, &at[0], b->name, "norm", 1, b->in, 0, 0);
        for (size_t i = 0; !rc && i < PL_COUNT(products); i++)
            rc = declare(p, &at[i + 1], b->name, products[i], 4, b->in, b->in, 1);
        return rc;
    }
    return rc;
}

static float *weight(const struct pass *s, int part)
{
    return pl_params_value(s->p, s->block->param[part]);
}
static float *bias(const struct pass *s, int part)
{
    return pl_params_value(s->p, s->block->param[part] + 1);
}
static float *dweight(const struct pass *s, int part)
{
    return pl_params_grad(s->p, s->block->param[part]);
}
static float *dbias(const struct pass *s, int part)
{
    return pl_params_grad(s->p, s->block->param[part] + 1);
}

static struct pl_maps take(const struct pass *s, int B, int C, int H, int W)
{
    struct pl_maps m = { .B = B, .C = C, .H = H, .W = W };
    m.at = pl_scratch_take(s->scratch, pl_maps_floats(&m));
    return m;
}

static void give(const struct pass *s, const struct pl_maps *m)
{
    pl_scratch_give(s->scratch, m->at);
}

/* K x K that keeps the size. */
static struct pl_conv same_size(const struct pl_maps *x, int out, int K)
{
    return (struct pl_conv){ .B = x->B,
                             .C = x->C,
                             .H = x->H,
                             .W = x->W,
                             .O = out,
                             .K = K,
                             .stride = 1,
                             .top = K / 2,
                             .left = K / 2,
                             .bottom = (K - 1) / 2,
                             .right = (K - 1) / 2 };
}

static int conv(const struct pass *s, int part, struct pl_maps *y, const struct pl_maps *x, int K)
{
    struct pl_conv c = same_size(x, y->C, K);
    return s->be->conv(y->at, x->at, weight(s, part), bias(s, part), &c);
}

/* Gradients of conv's weights, and of its input unless dx is NULL. */
static int conv_backward(const struct pass *s, int part, struct pl_maps *dx,
                         const struct pl_maps *dy, const struct pl_maps *x, int K)
{
    struct pl_conv c = same_size(x, dy->C, K);
    int rc = s->be->conv_dw(dweight(s, part), dbias(s, part), dy->at, x->at, &c);
    if (!rc && dx) rc = s->be->conv_dx(dx->at, dy->at, weight(s, part), &c);
    return rc;
}

static int groups(const struct pass *s)
{
    return s->block->groups ? s->block->groups : PL_VQ_GROUPS;
}

static int norm(const struct pass *s, int part, struct pl_maps *y, const struct pl_maps *x)
{
    return s->be->group_norm(y->at, x->at, weight(s, part), bias(s, part), x->B, x->C, x->H * x->W,
                             groups(s), PL_VQ_EPS);
}

static int norm_backward(const struct pass *s, int part, struct pl_maps *dx,
                         const struct pl_maps *dy, const struct pl_maps *x)
{
    return s->be->group_norm_backward(dx->at, dweight(s, part), dbias(s, part), dy->at, x->at,
                                      weight(s, part), x->B, x->C, x->H * x->W, groups(s),
                                      PL_VQ_EPS);
}

static int norm_swish(const struct pass *s, int part, struct pl_maps *y, const struct pl_maps *x)
{
    int rc = norm(s, part, y, x);
    return rc ? rc : s->be->activation(y->at, y->at, pl_maps_floats(y), PL_SWISH);
}

/* dx from the gradient at swish(norm(x)), which is overwritten; `normed` is norm(x). */
static int norm_swish_backward(const struct pass *s, int part, struct pl_maps *dx,
                               struct pl_maps *dy, const struct pl_maps *normed,
                               const struct pl_maps *x)
{
    int rc = s->be->activation_backward(dy->at, dy->at, normed->at, pl_maps_floats(dy), PL_SWISH);
    return rc ? rc : norm_backward(s, part, dx, dy, x);
}

/* y = shortcut(x) + conv2(swish(norm2(middle))),  middle = conv1(swish(norm1(x))) */
static int res_forward(const struct pass *s, struct pl_maps *y, const struct pl_maps *x,
                       struct pl_vq_saved *saved)
{
    struct pl_maps a = take(s, x->B, x->C, x->H, x->W);
    struct pl_maps middle = take(s, x->B, y->C, x->H, x->W), b;
    int rc;
    if (!a.at || !middle.at) return PL_ENOMEM;
    rc = norm_swish(s, 0, &a, x);
    if (!rc) rc = conv(s, 1, &middle, &a, 3);
    give(s, &a);
    b = saved ? take(s, x->B, y->C, x->H, x->W) : middle; /* forward only: in place */
    if (!b.at) return PL_ENOMEM;
    if (!rc) rc = norm_swish(s, 2, &b, &middle);
    if (!rc) rc = conv(s, 3, y, &b, 3);
    if (!rc && x->C != y->C) { /* the shortcut is a 1x1 convolution where widths differ */
        rc = conv(s, 4, &b, x, 1);
        if (!rc) rc = s->be->axpy(y->at, 1, b.at, pl_maps_floats(y));
    } else if (!rc) {
        rc = s->be->axpy(y->at, 1, x->at, pl_maps_floats(y));
    }
    if (saved) saved->middle = middle.at;
    give(s, &b);
    return rc;
}

/* The same four layers from the last to the first, each with its norm and swish computed again. */
static int res_backward(const struct pass *s, struct pl_maps *dx, const struct pl_maps *dy,
                        struct pl_vq_saved *saved)
{
    const struct pl_maps *x = &saved->x;
    struct pl_maps middle = *dy, normed = take(s, dy->B, dy->C, dy->H, dy->W);
    struct pl_maps active = take(s, dy->B, dy->C, dy->H, dy->W), grad, spare;
    int rc;
    middle.at = saved->middle;
    if (!normed.at || !active.at) return PL_ENOMEM;
    /* conv2, then norm2 and swish */
    rc = norm(s, 2, &normed, &middle);
    if (!rc) rc = s->be->activation(active.at, normed.at, pl_maps_floats(&normed), PL_SWISH);
    if (!rc) rc = conv_backward(s, 3, NULL, dy, &active, 3);
    if (!rc) {
        struct pl_conv c = same_size(&active, dy->C, 3);
        rc = s->be->conv_dx(active.at, dy->at, weight(s, 3), &c);
    }
    if (!rc) rc = norm_swish_backward(s, 2, &active, &active, &normed, &middle);
    give(s, &normed);
    give(s, &middle);
    grad = active; /* the gradient of middle */
    normed = take(s, x->B, x->C, x->H, x->W);
    spare = take(s, x->B, x->C, x->H, x->W);
    if (!normed.at || !spare.at) return PL_ENOMEM;
    /* conv1, then norm1 and swish */
    if (!rc) rc = norm(s, 0, &normed, x);
    if (!rc) rc = s->be->activation(spare.at, normed.at, pl_maps_floats(x), PL_SWISH);
    if (!rc) rc = conv_backward(s, 1, dx, &grad, &spare, 3);
    if (!rc) rc = norm_swish_backward(s, 0, dx, dx, &normed, x);
    /* and what came through the shortcut */
    if (!rc && x->C != dy->C) {
        rc = conv_backward(s, 4, &spare, dy, x, 1);
        if (!rc) rc = s->be->axpy(dx->at, 1, spare.at, pl_maps_floats(dx));
    } else if (!rc) {
        rc = s->be->axpy(dx->at, 1, dy->at, pl_maps_floats(dx));
    }
    give(s, &normed);
    give(s, &spare);
    give(s, &grad);
    return rc;
}

/* Every place attends to every other. */
static const struct pl_mask everyone = { .kind = PL_MASK_NONE };

/* Attention wants a row for each place, maps have one for each channel: hence the transposes. */
static int attn_forward(const struct pass *s, struct pl_maps *y, const struct pl_maps *x,
                        struct pl_vq_saved *saved)
{
    int places = x->H * x->W, C = x->C;
    struct pl_maps normed = take(s, x->B, C, x->H, x->W), part = take(s, x->B, C, x->H, x->W);
    float *qkv = pl_scratch_take(s->scratch, 3 * pl_maps_floats(x));
    float *attended = pl_scratch_take(s->scratch, pl_maps_floats(x));
    float *lse = pl_scratch_take(s->scratch, (size_t)x->B * (size_t)places);
    int rc;
    if (!normed.at || !part.at || !qkv || !attended || !lse) return PL_ENOMEM;
    rc = norm(s, 0, &normed, x);
    for (int i = 0; !rc && i < 3; i++) {
        rc = conv(s, i + 1, &part, &normed, 1);
        if (!rc) rc = s->be->transpose(qkv + i * C, 3 * C, part.at, places, x->B, C, places);
    }
    if (!rc) rc = s->be->attention(attended, lse, qkv, x->B, places, 1, C, &everyone, NULL);
    if (!rc) rc = s->be->transpose(part.at, places, attended, C, x->B, places, C);
    if (!rc) rc = conv(s, 4, y, &part, 1);
    if (!rc) rc = s->be->axpy(y->at, 1, x->at, pl_maps_floats(y));
    give(s, &normed);
    give(s, &part);
    if (saved) {
        saved->qkv = qkv;
        saved->attended = attended;
        saved->lse = lse;
    } else {
        pl_scratch_give(s->scratch, qkv);
        pl_scratch_give(s->scratch, attended);
        pl_scratch_give(s->scratch, lse);
    }
    return rc;
}

static int attn_backward(const struct pass *s, struct pl_maps *dx, const struct pl_maps *dy,
                         struct pl_vq_saved *saved)
{
    const struct pl_maps *x = &saved->x;
    int places = x->H * x->W, C = x->C;
    struct pl_maps part = take(s, x->B, C, x->H, x->W), spare = take(s, x->B, C, x->H, x->W);
    struct pl_maps sum = take(s, x->B, C, x->H, x->W);
    float *dattended = pl_scratch_take(s->scratch, pl_maps_floats(x));
    float *dqkv = pl_scratch_take(s->scratch, 3 * pl_maps_floats(x));
    int rc;
    if (!part.at || !spare.at || !sum.at || !dattended || !dqkv) return PL_ENOMEM;
    rc = s->be->transpose(part.at, places, saved->attended, C, x->B, places, C);
    if (!rc) rc = conv_backward(s, 4, &spare, dy, &part, 1);
    if (!rc) rc = s->be->transpose(dattended, C, spare.at, places, x->B, C, places);
    if (!rc)
        rc = s->be->attention_backward(dqkv, dattended, saved->qkv, saved->attended, saved->lse,
                                       x->B, places, 1, C, &everyone, NULL);
    if (!rc) rc = norm(s, 0, &spare, x);
    if (!rc) rc = s->be->fill(sum.at, 0, pl_maps_floats(x));
    for (int i = 0; !rc && i < 3; i++) {
        rc = s->be->transpose(part.at, places, dqkv + i * C, 3 * C, x->B, places, C);
        if (!rc) rc = conv_backward(s, i + 1, dx, &part, &spare, 1);
        if (!rc) rc = s->be->axpy(sum.at, 1, dx->at, pl_maps_floats(x));
    }
    if (!rc) rc = norm_backward(s, 0, dx, &sum, x);
    if (!rc) rc = s->be->axpy(dx->at, 1, dy->at, pl_maps_floats(x));
    give(s, &part);
    give(s, &spare);
    give(s, &sum);
    pl_scratch_give(s->scratch, dattended);
    pl_scratch_give(s->scratch, dqkv);
    pl_scratch_give(s->scratch, saved->qkv);
    pl_scratch_give(s->scratch, saved->attended);
    pl_scratch_give(s->scratch, saved->lse);
    return rc;
}

/* Zeros only below and to the right, as taming-transformers pads. */
static struct pl_conv halving(const struct pl_maps *x, int out)
{
    return (struct pl_conv){ .B = x->B,
                             .C = x->C,
                             .H = x->H,
                             .W = x->W,
                             .O = out,
                             .K = 3,
                             .stride = 2,
                             .bottom = 1,
                             .right = 1 };
}

int pl_vq_forward(const struct pl_vq_block *block, const struct pl_params *p,
                  struct pl_scratch *scratch, struct pl_maps *y, const struct pl_maps *x,
                  struct pl_vq_saved *saved)
{
    struct pass s = { p->be, p, scratch, block };
    struct pl_conv half = halving(x, block->out);
    struct pl_maps twice;
    int H = x->H, W = x->W, rc;
    assert(x->C == block->in || block->kind == PL_VQ_SWISH);
    if (block->kind == PL_VQ_DOWN) {
        H = pl_conv_height(&half);
        W = pl_conv_width(&half);
    } else if (block->kind == PL_VQ_UP) {
        H *= 2;
        W *= 2;
    }
    if (saved) *saved = (struct pl_vq_saved){ .x = *x };
    *y = take(&s, x->B, block->kind == PL_VQ_SWISH ? x->C : block->out, H, W);
    if (!y->at) return PL_ENOMEM;
    switch (block->kind) {
    case PL_VQ_CONV: return conv(&s, 0, y, x, block->K);
    case PL_VQ_RES: return res_forward(&s, y, x, saved);
    case PL_VQ_ATTN: return attn_forward(&s, y, x, saved);
    case PL_VQ_DOWN: return s.be->conv(y->at, x->at, weight(&s, 0), bias(&s, 0), &half);
    case PL_VQ_NORM: return norm(&s, 0, y, x);
    case PL_VQ_SWISH: return s.be->activation(y->at, x->at, pl_maps_floats(x), PL_SWISH);
    case PL_VQ_UP:
        twice = take(&s, x->B, x->C, H, W);
        if (!twice.at) return PL_ENOMEM;
        rc = s.be->upsample(twice.at, x->at, x->B * x->C, x->H, x->W);
        if (!rc) rc = conv(&s, 0, y, &twice, 3);
        if (saved) saved->middle = twice.at;
        else give(&s, &twice);
        return rc;
    }
    return PL_OK;
}

int pl_vq_backward(const struct pl_vq_block *block, const struct pl_params *p,
                   struct pl_scratch *scratch, struct pl_maps *dx, const struct pl_maps *dy,
                   struct pl_vq_saved *saved)
{
    struct pass s = { p->be, p, scratch, block };
    const struct pl_maps *x = &saved->x;
    struct pl_conv half = halving(x, block->out);
    struct pl_maps out = take(&s, x->B, x->C, x->H, x->W), twice, dtwice;
    int rc = PL_OK;
    if (!out.at) return PL_ENOMEM;
    switch (block->kind) {
    case PL_VQ_CONV: rc = conv_backward(&s, 0, dx ? &out : NULL, dy, x, block->K); break;
    case PL_VQ_RES: rc = res_backward(&s, &out, dy, saved); break;
    case PL_VQ_ATTN: rc = attn_backward(&s, &out, dy, saved); break;
    case PL_VQ_DOWN:
        rc = s.be->conv_dw(dweight(&s, 0), dbias(&s, 0), dy->at, x->at, &half);
        if (!rc) rc = s.be->conv_dx(out.at, dy->at, weight(&s, 0), &half);
        break;
    case PL_VQ_NORM: rc = norm_backward(&s, 0, &out, dy, x); break;
    case PL_VQ_SWISH:
        rc = s.be->activation_backward(out.at, dy->at, x->at, pl_maps_floats(x), PL_SWISH);
        break;
    case PL_VQ_UP:
        twice = (struct pl_maps){ saved->middle, x->B, x->C, dy->H, dy->W };
        dtwice = take(&s, x->B, x->C, dy->H, dy->W);
        if (!dtwice.at) return PL_ENOMEM;
        rc = conv_backward(&s, 0, &dtwice, dy, &twice, 3);
        if (!rc) rc = s.be->upsample_backward(out.at, dtwice.at, x->B * x->C, x->H, x->W);
        give(&s, &twice);
        give(&s, &dtwice);
        break;
    }
    if (dx) *dx = out;
    else give(&s, &out);
    return rc;
}
