/* prenorm.c - one pre-norm transformer block, forward and backward: the block of GPT-2 and of both
 * towers of CLIP. prenorm_stack.c runs a stack of them. [GPT-2, 2.3] [CLIP, 2.4]
 * [spec images-and-text 2.1, 6]
 *
 *   1. middle = x + W_out attention(W_qkv LN_1(x) + b_qkv) + b_out
 *   2. y      = middle + W_proj act(W_fc LN_2(middle) + b_fc) + b_proj
 *
 * x, middle, y are (B,n,D); fc and act (B,n,hidden). Norms come before the layers, so the stream x
 * itself is only ever added to, and gradients reach the first block undamped: dx = dy + ... */
#include "prenorm_internal.h"

#include <stdio.h>

static float *value(const struct pl_prenorm *s, int l, enum pl_prenorm_part part)
{
    return pl_params_value(s->params, s->part[l][part]);
}

static float *grad(const struct pl_prenorm *s, int l, enum pl_prenorm_part part)
{
    return pl_params_grad(s->params, s->part[l][part]);
}

/* Tests compare a block's output with values recorded from PyTorch. */
void prenorm_show(const struct pl_prenorm *s, int l, const char *what, const float *at, size_t n)
{
    char name[40];
    if (!s->watch) return;
    snprintf(name, sizeof name, "block%d.%s", l, what);
    s->watch(s->context, name, at, n);
}

static struct pl_mask mask_of(const struct pl_prenorm *s, int n)
{
    return (struct pl_mask){ .kind = s->mask, .P = n };
}
/* 1.  y = W_out attention(W_qkv LN_1(x) + b_qkv) + b_out */
int prenorm_attention(const struct pl_prenorm *s, int l, const struct pl_prenorm_made *m,
                      const float *x, int B, int n, const uint8_t *key_mask)
{
    const struct pl_backend *be = s->params->be;
    struct pl_mask mask = mask_of(s, n);
    int M = B * n, D = s->D, rc;
    size_t floats = (size_t)M * (size_t)D;
    /* ln_1 = LN_1(x) */
    rc = be->layer_norm(m->ln_1, x, value(s, l, PL_LN1_WEIGHT), value(s, l, PL_LN1_BIAS), M, D,
                        PL_PRENORM_EPS);
    if (rc) return rc;
    prenorm_show(s, l, "ln_1", m->ln_1, floats);
    /* qkv = W_qkv ln_1 + b_qkv: q, k and v of all heads in one product */
    if ((rc = be->linear(m->qkv, m->ln_1, value(s, l, PL_QKV_W), value(s, l, PL_QKV_B), M, D,
                         3 * D)))
        return rc;
    prenorm_show(s, l, "qkv", m->qkv, 3 * floats);
    /* o = softmax(q k' / sqrt(d)) v over the keys that the mask allows, d = D / H */
    if ((rc = be->attention(m->o, m->lse, m->qkv, B, n, s->H, D / s->H, &mask, key_mask)))
        return rc;
    /* y = W_out o + b_out mixes the heads */
    rc = be->linear(m->y, m->o, value(s, l, PL_OUT_W), value(s, l, PL_OUT_B), M, D, D);
    if (!rc) prenorm_show(s, l, "attn", m->y, floats);
    return rc;
}

/* 2.  y = W_proj act(W_fc LN_2(x) + b_fc) + b_proj */
int prenorm_ffn(const struct pl_prenorm *s, int l, const struct pl_prenorm_made *m, const float *x,
                int M)
{
    const struct pl_backend *be = s->params->be;
    int D = s->D, hidden = s->hidden, rc;
    size_t n = (size_t)M * (size_t)D, wide = (size_t)M * (size_t)hidden;
    /* ln_2 = LN_2(x) */
    rc = be->layer_norm(m->ln_2, x, value(s, l, PL_LN2_WEIGHT), value(s, l, PL_LN2_BIAS), M, D,
                        PL_PRENORM_EPS);
    if (rc) return rc;
    prenorm_show(s, l, "ln_2", m->ln_2, n);
    /* fc = W_fc ln_2 + b_fc */
    if ((rc = be->linear(m->fc, m->ln_2, value(s, l, PL_FC_W), value(s, l, PL_FC_B), M, D, hidden)))
        return rc;
    prenorm_show(s, l, "fc", m->fc, wide);
    /* act = gelu(fc): GPT-2's by tanh, CLIP's x sigmoid(1.702 x) */
    if ((rc = be->activation(m->act, m->fc, wide, s->activation))) return rc;
    prenorm_show(s, l, "act", m->act, wide);
    /* y = W_proj act + b_proj, back to D channels */
    rc = be->linear(m->y, m->act, value(s, l, PL_PROJ_W), value(s, l, PL_PROJ_B), M, hidden, D);
    if (!rc) prenorm_show(s, l, "mlp", m->y, n);
    return rc;
}

/* middle = x + Attn(x),  y = FFN(middle): the block's output is middle + y. */
int prenorm_block(const struct pl_prenorm *s, int l, const struct pl_prenorm_made *m,
                  const float *x, int B, int n, const uint8_t *key_mask)
{
    const struct pl_backend *be = s->params->be;
    size_t floats = (size_t)B * (size_t)n * (size_t)s->D;
    int rc = prenorm_attention(s, l, m, x, B, n, key_mask);
    if (!rc) rc = be->copy(m->middle, x, floats);
    if (!rc) rc = be->axpy(m->middle, 1, m->y, floats);
    return rc ? rc : prenorm_ffn(s, l, m, m->middle, B * n);
}
/* Each statement is the gradient of one forward statement, last first. dx holds dy, the residual
 * path's own gradient; layer_norm_backward with `add` 1 adds the branch's to it. */
int prenorm_block_backward(const struct pl_prenorm *s, int l, const struct pl_prenorm_made *m,
                           float *dx, const float *x, float *d, float *wide, int B, int n,
                           const uint8_t *key_mask)
{
    const struct pl_backend *be = s->params->be;
    struct pl_mask mask = mask_of(s, n);
    int M = B * n, D = s->D, hidden = s->hidden, rc;
    size_t wider = (size_t)M * (size_t)hidden;
    /* 2.  dmiddle = dy + dLN_2(W_fc' act'(fc) W_proj' dy) */
    /* dW_proj += dy act',  dact = W_proj' dy,  dfc = dact * act'(fc) */
    rc = be->linear_dw(grad(s, l, PL_PROJ_W), grad(s, l, PL_PROJ_B), dx, m->act, M, hidden, D);
    if (!rc) rc = be->linear_dx(wide, dx, value(s, l, PL_PROJ_W), M, hidden, D, 0);
    if (!rc) rc = be->activation_backward(wide, wide, m->fc, wider, s->activation);
    /* dW_fc += dfc ln_2',  dln_2 = W_fc' dfc,  dmiddle = dy + dLN_2(dln_2) */
    if (!rc)
        rc = be->linear_dw(grad(s, l, PL_FC_W), grad(s, l, PL_FC_B), wide, m->ln_2, M, D, hidden);
    if (!rc) rc = be->linear_dx(d, wide, value(s, l, PL_FC_W), M, D, hidden, 0);
    if (!rc)
        rc = be->layer_norm_backward(dx, grad(s, l, PL_LN2_WEIGHT), grad(s, l, PL_LN2_BIAS), d,
                                     m->middle, value(s, l, PL_LN2_WEIGHT), M, D, PL_PRENORM_EPS,
                                     1);
    /* 1.  dx = dmiddle + dLN_1(W_qkv' dattention(W_out' dmiddle)) */
    /* dW_out += dmiddle o',  do = W_out' dmiddle,  dqkv from q, k, v, o and the rows' log sums */
    if (!rc) rc = be->linear_dw(grad(s, l, PL_OUT_W), grad(s, l, PL_OUT_B), dx, m->o, M, D, D);
    if (!rc) rc = be->linear_dx(d, dx, value(s, l, PL_OUT_W), M, D, D, 0);
    if (!rc)
        rc = be->attention_backward(wide, d, m->qkv, m->o, m->lse, B, n, s->H, D / s->H, &mask,
                                    key_mask);
    /* dW_qkv += dqkv ln_1',  dln_1 = W_qkv' dqkv,  dx = dmiddle + dLN_1(dln_1) */
    if (!rc)
        rc = be->linear_dw(grad(s, l, PL_QKV_W), grad(s, l, PL_QKV_B), wide, m->ln_1, M, D, 3 * D);
    if (!rc) rc = be->linear_dx(d, wide, value(s, l, PL_QKV_W), M, D, 3 * D, 0);
    if (!rc)
        rc = be->layer_norm_backward(dx, grad(s, l, PL_LN1_WEIGHT), grad(s, l, PL_LN1_BIAS), d, x,
                                     value(s, l, PL_LN1_WEIGHT), M, D, PL_PRENORM_EPS, 1);
    return rc;
}
