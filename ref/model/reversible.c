/* reversible.c - see reversible.h. */
#include "reversible.h"

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
    s->b[0] = each ? s->a[0] : slice(a, M, D); /* both are x, and a stream that is kept isn't changed */
    for (int l = 0; l < L; l++) {
        s->a[l + 1] = each ? slice(a, M, D) : s->a[0];
        s->b[l + 1] = each ? slice(a, M, D) : s->b[0];
    }
}

static void lay_out_kept(struct pl_stack *s, struct arena *a, size_t M, size_t D)
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
        s->feed[l] = s->feed[0];
        if (own && s->mode == PL_STORED)
            s->feed[l] = (struct pl_ffn_saved){ .h = slice(a, M, D), .y = slice(a, M, D),
                                                .z = slice(a, M, 8 * D) };
        else if (own) /* one branch at a time: they share */
            s->feed[l] = (struct pl_ffn_saved){ .h = s->attn[0].h, .y = s->attn[0].y };
    }
}

static void lay_out(struct pl_stack *s, struct arena *a, size_t M)
{
    size_t D = (size_t)s->blocks.config->D, E = (size_t)s->blocks.E;
    lay_out_streams(s, a, M, D);
    lay_out_kept(s, a, M, D);
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
    if (s->arena && M <= s->room && mode == s->mode && training <= s->training) return PL_OK;
    pl_stack_release(s);
    s->mode = mode;
    s->training = training;
    s->a = calloc(2 * (L + 1), sizeof *s->a);
    s->attn = calloc(L, sizeof *s->attn);
    s->feed = calloc(L, sizeof *s->feed);
    if (!s->a || !s->attn || !s->feed) return PL_ENOMEM;
    s->b = s->a + L + 1;
    lay_out(s, &a, (size_t)M);
    s->arena_floats = a.used;
    s->arena = s->blocks.be->alloc(a.used * sizeof(float));
    if (!s->arena) return PL_ENOMEM;
    a = (struct arena){ .base = s->arena };
    lay_out(s, &a, (size_t)M);
    s->room = M;
    return PL_OK;
}

void pl_stack_release(struct pl_stack *s)
{
    if (s->arena) s->blocks.be->free(s->arena);
    free(s->a);
    free(s->attn);
    free(s->feed);
    s->arena = NULL;
    s->a = s->b = NULL;
    s->attn = NULL;
    s->feed = NULL;
    s->room = 0;
    s->arena_floats = 0;
}

void pl_stack_clear(struct pl_stack *s)
{
    pl_stack_release(s);
    pl_blocks_clear(&s->blocks);
    memset(s, 0, sizeof *s);
}

float *pl_stack_input(const struct pl_stack *s)
{
    return s->a[0];
}

float *pl_stack_output(const struct pl_stack *s)
{
    return s->scratch.norm;
}

float *pl_stack_spare(const struct pl_stack *s)
{
    return s->scratch.dy;
}

static size_t stream_size(const struct pl_stack *s, int B, int n)
{
    assert(B * n <= s->room);
    return (size_t)B * (size_t)n * (size_t)s->blocks.config->D;
}

/* The stream before block l, of a pass that keeps or of one that doesn't. */
static float *stream_a(const struct pl_stack *s, int l, int keep) { return s->a[keep ? l : 0]; }
static float *stream_b(const struct pl_stack *s, int l, int keep)
{
    return s->b[keep ? l : s->blocks.config->L];
}

/* next = stream + sign * scale * y; next may be the stream itself. */
static int couple(const struct pl_stack *s, float *next, const float *stream, const float *y,
                  size_t scale, int B, int n, float sign)
{
    const struct pl_backend *be = s->blocks.be;
    int rc = next == stream ? PL_OK : be->copy(next, stream, stream_size(s, B, n));
    if (rc) return rc;
    return be->scale_add(next, y, pl_params_value(s->blocks.params, scale), B * n,
                         s->blocks.config->D, sign);
}

int pl_stack_begin(struct pl_stack *s, int B, int n, int keep)
{
    const float *x = pl_stack_input(s);
    float *b = stream_b(s, 0, keep);
    return b == x ? PL_OK : s->blocks.be->copy(b, x, stream_size(s, B, n));
}

int pl_stack_block(struct pl_stack *s, int l, int B, int n, int keep)
{
    const struct pl_block *block = &s->blocks.list[l];
    const struct pl_attention_saved *attn = &s->attn[keep ? l : 0];
    struct pl_ffn_saved feed = s->feed[keep ? l : 0];
    float *a = stream_a(s, l, keep), *b = stream_b(s, l, keep);
    float *next_a = stream_a(s, l + 1, keep), *next_b = stream_b(s, l + 1, keep);
    int rc;
    if (!keep) feed.z = NULL;
    if ((rc = pl_attention_branch(&s->blocks, l, attn, &s->scratch, b, B, n)) ||
        (rc = couple(s, next_a, a, attn->y, block->f_scale, B, n, 1)) ||
        (rc = pl_ffn_branch(&s->blocks, l, &feed, &s->scratch, next_a, B, n)))
        return rc;
    return couple(s, next_b, b, feed.y, block->g_scale, B, n, 1);
}

/* The output shares a buffer with the last norm's result, which nobody needs any more. */
int pl_stack_end(struct pl_stack *s, int B, int n, int keep)
{
    const struct pl_backend *be = s->blocks.be;
    int L = s->blocks.config->L, rc;
    size_t size = stream_size(s, B, n);
    float *y = pl_stack_output(s);
    if ((rc = be->copy(y, stream_a(s, L, keep), size)) ||
        (rc = be->axpy(y, 1, stream_b(s, L, keep), size)))
        return rc;
    return be->scale(y, 0.5f, size);
}

int pl_stack_forward(struct pl_stack *s, int B, int n, int keep)
{
    int rc = pl_stack_begin(s, B, n, keep);
    for (int l = 0; l < s->blocks.config->L && rc == PL_OK; l++)
        rc = pl_stack_block(s, l, B, n, keep);
    return rc ? rc : pl_stack_end(s, B, n, keep);
}

/* Takes block l off: db gives da, then da gives db [spec dalle 9]. */
static int block_backward(struct pl_stack *s, int l, int B, int n)
{
    const struct pl_block *block = &s->blocks.list[l];
    const struct pl_attention_saved *attn = &s->attn[l];
    const struct pl_ffn_saved *feed = &s->feed[l];
    float *a = s->a[l + 1], *b = s->b[l]; /* what the two branches read */
    int undo = s->mode == PL_REVERSIBLE, rc;
    if ((rc = pl_ffn_branch_backward(&s->blocks, l, feed, &s->scratch, s->da, s->db, a, B, n)) ||
        (undo && (rc = couple(s, b, b, feed->y, block->g_scale, B, n, -1))) ||
        (s->mode != PL_STORED &&
         (rc = pl_attention_branch(&s->blocks, l, attn, &s->scratch, b, B, n))) ||
        (rc = pl_attention_branch_backward(&s->blocks, l, attn, &s->scratch, s->db, s->da, b, B, n)))
        return rc;
    return undo ? couple(s, a, a, attn->y, block->f_scale, B, n, -1) : PL_OK;
}

int pl_stack_backward(struct pl_stack *s, int B, int n)
{
    const struct pl_backend *be = s->blocks.be;
    size_t size = stream_size(s, B, n);
    int rc;
    assert(s->training && s->blocks.params->grad);
    if ((rc = be->scale(s->da, 0.5f, size)) || (rc = be->copy(s->db, s->da, size))) return rc;
    for (int l = s->blocks.config->L - 1; l >= 0; l--)
        if ((rc = block_backward(s, l, B, n))) return rc;
    return be->axpy(s->da, 1, s->db, size);
}
