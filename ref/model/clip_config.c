/* clip_config.c - the sizes of CLIP ViT-B/32, and the parameters of both towers under their
 * official names and in their order. [CLIP, 2.4] [spec images-and-text 2.1]
 *
 * Heads are 64 wide in every published model, and the feed-forward layer four times as wide as the
 * stream, so widths and depths say everything. */
#include "clip.h"

#include <string.h>

/* One block: x = x + attn(ln_1(x)), then x = x + mlp(ln_2(x)), with mlp = c_proj(gelu(c_fc)).
 * attn.in_proj is q, k and v one below the other, as prenorm.c has them. */
static const struct pl_prenorm_name names[PL_PRENORM_TENSORS] = {
    { "attn.in_proj_weight", PL_QKV_W },  { "attn.in_proj_bias", PL_QKV_B },
    { "attn.out_proj.weight", PL_OUT_W }, { "attn.out_proj.bias", PL_OUT_B },
    { "ln_1.weight", PL_LN1_WEIGHT },     { "ln_1.bias", PL_LN1_BIAS },
    { "mlp.c_fc.weight", PL_FC_W },       { "mlp.c_fc.bias", PL_FC_B },
    { "mlp.c_proj.weight", PL_PROJ_W },   { "mlp.c_proj.bias", PL_PROJ_B },
    { "ln_2.weight", PL_LN2_WEIGHT },     { "ln_2.bias", PL_LN2_BIAS },
};

/* 224 x 224 pixels in 7 x 7 patches of 32 x 32, 12 blocks each; captions of up to 77 BPE tokens.
 * 151 million parameters. [CLIP, table 20] */
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

/* The bounds are far above published models, and keep products of sizes within an int. */
int pl_clip_check(const struct pl_clip_config *c, struct pl_err *err)
{
    const struct pl_range sizes[] = {
        { "embed_dim", c->embed, 1, 1 << 14 },
        { "image_resolution", c->image, 1, 4096 },
        { "vision_patch_size", c->patch, 1, 4096 },
        { "vision_width", c->vision_width, 1, 1 << 14 },
        { "vision_layers", c->vision_layers, 1, PL_PRENORM_LAYERS_MAX },
        { "context_length", c->context, 1, 1 << 14 },
        { "vocab_size", c->vocab, 1, 1 << 24 },
        { "transformer_width", c->text_width, 1, 1 << 14 },
        { "transformer_layers", c->text_layers, 1, PL_PRENORM_LAYERS_MAX },
    };
    /* heads are 64 wide, and patches tile the picture */
    int rc = pl_check_ranges("CLIP configuration", sizes, PL_COUNT(sizes), err);
    if (rc) return rc;
    if (c->vision_width % PL_CLIP_HEAD || c->text_width % PL_CLIP_HEAD)
        return pl_fail(err, PL_EUSE,
                       "CLIP configuration: widths are %d and %d, expected multiples of %d",
                       c->vision_width, c->text_width, PL_CLIP_HEAD);
    /* patches do not overlap: a convolution with stride = patch, that is a linear layer of each */
    if (c->image % c->patch)
        return pl_fail(err, PL_EUSE,
                       "CLIP configuration: pictures of %d pixels are not a whole number of "
                       "patches of %d",
                       c->image, c->patch);
    return PL_OK;
}

struct declaring {
    struct pl_params *params;
    int rc;
};

/* Adds a tensor; matrices decay, vectors do not. Returns its index; an error stays in d->rc. */
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
    /* pictures: every patch attends to every other; captions: causal, as the end token comes
     * last */
    /* G = image / patch: the picture's tower sees 1 + G^2 vectors, a class vector and the
     * patches */
    int64_t grid = c->image / c->patch, V = c->vision_width, T = c->text_width;
    /* width V, V / 64 heads, feed-forward 4 V, x sigmoid(1.702 x) [CLIP, 2.4] */
    m->vision = (struct pl_prenorm){
        .params = &m->params,
        .layers = c->vision_layers,
        .D = c->vision_width,
        .H = c->vision_width / PL_CLIP_HEAD,
        .hidden = 4 * c->vision_width,
        .activation = PL_QUICKGELU,
        .mask = PL_MASK_NONE,
    };
    /* width T, T / 64 heads */
    m->text = (struct pl_prenorm){
        .params = &m->params,
        .layers = c->text_layers,
        .D = c->text_width,
        .H = c->text_width / PL_CLIP_HEAD,
        .hidden = 4 * c->text_width,
        .activation = PL_QUICKGELU,
        .mask = PL_MASK_FULL,
    };
    /* In the order of the official state_dict, which optimizers and checkpoints see: the caption's
     * own tensors, then the picture's tower, then the caption's. */
    m->text_position = add(&d, "positional_embedding", 2, c->context, T);
    /* both towers end in a projection to E: score = exp(logit_scale) cos(picture, caption) */
    m->text_proj = add(&d, "text_projection", 2, T, c->embed);
    m->scale = add(&d, "logit_scale", 0, 0, 0);
    m->class_embedding = add(&d, "visual.class_embedding", 1, V, 0);
    m->vision_position = add(&d, "visual.positional_embedding", 2, 1 + grid * grid, V);
    m->vision_proj = add(&d, "visual.proj", 2, V, c->embed);
    if (!d.rc) {
        m->conv = m->params.count; /* W (V,3,patch,patch): a linear layer of each patch's pixels */
        d.rc = pl_params_add(&m->params, "visual.conv1.weight", 4,
                             (int64_t[]){ V, 3, c->patch, c->patch }, 1);
    }
    /* the picture's stream is normed before the first block, the class vector's row after the
     * last */
    m->pre_weight = add(&d, "visual.ln_pre.weight", 1, V, 0);
    m->pre_bias = add(&d, "visual.ln_pre.bias", 1, V, 0);
    if (!d.rc) d.rc = pl_prenorm_declare(&m->vision, "visual.transformer.resblocks.", names);
    m->post_weight = add(&d, "visual.ln_post.weight", 1, V, 0);
    m->post_bias = add(&d, "visual.ln_post.bias", 1, V, 0);
    if (!d.rc) d.rc = pl_prenorm_declare(&m->text, "transformer.resblocks.", names);
    /* the caption's embedding of an end token's row, after ln_final, stands for the caption */
    m->tokens = add(&d, "token_embedding.weight", 2, c->vocab, T);
    m->final_weight = add(&d, "ln_final.weight", 1, T, 0);
    m->final_bias = add(&d, "ln_final.bias", 1, T, 0);
    return d.rc;
}
