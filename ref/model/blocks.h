/* blocks.h - the parameters and tables of a stack of blocks: which tensors block l uses, which keys
 * its attention may see, and by which angles its queries, keys and values rotate. [TTT 3.1] */
#ifndef PL_BLOCKS_H
#define PL_BLOCKS_H

#include "dalle_config.h"
#include "params.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Indices of parameters. Blocks of one group have equal indices for the layers' tensors. */
struct pl_block {
    size_t f_scale, f_weight, f_bias; /* LayerScale and norm of the attention branch, each (D) */
    size_t qkv, out, out_bias;        /* (3E,D) (D,E) (D), E = H d */
    size_t g_scale, g_weight, g_bias; /* the same of the feed-forward branch */
    size_t W1, b1, W2, b2;            /* (8D,D) (8D) (D,4D) (D) */
    struct pl_mask mask;
};

struct pl_blocks {
    const struct pl_dalle_config *config; /* borrowed, as are the next two */
    struct pl_params *params;
    const struct pl_backend *be;
    struct pl_block *list; /* (L) */
    int P, S, E, R;        /* text positions, all positions, H d, channels of a head that rotate */
    float *angle;          /* (S+1, R/2) host memory */
    float *cosine, *sine;  /* the same, backend memory; NULL if R = 0 */
};

/* Declares the tensors, in the official order and under the official names after `prefix`
 * ("model.transformer."). The configuration has been checked. */
int pl_blocks_declare(struct pl_blocks *s, const struct pl_dalle_config *config,
                      struct pl_params *params, const char *prefix);
/* The rotary tables. */
int pl_blocks_prepare(struct pl_blocks *s, const struct pl_backend *be);
/* Angles from a checkpoint in place of the computed ones. */
int pl_blocks_set_angles(struct pl_blocks *s, const float *angle);
void pl_blocks_clear(struct pl_blocks *s);

/* Uniform in +-1/sqrt(fan_in) for the layers, 1 and 0 for the norms, and CaiT's three LayerScales,
 * smaller the deeper the block. Shared tensors are drawn once. [spec dalle 10] [Touvron et al.
 * 2021] */
int pl_blocks_init(const struct pl_blocks *s, struct pl_rng *rng);

#ifdef __cplusplus
}
#endif
#endif
