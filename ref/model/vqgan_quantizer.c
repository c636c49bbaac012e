/* vqgan_quantizer.c - the two quantizers in training, forward and backward. A token is an
 * argmax, which has no gradient: each quantizer goes around it in its own way.
 * [VQ-VAE, eq. 3] [Jang et al. 2017] [spec images-and-text 1.6, 1.7]
 *
 *   nearest   zq = e[token]
 *             loss = |sg(z) - e|^2 + beta |z - sg(e)|^2      sg stops the gradient
 *             dz takes over dzq as it is (straight through)
 *   Gumbel    zq = e[token], or sum_n y_n e_n with y = softmax((l + noise) / temperature)
 *             loss = kl_weight KL(q || uniform), so that no code is forgotten
 *             dl goes through y, whichever was decoded
 *
 * z, zq are (B,embed_dim,H,W); l, y (B,n_embed,H,W). Products with the codebook are 1x1
 * convolutions, its rows being their weights. */
#include "vqgan_train_internal.h"

struct pl_maps vq_take_like(struct vq_step *s, const struct pl_maps *other, int channels)
{
    struct pl_maps m = *other;
    m.C = channels;
    m.at = pl_scratch_take(s->m->scratch, pl_maps_floats(&m));
    return m;
}

void vq_give_maps(struct vq_step *s, const struct pl_maps *m)
{
    pl_scratch_give(s->m->scratch, m->at);
}

static float *table(const struct vq_step *s) { return pl_params_value(&s->m->params, s->m->table); }
static float *dtable(const struct vq_step *s) { return pl_params_grad(&s->m->params, s->m->table); }

/* The table as a 1x1 convolution from embed_dim to n_embed channels. */
static struct pl_conv against_table(const struct vq_step *s, const struct pl_maps *map)
{
    return (struct pl_conv){ .B = map->B,
                             .C = s->m->config.embed_dim,
                             .H = map->H,
                             .W = map->W,
                             .O = s->m->config.n_embed,
                             .K = 1,
                             .stride = 1 };
}

/* Both terms of the loss have the same value; only their gradients go to different places. */
int vq_nearest_forward(struct vq_step *s, double *loss)
{
    const struct pl_vqgan_config *c = &s->m->config;
    size_t n = pl_maps_floats(&s->z);
    int P = s->z.H * s->z.W, rc;
    s->difference = vq_take_like(s, &s->z, c->embed_dim);
    if (!s->difference.at) return PL_ENOMEM;
    /* token = argmin_n |z - e_n|^2,  zq = e[token] */
    rc = s->be->nearest_code(s->code, s->z.at, table(s), s->z.B, c->embed_dim, P, c->n_embed);
    if (!rc)
        rc = s->be->code_rows(s->zq.at, table(s), s->code, s->z.B, c->embed_dim, P, c->n_embed);
    /* loss = (1 + beta) mean (zq - z)^2 */
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
int vq_nearest_backward(struct vq_step *s, struct pl_maps *dz, const struct pl_maps *dzq)
{
    const struct pl_vqgan_config *c = &s->m->config;
    const struct pl_vqgan_task *t = s->task;
    size_t n = pl_maps_floats(dzq);
    float twice = (float)(2 * (double)t->quantizer / (double)n);
    float to_z = twice * (t->legacy ? 1 : t->beta), to_table = twice * (t->legacy ? t->beta : 1);
    int rc;
    *dz = vq_take_like(s, dzq, c->embed_dim);
    if (!dz->at) return PL_ENOMEM;
    rc = s->be->copy(dz->at, dzq->at, n);                          /* straight through */
    if (!rc) rc = s->be->axpy(dz->at, -to_z, s->difference.at, n); /* z moves to its code */
    /* and the code to the places that chose it */
    if (!rc)
        rc = s->be->code_rows_backward(dtable(s), s->difference.at, to_table, s->code, dzq->B,
                                       c->embed_dim, dzq->H * dzq->W, c->n_embed);
    vq_give_maps(s, &s->difference);
    return rc;
}

/* l = proj(z): a logit for each token;  zq = sum_n y_n e_n (soft), or e[token]. */
int vq_gumbel_forward(struct vq_step *s, double *loss, const float *noise)
{
    const struct pl_vqgan_config *c = &s->m->config;
    struct pl_conv against = against_table(s, &s->z);
    struct pl_maps added = { 0 };
    int B = s->z.B, P = s->z.H * s->z.W;
    int rc = pl_vq_forward(&s->m->proj, &s->m->params, s->m->scratch, &s->logits, &s->z, &s->proj);
    if (rc) return rc;
    s->soft = vq_take_like(s, &s->z, c->n_embed);
    if (!s->soft.at) return PL_ENOMEM;
    /* token = argmax (l + noise): a sample of softmax(l) where the noise is Gumbel's */
    if (noise) {
        added = vq_take_like(s, &s->z, c->n_embed);
        if (!added.at) return PL_ENOMEM;
        rc = s->be->put(added.at, noise, pl_maps_floats(&added) * sizeof *noise);
    }
    if (!rc) rc = s->be->gumbel_code(s->code, s->logits.at, added.at, B, c->n_embed, P);
    /* y, and the KL term of l without noise */
    if (!rc)
        rc = s->be->gumbel_soft(s->soft.at, s->logits.at, added.at, s->task->temperature, B,
                                c->n_embed, P);
    if (!rc) rc = s->be->kl_uniform(loss, s->logits.at, B, c->n_embed, P);
    *loss *= c->kl_weight;
    /* zq = sum_n y_n e_n: rows of the codebook, transposed; or the token's row */
    if (!rc && s->task->soft) rc = s->be->conv_dx(s->zq.at, s->soft.at, table(s), &against);
    else if (!rc)
        rc = s->be->code_rows(s->zq.at, table(s), s->code, B, c->embed_dim, P, c->n_embed);
    vq_give_maps(s, &added);
    return rc;
}

/* dy_n = dzq . e_n, also where the forward pass decoded the token (straight through); then through
 * the softmax to l, and through proj to z. */
int vq_gumbel_backward(struct vq_step *s, struct pl_maps *dz, const struct pl_maps *dzq)
{
    const struct pl_vqgan_config *c = &s->m->config;
    struct pl_conv against = against_table(s, dzq);
    struct pl_maps at_soft = vq_take_like(s, dzq, c->n_embed);
    int B = dzq->B, P = dzq->H * dzq->W, rc;
    if (!at_soft.at) return PL_ENOMEM;
    /* dy_n = dzq . e_n */
    rc = s->be->conv(at_soft.at, dzq->at, table(s), NULL, &against);
    /* dl, of both the softmax and the KL term */
    if (!rc)
        rc = s->be->gumbel_backward(at_soft.at, at_soft.at, s->soft.at, s->logits.at,
                                    s->task->temperature, c->kl_weight * s->task->quantizer, B,
                                    c->n_embed, P);
    /* de_n += y_n dzq, or dzq for the token alone */
    if (!rc && s->task->soft) rc = s->be->conv_dw(dtable(s), NULL, s->soft.at, dzq->at, &against);
    else if (!rc)
        rc = s->be->code_rows_backward(dtable(s), dzq->at, 1, s->code, B, c->embed_dim, P,
                                       c->n_embed);
    /* dz, through l = proj(z) */
    if (!rc) rc = pl_vq_backward(&s->m->proj, &s->m->params, s->m->scratch, dz, &at_soft, &s->proj);
    vq_give_maps(s, &at_soft);
    vq_give_maps(s, &s->soft);
    vq_give_maps(s, &s->logits);
    return rc;
}
