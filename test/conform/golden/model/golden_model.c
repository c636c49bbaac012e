/* golden_model.c - fills a model's parameters from a counter-based generator that the golden files
 * share, and compares names, shapes and values. */
#include "golden_model.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void golden_counter(float *u, const char *name, uint64_t seed, size_t n)
{
    uint64_t key = 0xCBF29CE484222325u;
    for (const char *p = name; *p; p++) key = (key ^ (uint8_t)*p) * 0x100000001B3u;
    key ^= seed * 0x9E3779B97F4A7C15u;
    for (size_t i = 0; i < n; i++) {
        uint64_t s = key + (i + 1) * 0x9E3779B97F4A7C15u;
        s = (s ^ (s >> 30)) * 0xBF58476D1CE4E5B9u;
        s = (s ^ (s >> 27)) * 0x94D049BB133111EBu;
        s ^= s >> 31;
        u[i] = (float)(s >> 40) * 0x1p-23f - 1;
    }
}

static int same_shape(const struct pl_param *t, const json_t *shape, int transposed)
{
    if (json_array_size(shape) != (size_t)t->dims) return 0;
    for (int i = 0; i < t->dims; i++)
        if (json_integer_value(json_array_get(shape, (size_t)i)) !=
            t->shape[transposed ? t->dims - 1 - i : i])
            return 0;
    return 1;
}

/* Row-major values of the file's shape to the model's, which has rows and columns exchanged. */
static int put(const struct pl_params *params, size_t at, const float *u, int transposed)
{
    const struct pl_param *p = &params->list[at];
    float *other;
    int rc;
    if (!transposed) return pl_params_put(params, at, u);
    if (!(other = pl_alloc(p->n, sizeof *other))) return PL_ENOMEM;
    for (int64_t r = 0; r < p->shape[0]; r++)
        for (int64_t c = 0; c < p->shape[1]; c++)
            other[r * p->shape[1] + c] = u[c * p->shape[0] + r];
    rc = pl_params_put(params, at, other);
    pl_free(other);
    return rc;
}

int golden_counter_fill(struct golden *g, const struct pl_params *params, const json_t *config,
                        golden_transposed_fn *transposed)
{
    const json_t *table = json_object_get(config, "counter"), *row;
    uint64_t seed = (uint64_t)golden_int(g, config, "counter_seed");
    size_t i, filled = 0;
    json_array_foreach(table, i, row)
    {
        const char *name = json_string_value(json_array_get(row, 0));
        float offset = (float)json_number_value(json_array_get(row, 2));
        float scale = (float)json_number_value(json_array_get(row, 3)), *u;
        long at = name ? pl_params_find(params, name) : -1;
        size_t n = at < 0 ? 0 : params->list[at].n;
        int turn = name && transposed && transposed(name);
        if (at < 0 || !same_shape(&params->list[at], json_array_get(row, 1), turn)) {
            golden_fail(g, name ? name : "counter", "the model has no such tensor of this shape");
            return 0;
        }
        u = pl_alloc(n, sizeof *u);
        if (u) {
            golden_counter(u, name, seed, n);
            for (size_t k = 0; k < n; k++) u[k] = u[k] * scale + offset;
        }
        if (!u || put(params, (size_t)at, u, turn)) golden_fail(g, name, "out of memory");
        else filled++;
        pl_free(u);
    }
    if (filled == params->count) return 1;
    golden_fail(g, "counter", "%zu of the model's %zu tensors", filled, params->count);
    return 0;
}

void golden_names(struct golden *g, const json_t *doc, const struct pl_params *params,
                  golden_transposed_fn *transposed)
{
    const json_t *rows = json_object_get(doc, "tensors"), *row;
    size_t i, good = 0;
    json_array_foreach(rows, i, row)
    {
        const char *name = json_string_value(json_array_get(row, 0));
        if (i < params->count && name && !strcmp(params->list[i].name, name) &&
            same_shape(&params->list[i], json_array_get(row, 1), transposed && transposed(name)))
            good++;
        else
            golden_fail(g, name ? name : "tensors",
                        "tensor %zu of the model is %s, or its shape "
                        "differs",
                        i, i < params->count ? params->list[i].name : "none");
    }
    golden_check(g, "tensors", good == params->count && good > 0, "%zu of %zu", good,
                 params->count);
    golden_check(g, "parameters", (json_int_t)params->trainable == golden_int(g, doc, "parameters"),
                 "%zu", params->trainable);
}

void golden_device(struct golden *g, const struct st_file *f, const char *name, const float *at,
                   size_t n, double scale, double allowed)
{
    size_t count;
    float *want = golden_floats(g, f, name, &count), *got = pl_alloc(n, sizeof *got);
    if (!want) {
        pl_free(got);
        return;
    }
    if (count != n || !got || golden_down(g, got, at, n))
        golden_fail(g, name, "%zu values for %zu, or out of memory", n, count);
    else
        golden_case(g, name,
                    scale > 0 ? golden_absolute(got, want, n) / scale
                              : golden_relative(got, want, n),
                    allowed);
    pl_free(want);
    pl_free(got);
}

struct st_file *golden_weights(struct golden *g, const char *stem)
{
    size_t n = strlen(stem);
    char name[300], *path;
    struct st_file *f = NULL;
    struct pl_err err;
    if (n > 3 && !strcmp(stem + n - 3, ".io")) n -= 3;
    snprintf(name, sizeof name, "%.*s.weights.safetensors", (int)n, stem);
    path = pl_path_join(g->folder, name);
    if (!path || pl_safetensors_open(&f, path, &err))
        golden_fail(g, "weights", "%s", path ? err.text : "no memory");
    free(path);
    return f;
}
