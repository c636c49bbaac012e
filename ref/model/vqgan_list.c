/* vqgan_list.c - a VQGAN as two lists of blocks, built from its configuration.
 * [spec images-and-text 1.2]
 *
 *   encoder   conv_in                                  3 -> ch channels
 *             level 0 .. L-1: residual blocks (each with attention, at some resolutions),
 *                             then half the size, but for the last level
 *             middle: block, attention, block;  norm, swish, conv_out -> z_channels
 *   decoder   conv_in, middle, levels L-1 .. 0 with one residual block more each and twice the
 *             size instead of half;  norm, swish, conv_out -> 3
 *
 * Running a model is then a loop over a list, and its backward pass the same loop in reverse. */
#include "vqgan.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

/* A list under construction: `width` is the last block's number of channels. */
struct list {
    struct pl_vq_block *blocks;
    int count, width, groups;
};

/* Adds a block that maps `width` channels to `out`. */
__attribute__((format(printf, 5, 6))) static void append(struct list *list, enum pl_vq_kind kind,
                                                         int out, int K, const char *format, ...)
{
    struct pl_vq_block *b = &list->blocks[list->count++];
    va_list args;
    *b = (struct pl_vq_block){
        .kind = kind, .in = list->width, .out = out, .K = K, .groups = list->groups
    };
    va_start(args, format);
    vsnprintf(b->name, sizeof b->name, format, args);
    va_end(args);
    list->width = out;
}

/* The nominal resolution of a level decides, whatever the size of the pictures: a model has the
 * same parameters for all of them. */
static int has_attention(const struct pl_vqgan_config *c, int level)
{
    for (int i = 0; i < c->attns; i++)
        if (c->attn_resolutions[i] == c->resolution >> level) return 1;
    return 0;
}

/* mid: the lowest resolution, H/f x W/f. Attention over n places costs n^2, so here it costs least,
 * and it is the only part by which far corners of a picture influence each other. */
static void append_middle(struct list *list, const char *side)
{
    append(list, PL_VQ_RES, list->width, 0, "%s.mid.block_1", side);
    append(list, PL_VQ_ATTN, list->width, 0, "%s.mid.attn_1", side);
    append(list, PL_VQ_RES, list->width, 0, "%s.mid.block_2", side);
}

/* `blocks` residual blocks of a level; the first brings its width, ch ch_mult[level]: deeper levels
 * have fewer places and more channels. */
static void append_level(struct list *list, const struct pl_vqgan_config *c, const char *side,
                         int level, int blocks)
{
    for (int b = 0; b < blocks; b++) {
        append(list, PL_VQ_RES, c->ch * c->ch_mult[level], 0, "%s.%d.block.%d", side, level, b);
        if (has_attention(c, level))
            append(list, PL_VQ_ATTN, list->width, 0, "%s.%d.attn.%d", side, level, b);
    }
}

/* y = conv(swish(norm(x))): the stream is normed once more before the map to the output channels */
static void append_end(struct list *list, const char *side, int out)
{
    append(list, PL_VQ_NORM, list->width, 0, "%s.norm_out", side);
    append(list, PL_VQ_SWISH, list->width, 0, "%s", "");
    append(list, PL_VQ_CONV, out, 3, "%s.conv_out", side);
}

/* Blocks in running order; names count levels as the encoder does, so the decoder begins at L-1. */
static void build(struct pl_vqgan *m)
{
    const struct pl_vqgan_config *c = &m->config;
    struct list e = { .blocks = m->encoder, .width = 3, .groups = c->norm_groups };
    struct list d = { .blocks = m->decoder, .width = c->z_channels, .groups = c->norm_groups };
    /* the encoder, from the full resolution down: (3,H,W) to (z_channels, H/f, W/f) */
    append(&e, PL_VQ_CONV, c->ch, 3, "encoder.conv_in");
    for (int l = 0; l < c->levels; l++) {
        append_level(&e, c, "encoder.down", l, c->num_res_blocks);
        if (l < c->levels - 1) append(&e, PL_VQ_DOWN, e.width, 0, "encoder.down.%d.downsample", l);
    }
    append_middle(&e, "encoder");
    append_end(&e, "encoder", c->z_channels);

    /* the decoder, from the deepest level up: (z_channels, H/f, W/f) to (3,H,W), f = 2^(L-1) */
    append(&d, PL_VQ_CONV, c->ch * c->ch_mult[c->levels - 1], 3, "decoder.conv_in");
    append_middle(&d, "decoder");
    for (int l = c->levels - 1; l >= 0; l--) {
        append_level(&d, c, "decoder.up", l, c->num_res_blocks + 1);
        if (l > 0) append(&d, PL_VQ_UP, d.width, 0, "decoder.up.%d.upsample", l);
    }
    append_end(&d, "decoder", 3);
    m->encoders = e.count;
    m->decoders = d.count;
    /* Around the codes: z_channels to embed_dim and back, and for Gumbel codes a logit for each.
     * All are 1x1 convolutions: a linear layer at each place. */
    m->quant_conv = (struct pl_vq_block){
        .kind = PL_VQ_CONV, .in = c->z_channels, .out = c->embed_dim, .K = 1, .name = "quant_conv"
    };
    m->post_quant_conv = (struct pl_vq_block){ .kind = PL_VQ_CONV,
                                               .in = c->embed_dim,
                                               .out = c->z_channels,
                                               .K = 1,
                                               .name = "post_quant_conv" };
    m->proj = (struct pl_vq_block){
        .kind = PL_VQ_CONV, .in = c->z_channels, .out = c->n_embed, .K = 1, .name = "quantize.proj"
    };
}

/* Declares the blocks whose names begin so, in the list's order. */
__attribute__((format(printf, 4, 5))) static int declare(struct pl_params *p,
                                                         struct pl_vq_block *blocks, int count,
                                                         const char *format, ...)
{
    char prefix[64];
    va_list args;
    int rc = PL_OK;
    va_start(args, format);
    vsnprintf(prefix, sizeof prefix, format, args);
    va_end(args);
    for (int i = 0; !rc && i < count; i++)
        if (!strncmp(blocks[i].name, prefix, strlen(prefix))) rc = pl_vq_declare(&blocks[i], p);
    return rc;
}

/* taming-transformers lists a level's blocks, then its attentions, then its resampling. */
static int declare_levels(struct pl_params *p, struct pl_vq_block *blocks, int count, int levels,
                          const char *side, const char *resampling)
{
    int rc = PL_OK;
    for (int l = 0; !rc && l < levels; l++) {
        rc = declare(p, blocks, count, "%s.%d.block.", side, l);
        if (!rc) rc = declare(p, blocks, count, "%s.%d.attn.", side, l);
        if (!rc) rc = declare(p, blocks, count, "%s.%d.%s", side, l, resampling);
    }
    return rc;
}

/* The order of the parameters is not the order of running: checkpoints and optimizers see this. */
static int declare_all(struct pl_vqgan *m)
{
    struct pl_params *p = &m->params;
    struct pl_vq_block *e = m->encoder, *d = m->decoder;
    int levels = m->config.levels;
    int64_t rows[2] = { m->config.n_embed, m->config.embed_dim };
    int rc = declare(p, e, m->encoders, "encoder.conv_in");
    if (!rc) rc = declare_levels(p, e, m->encoders, levels, "encoder.down", "downsample");
    if (!rc) rc = declare(p, e, m->encoders, "encoder.mid");
    if (!rc) rc = declare(p, e, m->encoders, "encoder.norm_out");
    if (!rc) rc = declare(p, e, m->encoders, "encoder.conv_out");
    if (!rc) rc = declare(p, d, m->decoders, "decoder.conv_in");
    if (!rc) rc = declare(p, d, m->decoders, "decoder.mid");
    if (!rc) rc = declare_levels(p, d, m->decoders, levels, "decoder.up", "upsample");
    if (!rc) rc = declare(p, d, m->decoders, "decoder.norm_out");
    if (!rc) rc = declare(p, d, m->decoders, "decoder.conv_out");
    if (!rc && m->config.gumbel) rc = pl_vq_declare(&m->proj, p);
    /* the codebook E (n_embed, embed_dim): a place's vector z becomes its nearest row of E */
    m->table = p->count;
    if (!rc)
        rc = pl_params_add(p,
                           m->config.gumbel ? "quantize.embed.weight" : "quantize.embedding.weight",
                           2, rows, 0);
    if (!rc) rc = pl_vq_declare(&m->quant_conv, p);
    if (!rc) rc = pl_vq_declare(&m->post_quant_conv, p);
    return rc;
}

/* Blocks first, since the order of parameters is looked up in them by name. */
int pl_vqgan_declare(struct pl_vqgan *m, const struct pl_vqgan_config *config)
{
    int rc;
    memset(m, 0, sizeof *m);
    m->config = *config;
    build(m); /* no memory is needed yet: sizes follow from the configuration alone */
    rc = declare_all(m);
    if (rc) pl_params_clear(&m->params);
    return rc;
}
