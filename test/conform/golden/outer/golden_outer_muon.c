/* golden_outer_muon.c - Muon: its polynomial, and whole steps, with AdamW for vectors. */
#include "golden_outer.h"
#include "ref/muon.h"

#include <stdio.h>
#include <string.h>

/* Null directions of a matrix of lower rank are rounding noise, multiplied by 3.4445^5 = 485. */
static double allowed_for(const char *name)
{
    return !strcmp(name, "rank1") || !strcmp(name, "equal") ? 2e-4 : 1e-5;
}

static void newton_schulz(struct golden *g, const struct st_file *f, const char *name, int steps)
{
    const struct st_tensor *t = outer_find(f, "%s.G", name);
    float *G = outer_floats(g, f, SIZE_MAX, "%s.G", name), *at = NULL, *X = NULL, *got = NULL;
    float *want = t ? outer_floats(g, f, t->n, "%s.f32", name) : NULL;
    if (G && want && t->dims == 2) {
        at = golden_up(g, G, t->n);
        X = g->be->alloc(t->n * sizeof *X);
        got = pl_alloc(t->n, sizeof *got);
        if (at && X && got &&
            !pl_newton_schulz(X, at, (int)t->shape[0], (int)t->shape[1], steps, g->be) &&
            !golden_down(g, got, X, t->n))
            golden_case(g, name, golden_absolute(got, want, t->n), allowed_for(name));
        else golden_fail(g, name, "it does not run");
    } else golden_fail(g, name, "no matrix with a result");
    pl_free(G);
    pl_free(want);
    pl_free(got);
    g->be->free(at);
    g->be->free(X);
}

void golden_outer_newton_schulz(struct golden *g, const char *path)
{
    struct st_file *f;
    json_t *config, *name;
    size_t i;
    if (!(f = golden_open(g, path))) return;
    config = golden_meta(g, f, "config");
    json_array_foreach(json_object_get(config, "cases"), i, name)
        newton_schulz(g, f, json_string_value(name), (int)golden_int(g, config, "steps"));
    json_decref(config);
    pl_safetensors_close(f);
}

/* The files with bfloat16 products answer to the originals' own rounding: within 1e-2. */
void golden_outer_muon(struct golden *g, const char *path)
{
    struct outer_file r;
    struct outer_inner in = { .be = NULL };
    float *x = NULL, *host = NULL, *grad = NULL;
    char prefix[100];
    if (outer_open(&r, g, path, "") &&
        outer_inner_open(&in, &r, json_object_get(r.config, "adam"), 1)) {
        const char *precision = json_string_value(json_object_get(r.config, "precision"));
        double allowed = precision && !strcmp(precision, "bf16") ? 1e-2 : 2e-6;
        in.kind = INNER_MUON;
        in.lr = outer_real(&r, "adam_lr", 0);
        in.decay = outer_real(&r, "adam_wd", 0);
        in.muon_lr = outer_real(&r, "lr", 0);
        in.muon_momentum = outer_real(&r, "momentum", 0);
        in.muon_decay = outer_real(&r, "wd", 0);
        in.matrices = (int)json_array_size(json_object_get(r.config, "matrices"));
        host = pl_alloc(r.n, sizeof *host);
        if (host && outer_read(&r, host, "", "init", -1)) x = golden_up(g, host, r.n);
        grad = g->be->alloc(r.n * sizeof *grad);
        for (long t = 1; x && grad && t <= outer_long(&r, "steps", 0); t++) {
            snprintf(prefix, sizeof prefix, "s%ld.", t);
            if (!outer_read(&r, host, prefix, "grad", -1) ||
                g->be->put(grad, host, r.n * sizeof *host) || outer_inner_step(&in, 0, x, grad)) {
                golden_fail(g, prefix, "the step does not run");
                break;
            }
            outer_compare(&r, prefix, "param", -1, x, -1, allowed);
            if (in.matrices) outer_compare(&r, prefix, "momentum", -1, in.m[0], -1, allowed);
            if (in.matrices < r.count) {
                outer_compare(&r, prefix, "exp_avg", -1, in.m[0], -1, allowed);
                outer_compare(&r, prefix, "exp_avg_sq", -1, in.v[0], -1, allowed);
            }
        }
        if (!x || !grad) golden_fail(g, "init", "cannot be read");
    }
    outer_inner_close(&in);
    pl_free(host);
    g->be->free(x);
    g->be->free(grad);
    outer_close(&r);
}
