/* clip.c - CLIP: two transformers, one for pictures and one for captions, whose vectors point the
 * same way where picture and caption belong together. [Radford et al. 2021, fig. 3] [TTT 3.4]
 *
 *   picture:  patches (32 x 32) -> linear -> + position -> blocks -> vector at the class token
 *   caption:  tokens -> embedding -> + position -> causal blocks -> vector at the end token
 *   logit   = exp(scale) cos(picture, caption) */
#include "clip.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static const struct pl_prenorm_name names[PL_PRENORM_TENSORS] = {
    { "attn.in_proj_weight", PL_QKV_W },  { "attn.in_proj_bias", PL_QKV_B },
    { "attn.out_proj.weight", PL_OUT_W }, { "attn.out_proj.bias", PL_OUT_B },
    { "ln_1.weight", PL_LN1_WEIGHT },     { "ln_1.bias", PL_LN1_BIAS },
    { "mlp.c_fc.weight", PL_FC_W },       { "mlp.c_fc.bias", PL_FC_B },
    { "mlp.c_proj.weight", PL_PROJ_W },   { "mlp.c_proj.bias", PL_PROJ_B },
    { "ln_2.weight", PL_LN2_WEIGHT },     { "ln_2.bias", PL_LN2_BIAS },
};

struct pl_clip_config pl_clip_vit_b_32(void)
{
    return (struct pl_clip_config){ .embed = 512,
                                    .image = 224,
                                    .patch = 32,
                                    .vision_width = 768,
                                    .vision_layers = 12,
                                    .context = 77,
                                    .vocab = 49408,
                                    .text_width = 512,
                                    .text_layers = 12 };
}

int pl_clip_check(const struct pl_clip_config *c, struct pl_err *err)
{
    const struct {
        const char *name;
        int value, most;
    } sizes[] = {
        { "embed_dim", c->embed, 1 << 14 },
        { "image_resolution", c->image, 4096 },
        { "vision_patch_size", c->patch, 4096 },
        { "vision_width", c->vision_width, 1 << 14 },
        { "vision_layers", c->vision_layers, PL_PRENORM_LAYERS_MAX },
        { "context_length", c->context, 1 << 14 },
        { "vocab_size", c->vocab, 1 << 24 },
        { "transformer_width", c->text_width, 1 << 14 },
        { "transformer_layers", c->text_layers, PL_PRENORM_LAYERS_MAX },
    };
    for (size_t i = 0; i < PL_COUNT(sizes); i++)
        if (sizes[i].value < 1 || sizes[i].value > sizes[i].most)
            return pl_fail(err, PL_EUSE, "CLIP configuration: %s is %d, expected 1 to %d",
                           sizes[i].name, sizes[i].value, sizes[i].most);
    if (c->vision_width % PL_CLIP_HEAD || c->text_width % PL_CLIP_HEAD)
        return pl_fail(err, PL_EUSE,
                       "CLIP configuration: widths are %d and %d, expected multiples of %d",
                       c->vision_width, c->text_width, PL_CLIP_HEAD);
    if (c->image % c->patch)
        return pl_fail(err, PL_EUSE,
                       "CLIP configuration: pictures of %d pixels are no whole number of "
                       "patches of %d",
                       c->image, c->patch);
    return PL_OK;
}

/* --- building --------------------------------------------------------------------------------- */

struct declaring {
    struct pl_params *params;
    int rc;
};

static size_t add(struct declaring *d, const char *name, int dims, int64_t a, int64_t b)
{
    int64_t shape[2] = { a, b };
    if (!d->rc) d->rc = pl_params_add(d->params, name, dims, shape, dims > 1);
    return d->params->count - 1;
}

int pl_clip_declare(struct pl_clip_model *m, const struct pl_clip_config *config)
{
    const struct pl_clip_config *c = &m->config;
    struct declaring d = { &m->params, PL_OK };
    memset(m, 0, sizeof *m);
    m->config = *config;
    int64_t grid = c->image / c->patch, V = c->vision_width, T = c->text_width;
    m->vision = (struct pl_prenorm){
        .params = &m->params,
        .layers = c->vision_layers,
        .D = c->vision_width,
        .H = c->vision_width / PL_CLIP_HEAD,
        .hidden = 4 * c->vision_width,
        .activation = PL_QUICKGELU,
        .mask = PL_MASK_NONE,
    };
    m->text = (struct pl_prenorm){
        .params = &m->params,
        .layers = c->text_layers,
        .D = c->text_width,
        .H = c->text_width / PL_CLIP_HEAD,
        .hidden = 4 * c->text_width,
        .activation = PL_QUICKGELU,
        .mask = PL_MASK_FULL,
    };
    m->text_position = add(&d, "positional_embedding", 2, c->context, T);
    m->text_proj = add(&d, "text_projection", 2, T, c->embed);
    m->scale = add(&d, "logit_scale", 0, 0, 0);
    m->class_embedding = add(&d, "visual.class_embedding", 1, V, 0);
    m->vision_position = add(&d, "visual.positional_embedding", 2, 1 + grid * grid, V);
    m->vision_proj = add(&d, "visual.proj", 2, V, c->embed);
    if (!d.rc) {
        m->conv = m->params.count;
        d.rc = pl_params_add(&m->params, "visual.conv1.weight", 4,
                             (int64_t[]){ V, 3, c->patch, c->patch }, 1);
    }
    m->pre_weight = add(&d, "visual.ln_pre.weight", 1, V, 0);
    m->pre_bias = add(&d, "visual.ln_pre.bias", 1, V, 0);
    if (!d.rc) d.rc = pl_prenorm_declare(&m->vision, "visual.transformer.resblocks.", names);
    m->post_weight = add(&d, "visual.ln_post.weight", 1, V, 0);
    m->post_bias = add(&d, "visual.ln_post.bias", 1, V, 0);
    if (!d.rc) d.rc = pl_prenorm_declare(&m->text, "transformer.resblocks.", names);
    m->tokens = add(&d, "token_embedding.weight", 2, c->vocab, T);
    m->final_weight = add(&d, "ln_final.weight", 1, T, 0);
    m->final_bias = add(&d, "ln_final.bias", 1, T, 0);
    return d.rc;
}

/* --- the towers ------------------------------------------------------------------------------- */

static float *value(const struct pl_clip_model *m, size_t index)
{
    return pl_params_value(&m->params, index);
}

static void show(const struct pl_clip_model *m, const char *name, const float *at, size_t n)
{
    if (m->watch) m->watch(m->context, name, at, n);
}

/* x (B,1+places,V): the class's vector, then the patches', each with its position's added. */
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
    rc = be->conv(maps, pixels, value(m, m->conv), NULL, &conv);
    if (!rc) show(m, "visual.conv1", maps, (size_t)B * map);
    for (int b = 0; b < B && !rc; b++) {
        float *at = x + (size_t)b * row;
        rc = be->copy(at, value(m, m->class_embedding), (size_t)V);
        if (!rc) rc = be->transpose(at + V, V, maps + (size_t)b * map, places, 1, V, places);
        if (!rc) rc = be->axpy(at, 1, value(m, m->vision_position), row);
    }
    pl_scratch_give(m->scratch, maps);
    return rc;
}

/* vectors (B,embed), host, of rows h (B,D): x @ proj, proj [D,embed]. */
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
    if (!rc)
        rc = be->layer_norm(x, x, value(m, m->pre_weight), value(m, m->pre_bias), B * n, V,
                            PL_PRENORM_EPS);
    if (!rc) show(m, "visual.ln_pre", x, floats);
    if (!rc) rc = pl_prenorm_forward(&m->vision, x, NULL, B, n, NULL);
    for (int b = 0; b < B && !rc; b++) /* the class's position alone goes on */
        rc = be->copy(h + (size_t)b * (size_t)V, x + (size_t)b * (size_t)n * (size_t)V, (size_t)V);
    if (!rc)
        rc = be->layer_norm(h, h, value(m, m->post_weight), value(m, m->post_bias), B, V,
                            PL_PRENORM_EPS);
    if (!rc) show(m, "visual.ln_post", h, (size_t)B * (size_t)V);
    if (!rc) rc = project(m, vectors, h, m->vision_proj, B, V);
    pl_scratch_give_all(m->scratch);
    return rc;
}

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
    for (int b = 0; b < B; b++) {
        int end = end_of(tokens + (size_t)b * (size_t)c->context, c->context);
        if (end + 1 > n) n = end + 1;
    }
    if (m->watch) n = c->context; /* else what lies behind the last end need not be computed */
    size_t row = (size_t)n * (size_t)T, ids = (size_t)B * (size_t)n;
    float *x = pl_scratch_take(m->scratch, (size_t)B * row),
          *h = pl_scratch_take(m->scratch, (size_t)B * (size_t)T);
    int32_t *at = (int32_t *)(void *)pl_scratch_take(m->scratch, ids),
            *host = pl_alloc(ids, sizeof *host);
    rc = x && h && at && host ? PL_OK : PL_ENOMEM;
    for (int b = 0; b < B && !rc; b++)
        memcpy(host + (size_t)b * (size_t)n, tokens + (size_t)b * (size_t)c->context,
               (size_t)n * sizeof *host);
    if (!rc) rc = be->put(at, host, ids * sizeof *host);
    if (!rc) rc = be->embed(x, value(m, m->tokens), at, (int)ids, T, c->vocab);
    if (!rc) show(m, "text.token_embedding", x, (size_t)B * row);
    for (int b = 0; b < B && !rc; b++)
        rc = be->axpy(x + (size_t)b * row, 1, value(m, m->text_position), row);
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
    if (!rc) rc = project(m, vectors, h, m->text_proj, B, T);
    pl_free(host);
    pl_scratch_give_all(m->scratch);
    return rc;
}

/* --- what to do with the vectors -------------------------------------------------------------- */

void pl_clip_pixels(float *pixels, const uint8_t *rgb, int image)
{
    static const float mean[3] = { 0.48145466f, 0.4578275f, 0.40821073f };
    static const float spread[3] = { 0.26862954f, 0.26130258f, 0.27577711f };
    size_t n = (size_t)image * (size_t)image;
    for (size_t c = 0; c < 3; c++)
        for (size_t i = 0; i < n; i++)
            pixels[c * n + i] = (rgb[3 * i + c] / 255.0f - mean[c]) / spread[c];
}

static double dot(const float *a, const float *b, int n)
{
    double sum = 0;
    for (int i = 0; i < n; i++) sum += (double)a[i] * b[i];
    return sum;
}

int pl_clip_logits(struct pl_clip_model *m, float *logits, const float *text, int texts,
                   const float *image, int images)
{
    int E = m->config.embed, rc;
    float scale;
    if ((rc = pl_params_get(&m->params, m->scale, &scale))) return rc;
    for (int t = 0; t < texts; t++)
        for (int i = 0; i < images; i++) {
            const float *a = text + (size_t)t * (size_t)E, *b = image + (size_t)i * (size_t)E;
            double length = sqrt(dot(a, a, E) * dot(b, b, E));
            logits[(size_t)t * (size_t)images + (size_t)i] = (float)(exp(scale) * dot(a, b, E) /
                                                                     length);
        }
    return PL_OK;
}

void pl_clip_rank(int32_t *order, float *prob, const float *logits, int n)
{
    double most = -INFINITY, sum = 0;
    for (int i = 0; i < n; i++) { /* insertion keeps equal ones as they came; n is a few hundred */
        int k = i;
        for (; k && logits[order[k - 1]] < logits[i]; k--) order[k] = order[k - 1];
        order[k] = i;
    }
    for (int i = 0; i < n; i++)
        if (logits[i] > most) most = logits[i];
    for (int i = 0; i < n; i++) sum += exp(logits[i] - most);
    for (int i = 0; prob && i < n; i++) prob[i] = (float)(exp(logits[i] - most) / sum);
}
