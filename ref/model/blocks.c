/* blocks.c - the parameters of a stack of blocks. [TTT 3.1] [spec dalle 3, 10, 13]
 *
 *   a block's own     s_f, norm (D)  s_g, norm (D)               small: 6 D
 *   its group's       W_qkv (3E,D), W_out (D,E)                  E = H d
 *                     W1 (8D,D), W2 (D,4D)                       GEGLU: u and g in halves
 *
 * Attention and feed-forward layers are shared by the blocks of a group: 64 blocks, 5 groups, and a
 * model 8.9 times smaller to send. [ALBERT] Norms and LayerScale are every block's own; they tell a
 * shared layer where in the stack it is. */
#include "blocks.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Where the next tensors are declared: block l of `params`, under
 * "<prefix>layers.blocks.<l>.<f|g>". */
struct declaring {
    struct pl_params *params;
    const char *prefix;
    int l;
    char branch; /* 'f' or 'g' */
};

/* A matrix, or with columns 0 a vector; LayerScale alone has DALLE-pytorch's three dimensions.
 * Biases don't decay. */
static int declare(size_t *index, const struct declaring *at, const char *name, int64_t rows,
                   int64_t columns)
{
    int is_scale = !strcmp(name, "scale");
    int64_t matrix[2] = { rows, columns }, scale[3] = { 1, 1, rows };
    char whole[PL_NAME_MAX];
    int rc;
    snprintf(whole, sizeof whole, "%slayers.blocks.%d.%c.net.%s", at->prefix, at->l, at->branch,
             name);
    *index = at->params->count;
    rc = pl_params_add(at->params, whole,
                       is_scale  ? 3
                       : columns ? 2
                                 : 1,
                       is_scale ? scale : matrix, !strstr(name, "bias"));
    if (!rc) at->params->list[*index].is_block = columns > 0;
    return rc;
}

/* s_f and norm of block l; the layer's tensors, unless an earlier block of its group has them. */
static int declare_attention(struct pl_block *b, const struct declaring *at, int64_t D, int64_t E,
                             const struct pl_block *shared)
{
    int rc;
    if ((rc = declare(&b->f_scale, at, "scale", D, 0)) ||
        (rc = declare(&b->f_weight, at, "fn.norm.weight", D, 0)) ||
        (rc = declare(&b->f_bias, at, "fn.norm.bias", D, 0)))
        return rc;
    /* another block of the group has declared these: its indices are ours */
    if (shared) {
        b->qkv = shared->qkv;
        b->out = shared->out;
        b->out_bias = shared->out_bias;
        return PL_OK;
    }
    /* q, k and v of H heads in one matrix; W_o mixes the heads and alone has a bias */
    if ((rc = declare(&b->qkv, at, "fn.fn.fn.to_qkv.weight", 3 * E, D)) ||
        (rc = declare(&b->out, at, "fn.fn.fn.to_out.0.weight", D, E)))
        return rc;
    return declare(&b->out_bias, at, "fn.fn.fn.to_out.0.bias", D, 0);
}

/* s_g and norm of block l; W1 makes u and g, which GEGLU multiplies, W2 goes back to D channels. */
static int declare_ffn(struct pl_block *b, const struct declaring *at, int64_t D,
                       const struct pl_block *shared)
{
    int rc;
    if ((rc = declare(&b->g_scale, at, "scale", D, 0)) ||
        (rc = declare(&b->g_weight, at, "fn.norm.weight", D, 0)) ||
        (rc = declare(&b->g_bias, at, "fn.norm.bias", D, 0)))
        return rc;
    if (shared) { /* as above */
        b->W1 = shared->W1;
        b->b1 = shared->b1;
        b->W2 = shared->W2;
        b->b2 = shared->b2;
        return PL_OK;
    }
    if ((rc = declare(&b->W1, at, "fn.fn.fn.net.0.weight", 8 * D, D)) ||
        (rc = declare(&b->b1, at, "fn.fn.fn.net.0.bias", 8 * D, 0)) ||
        (rc = declare(&b->W2, at, "fn.fn.fn.net.3.weight", D, 4 * D)))
        return rc;
    return declare(&b->b2, at, "fn.fn.fn.net.3.bias", D, 0);
}

/* Declares all blocks in order. Where layers are shared, a block gets the indices of the tensors
 * that an earlier block declared, so gradients of all its users add up in one place. */
int pl_blocks_declare(struct pl_blocks *s, const struct pl_dalle_config *c,
                      struct pl_params *params, const char *prefix)
{
    int rc = PL_OK;
    /* P text positions with the start token, S in all; E channels of all heads; R of a head's d
     * channels are rotated */
    *s = (struct pl_blocks){ .config = c,
                             .params = params,
                             .P = c->T + 1,
                             .S = pl_dalle_positions(c),
                             .E = c->H * c->d,
                             .R = pl_rotary_channels(c->d) };
    s->list = calloc((size_t)c->L, sizeof *s->list);
    if (!s->list) return PL_ENOMEM;
    for (int l = 0; l < c->L && rc == PL_OK; l++) {
        /* block l borrows the layers of the first of its group */
        int first = pl_dalle_first_of_group(c, l);
        const struct pl_block *shared = first < l ? &s->list[first] : NULL;
        struct declaring f = { params, prefix, l, 'f' }, g = { params, prefix, l, 'g' };
        pl_dalle_mask(c, l, &s->list[l].mask);
        rc = declare_attention(&s->list[l], &f, c->D, s->E, shared);
        if (rc == PL_OK) rc = declare_ffn(&s->list[l], &g, c->D, shared);
    }
    return rc;
}

/* cos and sin of every position's angles, once for all blocks. */
int pl_blocks_prepare(struct pl_blocks *s, const struct pl_backend *be)
{
    const struct pl_dalle_config *c = s->config;
    size_t n = (size_t)(s->S + 1) * (size_t)(s->R / 2);
    float *angle;
    int rc = PL_OK;
    s->be = be;
    if (!n) return PL_OK;
    angle = pl_alloc(n, sizeof *angle);
    s->angle = pl_alloc(n, sizeof *s->angle);
    s->cosine = be->alloc(n * sizeof(float));
    s->sine = be->alloc(n * sizeof(float));
    if (!angle || !s->angle || !s->cosine || !s->sine) rc = PL_ENOMEM;
    if (rc == PL_OK) {
        /* angle (S+1,R/2): text position, row and column by turns of channels (rotary.c) */
        pl_rotary_angles(angle, s->P, c->F, c->d);
        rc = pl_blocks_set_angles(s, angle);
    }
    pl_free(angle);
    return rc;
}

/* cos and sin are taken in double on the host: angles reach 8192 rad. */
int pl_blocks_set_angles(struct pl_blocks *s, const float *angle)
{
    size_t n = (size_t)(s->S + 1) * (size_t)(s->R / 2);
    float *cosine, *sine;
    int rc = PL_ENOMEM;
    if (!n) return PL_OK;
    cosine = pl_alloc(n, sizeof *cosine);
    sine = pl_alloc(n, sizeof *sine);
    if (cosine && sine) {
        memcpy(s->angle, angle, n * sizeof *angle);
        pl_rotary_tables(cosine, sine, angle, n);
        rc = s->be->put(s->cosine, cosine, n * sizeof *cosine);
        if (rc == PL_OK) rc = s->be->put(s->sine, sine, n * sizeof *sine);
    }
    pl_free(cosine);
    pl_free(sine);
    return rc;
}

/* The tables are buffers of the backend; the tensors belong to `params`. */
void pl_blocks_clear(struct pl_blocks *s)
{
    if (s->be) {
        s->be->free(s->cosine);
        s->be->free(s->sine);
    }
    pl_free(s->angle);
    free(s->list);
    memset(s, 0, sizeof *s);
}

/* CaiT's initial LayerScale: the deeper a block, the nearer it begins to the identity.
 * [Touvron et al. 2021] */
static float layer_scale(int l) { return l < 18 ? 0.1f : l < 24 ? 1e-5f : 1e-6f; }

/* Uniform in +-1/sqrt(fan in), PyTorch's default; a shared tensor is drawn once, by its first
 * block. */
int pl_blocks_init(const struct pl_blocks *s, struct pl_rng *rng)
{
    const struct pl_params *p = s->params;
    /* fan in: W_qkv, W1 read D channels, W_out E, W2 the 4D that the gate lets through */
    float by_D = 1 / sqrtf((float)s->config->D), by_E = 1 / sqrtf((float)s->E);
    float by_4D = 1 / sqrtf(4 * (float)s->config->D);
    for (int l = 0; l < s->config->L; l++) {
        const struct pl_block *b = &s->list[l];
        int own = pl_dalle_first_of_group(s->config, l) == l, rc;
        if ((rc = pl_params_constant(p, b->f_scale, layer_scale(l))) ||
            (rc = pl_params_constant(p, b->f_weight, 1)) ||
            (rc = pl_params_constant(p, b->f_bias, 0)) ||
            (own && ((rc = pl_params_uniform(p, b->qkv, by_D, rng)) ||
                     (rc = pl_params_uniform(p, b->out, by_E, rng)) ||
                     (rc = pl_params_uniform(p, b->out_bias, by_E, rng)))) ||
            (rc = pl_params_constant(p, b->g_scale, layer_scale(l))) ||
            (rc = pl_params_constant(p, b->g_weight, 1)) ||
            (rc = pl_params_constant(p, b->g_bias, 0)) ||
            (own && ((rc = pl_params_uniform(p, b->W1, by_D, rng)) ||
                     (rc = pl_params_uniform(p, b->b1, by_D, rng)) ||
                     (rc = pl_params_uniform(p, b->W2, by_4D, rng)) ||
                     (rc = pl_params_uniform(p, b->b2, by_4D, rng)))))
            return rc;
    }
    return PL_OK;
}
