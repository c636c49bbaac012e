/* memory_models.c - the models the calculator knows, and the tensors each is made of. Shapes are
 * the published ones; counts are held against test/golden/calculator/shapes.json. */
#include "memory.h"

#include <stdio.h>
#include <string.h>

static const struct pl_memory_model models[] = {
    { "bert-base", PL_FAMILY_BERT, 512, 768, 3072, 12, 30522, .heads = 12 },
    { "bert-large", PL_FAMILY_BERT, 512, 1024, 4096, 24, 30522, .heads = 16 },
    { "t5-3b", PL_FAMILY_T5, 512, 1024, 16384, 48, 32128, .heads = 32, .head_width = 128 },
    { "t5-11b", PL_FAMILY_T5, 512, 1024, 65536, 48, 32128, .heads = 128, .head_width = 128 },
    { "gpt2-s", PL_FAMILY_GPT, 1024, 768, 3072, 12, 50257, .heads = 12 },
    { "gpt2-m", PL_FAMILY_GPT, 1024, 1024, 4096, 24, 50257, .heads = 16 },
    { "gpt2-l", PL_FAMILY_GPT, 1024, 1280, 5120, 36, 50257, .heads = 20 },
    { "gpt2-xl", PL_FAMILY_GPT, 1024, 1600, 6400, 48, 50257, .heads = 25 },
    { "gpt3-s", PL_FAMILY_GPT, 2048, 768, 3072, 12, 50257, .heads = 12 },
    { "gpt3-m", PL_FAMILY_GPT, 2048, 1024, 4096, 24, 50257, .heads = 16 },
    { "gpt3-l", PL_FAMILY_GPT, 2048, 1536, 6144, 24, 50257, .heads = 16 },
    { "gpt3-xl", PL_FAMILY_GPT, 2048, 2560, 10240, 24, 50257, .published_width = 2048,
      .heads = 24 },
    { "gpt3-3b", PL_FAMILY_GPT, 2048, 2560, 10240, 32, 50257, .heads = 32 },
    { "gpt3-7b", PL_FAMILY_GPT, 2048, 4096, 16384, 32, 50257, .heads = 32 },
    { "gpt3-13b", PL_FAMILY_GPT, 2048, 5120, 20480, 40, 50257, .published_width = 5140,
      .heads = 40 },
    { "gpt3-175b", PL_FAMILY_GPT, 2048, 12288, 49152, 96, 50257, .heads = 96 },
    { "gpt-j-6b", PL_FAMILY_GPTJ, 2048, 4096, 16384, 28, 50400, .heads = 16 },
    { "dalle-12b", PL_FAMILY_BLOCKS, 1280, 3968, 15872, 64, 24576, .heads = 62, .head_width = 64 },
};
static const char *const own[] = { "run", "middle", "small", "demo" };

#define ROWS_ENOUGH 2560 /* dalle.c: positions in one product */

void pl_memory_model_of(struct pl_memory_model *m, const struct pl_dalle_config *c)
{
    double S = pl_dalle_positions(c);
    int sets = 0;
    for (int l = 0; l < c->L; l++) sets += pl_dalle_first_of_group(c, l) == l;
    *m = (struct pl_memory_model){
        .family = PL_FAMILY_DALLE,
        .sequence = S,
        .width = c->D,
        .hidden = 4.0 * c->D,
        .layers = c->L,
        .vocabulary = pl_dalle_rows(c),
        .heads = c->H,
        .head_width = c->d,
        .sets = sets,
        .text = c->T,
        .text_vocabulary = pl_dalle_text_rows(c),
        .sequences_at_once = (int)((ROWS_ENOUGH + S - 1) / S),
    };
    snprintf(m->name, sizeof m->name, "%s", c->name);
}

size_t pl_memory_models(void) { return PL_COUNT(models) + PL_COUNT(own); }

int pl_memory_model_at(struct pl_memory_model *m, size_t index)
{
    struct pl_dalle_config c;
    int rc;
    if (index < PL_COUNT(models)) {
        *m = models[index];
        return PL_OK;
    }
    index -= PL_COUNT(models);
    if (index >= PL_COUNT(own)) return PL_ENOTFOUND;
    if ((rc = pl_dalle_config_named(&c, own[index], NULL))) return rc;
    pl_memory_model_of(m, &c);
    return PL_OK;
}

int pl_memory_model_named(struct pl_memory_model *m, const char *name, struct pl_err *err)
{
    char all[400] = "";
    for (size_t i = 0; i < pl_memory_models(); i++) {
        size_t n = strlen(all);
        int rc = pl_memory_model_at(m, i);
        if (rc) return pl_fail(err, rc, "%s", pl_status_name(rc));
        if (!strcmp(m->name, name)) return PL_OK;
        snprintf(all + n, sizeof all - n, "%s%s", i ? ", " : "", m->name);
    }
    return pl_fail(err, PL_ENOTFOUND, "no model is called '%.40s'; there are %s", name, all);
}

/* --- tensors --------------------------------------------------------------------------------- */

struct list {
    struct pl_memory_tensor *out;
    size_t n;
};

static void add(struct list *t, double rows, double columns, double count)
{
    if (count > 0) t->out[t->n++] = (struct pl_memory_tensor){ rows, columns, count };
}

static double inner(const struct pl_memory_model *m, double d)
{
    return m->head_width > 0 ? m->heads * m->head_width : d;
}

/* GPT's and BERT's layer: one matrix for queries, keys and values; `sets` of everything but the
 * norms, which are each layer's own. */
static void common_layers(struct list *t, const struct pl_memory_model *m, double d, double f,
                          double sets)
{
    double q = inner(m, d);
    add(t, 3 * q, d, sets);
    add(t, 3 * q, 1, sets);
    add(t, d, q, sets);
    add(t, f, d, sets);
    add(t, f, 1, sets);
    add(t, d, f, sets);
    add(t, d, 1, 2 * sets + 4 * m->layers);
}

static void gptj_layers(struct list *t, const struct pl_memory_model *m, double d, double f,
                        double sets)
{
    add(t, inner(m, d), d, 3 * sets);
    add(t, d, inner(m, d), sets);
    add(t, f, d, sets);
    add(t, f, 1, sets);
    add(t, d, f, sets);
    add(t, d, 1, sets + 2 * m->layers);
}

/* `sets` in each of the two stacks; 32 buckets of relative distance in each. */
static void t5_layers(struct list *t, const struct pl_memory_model *m, double d, double f,
                      double sets)
{
    double q = inner(m, d);
    add(t, q, d, 3 * 3 * sets);
    add(t, d, q, 3 * sets);
    add(t, f, d, 2 * sets);
    add(t, d, f, 2 * sets);
    add(t, d, 1, 5 * (m->layers / 2) + 2);
    add(t, 32, m->heads, 2);
}

static void dalle_layers(struct list *t, const struct pl_memory_model *m, double sets)
{
    double D = m->width, E = inner(m, D);
    add(t, 3 * E, D, sets);
    add(t, D, E, sets);
    add(t, 8 * D, D, sets);
    add(t, 8 * D, 1, sets);
    add(t, D, 4 * D, sets);
    add(t, D, 1, 2 * sets + 6 * m->layers + 2); /* norms, LayerScales; the last norm */
    add(t, m->vocabulary, 1, 1);
}

size_t pl_memory_tensors(struct pl_memory_tensor out[PL_MEMORY_TENSORS_MAX],
                         const struct pl_memory_model *m, double groups)
{
    struct list t = { out, 0 };
    double d = m->published_width > 0 ? m->published_width : m->width;
    double f = m->hidden / m->width * d, L = m->family == PL_FAMILY_T5 ? m->layers / 2 : m->layers;
    double sets = groups > 0 ? groups : m->sets > 0 ? m->sets : L;
    if (sets > L) sets = L;
    add(&t, m->vocabulary, d, 1);
    switch (m->family) {
    case PL_FAMILY_GPT:
        add(&t, m->sequence, d, 1);
        add(&t, d, 1, 2);
        common_layers(&t, m, d, f, sets);
        break;
    case PL_FAMILY_BERT: /* positions, token types, their norm; the pooler */
        add(&t, m->sequence, d, 1);
        add(&t, 2, d, 1);
        add(&t, d, d, 1);
        add(&t, d, 1, 3);
        common_layers(&t, m, d, f, sets);
        break;
    case PL_FAMILY_GPTJ:
        add(&t, m->vocabulary, d, 1);
        add(&t, m->vocabulary, 1, 1);
        add(&t, d, 1, 2);
        gptj_layers(&t, m, d, f, sets);
        break;
    case PL_FAMILY_T5: t5_layers(&t, m, d, f, sets); break;
    case PL_FAMILY_BLOCKS: common_layers(&t, m, d, f, sets); break;
    case PL_FAMILY_DALLE: dalle_layers(&t, m, sets); break;
    }
    return t.n;
}
