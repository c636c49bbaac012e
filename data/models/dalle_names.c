/* dalle_names.c - maps the model's tensors to the names in checkpoints and back, and derives the
 * optimizer's parameter order. */
#include "dalle_names.h"

#include <math.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The tensors of a block in the official order: the name after "layers.blocks.L." in training
 * checkpoints and, if different, in inference checkpoints. */
static const struct {
    const char *training, *inference;
    size_t member; /* of struct pl_block */
} tensors[] = {
#define MEMBER(name) offsetof(struct pl_block, name)
    { "f.net.scale", NULL, MEMBER(f_scale) },
    { "f.net.fn.norm.weight", NULL, MEMBER(f_weight) },
    { "f.net.fn.norm.bias", NULL, MEMBER(f_bias) },
    { "f.net.fn.fn.fn.to_qkv.weight", "f.net.fn.fn.fn.fn.fn.to_qkv.weight", MEMBER(qkv) },
    { "f.net.fn.fn.fn.to_out.0.weight", "f.net.fn.fn.fn.fn.fn.to_out.0.weight", MEMBER(out) },
    { "f.net.fn.fn.fn.to_out.0.bias", "f.net.fn.fn.fn.fn.fn.to_out.0.bias", MEMBER(out_bias) },
    { "g.net.scale", NULL, MEMBER(g_scale) },
    { "g.net.fn.norm.weight", NULL, MEMBER(g_weight) },
    { "g.net.fn.norm.bias", NULL, MEMBER(g_bias) },
    { "g.net.fn.fn.fn.net.0.weight", "g.net.fn.fn.fn.fn.net.0.weight", MEMBER(W1) },
    { "g.net.fn.fn.fn.net.0.bias", "g.net.fn.fn.fn.fn.net.0.bias", MEMBER(b1) },
    { "g.net.fn.fn.fn.net.3.weight", "g.net.fn.fn.fn.fn.net.3.weight", MEMBER(W2) },
    { "g.net.fn.fn.fn.net.3.bias", "g.net.fn.fn.fn.fn.net.3.bias", MEMBER(b2) },
#undef MEMBER
};

static size_t tensor_index(const struct pl_block *b, size_t member)
{
    size_t index;
    memcpy(&index, (const char *)b + member, sizeof index);
    return index;
}

/* --- the state dict --------------------------------------------------------------------------- */

static void add(struct pl_dalle_entry *list, size_t *count, const char *name, long param)
{
    struct pl_dalle_entry *e = &list[*count];
    snprintf(e->name, sizeof e->name, "model.%s", name);
    e->param = param;
    for (e->first = 0; list[e->first].param != param; e->first++)
        ;
    ++*count;
}

struct pl_dalle_entry *pl_dalle_state_dict(const struct pl_dalle *m, size_t *count)
{
    int L = m->config.L;
    struct pl_dalle_entry *list = calloc((size_t)L * PL_COUNT(tensors) + 9, sizeof *list);
    *count = 0;
    if (!list) return NULL;
    add(list, count, "transformer.pos_emb", PL_DALLE_POS_EMB);
    for (int l = 0; l < L; l++)
        for (size_t i = 0; i < PL_COUNT(tensors); i++) {
            char name[PL_NAME_MAX - 8];
            snprintf(name, sizeof name, "transformer.layers.blocks.%d.%s", l, tensors[i].training);
            add(list, count, name, (long)tensor_index(&m->stack.blocks.list[l], tensors[i].member));
        }
    add(list, count, "to_logits.0.weight", (long)m->norm_weight);
    add(list, count, "to_logits.0.bias", (long)m->norm_bias);
    add(list, count, "to_logits.1.weight", (long)m->embedding);
    add(list, count, "to_logits.1.bias", (long)m->output_bias);
    if (m->config.separate_embedding) {
        add(list, count, "text_emb.weight", (long)m->text_embedding);
        add(list, count, "image_emb.weight", (long)m->image_embedding);
    } else { /* the output layer, listed again for each use as an embedding */
        add(list, count, "text_emb.linear.weight", (long)m->embedding);
        add(list, count, "text_emb.linear.bias", (long)m->output_bias);
        add(list, count, "image_emb.linear.weight", (long)m->embedding);
        add(list, count, "image_emb.linear.bias", (long)m->output_bias);
    }
    return list;
}

/* --- from name to tensor ---------------------------------------------------------------------- */

/* The rest of `name` after `front`, or NULL. */
static const char *after(const char *name, const char *front)
{
    size_t n = strlen(front);
    return strncmp(name, front, n) ? NULL : name + n;
}

/* The place that a name refers to: entry `tensor` of the table in block l, or, if l < 0, entry
 * `end` of the model. */
struct called {
    int l;
    size_t tensor;
    const char *end;
};

static int parse(struct called *c, const char *name)
{
    const char *rest;
    int digits = 0;
    if ((rest = after(name, "model."))) name = rest;
    if ((rest = after(name, "transformer."))) name = rest;
    *c = (struct called){ .l = -1, .end = name };
    if (!(rest = after(name, "layers.blocks."))) return 1;
    for (c->l = 0; *rest >= '0' && *rest <= '9' && digits < 4; digits++)
        c->l = 10 * c->l + (*rest++ - '0');
    if (!digits || *rest++ != '.') return 0;
    for (c->tensor = 0; c->tensor < PL_COUNT(tensors); c->tensor++)
        if (!strcmp(rest, tensors[c->tensor].training) ||
            (tensors[c->tensor].inference && !strcmp(rest, tensors[c->tensor].inference)))
            return 1;
    return 0;
}

/* The training name of a name in any spelling; 0: it has none. */
static int training_name(char official[2 * PL_NAME_MAX], const char *name)
{
    struct called c;
    if (!parse(&c, name)) return 0;
    if (c.l < 0)
        snprintf(official, 2 * PL_NAME_MAX, "model.%s%.*s",
                 strcmp(c.end, "pos_emb") ? "" : "transformer.", PL_NAME_MAX, c.end);
    else
        snprintf(official, 2 * PL_NAME_MAX, "model.transformer.layers.blocks.%d.%s", c.l,
                 tensors[c.tensor].training);
    return 1;
}

long pl_dalle_find(const struct pl_dalle *m, const char *name)
{
    char official[2 * PL_NAME_MAX];
    size_t count = 0;
    struct pl_dalle_entry *list = NULL;
    long param = PL_DALLE_NO_TENSOR;
    if (training_name(official, name)) list = pl_dalle_state_dict(m, &count);
    for (size_t i = 0; list && i < count; i++)
        if (!strcmp(list[i].name, official)) param = list[i].param;
    free(list);
    return param;
}

long pl_dalle_find_param(const struct pl_params *params, const char *name)
{
    char official[2 * PL_NAME_MAX];
    return training_name(official, name) ? pl_params_find(params, official) : -1;
}

/* --- angles ----------------------------------------------------------------------------------- */

int pl_dalle_set_pos_emb(struct pl_dalle *m, const float *pos_emb, struct pl_err *err)
{
    size_t half = (size_t)m->stack.blocks.R / 2, rows = (size_t)m->stack.blocks.S + 1;
    float *angle = pl_alloc(rows * half, sizeof *angle);
    int rc = PL_OK;
    if (!angle) return pl_fail(err, PL_ENOMEM, "out of memory");
    for (size_t i = 0; i < rows * half && rc == PL_OK; i++) {
        angle[i] = pos_emb[2 * i];
        if (!isfinite(angle[i]) || pos_emb[2 * i + 1] != angle[i])
            rc = pl_fail(err, PL_EFORMAT,
                         "pos_emb, row %zu: channels %zu and %zu are %g and %g, "
                         "expected the same angle",
                         i / half, 2 * (i % half), 2 * (i % half) + 1, angle[i],
                         pos_emb[2 * i + 1]);
    }
    if (rc == PL_OK) rc = pl_blocks_set_angles(&m->stack.blocks, angle);
    pl_free(angle);
    return rc;
}
