/* mask.h - which keys a query may attend to: full, row, column and convolutional attention over
 * a text prefix and a grid of image cells. [TTT 3.1] [DALL-E: Ramesh et al. 2021, appendix B.1] */
#ifndef PL_MASK_H
#define PL_MASK_H

#include "base.h"

#ifdef __cplusplus
extern "C" {
#endif

enum pl_mask_kind {
    PL_MASK_FULL,        /* causal, nothing else */
    PL_MASK_ROW,         /* image queries: image keys of their own row */
    PL_MASK_COL,         /* image queries: image keys of their own column */
    PL_MASK_CONV,        /* image queries: a centred window, cut by causality */
    PL_MASK_CONV_CORNER, /* DALLE-pytorch 1.6.6: the query in the window's lower right corner */
    PL_MASK_NONE         /* every pair, also later keys: CLIP's image tower, VQGAN's attention */
};

/* Positions 0..P-1 are text (start token included), then F*F image cells row by row. For plain
 * causal text (GPT-2) use FULL with P >= n, F = 0. */
struct pl_mask {
    enum pl_mask_kind kind;
    int P, F;
    int kernel, dilation; /* CONV*: odd kernel, dilation >= 1; else ignored */
};

/* 1 if query position q may look at key position k. Always: k <= q, and every text key (but NONE
 * allows all). */
int pl_mask_allowed(const struct pl_mask *mask, int q, int k);

/* The first n queries against the first n keys as bits, (n, ceil(n/8)), high bit first. */
void pl_mask_bits(uint8_t *bits, const struct pl_mask *mask, int n);

/* Allowed pairs among the first n positions: the cost of attention. */
uint64_t pl_mask_count(const struct pl_mask *mask, int n);

/* "full", "axial_row", "axial_col", "conv5", "conv3d2" (dilation 2), "conv5@1.6.6" or "conv5_v166";
 * "conv_like" is the package's name for conv5. Fills kind, kernel, dilation and leaves P and F.
 * PL_EUSE with a sentence for anything else. */
int pl_mask_parse(struct pl_mask *mask, const char *name, struct pl_err *err);

#ifdef __cplusplus
}
#endif
#endif
