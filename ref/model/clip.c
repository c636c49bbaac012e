/* clip.c - CLIP: two transformers, one for pictures and one for captions. Their vectors point the
 * same way if picture and caption belong together. The reference run drew 128 pictures for a
 * caption and showed the four with the largest logits. [CLIP, fig. 3] [TTT 3.4]
 * [spec images-and-text 2.1, 2.4]
 *
 *   picture:  x = LN_pre((class, patches W) + position)          (B,1+49,768): 7 x 7 patches
 *             vector = LN_post(blocks(x)[0]) proj                at the class token, (B,512)
 *   caption:  x = E[token] + position                            (B,77,512)
 *             vector = LN_final(causal blocks(x)[end]) proj      at the end token, (B,512)
 *   logit   = exp(scale) cos(picture, caption) */
#include "clip.h"

#include <math.h>
#include <string.h>

static float *value(const struct pl_clip_model *m, size_t index)
{
    return pl_params_value(&m->params, index);
}

static void show(const struct pl_clip_model *m, const char *name, const float *at, size_t n)
{
    if (m->watch) m->watch(m->context, name, at, n);
}

/* x (B,1+places,V) = (class, patches W) + position. W is a convolution whose stride is its size, so
 * patches don't overlap. */
static int patches(struct pl_clip_model *m, float *x, const float *pixels, int B)
{
    const struct pl_backend *be = m->params.be;
    const struct pl_clip_config *c = &m->config;
    int grid = c->image / c->patch, V = c->vision_width, places = grid * grid, rc = PL_OK;
    struct pl_conv conv = {
        .B = B, .C = 3, .H = c->image, .W = c->image, .O = V, .K = c->patch, .stride = c->patch
    };
    size_t row = (size_t)(1 + places) * (size_t)V, map = (size_t)places * (size_t)V;
    float *maps = pl_scratch_take(m->scratch, (size_t)B * map);
    if (!maps) return PL_ENOMEM;
    /* a column of maps for each patch, then a row */
    rc = be->conv(maps, pixels, value(m, m->conv), NULL, &conv);
    if (!rc) show(m, "visual.conv1", maps, (size_t)B * map);
    for (int b = 0; b < B && !rc; b++) {
        float *at = x + (size_t)b * row;
        /* row 0 the class token, rows 1 to 49 the patches; position is added to all */
        rc = be->copy(at, value(m, m->class_embedding), (size_t)V);
        if (!rc) rc = be->transpose(at + V, V, maps + (size_t)b * map, places, 1, V, places);
        if (!rc) rc = be->axpy(at, 1, value(m, m->vision_position), row);
    }
    pl_scratch_give(m->scratch, maps);
    return rc;
}

/* vectors (B,embed), in host memory, = h proj with h (B,D) and proj [D,embed]. linear_dx multiplies
 * by a matrix that is not transposed, as the checkpoint's proj requires. */
static int project(struct pl_clip_model *m, float *vectors, const float *h, size_t proj, int B,
                   int D)
{
    const struct pl_backend *be = m->params.be;
    size_t n = (size_t)B * (size_t)m->config.embed;
    float *y = pl_scratch_take(m->scratch, n);
    int rc = y ? be->linear_dx(y, h, value(m, proj), B, m->config.embed, D, 0) : PL_ENOMEM;
    if (!rc) rc = be->get(vectors, y, n * sizeof *y);
    pl_scratch_give(m->scratch, y);
    return rc;
}

int pl_clip_images(struct pl_clip_model *m, float *vectors, const float *pixels, int B)
{
    const struct pl_backend *be = m->params.be;
    const struct pl_clip_config *c = &m->config;
    int grid = c->image / c->patch, n = 1 + grid * grid, V = c->vision_width, rc;
    size_t floats = (size_t)B * (size_t)n * (size_t)V;
    size_t in = (size_t)B * 3 * (size_t)c->image * (size_t)c->image;
    float *x = pl_scratch_take(m->scratch, floats), *p = pl_scratch_take(m->scratch, in);
    float *h = pl_scratch_take(m->scratch, (size_t)B * (size_t)V);
    rc = x && p && h ? be->put(p, pixels, in * sizeof *p) : PL_ENOMEM;
    if (!rc) rc = patches(m, x, p, B);
    /* x = blocks(LN_pre(x)): every patch sees every other */
    if (!rc)
        rc = be->layer_norm(x, x, value(m, m->pre_weight), value(m, m->pre_bias), B * n, V,
                            PL_PRENORM_EPS);
    if (!rc) show(m, "visual.ln_pre", x, floats);
    if (!rc) rc = pl_prenorm_forward(&m->vision, x, NULL, B, n, NULL);
    for (int b = 0; b < B && !rc; b++) /* the class token summarizes the picture */
        rc = be->copy(h + (size_t)b * (size_t)V, x + (size_t)b * (size_t)n * (size_t)V, (size_t)V);
    /* vector = LN_post(h) proj */
    if (!rc)
        rc = be->layer_norm(h, h, value(m, m->post_weight), value(m, m->post_bias), B, V,
                            PL_PRENORM_EPS);
    if (!rc) show(m, "visual.ln_post", h, (size_t)B * (size_t)V);
    if (!rc) rc = project(m, vectors, h, m->vision_proj, B, V);
    pl_scratch_give_all(m->scratch);
    return rc;
}

/* The end token has the largest id of all; zeros may follow it. */
static int end_of(const int32_t *tokens, int n)
{
    int end = 0;
    for (int i = 1; i < n; i++)
        if (tokens[i] > tokens[end]) end = i;
    return end;
}

int pl_clip_texts(struct pl_clip_model *m, float *vectors, const int32_t *tokens, int B)
{
    const struct pl_backend *be = m->params.be;
    const struct pl_clip_config *c = &m->config;
    int n = 1, T = c->text_width, rc;
    /* n: the longest caption of the batch. Most are far shorter than the context of 77. */
    for (int b = 0; b < B; b++) {
        int end = end_of(tokens + (size_t)b * (size_t)c->context, c->context);
        if (end + 1 > n) n = end + 1;
    }
    if (m->watch)
        n = c->context; /* otherwise positions after the last end token are not computed */
    size_t row = (size_t)n * (size_t)T, ids = (size_t)B * (size_t)n;
    float *x = pl_scratch_take(m->scratch, (size_t)B * row),
          *h = pl_scratch_take(m->scratch, (size_t)B * (size_t)T);
    int32_t *at = (int32_t *)(void *)pl_scratch_take(m->scratch, ids),
            *host = pl_alloc(ids, sizeof *host);
    rc = x && h && at && host ? PL_OK : PL_ENOMEM;
    for (int b = 0; b < B && !rc; b++)
        /* captions are cut behind the longest one's end token: a causal block never looks
         * further */
        memcpy(host + (size_t)b * (size_t)n, tokens + (size_t)b * (size_t)c->context,
               (size_t)n * sizeof *host);
    if (!rc) rc = be->put(at, host, ids * sizeof *host);
    /* x = E[token] + position */
    if (!rc) rc = be->embed(x, value(m, m->tokens), at, (int)ids, T, c->vocab);
    if (!rc) show(m, "text.token_embedding", x, (size_t)B * row);
    for (int b = 0; b < B && !rc; b++)
        rc = be->axpy(x + (size_t)b * row, 1, value(m, m->text_position), row);
    /* h = LN_final(blocks(x)) at the end token, the one that has seen the whole caption */
    if (!rc) rc = pl_prenorm_forward(&m->text, x, NULL, B, n, NULL);
    if (!rc)
        rc = be->layer_norm(x, x, value(m, m->final_weight), value(m, m->final_bias), (int)ids, T,
                            PL_PRENORM_EPS);
    if (!rc) show(m, "text.ln_final", x, (size_t)B * row);
    for (int b = 0; b < B && !rc; b++) {
        int end = end_of(tokens + (size_t)b * (size_t)c->context, c->context);
        rc = be->copy(h + (size_t)b * (size_t)T, x + (size_t)b * row + (size_t)end * (size_t)T,
                      (size_t)T);
    }
    /* vector = h proj */
    if (!rc) rc = project(m, vectors, h, m->text_proj, B, T);
    pl_free(host);
    pl_scratch_give_all(m->scratch);
    return rc;
}

/* Bytes (H,W,3) to planes (3,H,W) with mean 0 and deviation 1 over CLIP's training pictures: the
 * constants are those of its preprocessing. [spec images-and-text 2.2] */
void pl_clip_pixels(float *pixels, const uint8_t *rgb, int image)
{
    static const float mean[3] = { 0.48145466f, 0.4578275f, 0.40821073f };
    static const float spread[3] = { 0.26862954f, 0.26130258f, 0.27577711f };
    size_t n = (size_t)image * (size_t)image;
    for (size_t c = 0; c < 3; c++)
        for (size_t i = 0; i < n; i++)
            pixels[c * n + i] = (rgb[3 * i + c] / 255.0f - mean[c]) / spread[c];
}

/* a . b */
static double dot(const float *a, const float *b, int n)
{
    double sum = 0;
    for (int i = 0; i < n; i++) sum += (double)a[i] * b[i];
    return sum;
}

/* logit = exp(scale) a . b / (|a| |b|) */
int pl_clip_logits(struct pl_clip_model *m, float *logits, const float *text, int texts,
                   const float *image, int images)
{
    int E = m->config.embed, rc;
    float scale;
    if ((rc = pl_params_get(&m->params, m->scale, &scale))) return rc;
    for (int t = 0; t < texts; t++)
        for (int i = 0; i < images; i++) {
            const float *a = text + (size_t)t * (size_t)E, *b = image + (size_t)i * (size_t)E;
            /* the length of a vector says nothing, its direction all: cos in -1..1, times up to
             * 100 */
            double length = sqrt(dot(a, a, E) * dot(b, b, E));
            logits[(size_t)t * (size_t)images + (size_t)i] = (float)(exp(scale) * dot(a, b, E) /
                                                                     length);
        }
    return PL_OK;
}

/* Best first; prob = softmax over the pictures of one caption. */
void pl_clip_rank(int32_t *order, float *prob, const float *logits, int n)
{
    double most = -INFINITY, sum = 0;
    for (int i = 0; i < n; i++) { /* insertion keeps equal ones as they came; n is a few hundred */
        int k = i;
        for (; k && logits[order[k - 1]] < logits[i]; k--) order[k] = order[k - 1];
        order[k] = i;
    }
    /* softmax is the same for logits less a constant; less the largest, exp cannot overflow */
    for (int i = 0; i < n; i++)
        if (logits[i] > most) most = logits[i];
    for (int i = 0; i < n; i++) sum += exp(logits[i] - most);
    for (int i = 0; prob && i < n; i++) prob[i] = (float)(exp(logits[i] - most) / sum);
}
