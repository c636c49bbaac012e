/* kv_cache.c - cached values of earlier tokens for each block, so that a new token costs one row of
 * every matrix product instead of all rows: keys and values after rotation, and normed inputs for
 * the token shift. */
#include "kv_cache.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

/* The token shift of an image token reads the token above and the one to the left, so the normed
 * inputs of the last F tokens and the present one are cached, (F+1) slots of (rows,D), the one of
 * cell i in slot i mod (F+1); one more slot holds zeros, for neighbours outside the grid. The shift
 * itself is a gather of pieces of channels: with pieces as rows of a table it is an embedding. */
struct pl_kv_cache {
    struct pl_dalle *m;
    int capacity, rows; /* sequences that fit; sequences in progress */
    int cell;           /* of the next code */
    int piece;          /* width of the pieces: divides D and both borders of the shift */
    float **k, **v;     /* (L) each (rows,H,length,d) */
    float **before;     /* (2L) each (F+2,rows,D): attention branches, then feed-forward ones */
    float *a, *b, *h, *qkv, *o, *y, *logits;
    int32_t *ids, *ids_be;       /* (rows) */
    int32_t *gather, *gather_be; /* (rows * D / piece) */
    int32_t *heads, *heads_be;   /* (2H,P): rows of qkv that hold a head's keys, then its values */
};

/* --- sizes ------------------------------------------------------------------------------------ */

/* Positions that a block's cache keeps. A row layer never looks at another row, so each row of the
 * grid takes the place of the last behind the text: a quarter of the memory at the reference run's
 * size. */
static int length_of(const struct pl_dalle_config *c, int l)
{
    return c->block[l].kind == PL_MASK_ROW ? c->T + 1 + c->F : pl_dalle_positions(c);
}

static int common_divisor(int a, int b)
{
    while (b) {
        int rest = a % b;
        a = b;
        b = rest;
    }
    return a;
}

static size_t floats(int a, int b) { return (size_t)a * (size_t)b; }

/* Of backend memory, for `rows` sequences. */
static size_t cache_bytes(const struct pl_dalle_config *c, int rows)
{
    size_t E = floats(c->H, c->d), D = (size_t)c->D, n = 5 * D + 4 * E + (size_t)c->Vi;
    for (int l = 0; l < c->L; l++)
        n += 2 * (size_t)length_of(c, l) * E + 2 * (size_t)(c->F + 2) * D;
    return n * (size_t)rows * sizeof(float);
}

/* --- open, close ------------------------------------------------------------------------------ */

static int allocate(struct pl_kv_cache *c)
{
    const struct pl_dalle_config *config = &c->m->config;
    const struct pl_backend *be = c->m->be;
    size_t rows = (size_t)c->capacity, D = (size_t)config->D, E = floats(config->H, config->d);
    size_t pieces = rows * D / (size_t)c->piece, heads = floats(2 * config->H, config->T + 1);
    int L = config->L;
    c->k = calloc((size_t)L, sizeof *c->k);
    c->v = calloc((size_t)L, sizeof *c->v);
    c->before = calloc(2 * (size_t)L, sizeof *c->before);
    if (!c->k || !c->v || !c->before) return PL_ENOMEM;
    for (int l = 0; l < L; l++) {
        size_t cached = rows * (size_t)length_of(config, l) * E * sizeof(float);
        size_t shifted = (size_t)(config->F + 2) * rows * D * sizeof(float);
        if (!(c->k[l] = be->alloc(cached)) || !(c->v[l] = be->alloc(cached)) ||
            !(c->before[l] = be->alloc(shifted)) || !(c->before[L + l] = be->alloc(shifted)))
            return PL_ENOMEM;
    }
    c->a = be->alloc(rows * D * sizeof(float));
    c->b = be->alloc(rows * D * sizeof(float));
    c->h = be->alloc(rows * D * sizeof(float));
    c->y = be->alloc(rows * D * sizeof(float));
    c->qkv = be->alloc(rows * 3 * E * sizeof(float));
    c->o = be->alloc(rows * E * sizeof(float));
    c->logits = be->alloc(floats(c->capacity, config->Vi) * sizeof(float));
    c->ids = pl_alloc(rows, sizeof *c->ids);
    c->ids_be = be->alloc(rows * sizeof *c->ids);
    c->gather = pl_alloc(pieces, sizeof *c->gather);
    c->gather_be = be->alloc(pieces * sizeof *c->gather);
    c->heads = pl_alloc(heads, sizeof *c->heads);
    c->heads_be = be->alloc(heads * sizeof *c->heads);
    return c->a && c->b && c->h && c->y && c->qkv && c->o && c->logits && c->ids && c->ids_be &&
                   c->gather && c->gather_be && c->heads && c->heads_be
               ? PL_OK
               : PL_ENOMEM;
}

/* Vectors of d channels in a packed qkv (n,3,H,d): those of position t start at 3 H t. */
static int place_heads(struct pl_kv_cache *c)
{
    int P = c->m->config.T + 1, H = c->m->config.H;
    for (int head = 0; head < 2 * H; head++)
        for (int t = 0; t < P; t++) c->heads[head * P + t] = 3 * H * t + H + head;
    return c->m->be->put(c->heads_be, c->heads, floats(2 * H, P) * sizeof *c->heads);
}

int pl_kv_cache_open(struct pl_kv_cache **out, struct pl_dalle *m, int rows, struct pl_err *err)
{
    int D = m->config.D, rc;
    struct pl_kv_cache *c = calloc(1, sizeof *c);
    assert(rows >= 1);
    *out = NULL;
    if (!c) return pl_fail(err, PL_ENOMEM, "out of memory");
    c->m = m;
    c->capacity = rows;
    c->piece = common_divisor(common_divisor(D, (D + 3) / 4), (D + 1) / 2);
    if ((rc = (int64_t)(m->config.F + 2) * rows * (D / c->piece) > INT32_MAX ? PL_ELIMIT : PL_OK) ||
        (rc = allocate(c)) || (rc = place_heads(c))) {
        pl_fail(err, rc, "a cache for %d sequences (%.0f MiB): %s", rows,
                (double)cache_bytes(&m->config, rows) / (1 << 20), pl_status_name(rc));
        pl_kv_cache_close(c);
        return rc;
    }
    *out = c;
    return PL_OK;
}

void pl_kv_cache_close(struct pl_kv_cache *c)
{
    const struct pl_backend *be = c ? c->m->be : NULL;
    if (!c) return;
    for (int l = 0; l < c->m->config.L; l++) {
        if (c->k) be->free(c->k[l]);
        if (c->v) be->free(c->v[l]);
    }
    for (int i = 0; c->before && i < 2 * c->m->config.L; i++) be->free(c->before[i]);
    free(c->k);
    free(c->v);
    free(c->before);
    be->free(c->a);
    be->free(c->b);
    be->free(c->h);
    be->free(c->y);
    be->free(c->qkv);
    be->free(c->o);
    be->free(c->logits);
    be->free(c->ids_be);
    be->free(c->gather_be);
    be->free(c->heads_be);
    pl_free(c->ids);
    pl_free(c->gather);
    pl_free(c->heads);
    free(c);
}

/* --- the text, all positions at once ---------------------------------------------------------- */

/* Keys and values of block l, as the text's pass left them, into the caches of rows
 * first..last-1. */
static int save_text(struct pl_kv_cache *c, int l, int first, int last)
{
    const struct pl_dalle_config *config = &c->m->config;
    const struct pl_backend *be = c->m->be;
    const float *qkv = c->m->stack.attn[0].qkv;
    int P = config->T + 1, H = config->H, d = config->d, rc = PL_OK;
    for (int row = first; row < last; row++)
        for (int h = 0; h < H && rc == PL_OK; h++) {
            size_t at = (size_t)(row * H + h) * floats(length_of(config, l), d);
            rc = be->embed(c->k[l] + at, qkv, c->heads_be + floats(h, P), P, d, 3 * H * P);
            if (rc == PL_OK)
                rc = be->embed(c->v[l] + at, qkv, c->heads_be + floats(H + h, P), P, d, 3 * H * P);
        }
    return rc;
}

/* The text of rows first..last-1, which they share; its last position predicts the first code. */
static int read_text(struct pl_kv_cache *c, float *logits, const int32_t *text, int first, int last)
{
    struct pl_dalle *m = c->m;
    struct pl_stack *s = &m->stack;
    int P = m->config.T + 1, Vi = m->config.Vi, rc = pl_dalle_enter(m, text, NULL, 0, 1);
    if (rc == PL_OK) rc = pl_stack_begin(s, 1, P, 0);
    for (int l = 0; l < m->config.L && rc == PL_OK; l++) {
        rc = pl_stack_block(s, l, 1, P, 0);
        if (rc == PL_OK) rc = save_text(c, l, first, last);
    }
    if (rc == PL_OK) rc = pl_stack_end(s, 1, P, 0);
    if (rc == PL_OK)
        rc = pl_dalle_image_logits(m, c->logits, c->h,
                                   pl_stack_output(s) + floats(P - 1, m->config.D), 1);
    if (rc == PL_OK)
        rc = m->be->get(logits + floats(first, Vi), c->logits, (size_t)Vi * sizeof *logits);
    for (int row = first + 1; row < last && rc == PL_OK; row++)
        memcpy(logits + floats(row, Vi), logits + floats(first, Vi), (size_t)Vi * sizeof *logits);
    return rc;
}

static int explain(int rc, struct pl_err *err)
{
    if (rc == PL_ENOMEM || rc == PL_EDEVICE)
        pl_fail(err, rc, "drawing codes: %s", pl_status_name(rc));
    return rc;
}

int pl_kv_cache_begin(struct pl_kv_cache *c, float *logits, const int32_t *text, int rows,
                      struct pl_err *err)
{
    int T = c->m->config.T, rc = pl_dalle_check_ids(&c->m->config, text, NULL, 0, rows, err);
    assert(1 <= rows && rows <= c->capacity);
    c->rows = rows;
    c->cell = 0;
    for (int first = 0, last; first < rows && rc == PL_OK; first = last) {
        const int32_t *own = text + floats(first, T);
        for (last = first + 1; last < rows; last++)
            if (memcmp(text + floats(last, T), own, (size_t)T * sizeof *text)) break;
        rc = read_text(c, logits, own, first, last);
    }
    return explain(rc, err);
}

/* --- one code more ---------------------------------------------------------------------------- */

/* Which row of `before`, seen as a table of pieces, each piece of the shifted input comes from. */
static int place_gather(struct pl_kv_cache *c)
{
    int D = c->m->config.D, F = c->m->config.F, u = (D + 3) / 4, pieces = D / c->piece;
    int slots = F + 1, zeros = F + 1, self = c->cell % slots;
    int up = c->cell >= F ? (c->cell - F) % slots : zeros;
    int left = c->cell % F ? (c->cell - 1) % slots : zeros;
    for (int row = 0; row < c->rows; row++)
        for (int j = 0; j < pieces; j++) {
            int channel = j * c->piece;
            int slot = channel < u ? up : channel < 2 * u ? left : self;
            c->gather[row * pieces + j] = (slot * c->capacity + row) * pieces + j;
        }
    return c->m->be->put(c->gather_be, c->gather, floats(c->rows, pieces) * sizeof *c->gather);
}

/* h = shift(norm(x)), the norm saved for later tokens. */
static int norm_shift(struct pl_kv_cache *c, float *before, const float *x, size_t weight,
                      size_t bias)
{
    const struct pl_params *p = &c->m->params;
    int D = c->m->config.D, F = c->m->config.F, pieces = D / c->piece, rc;
    float *slot = before + floats(c->cell % (F + 1), c->capacity) * (size_t)D;
    rc = c->m->be->layer_norm(slot, x, pl_params_value(p, weight), pl_params_value(p, bias),
                              c->rows, D, PL_NORM_EPS);
    if (rc) return rc;
    return c->m->be->embed(c->h, before, c->gather_be, c->rows * pieces, c->piece,
                           (F + 2) * c->capacity * pieces);
}

static int attention(struct pl_kv_cache *c, int l)
{
    const struct pl_dalle_config *config = &c->m->config;
    const struct pl_backend *be = c->m->be;
    const struct pl_params *params = &c->m->params;
    const struct pl_blocks *s = &c->m->stack.blocks;
    const struct pl_block *b = &s->list[l];
    int P = s->P, E = s->E, H = config->H, d = config->d, p = P + c->cell, rc;
    size_t angle = floats(p, s->R / 2);
    struct pl_mask mask = b->mask;
    if (mask.kind == PL_MASK_ROW) { /* the text and this row so far are all that it attends to */
        p = P + c->cell % config->F;
        mask = (struct pl_mask){ .kind = PL_MASK_FULL, .P = P + config->F };
    }
    if ((rc = norm_shift(c, c->before[l], c->b, b->f_weight, b->f_bias)) ||
        (rc = be->linear(c->qkv, c->h, pl_params_value(params, b->qkv), NULL, c->rows, config->D,
                         3 * E)) ||
        (s->R && (rc = be->rotary(c->qkv, s->cosine + angle, s->sine + angle, c->rows, 1, 3 * H, d,
                                  s->R, 0))) ||
        (rc = be->attention_step(c->o, c->k[l], c->v[l], c->qkv, c->rows, length_of(config, l), H,
                                 d, p, &mask)) ||
        (rc = be->linear(c->y, c->o, pl_params_value(params, b->out),
                         pl_params_value(params, b->out_bias), c->rows, E, config->D)))
        return rc;
    return be->scale_add(c->a, c->y, pl_params_value(params, b->f_scale), c->rows, config->D, 1);
}

static int ffn(struct pl_kv_cache *c, int l)
{
    const struct pl_dalle_config *config = &c->m->config;
    const struct pl_backend *be = c->m->be;
    const struct pl_params *p = &c->m->params;
    const struct pl_block *b = &c->m->stack.blocks.list[l];
    struct pl_ffn layer = { pl_params_value(p, b->W1), pl_params_value(p, b->b1),
                            pl_params_value(p, b->W2), pl_params_value(p, b->b2) };
    int rc;
    if ((rc = norm_shift(c, c->before[config->L + l], c->a, b->g_weight, b->g_bias)) ||
        (rc = be->ffn(c->y, NULL, c->h, &layer, c->rows, config->D, 4 * config->D)))
        return rc;
    return be->scale_add(c->b, c->y, pl_params_value(p, b->g_scale), c->rows, config->D, 1);
}

int pl_kv_cache_step(struct pl_kv_cache *c, float *logits, const int32_t *code, struct pl_err *err)
{
    const struct pl_dalle_config *config = &c->m->config;
    const struct pl_backend *be = c->m->be;
    size_t size = floats(c->rows, config->D);
    int rc = PL_OK;
    assert(c->rows && c->cell < config->F * config->F - 1);
    for (int row = 0; row < c->rows; row++) {
        if (code[row] < 0 || code[row] >= config->Vi)
            return pl_fail(err, PL_EUSE,
                           "sequence %d, image position %d: code %d, expected 0 to %d", row,
                           c->cell, (int)code[row], config->Vi - 1);
        c->ids[row] = code[row];
    }
    if ((rc = be->put(c->ids_be, c->ids, (size_t)c->rows * sizeof *c->ids)) ||
        (rc = pl_dalle_embed_image(c->m, c->a, c->ids_be, c->rows)) ||
        (rc = be->copy(c->b, c->a, size)) || (rc = place_gather(c)))
        return explain(rc, err);
    for (int l = 0; l < config->L && rc == PL_OK; l++) {
        rc = attention(c, l);
        if (rc == PL_OK) rc = ffn(c, l);
    }
    if (rc || (rc = be->axpy(c->a, 1, c->b, size)) || (rc = be->scale(c->a, 0.5f, size)) ||
        (rc = pl_dalle_image_logits(c->m, c->logits, c->h, c->a, c->rows)) ||
        (rc = be->get(logits, c->logits, floats(c->rows, config->Vi) * sizeof *logits)))
        return explain(rc, err);
    c->cell++;
    return PL_OK;
}
