/* vqgan.c - pictures to image tokens and back: an encoder of convolutions, a codebook, a decoder.
 * [VQGAN: Esser et al. 2021, 3.1] [TTT 3.1]
 *
 *   z = quant_conv(encoder(picture))             H x W becomes H/f x W/f, f = 8 in the run
 *   token = the codebook's, place by place       codebook.c
 *   picture' = decoder(post_quant_conv(e[token]))
 *
 * Encoder and decoder are lists of blocks, built once from the configuration; running them is a
 * loop. */
#include "vqgan.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

static const struct {
    const char *name;
    struct pl_vqgan_config config;
} known[] = {
    { "gumbel_f8", { 128, { 1, 1, 2, 4 }, 4, 2, { 32 }, 1, 256, 256, 256, 8192, 1, 1e-8f, 32 } },
    { "f16_1024", { 128, { 1, 1, 2, 2, 4 }, 5, 2, { 16 }, 1, 256, 256, 256, 1024, 0, 0, 32 } },
    { "f16_16384", { 128, { 1, 1, 2, 2, 4 }, 5, 2, { 16 }, 1, 256, 256, 256, 16384, 0, 0, 32 } },
    { "demo", { 16, { 1, 2, 3, 4 }, 4, 1, { 0 }, 0, 64, 32, 16, 256, 0, 0, 4 } },
};

int pl_vqgan_named(struct pl_vqgan_config *config, const char *name, struct pl_err *err)
{
    for (size_t i = 0; i < PL_COUNT(known); i++)
        if (!strcmp(known[i].name, name)) {
            *config = known[i].config;
            return PL_OK;
        }
    return pl_fail(err, PL_ENOTFOUND,
                   "no VQGAN configuration '%.40s' (gumbel_f8, f16_1024, f16_16384, demo)", name);
}

static int in_range(const char *what, long value, long least, long most, struct pl_err *err)
{
    if (value >= least && value <= most) return PL_OK;
    return pl_fail(err, PL_EUSE, "VQGAN configuration: %s is %ld, expected %ld to %ld", what, value,
                   least, most);
}

int pl_vqgan_check(const struct pl_vqgan_config *c, struct pl_err *err)
{
    int rc = in_range("number of levels", c->levels, 1, PL_VQ_LEVELS_MAX, err);
    if (!rc) rc = in_range("num_res_blocks", c->num_res_blocks, 1, PL_VQ_RES_MAX, err);
    if (!rc) rc = in_range("number of attn_resolutions", c->attns, 0, PL_VQ_LEVELS_MAX, err);
    if (!rc) rc = in_range("resolution", c->resolution, 1, 65536, err);
    if (!rc) rc = in_range("ch", c->ch, 1, 4096, err);
    if (!rc) rc = in_range("norm_groups", c->norm_groups, 1, 4096, err);
    if (!rc) rc = in_range("z_channels", c->z_channels, 1, 65536, err);
    if (!rc) rc = in_range("embed_dim", c->embed_dim, 1, 65536, err);
    if (!rc) rc = in_range("n_embed", c->n_embed, 1, 1 << 20, err);
    for (int l = 0; !rc && l < c->levels; l++) {
        rc = in_range("ch_mult", c->ch_mult[l], 1, 64, err);
        if (!rc && (c->ch * c->ch_mult[l] > 8192 || c->ch * c->ch_mult[l] % c->norm_groups))
            rc = pl_fail(err, PL_EUSE,
                         "VQGAN configuration: level %d has %d channels, expected a "
                         "multiple of %d up to 8192",
                         l, c->ch * c->ch_mult[l], c->norm_groups);
    }
    if (!rc && c->ch % c->norm_groups)
        rc = pl_fail(err, PL_EUSE, "VQGAN configuration: ch is %d, expected a multiple of %d",
                     c->ch, c->norm_groups);
    if (!rc && c->gumbel && c->embed_dim != c->z_channels)
        rc = pl_fail(err, PL_EUSE,
                     "VQGAN configuration: Gumbel codes need embed_dim (%d) equal to "
                     "z_channels (%d)",
                     c->embed_dim, c->z_channels);
    return rc;
}

int pl_vqgan_factor(const struct pl_vqgan_config *config) { return 1 << (config->levels - 1); }

int pl_vqgan_codes(const struct pl_vqgan_config *config, int pixels)
{
    for (int l = 1; l < config->levels; l++) {
        if (pixels < 2) return 0;
        pixels = (pixels - 2) / 2 + 1;
    }
    return pixels;
}

/* --- building --------------------------------------------------------------------------------- */

/* A list under construction: `width` is what the last block gives. */
struct list {
    struct pl_vq_block *blocks;
    int count, width, groups;
};

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

static int has_attention(const struct pl_vqgan_config *c, int level)
{
    for (int i = 0; i < c->attns; i++)
        if (c->attn_resolutions[i] == c->resolution >> level) return 1;
    return 0;
}

static void append_middle(struct list *list, const char *side)
{
    append(list, PL_VQ_RES, list->width, 0, "%s.mid.block_1", side);
    append(list, PL_VQ_ATTN, list->width, 0, "%s.mid.attn_1", side);
    append(list, PL_VQ_RES, list->width, 0, "%s.mid.block_2", side);
}

static void append_level(struct list *list, const struct pl_vqgan_config *c, const char *side,
                         int level, int blocks)
{
    for (int b = 0; b < blocks; b++) {
        append(list, PL_VQ_RES, c->ch * c->ch_mult[level], 0, "%s.%d.block.%d", side, level, b);
        if (has_attention(c, level))
            append(list, PL_VQ_ATTN, list->width, 0, "%s.%d.attn.%d", side, level, b);
    }
}

static void append_end(struct list *list, const char *side, int out)
{
    append(list, PL_VQ_NORM, list->width, 0, "%s.norm_out", side);
    append(list, PL_VQ_SWISH, list->width, 0, "%s", "");
    append(list, PL_VQ_CONV, out, 3, "%s.conv_out", side);
}

static void build(struct pl_vqgan *m)
{
    const struct pl_vqgan_config *c = &m->config;
    struct list e = { .blocks = m->encoder, .width = 3, .groups = c->norm_groups };
    struct list d = { .blocks = m->decoder, .width = c->z_channels, .groups = c->norm_groups };
    append(&e, PL_VQ_CONV, c->ch, 3, "encoder.conv_in");
    for (int l = 0; l < c->levels; l++) {
        append_level(&e, c, "encoder.down", l, c->num_res_blocks);
        if (l < c->levels - 1) append(&e, PL_VQ_DOWN, e.width, 0, "encoder.down.%d.downsample", l);
    }
    append_middle(&e, "encoder");
    append_end(&e, "encoder", c->z_channels);

    append(&d, PL_VQ_CONV, c->ch * c->ch_mult[c->levels - 1], 3, "decoder.conv_in");
    append_middle(&d, "decoder");
    for (int l = c->levels - 1; l >= 0; l--) {
        append_level(&d, c, "decoder.up", l, c->num_res_blocks + 1);
        if (l > 0) append(&d, PL_VQ_UP, d.width, 0, "decoder.up.%d.upsample", l);
    }
    append_end(&d, "decoder", 3);
    m->encoders = e.count;
    m->decoders = d.count;
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

/* The original counts a level's blocks, then its attentions, then its resampling. */
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
    m->table = p->count;
    if (!rc)
        rc = pl_params_add(p,
                           m->config.gumbel ? "quantize.embed.weight" : "quantize.embedding.weight",
                           2, rows, 0);
    if (!rc) rc = pl_vq_declare(&m->quant_conv, p);
    if (!rc) rc = pl_vq_declare(&m->post_quant_conv, p);
    return rc;
}

int pl_vqgan_declare(struct pl_vqgan *m, const struct pl_vqgan_config *config)
{
    int rc;
    memset(m, 0, sizeof *m);
    m->config = *config;
    build(m);
    rc = declare_all(m);
    if (rc) pl_params_clear(&m->params);
    return rc;
}

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
            if (!is_bias) bound = 1 / sqrtf((float)t->n / (float)t->shape[0]); /* 1/sqrt(fan-in) */
            rc = pl_params_uniform(p, i, bound, &rng);
        }
    }
    return rc;
}

/* --- running ---------------------------------------------------------------------------------- */

int pl_vqgan_run(struct pl_vqgan *m, const struct pl_vq_block *blocks, int count, struct pl_maps *y,
                 const struct pl_maps *x, struct pl_vq_saved *saved)
{
    struct pl_maps from = *x;
    for (int i = 0; i < count; i++) {
        int rc = pl_vq_forward(&blocks[i], &m->params, m->scratch, y, &from,
                               saved ? &saved[i] : NULL);
        if (rc) return rc;
        if (!saved && i > 0) pl_scratch_give(m->scratch, from.at);
        if (m->watch) m->watch(m->context, blocks[i].name, y);
        from = *y;
    }
    return PL_OK;
}

/* Runs one list and lets its input go. */
static int run_on(struct pl_vqgan *m, const struct pl_vq_block *blocks, int count,
                  struct pl_maps *x)
{
    struct pl_maps y;
    int rc = pl_vqgan_run(m, blocks, count, &y, x, NULL);
    if (rc) return rc;
    pl_scratch_give(m->scratch, x->at);
    *x = y;
    return PL_OK;
}

int pl_vqgan_encode(struct pl_vqgan *m, int32_t *code, float *z, const float *x, const float *noise,
                    int B, int H, int W)
{
    const struct pl_backend *be = m->params.be;
    const struct pl_vqgan_config *c = &m->config;
    struct pl_maps map = { .B = B, .C = 3, .H = H, .W = W };
    float *chosen, *added = NULL;
    size_t places;
    int P, rc;
    pl_scratch_give_all(m->scratch);
    map.at = pl_scratch_take(m->scratch, pl_maps_floats(&map));
    if (!map.at) return PL_ENOMEM;
    rc = be->put(map.at, x, pl_maps_floats(&map) * sizeof *x);
    if (!rc) rc = run_on(m, m->encoder, m->encoders, &map);
    if (!rc) rc = run_on(m, &m->quant_conv, 1, &map);
    if (!rc && z) rc = be->get(z, map.at, pl_maps_floats(&map) * sizeof *z);
    if (rc) return rc;
    P = map.H * map.W;
    places = (size_t)B * (size_t)P;
    chosen = pl_scratch_take(m->scratch, places); /* as many 32-bit integers */
    if (!chosen) return PL_ENOMEM;
    if (c->gumbel) {
        rc = run_on(m, &m->proj, 1, &map);
        if (!rc && noise) {
            added = pl_scratch_take(m->scratch, pl_maps_floats(&map));
            rc = added ? be->put(added, noise, pl_maps_floats(&map) * sizeof *noise) : PL_ENOMEM;
        }
        if (!rc) rc = be->gumbel_code((int32_t *)chosen, map.at, added, B, c->n_embed, P);
    } else {
        rc = be->nearest_code((int32_t *)chosen, map.at, pl_params_value(&m->params, m->table), B,
                              c->embed_dim, P, c->n_embed);
    }
    if (!rc) rc = be->get(code, chosen, places * sizeof *code);
    pl_scratch_give_all(m->scratch);
    return rc;
}

int pl_vqgan_decode(struct pl_vqgan *m, float *x, const int32_t *code, int B, int h, int w)
{
    const struct pl_backend *be = m->params.be;
    const struct pl_vqgan_config *c = &m->config;
    struct pl_maps map = { .B = B, .C = c->embed_dim, .H = h, .W = w };
    size_t places = (size_t)B * (size_t)h * (size_t)w;
    float *given;
    int rc;
    pl_scratch_give_all(m->scratch);
    map.at = pl_scratch_take(m->scratch, pl_maps_floats(&map));
    given = pl_scratch_take(m->scratch, places);
    if (!map.at || !given) return PL_ENOMEM;
    rc = be->put(given, code, places * sizeof *code);
    if (!rc)
        rc = be->code_rows(map.at, pl_params_value(&m->params, m->table), (int32_t *)given, B,
                           c->embed_dim, h * w, c->n_embed);
    if (!rc && m->watch) m->watch(m->context, "zq", &map);
    if (!rc) rc = run_on(m, &m->post_quant_conv, 1, &map);
    if (!rc) rc = run_on(m, m->decoder, m->decoders, &map);
    if (!rc) rc = be->get(x, map.at, pl_maps_floats(&map) * sizeof *x);
    pl_scratch_give_all(m->scratch);
    return rc;
}

size_t pl_vqgan_count_invalid(const struct pl_vqgan *m, const int32_t *code, size_t n)
{
    size_t count = 0;
    for (size_t i = 0; i < n; i++) count += code[i] < 0 || code[i] >= m->config.n_embed;
    return count;
}
