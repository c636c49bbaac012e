/* workspace.c - activations of a stack of blocks in one allocation: laid out once to measure it,
 * then again to hand out the slices. What each mode stores for the backward pass decides its
 * size. */
#include "workspace.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

/* Hands out slices of one buffer; without a buffer it only measures. */
struct arena {
    float *base;
    size_t used;
};

static float *slice(struct arena *a, size_t rows, size_t columns)
{
    float *p = a->base ? a->base + a->used : NULL;
    a->used += (rows * columns + 15) / 16 * 16;
    return p;
}

static void lay_out_streams(struct pl_stack *s, struct arena *a, size_t M, size_t D)
{
    int L = s->blocks.config->L, each = s->mode != PL_REVERSIBLE;
    s->a[0] = slice(a, M, D);
    s->b[0] = each ? s->a[0] : slice(a, M, D); /* both are x, and a saved stream isn't changed */
    for (int l = 0; l < L; l++) {
        s->a[l + 1] = each ? slice(a, M, D) : s->a[0];
        s->b[l + 1] = each ? slice(a, M, D) : s->b[0];
    }
}

static void lay_out_saved(struct pl_stack *s, struct arena *a, size_t M, size_t D)
{
    const struct pl_dalle_config *c = s->blocks.config;
    size_t E = (size_t)s->blocks.E;
    for (int l = 0; l < c->L; l++) {
        int own = l == 0 || s->mode == PL_STORED;
        s->attn[l] = own ? (struct pl_attention_saved){ .h = slice(a, M, D),
                                                        .qkv = slice(a, M, 3 * E),
                                                        .o = slice(a, M, E),
                                                        .lse = slice(a, M, (size_t)c->H),
                                                        .y = slice(a, M, D) }
                         : s->attn[0];
        s->ffn[l] = s->ffn[0];
        if (own && s->mode == PL_STORED)
            s->ffn[l] = (struct pl_ffn_saved){ .h = slice(a, M, D),
                                               .y = slice(a, M, D),
                                               .z = slice(a, M, 8 * D) };
        else if (own) /* one branch at a time: they share */
            s->ffn[l] = (struct pl_ffn_saved){ .h = s->attn[0].h, .y = s->attn[0].y };
    }
}

static void lay_out(struct pl_stack *s, struct arena *a, size_t M)
{
    size_t D = (size_t)s->blocks.config->D, E = (size_t)s->blocks.E;
    lay_out_streams(s, a, M, D);
    lay_out_saved(s, a, M, D);
    s->scratch.norm = slice(a, M, D);
    s->scratch.dy = slice(a, M, D);
    s->scratch.wide = s->da = s->db = NULL;
    if (!s->training) return;
    s->scratch.wide = slice(a, M, 4 * E);
    s->da = slice(a, M, D);
    s->db = slice(a, M, D);
}

int pl_stack_reserve(struct pl_stack *s, int M, enum pl_activations mode, int training)
{
    size_t L = (size_t)s->blocks.config->L;
    struct arena a = { 0 };
    assert(M >= 1);
    if (s->arena && M <= s->capacity && mode == s->mode && training <= s->training) return PL_OK;
    pl_stack_release(s);
    s->mode = mode;
    s->training = training;
    s->a = calloc(2 * (L + 1), sizeof *s->a);
    s->attn = calloc(L, sizeof *s->attn);
    s->ffn = calloc(L, sizeof *s->ffn);
    if (!s->a || !s->attn || !s->ffn) return PL_ENOMEM;
    s->b = s->a + L + 1;
    lay_out(s, &a, (size_t)M);
    s->arena_floats = a.used;
    s->arena = s->blocks.be->alloc(a.used * sizeof(float));
    if (!s->arena) return PL_ENOMEM;
    a = (struct arena){ .base = s->arena };
    lay_out(s, &a, (size_t)M);
    s->capacity = M;
    return PL_OK;
}

void pl_stack_release(struct pl_stack *s)
{
    if (s->arena) s->blocks.be->free(s->arena);
    free(s->a);
    free(s->attn);
    free(s->ffn);
    s->arena = NULL;
    s->a = s->b = NULL;
    s->attn = NULL;
    s->ffn = NULL;
    s->capacity = 0;
    s->arena_floats = 0;
}

void pl_stack_clear(struct pl_stack *s)
{
    pl_stack_release(s);
    pl_blocks_clear(&s->blocks);
    memset(s, 0, sizeof *s);
}
