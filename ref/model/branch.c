/* branch.c - the two branches of a block, forward and backward. [TTT 3.1] [spec dalle 3 to 6]
 *
 *   h = shift(norm(x))                                   both branches begin so
 *   Attn(x) = W_o attention(rotary(W_qkv h)) + b_o       rotary on v too, as DALLE-pytorch has it
 *   FFN(x)  = W2 geglu(W1 h + b1) + b2
 *
 * x, h, y are (B,n,D), qkv (B,n,3,H,d), o (B,n,E) with E = H d, and z = W1 h + b1 (B,n,8D). shift
 * gives a token some channels of its neighbours: shift.c. Parameters of the attention branch begin
 * with f_, of the feed-forward branch with g_; k is what is saved for backward, w scratch.
 *
 * LayerScale and the residual sum are reversible.c's. A backward pass begins with LayerScale's own
 * gradient, for which it needs the branch's output y. */
#include "branch.h"

static float *value(const struct pl_blocks *s, size_t index)
{
    return pl_params_value(s->params, index);
}

static float *grad(const struct pl_blocks *s, size_t index)
{
    return pl_params_grad(s->params, index);
}

/* h = shift(norm(x)) */
static int norm_shift(const struct pl_blocks *s, float *h, float *norm, const float *x,
                      size_t weight, size_t bias, int B, int n)
{
    const struct pl_backend *be = s->be;
    int D = s->config->D, rc;
    rc = be->layer_norm(norm, x, value(s, weight), value(s, bias), B * n, D, PL_NORM_EPS);
    return rc ? rc : be->shift(h, norm, B, n, D, s->P, s->config->F);
}

/* dx += gradient of shift(norm(x)) at dh */
static int norm_shift_backward(const struct pl_blocks *s, float *dx, float *dnorm, const float *dh,
                               const float *x, size_t weight, size_t bias, int B, int n)
{
    const struct pl_backend *be = s->be;
    int D = s->config->D, rc;
    rc = be->shift_backward(dnorm, dh, B, n, D, s->P, s->config->F);
    return rc ? rc
              : be->layer_norm_backward(dx, grad(s, weight), grad(s, bias), dnorm, x,
                                        value(s, weight), B * n, D, PL_NORM_EPS, 1);
}

/* q, k and v by their positions' angles; back is also the gradient. */
static int rotate(const struct pl_blocks *s, float *qkv, int B, int n, int back)
{
    const struct pl_dalle_config *c = s->config;
    if (!s->R) return PL_OK;
    return s->be->rotary(qkv, s->cosine, s->sine, B, n, 3 * c->H, c->d, s->R, back);
}

/* h = shift(norm(x)),  qkv = rotary(W_qkv h),  o = attention(qkv),  y = W_o o + b_o */
int pl_attention_branch(const struct pl_blocks *s, int l, const struct pl_attention_saved *k,
                        const struct pl_branch_scratch *w, const float *x, int B, int n)
{
    const struct pl_backend *be = s->be;
    const struct pl_block *b = &s->list[l];
    int M = B * n, D = s->config->D, E = s->E, rc;
    /* the four operations of the line above, in its order; lse is kept for backward */
    if ((rc = norm_shift(s, k->h, w->norm, x, b->f_weight, b->f_bias, B, n)) ||
        (rc = be->linear(k->qkv, k->h, value(s, b->qkv), NULL, M, D, 3 * E)) ||
        (rc = rotate(s, k->qkv, B, n, 0)) ||
        (rc = be->attention(k->o, k->lse, k->qkv, B, n, s->config->H, s->config->d, &b->mask,
                            NULL)))
        return rc;
    return be->linear(k->y, k->o, value(s, b->out), value(s, b->out_bias), M, E, D);
}

int pl_attention_branch_backward(const struct pl_blocks *s, int l,
                                 const struct pl_attention_saved *k,
                                 const struct pl_branch_scratch *w, float *dx, const float *dy,
                                 const float *x, int B, int n)
{
    const struct pl_backend *be = s->be;
    const struct pl_block *b = &s->list[l];
    int M = B * n, D = s->config->D, E = s->E, rc;
    float *dqkv = w->wide, *do_ = w->wide + 3 * (size_t)M * (size_t)E;
    /* Each line is the gradient of one forward line, last first:
     *   dy_branch = s_f dy        dW_o += dy_branch o',  do = W_o' dy_branch
     *   dqkv by attention,  rotated back        dW_qkv += dqkv h',  dh = W_qkv' dqkv */
    if ((rc = be->layer_scale_backward(w->dy, grad(s, b->f_scale), dy, k->y, value(s, b->f_scale),
                                       M, D)) ||
        (rc = be->linear_dw(grad(s, b->out), grad(s, b->out_bias), w->dy, k->o, M, E, D)) ||
        (rc = be->linear_dx(do_, w->dy, value(s, b->out), M, E, D, 0)) ||
        (rc = be->attention_backward(dqkv, do_, k->qkv, k->o, k->lse, B, n, s->config->H,
                                     s->config->d, &b->mask, NULL)) ||
        (rc = rotate(s, dqkv, B, n, 1)) ||
        (rc = be->linear_dw(grad(s, b->qkv), NULL, dqkv, k->h, M, D, 3 * E)) ||
        (rc = be->linear_dx(w->dy, dqkv, value(s, b->qkv), M, D, 3 * E, 0)))
        return rc;
    return norm_shift_backward(s, dx, w->norm, w->dy, x, b->f_weight, b->f_bias, B, n);
}

static struct pl_ffn ffn_values(const struct pl_blocks *s, const struct pl_block *b)
{
    return (struct pl_ffn){ value(s, b->W1), value(s, b->b1), value(s, b->W2), value(s, b->b2) };
}

static struct pl_ffn ffn_grads(const struct pl_blocks *s, const struct pl_block *b)
{
    return (struct pl_ffn){ grad(s, b->W1), grad(s, b->b1), grad(s, b->W2), grad(s, b->b2) };
}
/* h = shift(norm(x)),  y = W2 geglu(W1 h + b1) + b2 */
int pl_ffn_branch(const struct pl_blocks *s, int l, const struct pl_ffn_saved *k,
                  const struct pl_branch_scratch *w, const float *x, int B, int n)
{
    const struct pl_backend *be = s->be;
    const struct pl_block *b = &s->list[l];
    int M = B * n, D = s->config->D, rc;
    struct pl_ffn layer = ffn_values(s, b);
    if ((rc = norm_shift(s, k->h, w->norm, x, b->g_weight, b->g_bias, B, n))) return rc;
    return be->ffn(k->y, k->z, k->h, &layer, M, D, 4 * D);
}

/* w->dy = dh, the gradient at the layer's input, from everything that was saved: LayerScale first,
 * dFFN = s_g dy and ds_g += dy y, then the layer. */
static int ffn_from_saved(const struct pl_blocks *s, const struct pl_block *b,
                          const struct pl_ffn_saved *k, const struct pl_branch_scratch *w,
                          const float *dy, int M)
{
    const struct pl_backend *be = s->be;
    struct pl_ffn layer = ffn_values(s, b);
    struct pl_ffn dlayer = ffn_grads(s, b);
    int D = s->config->D, rc;
    rc = be->layer_scale_backward(w->dy, grad(s, b->g_scale), dy, k->y, value(s, b->g_scale), M, D);
    return rc ? rc : be->ffn_backward(NULL, w->dy, &dlayer, w->dy, k->z, k->h, &layer, M, D, 4 * D);
}

/* The same from x alone, as a reversible block has it; k->y is filled on the way. */
static int ffn_from_input(const struct pl_blocks *s, const struct pl_block *b,
                          const struct pl_ffn_saved *k, const struct pl_branch_scratch *w,
                          const float *dy, const float *x, int B, int n)
{
    const struct pl_backend *be = s->be;
    struct pl_ffn layer = ffn_values(s, b);
    struct pl_ffn dlayer = ffn_grads(s, b);
    const float *scale = value(s, b->g_scale);
    int M = B * n, D = s->config->D, rc;
    size_t size = (size_t)M * (size_t)D;
    float *dlayer_y = w->norm, *dh = w->dy;
    /* y comes out of the layer's backward pass, which needs scale * dy: so LayerScale's gradient,
     * which needs y, comes last. */
    if ((rc = norm_shift(s, k->h, w->norm, x, b->g_weight, b->g_bias, B, n)) ||
        (rc = be->fill(dlayer_y, 0, size)) || (rc = be->scale_add(dlayer_y, dy, scale, M, D, 1)) ||
        (rc = be->ffn_backward(k->y, dh, &dlayer, dlayer_y, NULL, k->h, &layer, M, D, 4 * D)))
        return rc;
    return be->layer_scale_backward(dlayer_y, grad(s, b->g_scale), dy, k->y, scale, M, D);
}

/* dh by one of the two, then through shift and norm: dx += ... */
int pl_ffn_branch_backward(const struct pl_blocks *s, int l, const struct pl_ffn_saved *k,
                           const struct pl_branch_scratch *w, float *dx, const float *dy,
                           const float *x, int B, int n)
{
    const struct pl_block *b = &s->list[l];
    int rc = k->z ? ffn_from_saved(s, b, k, w, dy, B * n) : ffn_from_input(s, b, k, w, dy, x, B, n);
    return rc ? rc : norm_shift_backward(s, dx, w->norm, w->dy, x, b->g_weight, b->g_bias, B, n);
}
