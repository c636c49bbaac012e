/* gpt2_cache.c - a new token needs only its own row of every matrix product: keys and values of
 * earlier positions are in the cache. So a token costs n, not n^2. The equations are
 * ref/model/prenorm.c's, with M = B rows. */
#include "gpt2_cache.h"

#include <string.h>

/* Floats of one block's keys; its values take as many. */
static size_t keys_of_block(const struct pl_gpt2_cache *cache, const struct pl_gpt2 *m)
{
    return (size_t)cache->B * (size_t)cache->positions * (size_t)m->config.width;
}

int pl_gpt2_cache_open(struct pl_gpt2_cache *cache, struct pl_gpt2 *m, int B, int positions)
{
    *cache = (struct pl_gpt2_cache){ .B = B, .positions = positions };
    if (positions < 1 || positions > m->config.positions || B < 1) return PL_EUSE;
    cache->at = m->params.be->alloc(2 * (size_t)m->config.layers * keys_of_block(cache, m) *
                                    sizeof *cache->at);
    return cache->at ? PL_OK : PL_ENOMEM;
}

void pl_gpt2_cache_close(struct pl_gpt2_cache *cache, struct pl_gpt2 *m)
{
    if (cache->at) m->params.be->free(cache->at);
    memset(cache, 0, sizeof *cache);
}

static float *value(const struct pl_gpt2 *m, size_t index)
{
    return pl_params_value(&m->params, index);
}

/* x (B,D) through block l; its key and value join the cache. */
static int step(struct pl_gpt2 *m, int l, struct pl_gpt2_cache *cache,
                const struct pl_prenorm_made *w, float *x)
{
    const struct pl_backend *be = m->params.be;
    struct pl_mask mask = { .kind = m->stack.mask, .P = cache->positions };
    const size_t *part = m->stack.part[l];
    int B = cache->B, D = m->stack.D, H = m->stack.H, rc;
    size_t floats = (size_t)B * (size_t)D, each = keys_of_block(cache, m);
    float *keys = cache->at + 2 * (size_t)l * each;
    rc = be->layer_norm(w->ln_1, x, value(m, part[PL_LN1_WEIGHT]), value(m, part[PL_LN1_BIAS]), B,
                        D, PL_PRENORM_EPS);
    if (!rc)
        rc = be->linear(w->qkv, w->ln_1, value(m, part[PL_QKV_W]), value(m, part[PL_QKV_B]), B, D,
                        3 * D);
    if (!rc)
        rc = be->attention_step(w->o, keys, keys + each, w->qkv, B, cache->positions, H, D / H,
                                cache->filled, &mask);
    if (!rc)
        rc = be->linear(w->y, w->o, value(m, part[PL_OUT_W]), value(m, part[PL_OUT_B]), B, D, D);
    if (!rc) rc = be->axpy(x, 1, w->y, floats);
    if (!rc) rc = pl_prenorm_ffn(&m->stack, l, w, x, B);
    return rc ? rc : be->axpy(x, 1, w->y, floats);
}

/* x (B,D) = the ids' embeddings and the position's. */
static int embed(struct pl_gpt2 *m, const struct pl_gpt2_cache *cache, float *x, int32_t *at,
                 const int32_t *ids)
{
    const struct pl_backend *be = m->params.be;
    int B = cache->B, D = m->config.width, rc = be->put(at, ids, (size_t)B * sizeof *ids);
    const float *position = value(m, m->positions) + (size_t)cache->filled * (size_t)D;
    if (!rc) rc = be->embed(x, value(m, m->tokens), at, B, D, m->config.vocab);
    for (int b = 0; b < B && !rc; b++)
        rc = be->axpy(x + (size_t)b * (size_t)D, 1, position, (size_t)D);
    return rc;
}

/* logits (B,vocab) = LN_f(x) E^T, through z. */
static int output(struct pl_gpt2 *m, float *logits, float *z, float *x, int B)
{
    const struct pl_backend *be = m->params.be;
    int D = m->config.width, V = m->config.vocab;
    int rc = be->layer_norm(x, x, value(m, m->norm_weight), value(m, m->norm_bias), B, D,
                            PL_PRENORM_EPS);
    if (!rc) rc = be->linear(z, x, value(m, m->tokens), NULL, B, D, V);
    return rc ? rc : be->get(logits, z, (size_t)B * (size_t)V * sizeof *z);
}

int pl_gpt2_next(struct pl_gpt2 *m, struct pl_gpt2_cache *cache, float *logits, const int32_t *ids)
{
    int B = cache->B, rc;
    size_t floats = (size_t)B * (size_t)m->config.width;
    struct pl_prenorm_made w = { 0 };
    if (cache->filled == cache->positions) return PL_ELIMIT;
    for (int b = 0; b < B; b++)
        if (ids[b] < 0 || ids[b] >= m->config.vocab) return PL_EUSE;
    int32_t *at = (int32_t *)(void *)pl_scratch_take(m->scratch, (size_t)B);
    float *x = pl_scratch_take(m->scratch, floats),
          *z = logits ? pl_scratch_take(m->scratch, (size_t)B * (size_t)m->config.vocab) : NULL;
    rc = at && x && (z || !logits) ? pl_prenorm_take(&w, &m->stack, (size_t)B, 0) : PL_ENOMEM;
    if (!rc) rc = embed(m, cache, x, at, ids);
    for (int l = 0; l < m->config.layers && !rc; l++) rc = step(m, l, cache, &w, x);
    if (!rc && logits) rc = output(m, logits, z, x, B);
    if (!rc) cache->filled++;
    pl_scratch_give_all(m->scratch);
    return rc;
}
