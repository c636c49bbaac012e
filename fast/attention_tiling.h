/* attention_tiling.h - how attention's work is cut up; shared by attention.c, which plans, and
 * attention_simd.inc, which computes.
 *
 * All work on one head happens in *packed* order: first the text positions, then the image cells
 * group by group. A group is a grid row (ROW, CONV) or a grid column (COL), so that columns are
 * rows in another order. Every query looks at text keys, and an image query at keys of its own
 * group and, for CONV, of some groups above. FULL and NONE have text only. */
#ifndef PL_FAST_ATTENTION_PLAN_H
#define PL_FAST_ATTENTION_PLAN_H

#include "../ref/attention.h"

/* Queries that are computed together: one piece of text, or some whole groups. */
struct attention_block {
    int row, rows;     /* packed queries */
    int keys;          /* text keys they look at, */
    int causal;        /* of which query i may see only 0..i */
    int group, groups; /* groups == 0: text */
};

struct attention_tiling {
    int n, H, d;
    int lanes; /* floats of a vector register */
    int text;  /* text positions among the n */
    int F, by_column, groups;
    int *start, *length; /* (groups) first packed query, queries */
    int slots, dilation; /* groups a query looks at: its own and slots-1 above, `apart` apart */
    int width;           /* F rounded up to lanes: the scores of one slot */
    struct attention_block *block;
    int blocks, max_rows;
    float scale;      /* of the scores: 1/sqrt(d) */
    int row_stride;   /* floats between packed rows of d: no power of two, which caches dislike */
    int score_stride; /* floats between rows of scores */

    /* Masks are added to scores: 0 or -infinity, the latter also where a register is padded. */
    float *own,
        *above; /* (F, width) cell c of a group against cells of its own group, of one above */
    float *text_mask; /* (text rounded up) nothing hidden but the padding */
    float *causal;    /* from causal[n - i] on: i zeros, then -infinity to n and the padding */
};

/* One head's arguments. Rows of q, k, v and their gradients lie `stride` floats apart, rows of o
 * and dout o_stride. The backward pass reads what the forward pass has saved. */
struct attention_head {
    const float *q, *k, *v, *dout, *saved_o, *saved_lse;
    float *o, *lse, *dq, *dk, *dv; /* lse may be NULL */
    size_t stride, o_stride;
    const float *text_mask;   /* for all queries but causal ones */
    const float *causal_mask; /* causal queries obey it on top, if it is not NULL */
    int fully_masked;         /* queries 0..blind-1 have no key left */
    const float *next;        /* the next head's q, to be fetched meanwhile, or NULL */
};

/* What one thread needs for one head; all pieces of one workspace. */
struct attention_scratch {
    float *k_columns, *v_columns; /* transposed, in panels: text, then each group */
    float *k_rows, *v_rows;       /* (d panels, n, 2 lanes) */
    float *q, *dout, *out;        /* (max_rows, line) of one block */
    float *s, *ds;                /* (max_rows, pitch) */
    float *sum;                   /* (max_rows) of weights; backward: of dout * o */
    float *zeros;                 /* (d rounded up) */
    float *dk, *dv;               /* (n, line) sums over the blocks */
};

/* Packed queries that lie evenly in the sequence: a block's text, or one of its groups. */
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

/* Many small heads wait for memory more than for arithmetic: while a query is weighed, the same
 * position of the next head comes nearer. */
static inline void prefetch_next_head(const struct attention_head *h, int position, int d)
{
    const float *at;
    if (!h->next) return;
    at = h->next + (size_t)position * h->stride;
    for (int part = 0; part < 3; part++, at += h->stride / 3)
        for (int c = 0; c < d; c += 16) __builtin_prefetch(at + c);
}

/* Slots that group g has: the first groups have fewer above them. */
static inline int slots_of(const struct attention_tiling *p, int g)
{
    int above = g / p->dilation;
    return above + 1 < p->slots ? above + 1 : p->slots;
}

/* Which keys a row of scores counts: masks for its text and its slots. */
struct attention_row {
    int text, slots, width;
    const float *mask, *extra_mask, *own, *above; /* more: NULL, or a second one for the text */
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
    /* Adds up `parts` sums of dk and dv, `apart` floats apart, and hands them out. */
    void (*reduce)(const struct attention_tiling *p, const struct attention_head *h,
                   const float *dk, const float *dv, int parts, size_t part_stride);
    /* o (d) of one query over `count` keys; weight has room for count, rounded up to lanes. */
    void (*step)(float *o, const float *q, const float *k_cache, const float *v_cache,
                 const int *key, int count, int d, float *weight);
};

int attention_tiling_init(struct attention_tiling *p, const struct pl_mask *mask, int n, int H,
                          int d, int lanes);
void attention_tiling_clear(struct attention_tiling *p);

/* Cuts a workspace up; returns how many floats that takes. With base NULL it only counts. */
size_t attention_scratch(struct attention_scratch *w, const struct attention_tiling *p, float *base,
                         int backward);

/* The key mask as something to add to scores, for each sequence. */
struct attention_key_mask {
    float *mask;       /* (B, width), or NULL */
    int *fully_masked; /* (B) that many first queries have no key left */
    size_t width;
};
int attention_key_mask_init(struct attention_key_mask *masked, const struct attention_tiling *p,
                            const struct pl_mask *mask, const uint8_t *key_mask, int B);
void attention_key_mask_clear(struct attention_key_mask *masked);

#endif
