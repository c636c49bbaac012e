/* mask.c - which keys a query may see: text in the order of reading, images by row, by column or by
 * a window, each causal. [Child et al. 2019, sparse transformers] [DALL-E, fig. 11] [TTT 3.1]
 *
 *   1. nothing later than the query          (but everything, for NONE)
 *   2. all text
 *   3. of the image: its own row, its own column, or a K x K window around it
 *
 * Alternating rows and columns, a token reaches any other in two layers for 2 F keys, not F^2. */
#include "mask.h"

#include <stdlib.h>
#include <string.h>

/* CONV: a K x K window around the query, holes of `dilation`; rule 1 removes its later half. */
static int near_enough(const struct pl_mask *mask, int down, int right)
{
    int e = mask->dilation, reach = e * (mask->kernel / 2);
    return down % e == 0 && right % e == 0 && abs(down) <= reach && abs(right) <= reach;
}

/* CONV_CORNER: the query is the window's lower right corner (DALLE-pytorch 1.6.6). */
static int above_and_left(const struct pl_mask *mask, int down, int right)
{
    int e = mask->dilation, reach = e * (mask->kernel - 1);
    return down % e == 0 && right % e == 0 && 0 <= down && down <= reach && 0 <= right &&
           right <= reach;
}

int pl_mask_allowed(const struct pl_mask *mask, int q, int k)
{
    int F = mask->F, P = mask->P, qi = q - P, ki = k - P; /* image cells, if not negative */
    if (mask->kind == PL_MASK_NONE) return 1; /* CLIP's image tower sees the whole image */
    if (k > q) return 0;                      /* 1. */
    if (ki < 0) return 1;                     /* 2. so text queries are plain causal in all kinds */
    switch (mask->kind) {                     /* 3. */
    case PL_MASK_ROW: return qi / F == ki / F; /* cell i is in row i / F, column i % F */
    case PL_MASK_COL: return qi % F == ki % F;
    case PL_MASK_CONV: return near_enough(mask, qi / F - ki / F, qi % F - ki % F);
    case PL_MASK_CONV_CORNER: return above_and_left(mask, qi / F - ki / F, qi % F - ki % F);
    case PL_MASK_FULL:
    case PL_MASK_NONE: break;
    }
    return 1;
}

/* The same as a table, for files and pictures. */
void pl_mask_bits(uint8_t *bits, const struct pl_mask *mask, int n)
{
    size_t stride = ((size_t)n + 7) / 8;
    memset(bits, 0, (size_t)n * stride);
    for (int q = 0; q < n; q++)
        for (int k = 0; k < n; k++)
            if (pl_mask_allowed(mask, q, k)) /* key k of query q: byte k / 8, high bit first */
                bits[(size_t)q * stride + (size_t)k / 8] |= (uint8_t)(0x80 >> k % 8);
}

uint64_t pl_mask_count(const struct pl_mask *mask, int n)
{
    uint64_t count = 0;
    for (int q = 0; q < n; q++)
        for (int k = 0; k < n; k++) count += (uint64_t)pl_mask_allowed(mask, q, k);
    return count;
}

/* A decimal number of at most four digits, so that kernel times dilation stays an int. */
static const char *number(const char *text, int *value)
{
    int digits = 0;
    for (*value = 0; *text >= '0' && *text <= '9' && digits < 4; digits++)
        *value = 10 * *value + (*text++ - '0');
    return digits ? text : NULL;
}

int pl_mask_parse(struct pl_mask *mask, const char *name, struct pl_err *err)
{
    static const struct {
        const char *name;
        enum pl_mask_kind kind;
    } plain[] = {
        { "full", PL_MASK_FULL },
        { "axial_row", PL_MASK_ROW },
        { "axial_col", PL_MASK_COL },
    };
    const char *at = NULL;
    mask->kernel = mask->dilation = 1;
    for (size_t i = 0; i < PL_COUNT(plain); i++)
        if (!strcmp(name, plain[i].name)) {
            mask->kind = plain[i].kind;
            return PL_OK;
        }
    if (!strcmp(name, "conv_like")) name = "conv5"; /* the package's word for its default kernel */
    if (!strncmp(name, "conv", 4)) at = number(name + 4, &mask->kernel);
    if (at && *at == 'd') at = number(at + 1, &mask->dilation);
    mask->kind = PL_MASK_CONV;
    if (at && (!strcmp(at, "@1.6.6") || !strcmp(at, "_v166"))) {
        mask->kind = PL_MASK_CONV_CORNER;
        at = "";
    }
    /* a window without a middle cell has no query: the kernel must be odd */
    if (at && !*at && mask->kernel % 2 == 1 && mask->dilation >= 1) return PL_OK;
    return pl_fail(err, PL_EUSE,
                   "attention kind \"%.40s\": expected full, axial_row, axial_col or "
                   "conv with an odd kernel, as in conv5, conv3d2, conv5@1.6.6",
                   name);
}
