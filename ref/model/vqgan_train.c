/* vqgan_train.c - a new VQGAN's parameters, and gradients. [VQGAN, eq. 4] [VQ-VAE, eq. 3]
 * [spec images-and-text 1.7]
 *
 *   z -> tokens -> zq as in vqgan_quantizer.c,  x' = decoder(post_quant_conv(zq))
 *   loss = l1 mean|x' - x| + l2 mean(x' - x)^2 + quantizer loss
 *
 * The published models add a perceptual and an adversarial term, which make pictures sharper; the
 * tokens need neither. */
#include "vqgan_train_internal.h"

#include <assert.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* A uniform variable within +-b has the variance b^2 / 3; with b = 1/sqrt(fan-in) a layer's output
 * has a third of its input's mean square. PyTorch's defaults: uniform within 1/sqrt(fan-in) for
 * convolutions and their biases, 1 and 0 for norms, within 1/N for the N rows of the codebook. */
int pl_vqgan_reset(struct pl_vqgan *m, uint64_t seed)
{
    struct pl_params *p = &m->params;
    struct pl_rng rng;
    int rc = PL_OK;
    float bound = 0;
    pl_rng_init(&rng, seed, 0);
    for (size_t i = 0; !rc && i < p->count; i++) {
        const struct pl_param *t = &p->list[i];
        int is_bias = t->dims == 1 && strstr(t->name, ".bias") != NULL;
        if (strstr(t->name, "norm")) {
            rc = pl_params_constant(p, i, is_bias ? 0 : 1);
        } else if (i == m->table) {
            rc = pl_params_uniform(p, i, 1 / (float)m->config.n_embed, &rng);
        } else {
            /* 1/sqrt(fan-in), fan-in = in K K; a bias follows its weight and has the same bound */
            if (!is_bias) bound = 1 / sqrtf((float)t->n / (float)t->shape[0]);
            rc = pl_params_uniform(p, i, bound, &rng);
        }
    }
    return rc;
}

/* The weights of taming-transformers' published configurations; `legacy` is its name for beta on
 * the codebook's term instead of the encoder's. */
struct pl_vqgan_task pl_vqgan_published_task(void)
{
    return (struct pl_vqgan_task){
        .l1 = 1, .quantizer = 1, .beta = 0.25f, .legacy = 1, .temperature = 0.9f
    };
}

/* A list of blocks backwards: *grad, the gradient at its end, becomes the one at its beginning
 * (not computed for an encoder, whose input is a picture: `to_input` 0). */
static int run_back(struct vq_step *s, const struct pl_vq_block *blocks, int count,
                    struct pl_vq_saved *saved, struct pl_maps *grad, int to_input)
{
    for (int i = count - 1; i >= 0; i--) {
        struct pl_maps before = { 0 };
        int wanted = i > 0 || to_input;
        int rc = pl_vq_backward(&blocks[i], &s->m->params, s->m->scratch, wanted ? &before : NULL,
                                grad, &saved[i]);
        if (rc) return rc;
        /* dy and, but for the first block, its input x have no more readers */
        vq_give_maps(s, grad);
        if (i > 0) vq_give_maps(s, &saved[i].x);
        *grad = before;
    }
    return PL_OK;
}

/* x -> encoder -> z -> tokens -> zq -> decoder -> x', and back. */
static int forward_backward(struct vq_step *s, struct pl_vqgan_loss *loss, float *y, int32_t *code,
                            const float *x, const float *noise, struct pl_maps in)
{
    struct pl_vqgan *m = s->m;
    const struct pl_vqgan_task *t = s->task;
    const struct pl_backend *be = s->be;
    struct pl_maps latent, decoded, grad, dz = { 0 };
    size_t n = pl_maps_floats(&in), places;
    double pixel[2];
    int rc;
    /* forward: z = quant_conv(encoder(x)) */
    in.at = pl_scratch_take(m->scratch, n);
    if (!in.at) return PL_ENOMEM;
    rc = be->put(in.at, x, n * sizeof *x);
    if (!rc) rc = pl_vqgan_run(m, m->encoder, m->encoders, &latent, &in, s->encoder);
    if (!rc) rc = pl_vqgan_run(m, &m->quant_conv, 1, &s->z, &latent, &s->quant_conv);
    if (rc) return rc;

    /* tokens and zq; before there is a codebook the decoder sees z itself */
    places = (size_t)s->z.B * (size_t)s->z.H * (size_t)s->z.W;
    s->zq = t->no_codes ? s->z : vq_take_like(s, &s->z, m->config.embed_dim);
    s->code = (int32_t *)pl_scratch_take(m->scratch, places);
    if (!s->zq.at || !s->code) return PL_ENOMEM;
    loss->quantizer = 0;
    if (!t->no_codes)
        rc = m->config.gumbel ? vq_gumbel_forward(s, &loss->quantizer, noise)
                              : vq_nearest_forward(s, &loss->quantizer);
    if (!rc && code && !t->no_codes) rc = be->get(code, s->code, places * sizeof *code);
    /* x' and the losses; the gradient at x' replaces x' */
    if (!rc) rc = pl_vqgan_run(m, &m->post_quant_conv, 1, &latent, &s->zq, &s->post_quant_conv);
    if (!rc) rc = pl_vqgan_run(m, m->decoder, m->decoders, &decoded, &latent, s->decoder);
    if (!rc && y) rc = be->get(y, decoded.at, n * sizeof *y);
    if (!rc) rc = be->pixel_loss(pixel, decoded.at, decoded.at, in.at, t->l1, t->l2, n);
    if (rc) return rc;
    /* loss = l1 mean|x' - x| + l2 mean(x' - x)^2 + quantizer loss */
    loss->l1 = pixel[0];
    loss->l2 = pixel[1];
    loss->total = (double)t->l1 * pixel[0] + (double)t->l2 * pixel[1] +
                  (double)t->quantizer * loss->quantizer;

    /* backward, in reverse order */
    grad = decoded;
    rc = run_back(s, m->decoder, m->decoders, s->decoder, &grad, 1);
    if (!rc) rc = run_back(s, &m->post_quant_conv, 1, &s->post_quant_conv, &grad, 1);
    if (rc) return rc;
    /* across the tokens, dzq to dz. Nearest: straight through, dz = dzq plus the commitment term,
     * since argmin has no gradient. Gumbel: through the softmax y. */
    if (t->no_codes) dz = grad;
    else
        rc = m->config.gumbel ? vq_gumbel_backward(s, &dz, &grad)
                              : vq_nearest_backward(s, &dz, &grad);
    if (!rc) rc = run_back(s, &m->quant_conv, 1, &s->quant_conv, &dz, 1);
    if (!rc) rc = run_back(s, m->encoder, m->encoders, s->encoder, &dz, 0);
    return rc;
}

int pl_vqgan_gradient(struct pl_vqgan *m, struct pl_vqgan_loss *loss, float *y, int32_t *code,
                      const struct pl_vqgan_task *task, const float *x, const float *noise, int B,
                      int H, int W)
{
    struct vq_step *s = calloc(1, sizeof *s);
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
