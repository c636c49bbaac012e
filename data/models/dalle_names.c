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

static long find_end(const struct pl_dalle *m, const char *name)
{
    const struct {
        const char *name;
        size_t param;
        int separate;
    } ends[] = {
        { "to_logits.0.weight", m->norm_weight, -1 },
        { "to_logits.0.bias", m->norm_bias, -1 },
        { "to_logits.1.weight", m->embedding, -1 },
        { "to_logits.1.bias", m->output_bias, -1 },
        { "text_emb.linear.weight", m->embedding, 0 },
        { "text_emb.linear.bias", m->output_bias, 0 },
        { "image_emb.linear.weight", m->embedding, 0 },
        { "image_emb.linear.bias", m->output_bias, 0 },
        { "text_emb.weight", m->text_embedding, 1 },
        { "image_emb.weight", m->image_embedding, 1 },
    };
    if (!strcmp(name, "pos_emb")) return PL_DALLE_POS_EMB;
    for (size_t i = 0; i < PL_COUNT(ends); i++)
        if ((ends[i].separate < 0 || ends[i].separate == m->config.separate_embedding) &&
            !strcmp(name, ends[i].name))
            return (long)ends[i].param;
    return PL_DALLE_NO_TENSOR;
}

long pl_dalle_find(const struct pl_dalle *m, const char *name)
{
    struct called c;
    if (!parse(&c, name) || c.l >= m->config.L) return PL_DALLE_NO_TENSOR;
    if (c.l < 0) return find_end(m, c.end);
    return (long)tensor_index(&m->stack.blocks.list[c.l], tensors[c.tensor].member);
}

long pl_dalle_find_param(const struct pl_params *params, const char *name)
{
    char official[2 * PL_NAME_MAX];
    struct called c;
    if (!parse(&c, name)) return -1;
    if (c.l < 0) snprintf(official, sizeof official, "model.%.*s", PL_NAME_MAX, c.end);
    else
        snprintf(official, sizeof official, "model.transformer.layers.blocks.%d.%s", c.l,
                 tensors[c.tensor].training);
    return pl_params_find(params, official);
}

int pl_dalle_inference_name(char *out, size_t size, const char *training)
{
    const char *rest = strstr(training, "layers.blocks.");
    size_t digits;
    int n = snprintf(out, size, "%s", training);
    if (rest) {
        rest += strlen("layers.blocks.");
        digits = strspn(rest, "0123456789");
        rest += digits + (rest[digits] == '.');
        for (size_t i = 0; i < PL_COUNT(tensors); i++)
            if (tensors[i].inference && !strcmp(rest, tensors[i].training))
                n = snprintf(out, size, "%.*s%s", (int)(rest - training), training,
                             tensors[i].inference);
    }
    return n >= 0 && (size_t)n < size ? PL_OK : PL_ELIMIT;
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

/* --- the optimizer's order -------------------------------------------------------------------- */

size_t pl_params_optimizer_order(const struct pl_params *p, size_t *order)
{
    size_t n = 0, decaying;
    for (size_t i = 0; i < p->count; i++)
        if (p->list[i].decay) order[n++] = i;
    decaying = n;
    for (size_t i = 0; i < p->count; i++)
        if (!p->list[i].decay) order[n++] = i;
    return decaying;
}
