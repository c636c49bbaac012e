/* golden_outer.c - the area of outer optimizers and gradient compressors: which file is what, by its
 * fields. See test/golden/outer/README.md. */
#include "golden_outer.h"
#include "test/conform/golden/areas.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

/* Files of the optimizers say their kind. */
static const struct {
    const char *kind;
    void (*run)(struct golden *g, const char *path);
} kinds[] = {
    { "nesterov", golden_outer_nesterov },
    { "diloco", golden_outer_diloco },
    { "muon_diloco", golden_outer_diloco },
    { "muon", golden_outer_muon },
    { "muon_ns", golden_outer_newton_schulz },
    { "streaming", golden_outer_streaming },
    { "delayed_nesterov", golden_outer_delayed },
    { "eager", golden_outer_eager },
    { "noloco", golden_outer_noloco },
};

/* Those of the compressors have fields that no other has. */
static const struct {
    const char *field, *and;
    void (*run)(struct golden *g, const struct st_file *f, const json_t *config);
} formats[] = {
    { "basis", "chunk", golden_outer_dct },
    { "workers", "topk", golden_outer_demo },
    { "rejected", "rejected", golden_outer_pack },
    { "range_sigmas", "cases", golden_outer_quantizer },
    { "range_sigmas", "alpha", golden_outer_sparseloco },
    { "what_the_original_keeps", "R", golden_outer_aggregate },
    { "orthogonalize_eps", "rank", golden_outer_powersgd },
    { "refused", "cases", golden_outer_e3m0 },
    { "B", "rule", golden_outer_e3m0_exchange },
    { "bytes_per_rank", "R", golden_outer_rows8 },
    { "average_state_every", "partitions", golden_outer_node0 },
    { "idx", "p", golden_outer_sparta },
};

static int run_tensors(struct golden *g, const char *path, const char *stem)
{
    struct st_file *f;
    json_t *config;
    const char *kind;
    int known = 0;
    if (!(f = golden_open(g, path))) return 1;
    config = golden_meta(g, f, "config");
    kind = json_string_value(json_object_get(config, "kind"));
    for (size_t i = 0; kind && i < PL_COUNT(kinds); i++)
        if (!strcmp(kind, kinds[i].kind)) {
            kinds[i].run(g, path);
            known = 1;
        }
    for (size_t i = 0; config && !kind && !known && i < PL_COUNT(formats); i++)
        if (json_object_get(config, formats[i].field) && json_object_get(config, formats[i].and)) {
            formats[i].run(g, f, config);
            known = 1;
        }
    json_decref(config);
    pl_safetensors_close(f);
    return known || !config;
}

/* Rows of three: sides of chunks; rows of seven: shapes of PowerSGD. */
static int run_json(struct golden *g, const char *path)
{
    json_t *doc = golden_json(g, strrchr(path, '/') + 1);
    size_t fields = json_array_size(json_array_get(json_object_get(doc, "cases"), 0));
    int known = 1;
    if (fields == 3) golden_outer_sides(g, doc);
    else if (fields == 7) golden_outer_powersgd_shapes(g, doc);
    else known = !doc;
    json_decref(doc);
    return known;
}

int golden_area_outer(struct golden *g, const char *path, const char *stem)
{
    size_t length = strlen(path);
    if (length > 5 && !strcmp(path + length - 5, ".json")) return run_json(g, path);
    return run_tensors(g, path, stem);
}

/* ---- tensors ---- */

int outer_shape(struct pl_outer_tensor *t, const json_t *shapes, size_t i)
{
    const json_t *shape = json_array_get(shapes, i);
    *t = (struct pl_outer_tensor){ .n = 1, .axes = (int)json_array_size(shape) };
    if (!json_is_array(shape) || t->axes > PL_OUTER_AXES_MAX) return 0;
    for (int a = 0; a < t->axes; a++) {
        t->shape[a] = json_integer_value(json_array_get(shape, (size_t)a));
        if (t->shape[a] < 1) return 0;
        t->n *= (size_t)t->shape[a];
    }
    return 1;
}

const struct st_tensor *outer_find(const struct st_file *f, const char *format, ...)
{
    char name[100];
    va_list args;
    va_start(args, format);
    vsnprintf(name, sizeof name, format, args);
    va_end(args);
    return pl_safetensors_find(f, name);
}

float *outer_floats(struct golden *g, const struct st_file *f, size_t n, const char *format, ...)
{
    char name[100];
    size_t count;
    float *x;
    va_list args;
    va_start(args, format);
    vsnprintf(name, sizeof name, format, args);
    va_end(args);
    x = golden_floats(g, f, name, &count);
    if (x && n != SIZE_MAX && count != n) {
        golden_fail(g, name, "%zu values, not %zu", count, n);
        pl_free(x);
        return NULL;
    }
    return x;
}

int32_t *outer_ints(struct golden *g, const struct st_file *f, size_t n, const char *format, ...)
{
    char name[100];
    size_t count;
    int32_t *x;
    va_list args;
    va_start(args, format);
    vsnprintf(name, sizeof name, format, args);
    va_end(args);
    x = golden_ints(g, f, name, &count);
    if (x && n != SIZE_MAX && count != n) {
        golden_fail(g, name, "%zu values, not %zu", count, n);
        pl_free(x);
        return NULL;
    }
    return x;
}

int outer_open(struct outer_file *r, struct golden *g, const char *path, const char *prefix)
{
    struct pl_err err;
    const struct st_tensor *t;
    memset(r, 0, sizeof *r);
    r->g = g;
    if (pl_safetensors_open(&r->f, path, &err)) {
        golden_fail(g, "open", "%s", err.text);
        return 0;
    }
    if (!(r->config = golden_meta(g, r->f, "config"))) return 0;
    while (r->count < OUTER_TENSORS_MAX && (t = outer_find(r->f, "%sp%d.init", prefix, r->count))) {
        struct pl_outer_tensor *to = &r->tensors[r->count++];
        *to = (struct pl_outer_tensor){ .offset = r->n, .n = t->n, .axes = t->dims };
        for (int a = 0; a < t->dims; a++) to->shape[a] = t->shape[a];
        r->n += t->n;
    }
    for (size_t i = 0; i < r->f->count; i++) { /* of all peers */
        const struct st_tensor *all = &r->f->tensors[i];
        size_t length = strlen(all->name);
        float *x = NULL;
        if (length > 5 && !strcmp(all->name + length - 5, ".init"))
            x = golden_floats(g, r->f, all->name, NULL);
        for (size_t k = 0; x && k < all->n; k++) r->scale = fmax(r->scale, fabs((double)x[k]));
        pl_free(x);
    }
    if (!r->count) golden_fail(g, "tensors", "none with %sp0.init", prefix);
    return r->count > 0;
}

void outer_close(struct outer_file *r)
{
    json_decref(r->config);
    pl_safetensors_close(r->f);
}

double outer_real(const struct outer_file *r, const char *key, double otherwise)
{
    const json_t *v = json_object_get(r->config, key);
    return json_is_number(v) ? json_number_value(v) : otherwise;
}

long outer_long(const struct outer_file *r, const char *key, long otherwise)
{
    const json_t *v = json_object_get(r->config, key);
    return json_is_integer(v) ? (long)json_integer_value(v) : otherwise;
}

/* Values of one tensor, or of one row of it; NULL if it is not there. */
static float *values(const struct outer_file *r, int i, const char *prefix, const char *name,
                     long row)
{
    const struct st_tensor *t = outer_find(r->f, "%sp%d.%s", prefix, i, name);
    size_t n = r->tensors[i].n;
    float *all, *out;
    if (!t || t->n != (row < 0 ? n : n * (size_t)t->shape[0])) return NULL;
    if (row >= t->shape[0]) return NULL;
    all = pl_alloc(t->n, sizeof *all);
    out = pl_alloc(n, sizeof *out);
    if (all && out) {
        pl_safetensors_to_float(all, t);
        memcpy(out, all + (row < 0 ? 0 : (size_t)row * n), n * sizeof *out);
    }
    pl_free(all);
    return out;
}

int outer_read(const struct outer_file *r, float *out, const char *prefix, const char *name,
               long row)
{
    for (int i = 0; i < r->count; i++) {
        float *x = values(r, i, prefix, name, row);
        if (!x) return 0;
        memcpy(out + r->tensors[i].offset, x, r->tensors[i].n * sizeof *x);
        pl_free(x);
    }
    return 1;
}

void outer_compare(struct outer_file *r, const char *prefix, const char *name, long row,
                   const float *got, int fragment, double allowed)
{
    float *host = pl_alloc(r->n, sizeof *host);
    double worst = 0;
    int seen = 0;
    char what[120];
    if (!host || golden_down(r->g, host, got, r->n)) worst = INFINITY;
    for (int i = 0; host && i < r->count; i++) {
        const struct pl_outer_tensor *t = &r->tensors[i];
        float *want, *mine = host + t->offset;
        double largest = r->scale, error = 0;
        if (fragment >= 0 && t->fragment != fragment) continue;
        if (!(want = values(r, i, prefix, name, row))) continue;
        for (size_t k = 0; k < t->n; k++) {
            if (isnan(want[k]) && isnan(mine[k])) continue;
            largest = fmax(largest, fabs((double)want[k]));
            error = fabs((double)want[k] - mine[k]) <= error ? error
                                                             : fabs((double)want[k] - mine[k]);
            if (isnan(want[k] - mine[k])) error = INFINITY;
        }
        if (error > 0 && !(error / largest <= worst)) worst = error / largest;
        seen++;
        pl_free(want);
    }
    if (row < 0) snprintf(what, sizeof what, "%s%s", prefix, name);
    else snprintf(what, sizeof what, "%s%s after %ld", prefix, name, row);
    if (seen) golden_case(r->g, what, worst, allowed);
    else golden_fail(r->g, what, "no such tensors in the file");
    pl_free(host);
}
