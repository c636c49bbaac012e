/* attention_tiling.h - how the work of attention is split. attention_tiling.c plans it,
 * attention_simd.inc computes it.
 *
 * All work on a head happens in *packed* order: the text positions, then the image cells group by
 * group. A group is a row of the image grid (ROW, CONV) or a column (COL), which makes column
 * attention the same code as row attention. Every query attends to text keys; an image query also
 * attends to its own group and, for CONV, to some groups above it. FULL and NONE treat all
 * positions as text. */
#ifndef PL_FAST_ATTENTION_TILING_H
#define PL_FAST_ATTENTION_TILING_H

#include "../ref/attention.h"

/* Queries that are computed together: a run of text, or some whole groups. */
struct attention_block {
    int row, rows;     /* packed queries */
    int keys;          /* text keys that they attend to, */
    int causal;        /* of which query i may attend only to 0..i */
    int group, groups; /* groups == 0: text */
};

struct attention_tiling {
    int n, H, d;
    int lanes; /* floats per vector register */
    int text;  /* text positions among the n */
    int F, by_column, groups;
    int *start, *length; /* (groups) first packed query, queries */
    /* groups a query attends to: its own and slots-1 above, `dilation` apart */
    int slots, dilation;
    int width; /* F rounded up to lanes: the scores of one slot */
    struct attention_block *block;
    int blocks, max_rows;
    float scale;      /* of the scores: 1/sqrt(d) */
    int row_stride;   /* floats between packed rows of d; an odd number of cache lines */
    int score_stride; /* floats between rows of scores */

    /* Additive masks: 0, or -infinity for keys that may not be seen and for padding. */
    float *own,
        *above; /* (F, width) cell c against the cells of its own group, and of a group above */
    float *text_mask; /* (text rounded up) only the padding is masked */
    float *causal;    /* causal[n - i ...]: i zeros, then -infinity */
};

/* The arguments of one head. Rows of q, k, v and their gradients are `stride` floats apart, rows of
 * o and dout `o_stride`. The backward pass reads the saved o and log-sum-exp. */
struct attention_head {
    const float *q, *k, *v, *dout, *saved_o, *saved_lse;
    float *o, *lse, *dq, *dk, *dv; /* lse may be NULL */
    size_t stride, o_stride;
    const float *text_mask;   /* for queries that are not causal */
    const float *causal_mask; /* added for causal queries, if not NULL */
    int fully_masked;         /* queries 0..fully_masked-1 have no key that they may see */
    const float *next;        /* the next head's q, to prefetch; or NULL */
};

/* Scratch memory of one thread for one head, all in one workspace. */
struct attention_scratch {
    float *k_columns, *v_columns; /* transposed, in panels: text, then each group */
    float *k_rows, *v_rows;       /* (d panels, n, 2 lanes) */
    float *q, *dout, *out;        /* (max_rows, row_stride) of one block */
    float *s, *ds;                /* (max_rows, score_stride) */
    float *sum;                   /* (max_rows) sums of weights; in the backward pass dout.o */
    float *zeros;                 /* (d rounded up) */
    float *dk, *dv;               /* (n, row_stride) sums over the blocks */
};

/* Packed queries that are evenly spaced in the sequence: a block's text, or one of its groups. */
struct attention_run {
    int row, rows;        /* within the block */
    int position, stride; /* in the sequence */
    int group;            /* -1: text */
};

static inline struct attention_run run_of_group(const struct attention_tiling *p, int g)
{
    return (struct attention_run){ .rows = p->length[g],
                                   .group = g,
                                   .position = p->text + (p->by_column ? g : g * p->F),
                                   .stride = p->by_column ? p->F : 1 };
}

static inline int runs_of(const struct attention_block *b) { return b->groups ? b->groups : 1; }

static inline struct attention_run run_of(const struct attention_tiling *p,
                                          const struct attention_block *b, int i)
{
    struct attention_run u = { .rows = b->rows, .position = b->row, .stride = 1, .group = -1 };
    if (b->groups) {
        u = run_of_group(p, b->group + i);
        u.row = p->start[u.group] - b->row;
    }
    return u;
}

/* Many small heads are bound by memory latency: while a query is computed, the same position of the
 * next head is prefetched. */
static inline void prefetch_next_head(const struct attention_head *h, int position, int d)
{
    const float *at;
    if (!h->next) return;
    at = h->next + (size_t)position * h->stride;
    for (int part = 0; part < 3; part++, at += h->stride / 3)
        for (int c = 0; c < d; c += 16) __builtin_prefetch(at + c);
}

/* Slots of group g: the first groups have fewer groups above them. */
static inline int slots_of(const struct attention_tiling *p, int g)
{
    int above = g / p->dilation;
    return above + 1 < p->slots ? above + 1 : p->slots;
}

/* The additive masks of one row of scores: for its text keys and for its slots. */
struct attention_row {
    int text, slots, width;
    /* extra_mask: NULL, or a second mask for the text */
    const float *mask, *extra_mask, *own, *above;
};

static inline struct attention_row row_of(const struct attention_tiling *p,
                                          const struct attention_head *h,
                                          const struct attention_block *b,
                                          const struct attention_run *u, int i)
{
    struct attention_row r = { .text = (b->keys + p->lanes - 1) / p->lanes * p->lanes,
                               .width = p->width,
                               .mask = h->text_mask };
    if (b->causal) {
        r.mask = p->causal + p->n - (u->position + i + 1);
        r.extra_mask = h->causal_mask;
    }
    if (u->group >= 0) {
        r.slots = slots_of(p, u->group);
        r.own = p->own + (ptrdiff_t)i * p->width;
        r.above = p->above + (ptrdiff_t)i * p->width;
    }
    return r;
}

struct attention_ops {
    int lanes;
    void (*forward)(const struct attention_tiling *p, const struct attention_head *h,
                    const struct attention_scratch *w, int block0, int block1);
    void (*backward)(const struct attention_tiling *p, const struct attention_head *h,
                     const struct attention_scratch *w, int block0, int block1);
    /* Adds up `parts` partial sums of dk and dv, `part_stride` floats apart, and unpacks them. */
    void (*reduce)(const struct attention_tiling *p, const struct attention_head *h,
                   const float *dk, const float *dv, int parts, size_t part_stride);
    /* o (d) of one query over `count` cached keys (generation); weight holds count floats, rounded
     * up to lanes. */
    void (*step)(float *o, const float *q, const float *k_cache, const float *v_cache,
                 const int *key, int count, int d, float *weight);
};

int attention_tiling_init(struct attention_tiling *p, const struct pl_mask *mask, int n, int H,
                          int d, int lanes);
void attention_tiling_clear(struct attention_tiling *p);

/* Lays out a thread's scratch memory; returns how many floats it takes. With base NULL it only
 * counts. */
size_t attention_scratch(struct attention_scratch *w, const struct attention_tiling *p, float *base,
                         int backward);

/* The key mask of each sequence as an additive mask. */
struct attention_key_mask {
    float *mask;       /* (B, width), or NULL */
    int *fully_masked; /* (B) this many first queries have no key that they may see */
    size_t width;
};
int attention_key_mask_init(struct attention_key_mask *masked, const struct attention_tiling *p,
                            const struct pl_mask *mask, const uint8_t *key_mask, int B);
void attention_key_mask_clear(struct attention_key_mask *masked);

#endif
