/* gpt2_config.c - the published sizes of GPT-2, its parameters under their official names, and
 * their initial values. [GPT-2, 2.3] [spec images-and-text 6]
 *
 *   E (V,D) wte, P (positions,D) wpe, the blocks' twelve tensors each, LN_f (D) (D)
 *
 * Initial values: normal with deviation 0.02; for the two layers of a block that add to the stream,
 * divided by sqrt(2 layers), so that the stream's variance does not grow with depth. */
#include "gpt2.h"
#include "../small.h"

#include <math.h>
#include <string.h>

/* One block: x = x + c_proj(attention(c_attn(ln_1(x)))), then x = x + c_proj(gelu(c_fc(ln_2(x)))).
 * c_attn is q, k and v in one matrix; the two c_proj add to the stream. */
static const struct pl_prenorm_name names[PL_PRENORM_TENSORS] = {
    { "ln_1.weight", PL_LN1_WEIGHT },   { "ln_1.bias", PL_LN1_BIAS },
    { "attn.c_attn.weight", PL_QKV_W }, { "attn.c_attn.bias", PL_QKV_B },
    { "attn.c_proj.weight", PL_OUT_W }, { "attn.c_proj.bias", PL_OUT_B },
    { "ln_2.weight", PL_LN2_WEIGHT },   { "ln_2.bias", PL_LN2_BIAS },
    { "mlp.c_fc.weight", PL_FC_W },     { "mlp.c_fc.bias", PL_FC_B },
    { "mlp.c_proj.weight", PL_PROJ_W }, { "mlp.c_proj.bias", PL_PROJ_B },
};

/* layers, heads, width, positions, vocabulary, inner width, groups [GPT-2, table 2] */
static const struct {
    const char *name;
    struct pl_gpt2_config config;
} known[] = {
    { "gpt2", { 12, 12, 768, 1024, 50257, 3072, 0 } },
    { "gpt2-medium", { 24, 16, 1024, 1024, 50257, 4096, 0 } },
    { "gpt2-large", { 36, 20, 1280, 1024, 50257, 5120, 0 } },
    { "gpt2-xl", { 48, 25, 1600, 1024, 50257, 6400, 0 } },
};

/* 124, 355, 774 and 1,558 million parameters. */
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

/* Far above any published model, and low enough that every product of two sizes stays an int. */
int pl_gpt2_check(const struct pl_gpt2_config *c, struct pl_err *err)
{
    const struct pl_range sizes[] = {
        { "n_layer", c->layers, 1, PL_PRENORM_LAYERS_MAX },
        { "n_head", c->heads, 1, 1024 },
        { "n_embd", c->width, 1, 1 << 15 },
        { "n_positions", c->positions, 1, 1 << 20 },
        { "vocab_size", c->vocab, 1, 1 << 24 },
        { "n_inner", c->inner, 1, 1 << 18 },
    };
    int rc = pl_check_ranges("GPT-2 configuration", sizes, PL_COUNT(sizes), err);
    if (rc) return rc;
    /* groups: sets of weights that the layers share in turn, as in ALBERT; 0: each layer its own */
    if (c->groups < 0 || c->groups > c->layers)
        return pl_fail(err, PL_EUSE,
                       "GPT-2 configuration: n_group is %d, expected 0 to n_layer, %d", c->groups,
                       c->layers);
    /* a head has width / heads channels */
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
    /* the blocks: GELU by its tanh formula, every position attends to itself and those before it */
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
    /* Parameters: V D + positions D + layers (12 D^2 + 13 D) + 2 D, with an inner width of 4 D.
     * wte is both E of the input and, transposed, the output layer: no tensor of its own for
     * that */
    m->tokens = p->count;
    rc = pl_params_add(p, "transformer.wte.weight", 2, (int64_t[]){ c->vocab, c->width }, 1);
    m->positions = p->count;
    if (!rc)
        rc = pl_params_add(p, "transformer.wpe.weight", 2, (int64_t[]){ c->positions, c->width },
                           1);
    if (!rc) rc = pl_prenorm_declare(&m->stack, "transformer.h.", names);
    m->norm_weight = p->count;
    if (!rc) rc = pl_params_add(p, "transformer.ln_f.weight", 1, width, 0);
    m->norm_bias = p->count;
    if (!rc) rc = pl_params_add(p, "transformer.ln_f.bias", 1, width, 0);
    return rc;
}

/* Every matrix by a normal distribution; norms begin as the identity, weight 1 and bias 0. */
int pl_gpt2_reset(struct pl_gpt2 *m, uint64_t seed)
{
    const struct pl_params *p = &m->params;
    struct pl_rng rng;
    int rc = PL_OK;
    pl_rng_init(&rng, seed, 0);
    /* Each block adds two vectors to the stream. Were their variances s^2, the stream's would grow
     * to 2 layers s^2; divided by sqrt(2 layers) it stays s^2. */
    for (size_t i = 0; i < p->count && !rc; i++) {
        const struct pl_param *t = &p->list[i];
        /* normal(0, 0.02), and 0.02 / sqrt(2 layers) for the two layers a block that add to the
         * stream */
        double sums = pl_ends_with(t->name, ".c_proj.weight") ? 2 * m->config.layers : 1;
        if (t->dims > 1) rc = pl_params_normal(p, i, 0.02 / sqrt(sums), &rng);
        else rc = pl_params_constant(p, i, pl_ends_with(t->name, ".weight") ? 1 : 0); /* norms */
    }
    return rc;
}

/* The official code has "Conv1D" layers, y = x W + b with W [in,out]: W of linear.h transposed. */
int pl_gpt2_is_transposed(const char *name)
{
    static const char *const transposed[] = { ".attn.c_attn.weight", ".attn.c_proj.weight",
                                              ".mlp.c_fc.weight", ".mlp.c_proj.weight" };
    for (size_t i = 0; i < PL_COUNT(transposed); i++)
        if (pl_ends_with(name, transposed[i])) return 1;
    return 0;
}
