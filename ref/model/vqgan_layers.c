/* vqgan_layers.c - convolution, group norm and swish on feature maps, forward and backward: the
 * layers of every block of a VQGAN. [spec images-and-text 1.1]
 *
 *   conv         y = W * x + b                    dx = W^T * dy,  dW += dy x,  db += sum dy
 *   norm         y = weight h + bias              h: a group of channels, mean 0 and variance 1
 *   swish        y = x sigmoid(x)
 *
 * Maps are (B,C,H,W). A block's parameters are numbered by its parts, each a weight and, right
 * behind it, its bias. */
#include "vqgan_block_internal.h"

/* Maps are (B,C,H,W): for each picture C channels of an H x W plane. */
size_t pl_maps_floats(const struct pl_maps *m)
{
    return (size_t)m->B * (size_t)m->C * (size_t)m->H * (size_t)m->W;
}

/* Values of a part, and their gradients. */
float *vq_weight(const struct vq_pass *s, int part)
{
    return pl_params_value(s->p, s->block->param[part]);
}
float *vq_bias(const struct vq_pass *s, int part)
{
    return pl_params_value(s->p, s->block->param[part] + 1);
}
float *vq_dweight(const struct vq_pass *s, int part)
{
    return pl_params_grad(s->p, s->block->param[part]);
}
float *vq_dbias(const struct vq_pass *s, int part)
{
    return pl_params_grad(s->p, s->block->param[part] + 1);
}

/* A map from the scratch buffers; .at is NULL without memory. */
struct pl_maps vq_take(const struct vq_pass *s, int B, int C, int H, int W)
{
    struct pl_maps m = { .B = B, .C = C, .H = H, .W = W };
    m.at = pl_scratch_take(s->scratch, pl_maps_floats(&m));
    return m;
}

void vq_give(const struct vq_pass *s, const struct pl_maps *m)
{
    pl_scratch_give(s->scratch, m->at);
}

/* K x K that keeps the size: K - 1 zeros in all, as many before as behind, for odd K. */
struct pl_conv vq_same_size(const struct pl_maps *x, int out, int K)
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

/* y (B,out,H,W) = conv(x), K x K */
int vq_conv(const struct vq_pass *s, int part, struct pl_maps *y, const struct pl_maps *x, int K)
{
    struct pl_conv c = vq_same_size(x, y->C, K);
    return s->be->conv(y->at, x->at, vq_weight(s, part), vq_bias(s, part), &c);
}

/* Gradients of conv's weights, and of its input unless dx is NULL. */
int vq_conv_backward(const struct vq_pass *s, int part, struct pl_maps *dx,
                     const struct pl_maps *dy, const struct pl_maps *x, int K)
{
    struct pl_conv c = vq_same_size(x, dy->C, K);
    int rc = s->be->conv_dw(vq_dweight(s, part), vq_dbias(s, part), dy->at, x->at, &c);
    if (!rc && dx) rc = s->be->conv_dx(dx->at, dy->at, vq_weight(s, part), &c);
    return rc;
}

/* Groups of channels that are normalized together: 32, but for small codecs. */
static int groups(const struct vq_pass *s)
{
    return s->block->groups ? s->block->groups : PL_VQ_GROUPS;
}

/* y = weight (x - mean) / sqrt(var + eps) + bias */
int vq_norm(const struct vq_pass *s, int part, struct pl_maps *y, const struct pl_maps *x)
{
    return s->be->group_norm(y->at, x->at, vq_weight(s, part), vq_bias(s, part), x->B, x->C,
                             x->H * x->W, groups(s), PL_VQ_EPS);
}

/* dx through mean and variance too, from x: neither was saved. */
int vq_norm_backward(const struct vq_pass *s, int part, struct pl_maps *dx,
                     const struct pl_maps *dy, const struct pl_maps *x)
{
    return s->be->group_norm_backward(dx->at, vq_dweight(s, part), vq_dbias(s, part), dy->at, x->at,
                                      vq_weight(s, part), x->B, x->C, x->H * x->W, groups(s),
                                      PL_VQ_EPS);
}

/* y = swish(norm(x)), in one map */
int vq_norm_swish(const struct vq_pass *s, int part, struct pl_maps *y, const struct pl_maps *x)
{
    int rc = vq_norm(s, part, y, x);
    return rc ? rc : s->be->activation(y->at, y->at, pl_maps_floats(y), PL_SWISH);
}

/* dx from the gradient at swish(vq_norm(x)), which is overwritten; `normed` is vq_norm(x). */
int vq_norm_swish_backward(const struct vq_pass *s, int part, struct pl_maps *dx,
                           struct pl_maps *dy, const struct pl_maps *normed,
                           const struct pl_maps *x)
{
    int rc = s->be->activation_backward(dy->at, dy->at, normed->at, pl_maps_floats(dy), PL_SWISH);
    return rc ? rc : vq_norm_backward(s, part, dx, dy, x);
}
