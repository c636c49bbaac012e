/* attention_tiling.c - plans one attention call: groups, blocks of queries, additive masks and the
 * layout of scratch memory. */
#include "attention_tiling.h"

#include <assert.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Queries per block. Enough that a key loaded from L2 into L1 is used often, few enough that the
 * block's scores stay in L2. */
#define BLOCK_ROWS 64
#define LANES_MAX 16

static int ceil_div(int a, int b) { return (a + b - 1) / b; }
static int round_to(int a, int b) { return ceil_div(a, b) * b; }
static int smaller(int a, int b) { return a < b ? a : b; }

/* A stride of an odd number of cache lines, so that successive rows use all sets of a cache. */
static int odd_lines(int floats)
{
    int lines = ceil_div(floats, 16);
    return 16 * (lines + 1 - lines % 2);
}

static void tile_groups(struct attention_tiling *p, const struct pl_mask *mask)
{
    int cells = p->n - p->text, next = p->text;
    for (int g = 0; g < p->groups; g++) {
        p->start[g] = next;
        p->length[g] = p->by_column ? ceil_div(cells - g, p->F) : smaller(p->F, cells - g * p->F);
        next += p->length[g];
    }
    for (int c = 0; c < p->F; c++)
        for (int k = 0; k < p->width; k++) {
            int from = mask->P + p->F * p->F, to = p->by_column ? p->F : 1;
            int above = from - p->dilation * p->F,
                in = k < p->F; /* any row that has rows above it */
            size_t at = (size_t)c * (size_t)p->width + (size_t)k;
            p->own[at] = in && pl_mask_allowed(mask, from + c * to, from + k * to) ? 0 : -INFINITY;
            p->above[at] = in && pl_mask_allowed(mask, from + c * to, above + k * to) ? 0
                                                                                      : -INFINITY;
        }
}

static void tile_blocks(struct attention_tiling *p, int causal)
{
    int together = p->F ? BLOCK_ROWS / p->F : 0;
    struct attention_block *b = p->block;
    if (together < 1) together = 1;
    for (int i = 0; i < p->text; i += BLOCK_ROWS, b++) {
        b->row = i;
        b->rows = smaller(BLOCK_ROWS, p->text - i);
        b->keys = causal ? i + b->rows : p->text;
        b->causal = causal;
    }
    for (int g = 0; g < p->groups; g += together, b++) {
        b->row = p->start[g];
        b->group = g;
        b->groups = smaller(together, p->groups - g);
        for (int i = 0; i < b->groups; i++) b->rows += p->length[g + i];
        b->keys = p->text;
    }
    p->blocks = (int)(b - p->block);
    for (int i = 0; i < p->blocks; i++)
        if (p->block[i].rows > p->max_rows) p->max_rows = p->block[i].rows;
}

void attention_tiling_clear(struct attention_tiling *p)
{
    free(p->start);
    free(p->block);
    pl_free(p->own);
}

int attention_tiling_init(struct attention_tiling *p, const struct pl_mask *mask, int n, int H,
                          int d, int lanes)
{
    int whole = mask->kind == PL_MASK_FULL || mask->kind == PL_MASK_NONE;
    int conv = mask->kind == PL_MASK_CONV || mask->kind == PL_MASK_CONV_CORNER;
    int cells, most_groups, slots = 1;
    size_t masks, cell_masks;
    *p = (struct attention_tiling){ .n = n, .H = H, .d = d, .lanes = lanes, .dilation = 1 };
    p->text = whole ? n : smaller(mask->P, n);
    p->by_column = mask->kind == PL_MASK_COL;
    cells = n - p->text;
    assert(n >= 1 && H >= 1 && d >= 1 && (!cells || (mask->F >= 1 && cells <= mask->F * mask->F)));
    p->F = cells ? mask->F : 0;
    if (cells) p->groups = p->by_column ? smaller(cells, p->F) : ceil_div(cells, p->F);
    if (conv) {
        p->dilation = mask->dilation;
        slots = mask->kind == PL_MASK_CONV ? mask->kernel / 2 + 1 : mask->kernel;
    }
    most_groups = p->groups ? (p->groups - 1) / p->dilation + 1 : 1;
    p->slots = smaller(slots, most_groups);
    p->width = round_to(p->F, lanes);
    p->scale = (float)(1 / sqrt(d));
    p->row_stride = odd_lines(round_to(d, lanes));
    p->score_stride = odd_lines(round_to(p->text, lanes) + p->slots * p->width);

    cell_masks = (size_t)p->F * (size_t)p->width;
    masks = 2 * cell_masks + 3 * (size_t)n + 4 * LANES_MAX;
    p->start = calloc((size_t)p->groups + 1, 2 * sizeof *p->start);
    p->block = calloc((size_t)(n / BLOCK_ROWS + p->groups + 1), sizeof *p->block);
    p->own = pl_alloc(masks, sizeof *p->own);
    if (!p->start || !p->block || !p->own) {
        attention_tiling_clear(p);
        return PL_ENOMEM;
    }
    p->length = p->start + p->groups;
    p->above = p->own + cell_masks;
    p->text_mask = p->above + cell_masks;
    p->causal = p->text_mask + n + LANES_MAX;
    for (int i = p->text; i < n + LANES_MAX; i++) p->text_mask[i] = -INFINITY;
    for (int i = n; i < 2 * n + LANES_MAX; i++) p->causal[i] = -INFINITY;
    tile_groups(p, mask);
    tile_blocks(p, mask->kind != PL_MASK_NONE);
    return PL_OK;
}

/* Reserves n floats of a buffer; with base NULL it only counts. */
static float *carve(float *base, size_t *used, size_t n)
{
    float *at = base ? base + *used : NULL;
    *used += (n + 15) / 16 * 16;
    return at;
}

size_t attention_scratch(struct attention_scratch *w, const struct attention_tiling *p, float *base,
                         int backward)
{
    int panel = 2 * p->lanes;
    size_t used = 0, d = (size_t)p->d, rows = (size_t)p->max_rows,
           row_stride = (size_t)p->row_stride;
    size_t keys = (size_t)round_to(p->text, panel) +
                  (size_t)p->groups * (size_t)round_to(p->F, panel);
    size_t all_rows = (size_t)round_to(p->d, panel) * (size_t)p->n;
    *w = (struct attention_scratch){ .k_columns = carve(base, &used, keys * d) };
    if (backward) {
        w->v_columns = carve(base, &used, keys * d);
        w->k_rows = carve(base, &used, all_rows);
        w->dout = carve(base, &used, rows * row_stride);
        w->ds = carve(base, &used, rows * (size_t)p->score_stride);
    } else {
        w->v_rows = carve(base, &used, all_rows);
    }
    w->q = carve(base, &used, rows * row_stride);
    w->out = carve(base, &used, rows * row_stride);
    w->s = carve(base, &used, rows * (size_t)p->score_stride);
    w->sum = carve(base, &used, rows);
    w->zeros = carve(base, &used, d);
    if (base) memset(w->zeros, 0, d * sizeof *w->zeros);
    return used;
}

void attention_key_mask_clear(struct attention_key_mask *masked)
{
    pl_free(masked->mask);
    free(masked->fully_masked);
}

/* Causal text query i is fully masked if keys 0..i all are. An image query always sees itself. */
int attention_key_mask_init(struct attention_key_mask *masked, const struct attention_tiling *p,
                            const struct pl_mask *mask, const uint8_t *key_mask, int B)
{
    int whole = mask->kind == PL_MASK_FULL || mask->kind == PL_MASK_NONE;
    size_t row = (size_t)(whole ? p->n : mask->P);
    *masked = (struct attention_key_mask){ .width = (size_t)round_to(p->text, LANES_MAX) };
    if (!key_mask) return PL_OK;
    masked->mask = pl_alloc((size_t)B * masked->width, sizeof *masked->mask);
    masked->fully_masked = calloc((size_t)B, sizeof *masked->fully_masked);
    if (!masked->mask || !masked->fully_masked) {
        attention_key_mask_clear(masked);
        return PL_ENOMEM;
    }
    for (int b = 0; b < B; b++) {
        const uint8_t *keys = key_mask + (size_t)b * row;
        int first = 0;
        for (size_t i = 0; i < masked->width; i++)
            masked->mask[(size_t)b * masked->width + i] = i < (size_t)p->text && keys[i]
                                                              ? 0
                                                              : -INFINITY;
        while (first < p->text && !keys[first]) first++;
        if (mask->kind == PL_MASK_FULL) masked->fully_masked[b] = first;
        if (mask->kind == PL_MASK_NONE) masked->fully_masked[b] = first == p->text ? p->n : 0;
    }
    return PL_OK;
}
