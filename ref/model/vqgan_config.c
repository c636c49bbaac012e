/* vqgan_config.c - the sizes of known VQGANs, and the rules for any other configuration. [spec
 * images-and-text 1.2, 1.3]
 *
 * A level has ch * ch_mult channels and half the height and width of the one above it. So a codec
 * of L levels has one code for a square of 2^(L-1) pixels a side: f = 8 with four levels. The
 * reference run's, gumbel_f8, turns 256 x 256 pixels into 32 x 32 codes out of 8192. */
#include "vqgan.h"

#include <string.h>

/* ch, ch_mult, levels, residual blocks a level, resolutions with attention and their number,
 * resolution, z_channels, embed_dim, codes, Gumbel, weight of the KL term, groups of a norm */
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

/* The bounds are far above any model of this kind, and low enough that products of sizes stay an
 * int. */
int pl_vqgan_check(const struct pl_vqgan_config *c, struct pl_err *err)
{
    static const char what[] = "VQGAN configuration";
    /* ch: channels of the first level; z_channels: of the latent map; n_embed: codes in the
     * codebook */
    const struct pl_range sizes[] = {
        { "number of levels", c->levels, 1, PL_VQ_LEVELS_MAX },
        { "num_res_blocks", c->num_res_blocks, 1, PL_VQ_RES_MAX },
        { "number of attn_resolutions", c->attns, 0, PL_VQ_LEVELS_MAX },
        { "resolution", c->resolution, 1, 65536 },
        { "ch", c->ch, 1, 4096 },
        { "norm_groups", c->norm_groups, 1, 4096 },
        { "z_channels", c->z_channels, 1, 65536 },
        { "embed_dim", c->embed_dim, 1, 65536 },
        { "n_embed", c->n_embed, 1, 1 << 20 },
    };
    int rc = pl_check_ranges(what, sizes, PL_COUNT(sizes), err);
    for (int l = 0; !rc && l < c->levels; l++) {
        const struct pl_range multiple = { "ch_mult", c->ch_mult[l], 1, 64 };
        rc = pl_check_ranges(what, &multiple, 1, err);
        if (!rc && (c->ch * c->ch_mult[l] > 8192 || c->ch * c->ch_mult[l] % c->norm_groups))
            rc = pl_fail(err, PL_EUSE,
                         "VQGAN configuration: level %d has %d channels, expected a "
                         "multiple of %d up to 8192",
                         l, c->ch * c->ch_mult[l], c->norm_groups);
    }
    if (!rc && c->ch % c->norm_groups)
        rc = pl_fail(err, PL_EUSE, "VQGAN configuration: ch is %d, expected a multiple of %d",
                     c->ch, c->norm_groups);
    /* proj reads quant_conv's output, and was declared for z_channels. */
    if (!rc && c->gumbel && c->embed_dim != c->z_channels)
        rc = pl_fail(err, PL_EUSE,
                     "VQGAN configuration: Gumbel codes need embed_dim (%d) equal to "
                     "z_channels (%d)",
                     c->embed_dim, c->z_channels);
    return rc;
}

int pl_vqgan_factor(const struct pl_vqgan_config *config) { return 1 << (config->levels - 1); }

/* Each halving sees one row of padding: floor((pixels - 2) / 2) + 1. */
int pl_vqgan_codes(const struct pl_vqgan_config *config, int pixels)
{
    for (int l = 1; l < config->levels; l++) {
        if (pixels < 2) return 0;
        pixels = (pixels - 2) / 2 + 1;
    }
    return pixels;
}
