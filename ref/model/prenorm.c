/* prenorm.c - a plain pre-norm transformer, forward and backward: the blocks of GPT-2 and of
 * both towers of CLIP. [GPT-2, 2.3] [CLIP, 2.4] [spec images-and-text 2.1, 6]
 *
 *   1. middle = x + W_out attention(W_qkv LN_1(x) + b_qkv) + b_out
 *   2. y      = middle + W_proj act(W_fc LN_2(middle) + b_fc) + b_proj
 *
 * x, middle, y are (B,n,D); fc and act (B,n,hidden). Norms come before the layers, so the stream x
 * itself is only ever added to, and gradients reach the first block undamped.
 *
 * Backward needs every value of a block. By default only the blocks' inputs are saved, and a block
 * runs again before its backward pass (activation checkpointing): for a third more operations the
 * values of one block are in memory, not of all. */
#include "prenorm.h"

#include <stdio.h>
#include <string.h>

static float *value(const struct pl_prenorm *s, int l, enum pl_prenorm_part part)
{
    return pl_params_value(s->params, s->part[l][part]);
}

static float *grad(const struct pl_prenorm *s, int l, enum pl_prenorm_part part)
{
    return pl_params_grad(s->params, s->part[l][part]);
}

/* Tests compare what a block makes with the original packages' values. */
static void show(const struct pl_prenorm *s, int l, const char *what, const float *at, size_t n)
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

int pl_prenorm_take(struct pl_prenorm_made *m, const struct pl_prenorm *s, size_t M, int backward)
{
    size_t D = (size_t)s->D, hidden = (size_t)s->hidden;
    memset(m, 0, sizeof *m);
    m->ln_1 = pl_scratch_take(s->scratch, M * D);
    m->qkv = pl_scratch_take(s->scratch, 3 * M * D);
    m->o = pl_scratch_take(s->scratch, M * D);
    m->y = pl_scratch_take(s->scratch, M * D);
    m->fc = pl_scratch_take(s->scratch, M * hidden);
    if (!backward) { /* later values may lie where earlier ones did */
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

void pl_prenorm_give(struct pl_prenorm_made *m, const struct pl_prenorm *s)
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

/* 1.  y = W_out attention(W_qkv LN_1(x) + b_qkv) + b_out */
static int attention_branch(const struct pl_prenorm *s, int l, const struct pl_prenorm_made *m,
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
    show(s, l, "ln_1", m->ln_1, floats);
    /* qkv = W_qkv ln_1 + b_qkv */
    if ((rc = be->linear(m->qkv, m->ln_1, value(s, l, PL_QKV_W), value(s, l, PL_QKV_B), M, D,
                         3 * D)))
        return rc;
    show(s, l, "qkv", m->qkv, 3 * floats);
    /* o = attention(q, k, v), then y = W_out o + b_out */
    if ((rc = be->attention(m->o, m->lse, m->qkv, B, n, s->H, D / s->H, &mask, key_mask)))
        return rc;
    rc = be->linear(m->y, m->o, value(s, l, PL_OUT_W), value(s, l, PL_OUT_B), M, D, D);
    if (!rc) show(s, l, "attn", m->y, floats);
    return rc;
}

/* 2.  y = W_proj act(W_fc LN_2(x) + b_fc) + b_proj */
int pl_prenorm_ffn(const struct pl_prenorm *s, int l, const struct pl_prenorm_made *m,
                   const float *x, int M)
{
    const struct pl_backend *be = s->params->be;
    int D = s->D, hidden = s->hidden, rc;
    size_t n = (size_t)M * (size_t)D, wide = (size_t)M * (size_t)hidden;
    /* ln_2 = LN_2(x) */
    rc = be->layer_norm(m->ln_2, x, value(s, l, PL_LN2_WEIGHT), value(s, l, PL_LN2_BIAS), M, D,
                        PL_PRENORM_EPS);
    if (rc) return rc;
    show(s, l, "ln_2", m->ln_2, n);
    /* fc = W_fc ln_2 + b_fc */
    if ((rc = be->linear(m->fc, m->ln_2, value(s, l, PL_FC_W), value(s, l, PL_FC_B), M, D, hidden)))
        return rc;
    show(s, l, "fc", m->fc, wide);
    /* act = act(fc), then y = W_proj act + b_proj */
    if ((rc = be->activation(m->act, m->fc, wide, s->activation))) return rc;
    show(s, l, "act", m->act, wide);
    rc = be->linear(m->y, m->act, value(s, l, PL_PROJ_W), value(s, l, PL_PROJ_B), M, hidden, D);
    if (!rc) show(s, l, "mlp", m->y, n);
    return rc;
}

/* middle = x + Attn(x),  y = FFN(middle): the block's output is their sum. */
static int run_block(const struct pl_prenorm *s, int l, const struct pl_prenorm_made *m,
                     const float *x, int B, int n, const uint8_t *key_mask)
{
    const struct pl_backend *be = s->params->be;
    size_t floats = (size_t)B * (size_t)n * (size_t)s->D;
    int rc = attention_branch(s, l, m, x, B, n, key_mask);
    if (!rc) rc = be->copy(m->middle, x, floats);
    if (!rc) rc = be->axpy(m->middle, 1, m->y, floats);
    return rc ? rc : pl_prenorm_ffn(s, l, m, m->middle, B * n);
}

/* With `stored`, each block's values stay in buffers of their own until backward. */
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
        rc = be->copy(inputs + (size_t)l * floats, x, floats);
        if (!rc) rc = pl_prenorm_take(m, s, (size_t)B * (size_t)n, 1);
        if (!rc) rc = run_block(s, l, m, x, B, n, key_mask);
        if (!rc) rc = be->copy(x, m->middle, floats);
        if (!rc) rc = be->axpy(x, 1, m->y, floats);
        if (!rc) show(s, l, "out", x, floats);
    }
    if (rc) pl_prenorm_forget(s);
    return rc;
}

void pl_prenorm_forget(struct pl_prenorm *s)
{
    for (int l = 0; s->made && l < s->layers; l++) pl_prenorm_give(&s->made[l], s);
    pl_free(s->made);
    s->made = NULL;
}

int pl_prenorm_forward(struct pl_prenorm *s, float *x, float *inputs, int B, int n,
                       const uint8_t *key_mask)
{
    const struct pl_backend *be = s->params->be;
    size_t floats = (size_t)B * (size_t)n * (size_t)s->D;
    struct pl_prenorm_made m;
    int rc;
    if (inputs && s->stored) return forward_stored(s, x, inputs, B, n, key_mask);
    rc = pl_prenorm_take(&m, s, (size_t)B * (size_t)n, 0);
    for (int l = 0; l < s->layers && !rc; l++) {
        /* what backward starts from */
        if (inputs) rc = be->copy(inputs + (size_t)l * floats, x, floats);
        if (!rc) rc = attention_branch(s, l, &m, x, B, n, key_mask);
        if (!rc) rc = be->axpy(x, 1, m.y, floats);
        if (!rc) rc = pl_prenorm_ffn(s, l, &m, x, B * n);
        if (!rc) rc = be->axpy(x, 1, m.y, floats);
        if (!rc) show(s, l, "out", x, floats);
    }
    pl_prenorm_give(&m, s);
    return rc;
}

/* Block l, whose values are in m: dx is the gradient of its output, then of its input. Each line
 * undoes one of the forward pass, last first; `add` 1 leaves the residual sum's own gradient in dx.
 * d (M,D) and wide (M, max(hidden, 3D)) are scratch. */
static int block_backward(const struct pl_prenorm *s, int l, const struct pl_prenorm_made *m,
                          float *dx, const float *x, float *d, float *wide, int B, int n,
                          const uint8_t *key_mask)
{
    const struct pl_backend *be = s->params->be;
    struct pl_mask mask = mask_of(s, n);
    int M = B * n, D = s->D, hidden = s->hidden, rc;
    size_t wider = (size_t)M * (size_t)hidden;
    /* 2.  dproj, dact, dfc, dLN_2:  dmiddle = dy + ... */
    /* dW_proj += dy act^T,  dact = W_proj^T dy,  dfc */
    rc = be->linear_dw(grad(s, l, PL_PROJ_W), grad(s, l, PL_PROJ_B), dx, m->act, M, hidden, D);
    if (!rc) rc = be->linear_dx(wide, dx, value(s, l, PL_PROJ_W), M, hidden, D, 0);
    if (!rc) rc = be->activation_backward(wide, wide, m->fc, wider, s->activation);
    /* dW_fc += dfc ln_2^T,  dln_2 = W_fc^T dfc,  and through the norm */
    if (!rc)
        rc = be->linear_dw(grad(s, l, PL_FC_W), grad(s, l, PL_FC_B), wide, m->ln_2, M, D, hidden);
    if (!rc) rc = be->linear_dx(d, wide, value(s, l, PL_FC_W), M, D, hidden, 0);
    if (!rc)
        rc = be->layer_norm_backward(dx, grad(s, l, PL_LN2_WEIGHT), grad(s, l, PL_LN2_BIAS), d,
                                     m->middle, value(s, l, PL_LN2_WEIGHT), M, D, PL_PRENORM_EPS,
                                     1);
    /* 1.  dout, do, dqkv, dLN_1:  dx = dmiddle + ... */
    /* dW_out += dmiddle o^T,  do = W_out^T dmiddle,  dqkv */
    if (!rc) rc = be->linear_dw(grad(s, l, PL_OUT_W), grad(s, l, PL_OUT_B), dx, m->o, M, D, D);
    if (!rc) rc = be->linear_dx(d, dx, value(s, l, PL_OUT_W), M, D, D, 0);
    if (!rc)
        rc = be->attention_backward(wide, d, m->qkv, m->o, m->lse, B, n, s->H, D / s->H, &mask,
                                    key_mask);
    /* dW_qkv += dqkv ln_1^T,  dln_1 = W_qkv^T dqkv,  and through the norm */
    if (!rc)
        rc = be->linear_dw(grad(s, l, PL_QKV_W), grad(s, l, PL_QKV_B), wide, m->ln_1, M, D, 3 * D);
    if (!rc) rc = be->linear_dx(d, wide, value(s, l, PL_QKV_W), M, D, 3 * D, 0);
    if (!rc)
        rc = be->layer_norm_backward(dx, grad(s, l, PL_LN1_WEIGHT), grad(s, l, PL_LN1_BIAS), d, x,
                                     value(s, l, PL_LN1_WEIGHT), M, D, PL_PRENORM_EPS, 1);
    return rc;
}

int pl_prenorm_backward(struct pl_prenorm *s, float *dx, const float *inputs, int B, int n,
                        const uint8_t *key_mask)
{
    size_t M = (size_t)B * (size_t)n, floats = M * (size_t)s->D;
    size_t widest = (size_t)(s->hidden > 3 * s->D ? s->hidden : 3 * s->D);
    float *d = pl_scratch_take(s->scratch, floats), *wide = pl_scratch_take(s->scratch, M * widest);
    struct pl_prenorm_made again = { 0 };
    int rc = d && wide ? PL_OK : PL_ENOMEM;
    if (!rc && !s->made) rc = pl_prenorm_take(&again, s, M, 1);
    for (int l = s->layers - 1; l >= 0 && !rc; l--) {
        const struct pl_prenorm_made *m = s->made ? &s->made[l] : &again;
        const float *x = inputs + (size_t)l * floats;
        /* the values of block l once more, from its input */
        if (!s->made) rc = run_block(s, l, m, x, B, n, key_mask);
        if (!rc) rc = block_backward(s, l, m, dx, x, d, wide, B, n, key_mask);
    }
    pl_prenorm_forget(s);
    pl_prenorm_give(&again, s);
    pl_scratch_give(s->scratch, d);
    pl_scratch_give(s->scratch, wide);
    return rc;
}
