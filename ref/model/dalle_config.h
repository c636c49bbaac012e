/* dalle_config.h - the sizes of a text-to-image transformer and which of its blocks share a layer.
 * [TTT 3.1] */
#ifndef PL_DALLE_CONFIG_H
#define PL_DALLE_CONFIG_H

#include "../mask.h"

#ifdef __cplusplus
extern "C" {
#endif

#define PL_DALLE_BLOCKS_MAX 256 /* four times the reference run's depth */

/* Attention and feed-forward layers are shared by the blocks of one group; norms and LayerScale
 * never are. Blocks of one group look at the same keys. */
struct pl_dalle_block {
    int group; /* 0..L-1 */
    enum pl_mask_kind kind;
    int kernel, dilation; /* of the CONV kinds */
};

struct pl_dalle_config {
    char name[32];
    int T;    /* text tokens; with the start token P = T + 1 text positions */
    int F;    /* image codes a side; I = F * F of them; S = T + I positions enter the stack */
    int D;    /* width */
    int H, d; /* heads and their width; H * d need not be D */
    int L;    /* blocks */
    int V;    /* text ids; the table has V + T rows for text: one padding id a position */
    int Vi;   /* image codes' vocabulary */
    int pad;  /* the padding of captions: 1 in the reference run; 0 becomes V + position */
    double image_weight;    /* loss = (text + image_weight * image) / (1 + image_weight) */
    int separate_embedding; /* 1: input tables of their own, not the output layer's matrix */
    struct pl_dalle_block block[PL_DALLE_BLOCKS_MAX];
};

/* "run", "middle", "small" or "demo"; PL_ENOTFOUND lists the names. */
int pl_dalle_config_named(struct pl_dalle_config *c, const char *name, struct pl_err *err);

/* The reference run's pattern over c->L blocks: block l < L-1 is in group l mod 4, which is row,
 * column, row, row; the last block is a group of its own with a convolutional window. */
void pl_dalle_config_pattern(struct pl_dalle_config *c, int kernel, int dilation);
/* Every block a group of its own: the network that sharing made 8.9 times smaller. */
void pl_dalle_config_untie(struct pl_dalle_config *c);

/* Checks all values that may come from a file: ranges, groups, no size beyond an int. */
int pl_dalle_config_check(const struct pl_dalle_config *c, struct pl_err *err);

int pl_dalle_positions(const struct pl_dalle_config *c); /* S */
int pl_dalle_text_rows(const struct pl_dalle_config *c); /* Vx = V + T */
int pl_dalle_rows(const struct pl_dalle_config *c);      /* Vt = Vx + Vi: width of the logits */
void pl_dalle_mask(const struct pl_dalle_config *c, int l, struct pl_mask *mask);
/* The first block of l's group. */
int pl_dalle_first_of_group(const struct pl_dalle_config *c, int l);

#ifdef __cplusplus
}
#endif
#endif
