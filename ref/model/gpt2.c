/* gpt2.c - GPT-2, the model of the paper's 8-bit fine-tuning tutorial. [Radford et al. 2019] [TTT
 * 2.3]
 *
 *   x      = E[token] + position
 *   y      = LN_f(blocks(x))           prenorm.c
 *   logits = y E^T                     the same E, no bias */
#include "gpt2.h"

#include <math.h>
#include <string.h>

static const struct pl_prenorm_name names[PL_PRENORM_TENSORS] = {
    { "ln_1.weight", PL_LN1_WEIGHT },   { "ln_1.bias", PL_LN1_BIAS },
    { "attn.c_attn.weight", PL_QKV_W }, { "attn.c_attn.bias", PL_QKV_B },
    { "attn.c_proj.weight", PL_OUT_W }, { "attn.c_proj.bias", PL_OUT_B },
    { "ln_2.weight", PL_LN2_WEIGHT },   { "ln_2.bias", PL_LN2_BIAS },
    { "mlp.c_fc.weight", PL_FC_W },     { "mlp.c_fc.bias", PL_FC_B },
    { "mlp.c_proj.weight", PL_PROJ_W }, { "mlp.c_proj.bias", PL_PROJ_B },
};

static const struct {
    const char *name;
    struct pl_gpt2_config config;
} known[] = {
    { "gpt2", { 12, 12, 768, 1024, 50257, 3072, 0 } },
    { "gpt2-medium", { 24, 16, 1024, 1024, 50257, 4096, 0 } },
    { "gpt2-large", { 36, 20, 1280, 1024, 50257, 5120, 0 } },
    { "gpt2-xl", { 48, 25, 1600, 1024, 50257, 6400, 0 } },
};

int pl_gpt2_named(struct pl_gpt2_config *config, const char *name, struct pl_err *err)
{
    for (size_t i = 0; i < PL_COUNT(known); i++)
        if (!strcmp(known[i].name, name)) {
            *config = known[i].config;
            return PL_OK;
        }
    return pl_fail(err, PL_ENOTFOUND,
                   "no GPT-2 of the name '%.40s' (gpt2, gpt2-medium, gpt2-large, gpt2-xl)", name);
}

int pl_gpt2_check(const struct pl_gpt2_config *c, struct pl_err *err)
{
    const struct {
        const char *name;
        int value, most;
    } sizes[] = {
        { "n_layer", c->layers, PL_PRENORM_LAYERS_MAX },
        { "n_head", c->heads, 1024 },
        { "n_embd", c->width, 1 << 15 },
        { "n_positions", c->positions, 1 << 20 },
        { "vocab_size", c->vocab, 1 << 24 },
        { "n_inner", c->inner, 1 << 18 },
    };
    for (size_t i = 0; i < PL_COUNT(sizes); i++)
        if (sizes[i].value < 1 || sizes[i].value > sizes[i].most)
            return pl_fail(err, PL_EUSE, "GPT-2 configuration: %s is %d, expected 1 to %d",
                           sizes[i].name, sizes[i].value, sizes[i].most);
    if (c->groups < 0 || c->groups > c->layers)
        return pl_fail(err, PL_EUSE,
                       "GPT-2 configuration: n_group is %d, expected 0 to n_layer, %d", c->groups,
                       c->layers);
    if (c->width % c->heads)
        return pl_fail(err, PL_EUSE,
                       "GPT-2 configuration: n_embd is %d, expected a multiple of n_head, %d",
                       c->width, c->heads);
    return PL_OK;
}

int pl_gpt2_declare(struct pl_gpt2 *m, const struct pl_gpt2_config *config)
{
    const struct pl_gpt2_config *c = &m->config;
    struct pl_params *p = &m->params;
    int rc;
    memset(m, 0, sizeof *m);
    m->config = *config;
    int64_t width[1] = { c->width };
    m->stack = (struct pl_prenorm){
        .params = p,
        .layers = c->layers,
        .D = c->width,
        .H = c->heads,
        .hidden = c->inner,
        .groups = c->groups,
        .activation = PL_GELU_TANH,
        .mask = PL_MASK_FULL,
    };
    m->tokens = p->count;
    rc = pl_params_add(p, "transformer.wte.weight", 2, (int64_t[]){ c->vocab, c->width }, 1);
    m->places = p->count;
    if (!rc)
        rc = pl_params_add(p, "transformer.wpe.weight", 2, (int64_t[]){ c->positions, c->width },
                           1);
    if (!rc) rc = pl_prenorm_declare(&m->stack, "transformer.h.", names);
    m->gain = p->count;
    if (!rc) rc = pl_params_add(p, "transformer.ln_f.weight", 1, width, 0);
    m->offset = p->count;
    if (!rc) rc = pl_params_add(p, "transformer.ln_f.bias", 1, width, 0);
    return rc;
}

static int ends_with(const char *name, const char *end)
{
    size_t n = strlen(name), k = strlen(end);
    return n > k && !strcmp(name + n - k, end);
}

static int normal(const struct pl_params *p, size_t index, double deviation, struct pl_rng *rng)
{
    float *host = pl_alloc(p->list[index].n, sizeof *host);
    int rc = host ? PL_OK : PL_ENOMEM;
    for (size_t i = 0; !rc && i < p->list[index].n; i++)
        host[i] = (float)(deviation * pl_rng_normal(rng));
    if (!rc) rc = pl_params_put(p, index, host);
    pl_free(host);
    return rc;
}

int pl_gpt2_reset(struct pl_gpt2 *m, uint64_t seed)
{
    const struct pl_params *p = &m->params;
    struct pl_rng rng;
    int rc = PL_OK;
    pl_rng_init(&rng, seed, 0);
    for (size_t i = 0; i < p->count && !rc; i++) {
        const struct pl_param *t = &p->list[i];
        double sums = ends_with(t->name, ".c_proj.weight") ? 2 * m->config.layers : 1;
        if (t->dims > 1) rc = normal(p, i, 0.02 / sqrt(sums), &rng);
        else rc = pl_params_constant(p, i, ends_with(t->name, ".weight") ? 1 : 0); /* norms */
    }
    return rc;
}

int pl_gpt2_is_turned(const char *name)
{
    static const char *const turned[] = { ".attn.c_attn.weight", ".attn.c_proj.weight",
                                          ".mlp.c_fc.weight", ".mlp.c_proj.weight" };
    for (size_t i = 0; i < PL_COUNT(turned); i++)
        if (ends_with(name, turned[i])) return 1;
    return 0;
}

/* --- running ---------------------------------------------------------------------------------- */

static float *value(const struct pl_gpt2 *m, size_t index)
{
    return pl_params_value(&m->params, index);
}

static float *grad(const struct pl_gpt2 *m, size_t index)
{
    return pl_params_grad(&m->params, index);
}

static void show(const struct pl_gpt2 *m, const char *name, const float *at, size_t n)
{
    if (m->stack.watch) m->stack.watch(m->stack.context, name, at, n);
}

static int check_ids(const struct pl_gpt2 *m, const int32_t *ids, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (ids[i] < 0 || ids[i] >= m->config.vocab) return PL_EUSE;
    return PL_OK;
}

/* Host ids to the backend, in a buffer from the scratch buffers. NULL: no memory. */
static int32_t *put_ids(struct pl_gpt2 *m, const int32_t *ids, size_t n)
{
    int32_t *at = (int32_t *)(void *)pl_scratch_take(m->scratch, n);
    return at && !m->params.be->put(at, ids, n * sizeof *at) ? at : NULL;
}

/* The same of a key mask, to *at; without one *at stays NULL. */
static int put_mask(struct pl_gpt2 *m, const uint8_t **at, const uint8_t *key_mask, size_t n)
{
    uint8_t *bytes;
    *at = NULL;
    if (!key_mask) return PL_OK;
    *at = bytes = (uint8_t *)(void *)pl_scratch_take(m->scratch, pl_blocks(n, sizeof(float)));
    return bytes ? m->params.be->put(bytes, key_mask, n) : PL_ENOMEM;
}

/* x (B,n,D) = wte[id] + wpe[place], then the whole stack. inputs as in prenorm.h. */
static int run(struct pl_gpt2 *m, float *x, float *inputs, const int32_t *ids,
               const uint8_t *key_mask, int B, int n)
{
    const struct pl_backend *be = m->params.be;
    const struct pl_gpt2_config *c = &m->config;
    size_t row = (size_t)n * (size_t)c->width;
    int rc = be->embed(x, value(m, m->tokens), ids, B * n, c->width, c->vocab);
    for (int b = 0; b < B && !rc; b++)
        rc = be->axpy(x + (size_t)b * row, 1, value(m, m->places), row);
    if (!rc) show(m, "embedded", x, (size_t)B * row);
    return rc ? rc : pl_prenorm_forward(&m->stack, x, inputs, B, n, key_mask);
}

static int last_norm(struct pl_gpt2 *m, float *y, const float *x, int M)
{
    return m->params.be->layer_norm(y, x, value(m, m->gain), value(m, m->offset), M,
                                    m->config.width, PL_PRENORM_EPS);
}

int pl_gpt2_logits(struct pl_gpt2 *m, float *logits, const int32_t *ids, const uint8_t *key_mask,
                   int B, int n)
{
    const struct pl_backend *be = m->params.be;
    const struct pl_gpt2_config *c = &m->config;
    size_t M = (size_t)B * (size_t)n, floats = M * (size_t)c->width,
           row = (size_t)n * (size_t)c->vocab;
    int rc = n > c->positions ? PL_EUSE : check_ids(m, ids, M);
    if (rc) return rc;
    int32_t *at = put_ids(m, ids, M);
    float *x = pl_scratch_take(m->scratch, floats), *z = pl_scratch_take(m->scratch, row);
    rc = at && x && z ? put_mask(m, &key_mask, key_mask, M) : PL_ENOMEM;
    if (!rc) rc = run(m, x, NULL, at, key_mask, B, n);
    if (!rc) rc = last_norm(m, x, x, (int)M);
    if (!rc) show(m, "ln_f", x, floats);
    for (int b = 0; b < B && !rc; b++) { /* a sequence at a time: logits are the largest of all */
        rc = be->linear(z, x + (size_t)b * (size_t)n * (size_t)c->width, value(m, m->tokens), NULL,
                        n, c->width, c->vocab);
        if (!rc) rc = be->get(logits + (size_t)b * row, z, row * sizeof *z);
    }
    pl_scratch_give_all(m->scratch);
    return rc;
}

/* What position t predicts is the label at t + 1; -1 counts for nothing. PL_EUSE: no id. */
static int shifted(int32_t *label, const struct pl_gpt2 *m, const int32_t *labels, int B, int n)
{
    for (int b = 0; b < B; b++)
        for (int t = 0; t < n; t++) {
            int32_t id = t + 1 < n ? labels[(size_t)b * (size_t)n + (size_t)t + 1] : -1;
            if (id >= m->config.vocab) return PL_EUSE;
            label[(size_t)b * (size_t)n + (size_t)t] = id < 0 ? -1 : id;
        }
    return PL_OK;
}

/* From dy, the gradient at ln_f's output, down to the embeddings. */
static int backward(struct pl_gpt2 *m, const float *dy, const float *x, const float *inputs,
                    const int32_t *ids, const uint8_t *key_mask, int B, int n)
{
    const struct pl_backend *be = m->params.be;
    const struct pl_gpt2_config *c = &m->config;
    size_t row = (size_t)n * (size_t)c->width;
    float *dx = pl_scratch_take(m->scratch, (size_t)B * row);
    int rc = dx ? be->layer_norm_backward(dx, grad(m, m->gain), grad(m, m->offset), dy, x,
                                          value(m, m->gain), B * n, c->width, PL_PRENORM_EPS, 0)
                : PL_ENOMEM;
    if (!rc) rc = pl_prenorm_backward(&m->stack, dx, inputs, B, n, key_mask);
    if (!rc) rc = be->embed_backward(grad(m, m->tokens), dx, ids, B * n, c->width, c->vocab);
    for (int b = 0; b < B && !rc; b++)
        rc = be->axpy(grad(m, m->places), 1, dx + (size_t)b * row, row);
    return rc;
}

int pl_gpt2_loss(struct pl_gpt2 *m, double *loss, const int32_t *ids, const int32_t *labels,
                 const uint8_t *key_mask, int B, int n, double scale)
{
    const struct pl_backend *be = m->params.be;
    const struct pl_gpt2_config *c = &m->config;
    struct pl_loss_segment all = { 0, n, 0, c->vocab, (float)scale };
    size_t M = (size_t)B * (size_t)n, floats = M * (size_t)c->width;
    int with_grad = scale > 0 || scale<0, rc = n> c->positions ? PL_EUSE : check_ids(m, ids, M);
    int32_t *host = pl_alloc(M, sizeof *host);
    if (!rc && !host) rc = PL_ENOMEM;
    if (!rc) rc = shifted(host, m, labels, B, n);
    if (rc) {
        pl_free(host);
        return rc;
    }
    int32_t *at = put_ids(m, ids, M), *label = put_ids(m, host, M);
    float *x = pl_scratch_take(m->scratch, floats), *y = pl_scratch_take(m->scratch, floats),
          *dy = NULL, *inputs = NULL;
    if (with_grad) {
        dy = pl_scratch_take(m->scratch, floats);
        inputs = pl_scratch_take(m->scratch, (size_t)c->layers * floats);
    }
    rc = at && label && x && y && (!with_grad || (dy && inputs))
             ? put_mask(m, &key_mask, key_mask, M)
             : PL_ENOMEM;
    if (!rc) rc = run(m, x, inputs, at, key_mask, B, n);
    if (!rc) rc = last_norm(m, y, x, (int)M);
    if (!rc)
        rc = be->loss(loss, NULL, dy, with_grad ? grad(m, m->tokens) : NULL,
                      with_grad ? m->no_grad : NULL, y, value(m, m->tokens), m->zeros, label, &all,
                      1, B, n, c->width, c->vocab);
    if (!rc && with_grad) rc = backward(m, dy, x, inputs, at, key_mask, B, n);
    pl_prenorm_forget(&m->stack); /* after an error there may be something */
    pl_free(host);
    pl_scratch_give_all(m->scratch);
    return rc;
}

/* --- generation ------------------------------------------------------------------------------- */

int pl_gpt2_cache_open(struct pl_gpt2_cache *cache, struct pl_gpt2 *m, int B, int positions)
{
    size_t floats;
    *cache = (struct pl_gpt2_cache){ .B = B, .positions = positions };
    if (positions < 1 || positions > m->config.positions || B < 1) return PL_EUSE;
    floats = pl_prenorm_cache_floats(&m->stack, B, positions);
    cache->at = m->params.be->alloc(floats * sizeof *cache->at);
    return cache->at ? PL_OK : PL_ENOMEM;
}

void pl_gpt2_cache_close(struct pl_gpt2_cache *cache, struct pl_gpt2 *m)
{
    if (cache->at) m->params.be->free(cache->at);
    memset(cache, 0, sizeof *cache);
}

int pl_gpt2_next(struct pl_gpt2 *m, struct pl_gpt2_cache *cache, float *logits, const int32_t *ids)
{
    const struct pl_backend *be = m->params.be;
    const struct pl_gpt2_config *c = &m->config;
    int B = cache->B, D = c->width, rc = check_ids(m, ids, (size_t)B);
    if (cache->filled == cache->positions) return PL_ELIMIT;
    if (rc) return rc;
    int32_t *at = put_ids(m, ids, (size_t)B);
    float *x = pl_scratch_take(m->scratch, (size_t)B * (size_t)D);
    float *z = logits ? pl_scratch_take(m->scratch, (size_t)B * (size_t)c->vocab) : NULL;
    rc = at && x && (z || !logits) ? be->embed(x, value(m, m->tokens), at, B, D, c->vocab)
                                   : PL_ENOMEM;
    for (int b = 0; b < B && !rc; b++)
        rc = be->axpy(x + (size_t)b * (size_t)D, 1,
                      value(m, m->places) + (size_t)cache->filled * (size_t)D, (size_t)D);
    if (!rc) rc = pl_prenorm_step(&m->stack, x, cache->at, B, cache->positions, cache->filled);
    if (!rc && logits) {
        rc = last_norm(m, x, x, B);
        if (!rc) rc = be->linear(z, x, value(m, m->tokens), NULL, B, D, c->vocab);
        if (!rc) rc = be->get(logits, z, (size_t)B * (size_t)c->vocab * sizeof *z);
    }
    if (!rc) cache->filled++;
    pl_scratch_give_all(m->scratch);
    return rc;
}
