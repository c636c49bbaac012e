/* vqgan.h - pictures to codes and back: the VQGAN of the reference run (Gumbel codes) and its
 * relatives with nearest codes. [TTT 3.1] [Esser et al. 2021] [spec images-and-text 1.2-1.6] */
#ifndef PL_VQGAN_H
#define PL_VQGAN_H

#include "vqgan_block.h"

#ifdef __cplusplus
extern "C" {
#endif

#define PL_VQ_LEVELS_MAX 8
#define PL_VQ_RES_MAX 8 /* residual blocks a level */

/* As in taming-transformers' configuration, shortened. */
struct pl_vqgan_config {
    int ch, ch_mult[PL_VQ_LEVELS_MAX], levels; /* channels of level l: ch * ch_mult[l] */
    int num_res_blocks;
    int attn_resolutions[PL_VQ_LEVELS_MAX], attns;
    int resolution; /* nominal: decides which levels have attention; other sizes may be encoded */
    int z_channels, embed_dim, n_embed;
    int gumbel;      /* 0: nearest code */
    float kl_weight; /* Gumbel only */
    int norm_groups; /* 32; not in taming-transformers: fewer let a small codec be narrow */
};

/* "gumbel_f8" (the reference run's), "f16_1024", "f16_16384" or "demo". PL_ENOTFOUND for others. */
int pl_vqgan_named(struct pl_vqgan_config *config, const char *name, struct pl_err *err);
/* PL_EUSE with a sentence if the numbers make no model. */
int pl_vqgan_check(const struct pl_vqgan_config *config, struct pl_err *err);
/* Side of a code's square of pixels: 2 ^ (levels - 1). */
int pl_vqgan_factor(const struct pl_vqgan_config *config);
/* Rows (or columns) of codes for this many rows of pixels; 0: too small. */
int pl_vqgan_codes(const struct pl_vqgan_config *config, int pixels);

/* conv_in, the largest encoder's levels, middle, out. */
#define PL_VQ_BLOCKS_MAX (6 + PL_VQ_LEVELS_MAX * (2 * (PL_VQ_RES_MAX + 1) + 1))

struct pl_vqgan {
    struct pl_vqgan_config config;
    struct pl_params params;
    struct pl_scratch *scratch; /* set before a model runs: runtime/models.h */
    struct pl_vq_block encoder[PL_VQ_BLOCKS_MAX], decoder[PL_VQ_BLOCKS_MAX]; /* in running order */
    int encoders, decoders;
    struct pl_vq_block quant_conv, post_quant_conv, proj; /* proj: Gumbel's logits */
    size_t table; /* index of the codes' rows (n_embed, embed_dim) */
    /* Called, unless NULL, with each map of a forward pass and its block's name; tests look in. */
    void (*watch)(void *context, const char *name, const struct pl_maps *map);
    void *context;
};

/* Declares every tensor under its official name, in taming-transformers' order, without memory for
 * values (runtime/models.h has pl_vqgan_init). The config has been checked. */
int pl_vqgan_declare(struct pl_vqgan *m, const struct pl_vqgan_config *config);
/* PyTorch's initial values (uniform by fan-in; norms 1 and 0), from a seed. */
int pl_vqgan_reset(struct pl_vqgan *m, uint64_t seed);

/* A list of blocks, one after the other; x is only read. saved (NULL: forward only) has an entry a
 * block, and then the maps between blocks stay taken. */
int pl_vqgan_run(struct pl_vqgan *m, const struct pl_vq_block *blocks, int count, struct pl_maps *y,
                 const struct pl_maps *x, struct pl_vq_saved *saved);

/* Codes (B,h,w) of pictures x (B,3,H,W) in [-1,1]; both in host memory. noise (B,n_embed,h,w),
 * host: Gumbel noise, which makes the codes samples as taming-transformers' are; NULL: the
 * likeliest code. Nearest codes take none. z, if not NULL, gets the maps before quantization
 * (B,embed_dim,h,w). */
int pl_vqgan_encode(struct pl_vqgan *m, int32_t *code, float *z, const float *x, const float *noise,
                    int B, int H, int W);
/* Pictures x (B,3,h*f,w*f), not clamped, from codes (B,h,w) in 0..n_embed-1; host memory. */
int pl_vqgan_decode(struct pl_vqgan *m, float *x, const int32_t *code, int B, int h, int w);
/* How often codes are outside 0..n_embed-1; 0 before pl_vqgan_decode. */
size_t pl_vqgan_count_invalid(const struct pl_vqgan *m, const int32_t *code, size_t n);

#ifdef __cplusplus
}
#endif
#endif
