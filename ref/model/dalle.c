/* dalle.c - a caption and its picture are one sequence of tokens, and a transformer predicts each
 * from those before it. [TTT 3.1] [DALL-E 2.2]
 *
 *   ids     start, text_1 .. text_T, image_1 .. image_I-1        S = T + I positions
 *   x       = E[ids]                                             a row of the embedding each
 *   y       = blocks(x)                                          reversible.c
 *   logits  = LayerNorm(y) E^T + bias                            the same E: tied [TTT 3.1]
 *   label   of a position is the next id: text_1 .. text_T, image_1 .. image_I
 *   loss    = (cross-entropy of text + w cross-entropy of image) / (1 + w);  the reference run has
 *             w = 7
 *
 * A position predicts only what can stand there: text positions choose among text ids, image
 * positions among image tokens. */
#include "dalle.h"

#include <math.h>

static size_t floats(int rows, int columns) { return (size_t)rows * (size_t)columns; }

/* --- parameters ------------------------------------------------------------------------------- */

static int declare(struct pl_dalle *m, size_t *index, const char *name, int dims,
                   const int64_t *shape, int decay)
{
    *index = m->params.count;
    return pl_params_add(&m->params, name, dims, shape, decay);
}

int pl_dalle_declare(struct pl_dalle *m)
{
    const struct pl_dalle_config *c = &m->config;
    int64_t D[1] = { c->D }, all[2] = { pl_dalle_rows(c), c->D };
    int64_t text[2] = { pl_dalle_text_rows(c), c->D }, image[2] = { c->Vi, c->D };
    int rc = pl_blocks_declare(&m->stack.blocks, c, &m->params, "model.transformer.");
    if (rc || (rc = declare(m, &m->norm_weight, "model.to_logits.0.weight", 1, D, 1)) ||
        (rc = declare(m, &m->norm_bias, "model.to_logits.0.bias", 1, D, 0)) ||
        (rc = declare(m, &m->embedding, "model.to_logits.1.weight", 2, all, 1)) ||
        (rc = declare(m, &m->output_bias, "model.to_logits.1.bias", 1, all, 0)))
        return rc;
    if (!c->separate_embedding) return PL_OK;
    rc = declare(m, &m->text_embedding, "model.text_emb.weight", 2, text, 1);
    return rc ? rc : declare(m, &m->image_embedding, "model.image_emb.weight", 2, image, 1);
}

/* As PyTorch: uniform in +-1/sqrt(D) for linear layers, also where the output layer embeds;
 * standard normal for embeddings of their own; norms begin as the identity. [spec dalle 10] */
int pl_dalle_init(struct pl_dalle *m, uint64_t seed)
{
    float bound = 1 / sqrtf((float)m->config.D);
    struct pl_rng rng;
    int rc;
    pl_rng_init(&rng, seed, 0);
    if ((rc = pl_blocks_init(&m->stack.blocks, &rng)) ||
        (rc = pl_params_constant(&m->params, m->norm_weight, 1)) ||
        (rc = pl_params_constant(&m->params, m->norm_bias, 0)) ||
        (rc = pl_params_uniform(&m->params, m->embedding, bound, &rng)) ||
        (rc = pl_params_uniform(&m->params, m->output_bias, bound, &rng)))
        return rc;
    if (!m->config.separate_embedding) return PL_OK;
    rc = pl_params_normal(&m->params, m->text_embedding, 1, &rng);
    return rc ? rc : pl_params_normal(&m->params, m->image_embedding, 1, &rng);
}

/* --- tokens ----------------------------------------------------------------------------------- */

/* Padding differs by position: a text id of 0 becomes V + position. [spec dalle 2] */
static int32_t text_id(const struct pl_dalle_config *c, int32_t id, int position)
{
    return id ? id : c->V + position;
}

/* start, text_1 .. text_T, image_1 .. image_I-1. Image tokens follow the text ids, unless they have
 * an embedding of their own. */
void pl_dalle_ids(const struct pl_dalle_config *c, int32_t *ids, const int32_t *text,
                  const int32_t *image, int count)
{
    int I = c->F * c->F, used = count < I ? count : I - 1; /* the last token is only a label */
    int first = c->separate_embedding ? 0 : pl_dalle_text_rows(c);
    *ids++ = 0; /* the start token */
    for (int j = 0; j < c->T; j++) *ids++ = text_id(c, text[j], j);
    for (int i = 0; i < used; i++) *ids++ = first + image[i];
}

/* text_1 .. text_T, image_1 .. image_I: the target of each position */
void pl_dalle_labels(const struct pl_dalle_config *c, int32_t *labels, const int32_t *text,
                     const int32_t *image)
{
    for (int j = 0; j < c->T; j++) labels[j] = text_id(c, text[j], j);
    for (int i = 0; i < c->F * c->F; i++) labels[c->T + i] = pl_dalle_text_rows(c) + image[i];
}

/* --- embedding -------------------------------------------------------------------------------- */

/* Where the rows of image tokens begin, in the flat buffers of values and gradients. */
static size_t image_rows(const struct pl_dalle *m)
{
    const struct pl_param *p = m->params.list;
    return m->config.separate_embedding
               ? p[m->image_embedding].offset
               : p[m->embedding].offset + floats(pl_dalle_text_rows(&m->config), m->config.D);
}

int pl_dalle_embed_image(const struct pl_dalle *m, float *x, const int32_t *image, int M)
{
    return m->be->embed(x, m->params.value + image_rows(m), image, M, m->config.D, m->config.Vi);
}

/* x_bt = E[ids_bt] */
int pl_dalle_embed(const struct pl_dalle *m, float *x, const int32_t *ids, int B, int n)
{
    const struct pl_dalle_config *c = &m->config;
    int P = c->T + 1, D = c->D, rc = PL_OK;
    if (!c->separate_embedding)
        return m->be->embed(x, pl_params_value(&m->params, m->embedding), ids, B * n, D,
                            pl_dalle_rows(c));
    for (int b = 0; b < B && rc == PL_OK; b++, x += floats(n, D), ids += n) {
        rc = m->be->embed(x, pl_params_value(&m->params, m->text_embedding), ids, P, D,
                          pl_dalle_text_rows(c));
        if (rc == PL_OK && n > P) rc = pl_dalle_embed_image(m, x + floats(P, D), ids + P, n - P);
    }
    return rc;
}

/* dE[ids_bt] += dx_bt */
static int embed_backward(struct pl_dalle *m, const float *dx, const int32_t *ids, int B)
{
    const struct pl_dalle_config *c = &m->config;
    int P = c->T + 1, S = pl_dalle_positions(c), D = c->D, rc = PL_OK;
    if (!c->separate_embedding)
        return m->be->embed_backward(pl_params_grad(&m->params, m->embedding), dx, ids, B * S, D,
                                     pl_dalle_rows(c));
    for (int b = 0; b < B && rc == PL_OK; b++, dx += floats(S, D), ids += S) {
        rc = m->be->embed_backward(pl_params_grad(&m->params, m->text_embedding), dx, ids, P, D,
                                   pl_dalle_text_rows(c));
        if (rc == PL_OK && S > P)
            rc = m->be->embed_backward(m->params.grad + image_rows(m), dx + floats(P, D), ids + P,
                                       S - P, D, c->Vi);
    }
    return rc;
}

/* --- the whole model -------------------------------------------------------------------------- */

/* x = E[ids],  y = blocks(x) */
int pl_dalle_forward(struct pl_dalle *m, const int32_t *ids, int B, int n, int save)
{
    int rc = pl_dalle_embed(m, pl_stack_input(&m->stack), ids, B, n);
    return rc ? rc : pl_stack_forward(&m->stack, B, n, save);
}

/* dx through the blocks,  dE[ids] += dx: the second part of the tied matrix's gradient */
int pl_dalle_backward(struct pl_dalle *m, const int32_t *ids, int B)
{
    int rc = pl_stack_backward(&m->stack, B, pl_dalle_positions(&m->config));
    return rc ? rc : embed_backward(m, m->stack.da, ids, B);
}

/* h = LayerNorm(y) */
int pl_dalle_final_norm(const struct pl_dalle *m, float *h, const float *y, int M)
{
    return m->be->layer_norm(h, y, pl_params_value(&m->params, m->norm_weight),
                             pl_params_value(&m->params, m->norm_bias), M, m->config.D,
                             PL_NORM_EPS);
}

/* logits = h E^T + bias, the loss, and its gradient down to y. */
int pl_dalle_output_loss(struct pl_dalle *m, double mean[2], float *logp, const int32_t *labels,
                         int B, double scale, int backward)
{
    const struct pl_dalle_config *c = &m->config;
    const struct pl_params *p = &m->params;
    int S = pl_dalle_positions(c), Vx = pl_dalle_text_rows(c), Vt = pl_dalle_rows(c), rc;
    double w = c->image_weight;
    /* Positions 0..T-1 predict text ids and count 1 / (1 + w) together; positions T..S-1 predict
     * image tokens and count w / (1 + w). [spec dalle 8] */
    const struct pl_loss_segment segment[2] = {
        { 0, c->T, 0, Vx, (float)(scale * (1 / (1 + w))) },
        { c->T, S, Vx, Vt, (float)(scale * (w / (1 + w))) },
    };
    float *y = pl_stack_output(&m->stack), *h = pl_stack_spare(&m->stack);
    float *dy = backward ? m->stack.da : NULL;
    float *dE = backward ? pl_params_grad(p, m->embedding) : NULL;
    float *dbias = backward ? pl_params_grad(p, m->output_bias) : NULL;
    /* One operation from h to the loss and its gradients, because logits (B,S,Vt) would be the
     * largest buffer of all. */
    if ((rc = pl_dalle_final_norm(m, h, y, B * S)) ||
        (rc = m->be->loss(mean, logp, dy, dE, dbias, h, pl_params_value(p, m->embedding),
                          pl_params_value(p, m->output_bias), labels, segment, 2, B, S, c->D, Vt)))
        return rc;
    if (!backward) return PL_OK;
    /* dy through the norm, in place */
    return m->be->layer_norm_backward(dy, pl_params_grad(p, m->norm_weight),
                                      pl_params_grad(p, m->norm_bias), dy, y,
                                      pl_params_value(p, m->norm_weight), B * S, c->D, PL_NORM_EPS,
                                      0);
}

/* For sampling: logits of image tokens alone, the last Vi rows of E. */
int pl_dalle_image_logits(const struct pl_dalle *m, float *logits, float *h, const float *y, int M)
{
    int rc = pl_dalle_final_norm(m, h, y, M), Vx = pl_dalle_text_rows(&m->config);
    const float *E = pl_params_value(&m->params, m->embedding) + floats(Vx, m->config.D);
    const float *bias = pl_params_value(&m->params, m->output_bias) + Vx;
    return rc ? rc : m->be->linear(logits, h, E, bias, M, m->config.D, m->config.Vi);
}
