/* golden_dalle_facts.c - the reference run's own network in numbers and names: parameter counts,
 * the state dict, the optimizer's groups, initial values. */
#include "golden_dalle_net.h"
#include "data/models/dalle_config.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The network without its values: 125 million of them would say nothing here. */
static struct pl_dalle *skeleton(struct golden *g, const struct pl_dalle_config *config)
{
    struct pl_dalle *m;
    struct pl_err err;
    if (pl_dalle_open(&m, config, NULL, 0, &err) == PL_OK) return m;
    golden_fail(g, "config", "%s", err.text);
    return NULL;
}

static void check_count(struct golden *g, const char *what, size_t got, const json_t *want)
{
    golden_check(g, what, json_is_integer(want) && json_integer_value(want) == (json_int_t)got,
                 "%zu where %lld were expected", got, (long long)json_integer_value(want));
}

/* The four ways of sharing; their keys say which in words. */
static void check_totals(struct golden *g, const json_t *facts,
                         const struct pl_dalle_config *config)
{
    const json_t *totals = json_object_get(facts, "trainable_parameters");
    const json_t *ratio = json_object_get(facts, "ratio_untied_to_tied");
    double tied = 0, free_layers = 0;
    const char *key;
    json_t *want;
    json_object_foreach((json_t *)totals, key, want)
    {
        struct pl_dalle_config c = *config;
        struct pl_dalle *m;
        int untied = !strncmp(key, "untied", 6);
        if (untied) pl_dalle_config_untie(&c);
        c.separate_embedding = strstr(key, "separate_embedding") != NULL;
        if (!(m = skeleton(g, &c))) return;
        check_count(g, key, m->params.trainable, want);
        if (!c.separate_embedding) *(untied ? &free_layers : &tied) = (double)m->params.trainable;
        pl_dalle_close(m);
    }
    if (ratio && tied)
        golden_case(g, "ratio_untied_to_tied", fabs(free_layers / tied - json_number_value(ratio)),
                    0.5e-4);
}

static void check_parts(struct golden *g, const json_t *facts, const struct pl_dalle *m)
{
    static const char *const names[] = { "embedding_and_logits", "layer_norms_and_scales",
                                         "attention_tensors", "feedforward_tensors" };
    const json_t *parts = json_object_get(facts, "parameters_by_part_of_the_run");
    size_t sum[4] = { 0 };
    for (size_t i = 0; i < m->params.count; i++) {
        const char *name = m->params.list[i].name;
        int part = strstr(name, "to_logits")                       ? 0
                   : strstr(name, "norm") || strstr(name, "scale") ? 1
                   : strstr(name, "to_")                           ? 2
                                                                   : 3;
        sum[part] += m->params.list[i].n;
    }
    for (int part = 0; part < 4; part++)
        check_count(g, names[part], sum[part], json_object_get(parts, names[part]));
    check_count(g, "distinct_trainable_tensors", m->params.count,
                json_object_get(facts, "distinct_trainable_tensors"));
}

static int same_shape(const json_t *shape, int dims, const int64_t *own)
{
    int same = json_array_size(shape) == (size_t)dims;
    for (int i = 0; same && i < dims; i++)
        same = json_integer_value(json_array_get(shape, (size_t)i)) == own[i];
    return same;
}

/* Rows of name, shape, decay. */
static void check_order(struct golden *g, const json_t *facts, const struct pl_dalle *m)
{
    const json_t *rows = json_object_get(json_object_get(facts, "parameter_order"), "rows");
    const struct pl_params *p = &m->params;
    size_t n = json_array_size(rows), wrong = n == p->count ? n : 0;
    for (size_t i = 0; i < n && wrong == n; i++) {
        const json_t *row = json_array_get(rows, i);
        const char *name = json_string_value(json_array_get(row, 0));
        if (!name || strcmp(name, p->list[i].name) ||
            !same_shape(json_array_get(row, 1), p->list[i].dims, p->list[i].shape) ||
            json_is_true(json_array_get(row, 2)) != p->list[i].decay)
            wrong = i;
    }
    golden_check(g, "parameter_order", n > 0 && wrong == n, "the first difference is in row %zu",
                 wrong);
}

/* Every name in order, its shape, and which earlier name is the same tensor. */
static void check_state_dict(struct golden *g, const json_t *facts, const struct pl_dalle *m)
{
    const json_t *want = json_object_get(facts, "training_state_dict");
    const json_t *renamed = json_object_get(facts, "inference_names");
    const char *prefix = json_string_value(
        json_object_get(facts, "state_dict_prefix_in_saved_checkpoints"));
    size_t count, i = 0, skip = prefix ? strlen(prefix) : 0, changed = 0;
    struct pl_dalle_entry *got = pl_dalle_state_dict(m, &count);
    int64_t angles[3] = { 1, m->stack.blocks.S + 1, m->stack.blocks.R };
    const char *name, *bad = NULL;
    json_t *entry;
    check_count(g, "state_dict_entries", count, json_object_get(facts, "state_dict_entries"));
    json_object_foreach((json_t *)want, name, entry)
    {
        const char *first = json_string_value(json_object_get(entry, "same_as"));
        const char *other = json_string_value(json_object_get(renamed, name));
        const struct pl_dalle_entry *own = got && i < count ? &got[i] : NULL;
        const struct pl_param *param = own && own->param >= 0 ? &m->params.list[own->param] : NULL;
        bad = name;
        if (!own || !prefix || strncmp(own->name, prefix, skip) || strcmp(own->name + skip, name))
            break;
        if (first ? strcmp(got[own->first].name + skip, first) : own->first != (long)i) break;
        if (!same_shape(json_object_get(entry, "shape"), param ? param->dims : 3,
                        param ? param->shape : angles))
            break;
        if (pl_dalle_find(m, name) != own->param || pl_dalle_find(m, own->name) != own->param ||
            pl_dalle_find(m, other ? other : name) != own->param)
            break;
        changed += other != NULL;
        bad = NULL;
        i++;
    }
    golden_check(g, "training_state_dict", !bad && i == count && i > 0, "it differs at %s",
                 bad ? bad : "its end");
    golden_check(g, "inference_names", !bad && changed == json_object_size(renamed),
                 "%zu names change where %zu were expected", changed, json_object_size(renamed));
    free(got);
}

/* "18..23": 1e-5 and "24..": 1e-6, of a network as deep and one channel wide. */
static void check_initial(struct golden *g, const json_t *facts,
                          const struct pl_dalle_config *config)
{
    struct pl_dalle_config c = *config;
    struct pl_dalle *m = NULL;
    struct pl_err err = { "" };
    const char *range;
    json_t *want;
    c.T = c.F = c.D = c.H = c.d = c.Vi = 1;
    c.V = 2;
    if (pl_dalle_open(&m, &c, g->be, 0, &err) || pl_dalle_init(m, 1)) {
        golden_fail(g, "initial_layer_scale", "%s", err.text);
        pl_dalle_close(m);
        return;
    }
    json_object_foreach(json_object_get(facts, "initial_layer_scale_by_block"), range, want)
    {
        const char *dots = strstr(range, "..");
        long first = strtol(range, NULL, 10),
             last = dots && dots[2] ? strtol(dots + 2, NULL, 10) : c.L - 1;
        char what[80];
        double error = first < 0 || last >= c.L || first > last ? INFINITY : 0;
        for (long l = first; error == 0 && l <= last; l++) {
            const struct pl_block *b = &m->stack.blocks.list[l];
            float f = NAN, s = NAN;
            if (pl_params_get(&m->params, b->f_scale, &f) ||
                pl_params_get(&m->params, b->g_scale, &s) || f != (float)json_number_value(want) ||
                s != f)
                error = INFINITY;
        }
        snprintf(what, sizeof what, "initial_layer_scale_by_block %.40s", range);
        golden_case(g, what, error, 0);
    }
    pl_dalle_close(m);
}

void net_facts(struct golden *g, const json_t *facts)
{
    struct pl_dalle_config config;
    struct pl_dalle *m;
    struct pl_err err;
    if (pl_dalle_config_from_json(&config, json_object_get(facts, "config"), 0, "config", &err)) {
        golden_fail(g, "config", "%s", err.text);
        return;
    }
    if (!(m = skeleton(g, &config))) return;
    check_totals(g, facts, &config);
    check_parts(g, facts, m);
    check_order(g, facts, m);
    check_state_dict(g, facts, m);
    check_initial(g, facts, &config);
    pl_dalle_close(m);
}
