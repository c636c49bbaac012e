/* vqgan_train.c - gradients of a VQGAN. [Esser et al. 2021, eq. 4] [VQ-VAE: eq. 3]
 *
 *   loss = l1 mean|x' - x| + l2 mean(x' - x)^2 + quantizer loss
 *   nearest:  |sg(z) - e|^2 + beta |z - sg(e)|^2,   sg stops gradients: the table moves to the
 *             maps, and the encoder, more slowly, to the table (legacy: beta on the first term)
 *   Gumbel:   kl_weight KL(q || uniform)
 *
 * The token has no gradient, so the decoder's goes straight through to z (nearest) or to the
 * softmax y (Gumbel). */
#include "vqgan_train.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

/* Everything one step keeps between its forward and its backward pass. */
struct step {
    struct pl_vqgan *m;
    const struct pl_backend *be;
    const struct pl_vqgan_task *task;
    struct pl_vq_saved encoder[PL_VQ_BLOCKS_MAX], decoder[PL_VQ_BLOCKS_MAX];
    struct pl_vq_saved quant_conv, post_quant_conv, proj;
    struct pl_maps z, zq, difference; /* zq - z */
    struct pl_maps logits, soft;
    int32_t *code; /* backend memory */
};

struct pl_vqgan_task pl_vqgan_published_task(void)
{
    return (struct pl_vqgan_task){
        .l1 = 1, .quantizer = 1, .beta = 0.25f, .legacy = 1, .temperature = 0.9f
    };
}

static struct pl_maps take_like(struct step *s, const struct pl_maps *other, int channels)
{
    struct pl_maps m = *other;
    m.C = channels;
    m.at = pl_scratch_take(s->m->scratch, pl_maps_floats(&m));
    return m;
}

static void give(struct step *s, const struct pl_maps *m) { pl_scratch_give(s->m->scratch, m->at); }

static float *table(const struct step *s) { return pl_params_value(&s->m->params, s->m->table); }
static float *dtable(const struct step *s) { return pl_params_grad(&s->m->params, s->m->table); }

/* The table as a 1x1 convolution from embed_dim to n_embed channels. */
static struct pl_conv against_table(const struct step *s, const struct pl_maps *map)
{
    return (struct pl_conv){ .B = map->B,
                             .C = s->m->config.embed_dim,
                             .H = map->H,
                             .W = map->W,
                             .O = s->m->config.n_embed,
                             .K = 1,
                             .stride = 1 };
}

/* zq = e[token],  loss = (1 + beta) mean (zq - z)^2: both terms have the same value. */
static int nearest_forward(struct step *s, double *loss)
{
    const struct pl_vqgan_config *c = &s->m->config;
    size_t n = pl_maps_floats(&s->z);
    int P = s->z.H * s->z.W, rc;
    s->difference = take_like(s, &s->z, c->embed_dim);
    if (!s->difference.at) return PL_ENOMEM;
    rc = s->be->nearest_code(s->code, s->z.at, table(s), s->z.B, c->embed_dim, P, c->n_embed);
    if (!rc)
        rc = s->be->code_rows(s->zq.at, table(s), s->code, s->z.B, c->embed_dim, P, c->n_embed);
    if (!rc) rc = s->be->copy(s->difference.at, s->zq.at, n);
    if (!rc) rc = s->be->axpy(s->difference.at, -1, s->z.at, n);
    if (!rc) rc = s->be->sumsq(loss, s->difference.at, n);
    *loss *= (1 + (double)s->task->beta) / (double)n;
    return rc;
}

/* Straight through, and each term's own gradient over M values:
 *
 *   dz    = dzq + c_z 2 (z - e) / M
 *   de_k += c_e 2 (e_k - z) / M       for every place whose token is k */
static int nearest_backward(struct step *s, struct pl_maps *dz, const struct pl_maps *dzq)
{
    const struct pl_vqgan_config *c = &s->m->config;
    const struct pl_vqgan_task *t = s->task;
    size_t n = pl_maps_floats(dzq);
    float twice = (float)(2 * (double)t->quantizer / (double)n);
    float to_z = twice * (t->legacy ? 1 : t->beta), to_table = twice * (t->legacy ? t->beta : 1);
    int rc;
    *dz = take_like(s, dzq, c->embed_dim);
    if (!dz->at) return PL_ENOMEM;
    rc = s->be->copy(dz->at, dzq->at, n);
    if (!rc) rc = s->be->axpy(dz->at, -to_z, s->difference.at, n);
    if (!rc)
        rc = s->be->code_rows_backward(dtable(s), s->difference.at, to_table, s->code, dzq->B,
                                       c->embed_dim, dzq->H * dzq->W, c->n_embed);
    give(s, &s->difference);
    return rc;
}

/* l = proj(z): a logit for each token;  zq = sum_n y_n e_n (soft), or e[token]. */
static int gumbel_forward(struct step *s, double *loss, const float *noise)
{
    const struct pl_vqgan_config *c = &s->m->config;
    struct pl_conv against = against_table(s, &s->z);
    struct pl_maps added = { 0 };
    int B = s->z.B, P = s->z.H * s->z.W;
    int rc = pl_vq_forward(&s->m->proj, &s->m->params, s->m->scratch, &s->logits, &s->z, &s->proj);
    if (rc) return rc;
    s->soft = take_like(s, &s->z, c->n_embed);
    if (!s->soft.at) return PL_ENOMEM;
    if (noise) {
        added = take_like(s, &s->z, c->n_embed);
        if (!added.at) return PL_ENOMEM;
        rc = s->be->put(added.at, noise, pl_maps_floats(&added) * sizeof *noise);
    }
    if (!rc) rc = s->be->gumbel_code(s->code, s->logits.at, added.at, B, c->n_embed, P);
    if (!rc)
        rc = s->be->gumbel_soft(s->soft.at, s->logits.at, added.at, s->task->temperature, B,
                                c->n_embed, P);
    if (!rc) rc = s->be->kl_uniform(loss, s->logits.at, B, c->n_embed, P);
    *loss *= c->kl_weight;
    if (!rc && s->task->soft) rc = s->be->conv_dx(s->zq.at, s->soft.at, table(s), &against);
    else if (!rc)
        rc = s->be->code_rows(s->zq.at, table(s), s->code, B, c->embed_dim, P, c->n_embed);
    give(s, &added);
    return rc;
}

/* dy_n = dzq . e_n, also where the forward pass decoded the token (straight through); then through
 * the softmax to l, and through proj to z. */
static int gumbel_backward(struct step *s, struct pl_maps *dz, const struct pl_maps *dzq)
{
    const struct pl_vqgan_config *c = &s->m->config;
    struct pl_conv against = against_table(s, dzq);
    struct pl_maps at_soft = take_like(s, dzq, c->n_embed);
    int B = dzq->B, P = dzq->H * dzq->W, rc;
    if (!at_soft.at) return PL_ENOMEM;
    rc = s->be->conv(at_soft.at, dzq->at, table(s), NULL, &against);
    if (!rc)
        rc = s->be->gumbel_backward(at_soft.at, at_soft.at, s->soft.at, s->logits.at,
                                    s->task->temperature, c->kl_weight * s->task->quantizer, B,
                                    c->n_embed, P);
    if (!rc && s->task->soft) rc = s->be->conv_dw(dtable(s), NULL, s->soft.at, dzq->at, &against);
    else if (!rc)
        rc = s->be->code_rows_backward(dtable(s), dzq->at, 1, s->code, B, c->embed_dim, P,
                                       c->n_embed);
    if (!rc) rc = pl_vq_backward(&s->m->proj, &s->m->params, s->m->scratch, dz, &at_soft, &s->proj);
    give(s, &at_soft);
    give(s, &s->soft);
    give(s, &s->logits);
    return rc;
}

/* A list of blocks backwards: *grad, the gradient at its end, becomes the one at its beginning
 * (not computed for an encoder, whose input is a picture: `to_input` 0). */
static int run_back(struct step *s, const struct pl_vq_block *blocks, int count,
                    struct pl_vq_saved *saved, struct pl_maps *grad, int to_input)
{
    for (int i = count - 1; i >= 0; i--) {
        struct pl_maps before = { 0 };
        int wanted = i > 0 || to_input;
        int rc = pl_vq_backward(&blocks[i], &s->m->params, s->m->scratch, wanted ? &before : NULL,
                                grad, &saved[i]);
        if (rc) return rc;
        give(s, grad);
        if (i > 0) give(s, &saved[i].x);
        *grad = before;
    }
    return PL_OK;
}

/* x -> encoder -> z -> tokens -> zq -> decoder -> x', and back. */
static int forward_backward(struct step *s, struct pl_vqgan_loss *loss, float *y, int32_t *code,
                            const float *x, const float *noise, struct pl_maps in)
{
    struct pl_vqgan *m = s->m;
    const struct pl_vqgan_task *t = s->task;
    const struct pl_backend *be = s->be;
    struct pl_maps latent, decoded, grad, dz = { 0 };
    size_t n = pl_maps_floats(&in), places;
    double pixel[2];
    int rc;
    in.at = pl_scratch_take(m->scratch, n);
    if (!in.at) return PL_ENOMEM;
    rc = be->put(in.at, x, n * sizeof *x);
    if (!rc) rc = pl_vqgan_run(m, m->encoder, m->encoders, &latent, &in, s->encoder);
    if (!rc) rc = pl_vqgan_run(m, &m->quant_conv, 1, &s->z, &latent, &s->quant_conv);
    if (rc) return rc;

    places = (size_t)s->z.B * (size_t)s->z.H * (size_t)s->z.W;
    s->zq = t->no_codes ? s->z : take_like(s, &s->z, m->config.embed_dim);
    s->code = (int32_t *)pl_scratch_take(m->scratch, places);
    if (!s->zq.at || !s->code) return PL_ENOMEM;
    loss->quantizer = 0;
    if (!t->no_codes)
        rc = m->config.gumbel ? gumbel_forward(s, &loss->quantizer, noise)
                              : nearest_forward(s, &loss->quantizer);
    if (!rc && code && !t->no_codes) rc = be->get(code, s->code, places * sizeof *code);
    if (!rc) rc = pl_vqgan_run(m, &m->post_quant_conv, 1, &latent, &s->zq, &s->post_quant_conv);
    if (!rc) rc = pl_vqgan_run(m, m->decoder, m->decoders, &decoded, &latent, s->decoder);
    if (!rc && y) rc = be->get(y, decoded.at, n * sizeof *y);
    if (!rc) rc = be->pixel_loss(pixel, decoded.at, decoded.at, in.at, t->l1, t->l2, n);
    if (rc) return rc;
    loss->l1 = pixel[0];
    loss->l2 = pixel[1];
    loss->total = (double)t->l1 * pixel[0] + (double)t->l2 * pixel[1] +
                  (double)t->quantizer * loss->quantizer;

    grad = decoded;
    rc = run_back(s, m->decoder, m->decoders, s->decoder, &grad, 1);
    if (!rc) rc = run_back(s, &m->post_quant_conv, 1, &s->post_quant_conv, &grad, 1);
    if (rc) return rc;
    if (t->no_codes) dz = grad;
    else rc = m->config.gumbel ? gumbel_backward(s, &dz, &grad) : nearest_backward(s, &dz, &grad);
    if (!rc) rc = run_back(s, &m->quant_conv, 1, &s->quant_conv, &dz, 1);
    if (!rc) rc = run_back(s, m->encoder, m->encoders, s->encoder, &dz, 0);
    return rc;
}

int pl_vqgan_gradient(struct pl_vqgan *m, struct pl_vqgan_loss *loss, float *y, int32_t *code,
                      const struct pl_vqgan_task *task, const float *x, const float *noise, int B,
                      int H, int W)
{
    struct step *s = calloc(1, sizeof *s);
    struct pl_maps in = { .B = B, .C = 3, .H = H, .W = W };
    int rc;
    assert(m->params.grad && B >= 1 && H % pl_vqgan_factor(&m->config) == 0 &&
           W % pl_vqgan_factor(&m->config) == 0);
    if (!s) return PL_ENOMEM;
    s->m = m;
    s->be = m->params.be;
    s->task = task;
    pl_scratch_give_all(m->scratch);
    rc = forward_backward(s, loss, y, code, x, noise, in);
    pl_scratch_give_all(m->scratch);
    free(s);
    return rc;
}
