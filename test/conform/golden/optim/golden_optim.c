/* golden_optim.c - the optimizers' goldens: recorded gradients in, parameters and moments compared
 * after every step. See test/golden/optim/README.md. */
#include "test/conform/golden/areas.h"
#include "golden_optim.h"
#include "test/conform/golden/golden.h"
#include "runtime/optimizer.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define TENSORS_MAX 1000

static int starts(const char *s, const char *with) { return !strncmp(s, with, strlen(with)); }

/* --- one optimizer fed from one file ---------------------------------------------------------- */

struct replay {
    struct golden *g;
    const struct st_file *f;
    json_t *config;
    struct pl_optimizer_options options;
    struct pl_optimizer_tensor tensors[TENSORS_MAX];
    size_t count, total;
    double lr;
    float *value, *grad; /* backend memory */
    struct pl_optimizer *o;
};

static const struct st_tensor *tensor_of(const struct replay *r, long step, size_t i,
                                         const char *what)
{
    char name[80];
    if (step) snprintf(name, sizeof name, "s%ld.p%zu.%s", step, i, what);
    else snprintf(name, sizeof name, "p%zu.%s", i, what);
    return pl_safetensors_find(r->f, name);
}

/* A tensor of the file as floats on the host, n elements; a failure line and NULL otherwise. */
static float *load(struct replay *r, long step, size_t i, const char *what, size_t n)
{
    const struct st_tensor *t = tensor_of(r, step, i, what);
    float *x = t && t->n == n ? pl_alloc(n, sizeof *x) : NULL;
    if (x) pl_safetensors_to_float(x, t);
    else golden_fail(r->g, what, "step %ld tensor %zu: not there, or not %zu elements", step, i, n);
    return x;
}

static int upload(struct replay *r, long step, const char *what, float *flat)
{
    for (size_t i = 0; i < r->count; i++) {
        const struct pl_optimizer_tensor *t = &r->tensors[i];
        float *x = load(r, step, i, what, t->n);
        int rc = x ? r->g->be->put(flat + t->offset, x, t->n * sizeof *x) : PL_EFORMAT;
        pl_free(x);
        if (rc) return rc;
    }
    return PL_OK;
}

static double number(const json_t *object, const char *key, double otherwise)
{
    const json_t *v = json_object_get(object, key);
    return json_is_number(v) ? json_number_value(v) : otherwise;
}

static int read_betas(struct replay *r, const json_t *hyper)
{
    const json_t *betas = json_object_get(hyper, "betas");
    if (json_array_size(betas) != 2) {
        golden_fail(r->g, "betas", "the configuration has no two betas");
        return PL_EFORMAT;
    }
    r->options.beta1 = json_number_value(json_array_get(betas, 0));
    r->options.beta2 = json_number_value(json_array_get(betas, 1));
    r->options.eps = golden_real(r->g, hyper, "eps");
    r->lr = golden_real(r->g, hyper, "lr");
    return PL_OK;
}

/* The tensors p0, p1, ... of the file, laid out one after the other. */
static int read_tensors(struct replay *r)
{
    const struct st_tensor *t;
    while (r->count < TENSORS_MAX && (t = tensor_of(r, 0, r->count, "init"))) {
        r->tensors[r->count++] = (struct pl_optimizer_tensor){ .offset = r->total, .n = t->n };
        r->total += (t->n + 15) / 16 * 16;
    }
    if (r->count) return PL_OK;
    golden_fail(r->g, "p0.init", "no such tensor");
    return PL_EFORMAT;
}

static int lamb_setup(struct replay *r, int bits)
{
    const json_t *hyper = json_object_get(r->config, "hyper"), *group;
    size_t index;
    r->options = pl_lamb_options();
    if (bits == 32) r->options.min_8bit = 0;
    if (read_betas(r, hyper)) return PL_EFORMAT;
    r->options.max_grad_norm = number(hyper, "max_grad_norm", 0);
    r->options.clamp = golden_real(r->g, hyper, "clamp_value");
    r->options.bias_correction = json_is_true(json_object_get(hyper, "bias_correction"));
    if (bits == 8)
        r->options.min_8bit = (size_t)number(hyper, "min_8bit_size", (double)r->options.min_8bit);
    json_array_foreach(json_object_get(r->config, "groups"), index, group)
    {
        size_t k;
        json_t *i;
        json_array_foreach(json_object_get(group, "idx"), k, i)
        {
            size_t at = (size_t)json_integer_value(i);
            if (at < r->count) r->tensors[at].decay = number(group, "weight_decay", 0);
        }
    }
    return PL_OK;
}

static int adam_setup(struct replay *r, int bits)
{
    const json_t *decay = json_object_get(r->config, "weight_decay");
    r->options = pl_adam_options(0, bits);
    if (read_betas(r, r->config)) return PL_EFORMAT;
    if (bits == 8)
        r->options.min_8bit = (size_t)number(r->config, "min_8bit_size",
                                             (double)r->options.min_8bit);
    for (size_t i = 0; i < r->count; i++) {
        const json_t *d = json_is_array(decay) ? json_array_get(decay, i) : decay;
        r->tensors[i].decay = json_number_value(d);
    }
    return PL_OK;
}

static int setup(struct replay *r, const char *stem)
{
    int bits = strncmp(stem + strcspn(stem, "0123456789"), "32", 2) ? 8 : 32;
    return starts(stem, "lamb") ? lamb_setup(r, bits) : adam_setup(r, bits);
}

static int begin(struct replay *r)
{
    struct pl_err err;
    r->value = r->g->be->alloc(r->total * sizeof(float));
    r->grad = r->g->be->alloc(r->total * sizeof(float));
    if (!r->value || !r->grad) return PL_ENOMEM;
    if (pl_optimizer_open(&r->o, r->g->be, &r->options, r->tensors, r->count, &err)) {
        golden_fail(r->g, "open", "%s", err.text);
        return PL_EUSE;
    }
    return upload(r, 0, "init", r->value);
}

static void end(struct replay *r)
{
    pl_optimizer_close(r->o);
    r->o = NULL;
    r->g->be->free(r->value);
    r->g->be->free(r->grad);
    r->value = r->grad = NULL;
}

static const json_t *step_row(const struct replay *r, long step)
{
    return json_array_get(json_object_get(r->config, "steps"), (size_t)step - 1);
}

/* Takes step number `step` (from 1) with the file's gradients. Returns 1 past the last. The peer
 * adds up squares in eight float32 lanes, which leaves its norm wrong by some 1e-6, and through the
 * clipping everything it stores. So the norm is compared by itself, at the tolerance of the trust
 * ratio, which is made of such norms; the rest then answers for the peer's own. */
static int advance(struct replay *r, long step, int compare)
{
    const json_t *theirs = json_object_get(step_row(r, step), "grad_norm");
    double lr = number(step_row(r, step), "lr", r->lr), norm;
    char what[60];
    if (!tensor_of(r, step, 0, "grad")) return 1;
    if (upload(r, step, "grad", r->grad)) return PL_EFORMAT;
    if (!compare || !theirs) return pl_optimizer_step(r->o, r->value, r->grad, lr);
    if (pl_optimizer_grad_norm(r->o, r->grad, &norm)) return PL_EDEVICE;
    snprintf(what, sizeof what, "step %ld gradient norm", step);
    golden_case(r->g, what, fabs(norm / json_number_value(theirs) - 1), 1e-5);
    return pl_optimizer_step_normed(r->o, r->value, r->grad, json_number_value(theirs), lr);
}

static int open_replay(struct replay *r, struct golden *g, const char *path, const char *stem)
{
    struct st_file *f;
    memset(r, 0, sizeof *r);
    r->g = g;
    if (!(f = golden_open(g, path))) return PL_EFORMAT;
    r->f = f;
    r->config = golden_meta(g, f, "config");
    return r->config && !read_tensors(r) ? setup(r, stem) : PL_EFORMAT;
}

static void close_replay(struct replay *r)
{
    end(r);
    json_decref(r->config);
    pl_safetensors_close((struct st_file *)(uintptr_t)r->f);
}

/* --- comparisons ------------------------------------------------------------------------------ */

static void compare_params(struct replay *r, long step)
{
    double worst = 0;
    char what[60];
    for (size_t i = 0; i < r->count; i++) {
        size_t n = r->tensors[i].n;
        float *want = load(r, step, i, "param", n), *got = pl_alloc(n, sizeof *got);
        double error = INFINITY;
        if (want && got && !golden_down(r->g, got, r->value + r->tensors[i].offset, n))
            error = golden_relative(got, want, n);
        if (!(error <= worst)) worst = error;
        pl_free(want);
        pl_free(got);
    }
    snprintf(what, sizeof what, "step %ld params", step);
    golden_case(r->g, what, worst, 1e-6);
}

/* The file's norms and trust ratios, where it has them (LAMB). */
static void compare_norms(struct replay *r, long step)
{
    const json_t *row = step_row(r, step), *t;
    size_t i;
    double worst = 0;
    char what[60];
    if (!json_is_array(json_object_get(row, "tensors"))) return;
    json_array_foreach(json_object_get(row, "tensors"), i, t)
    {
        struct pl_lamb_norms n = pl_optimizer_norms(r->o, i < r->count ? i : 0);
        double want[] = { golden_real(r->g, t, "trust_ratio"), golden_real(r->g, t, "weight_norm"),
                          golden_real(r->g, t, "step_norm") };
        double got[] = { n.trust, n.weight, n.step };
        for (int k = 0; k < 3; k++) {
            double error = got[k] == want[k] ? 0 : fabs(got[k] - want[k]) / fabs(want[k]);
            if (!(error <= worst)) worst = error;
        }
    }
    snprintf(what, sizeof what, "step %ld trust ratios and norms", step);
    golden_case(r->g, what, worst, 1e-5);
}

/* Which of the state's arrays a golden name means: state1 and exp_avg are one. */
static const char *golden_name(const struct replay *r, long step, size_t i, const char *name)
{
    if (tensor_of(r, step, i, name)) return name;
    if (!strcmp(name, "state1") && tensor_of(r, step, i, "exp_avg")) return "exp_avg";
    if (!strcmp(name, "state2") && tensor_of(r, step, i, "exp_avg_sq")) return "exp_avg_sq";
    return NULL; /* goldens leave out some float moments of intermediate steps */
}

/* Two correct implementations differ in about one code of 100000, by one; where that moment cancels
 * in a later step, the difference is many codes of the finer part of the book. So after each
 * comparison the peer's codes and scales are loaded: every step answers for itself. */
static void adopt(struct replay *r, long step)
{
    for (size_t k = 0; k < pl_optimizer_state_count(r->o); k++) {
        struct pl_optimizer_state s = pl_optimizer_state_at(r->o, k);
        const struct st_tensor *t = tensor_of(r, step, s.tensor, s.name);
        if (!t || !tensor_of(r, step, s.tensor, "absmax1")) continue;
        if (t->bytes != s.n * s.element_size || pl_optimizer_state_put(r->o, k, t->data))
            golden_fail(r->g, s.name, "step %ld tensor %zu cannot be loaded", step, s.tensor);
    }
}

/* Codes: equal, or the decoded values within 1e-6 absmax, or one code apart. Counts how many codes
 * differ at all. */
static double code_error(struct replay *r, size_t i, int second, const uint8_t *got,
                         const uint8_t *want, size_t *differ)
{
    float book[PL_CODES];
    double worst = 0;
    pl_codebook(book, second ? PL_MAP_UNSIGNED : PL_MAP_SIGNED, r->options.rule);
    for (size_t k = 0; k < r->tensors[i].n; k++) {
        double d = fabs((double)book[got[k]] - book[want[k]]);
        if (got[k] == want[k]) continue;
        ++*differ;
        if (abs((int)got[k] - (int)want[k]) > 1 && d > worst) worst = d;
    }
    return worst;
}

static void compare_states(struct replay *r, long step)
{
    double floats = 0, codes = 0;
    size_t differ = 0, coded = 0;
    char what[60];
    for (size_t k = 0; k < pl_optimizer_state_count(r->o); k++) {
        struct pl_optimizer_state s = pl_optimizer_state_at(r->o, k);
        const char *name = golden_name(r, step, s.tensor, s.name);
        const struct st_tensor *t = name ? tensor_of(r, step, s.tensor, name) : NULL;
        void *got = pl_alloc(s.n, s.element_size);
        if (t && (t->n != s.n || pl_dtype_size(t->dtype) != s.element_size)) {
            golden_fail(r->g, name,
                        "step %ld tensor %zu: %zu elements of %zu bytes, ours has %zu "
                        "of %zu",
                        step, s.tensor, t->n, pl_dtype_size(t->dtype), s.n, s.element_size);
        } else if (!got || pl_optimizer_state_get(r->o, k, got)) {
            golden_fail(r->g, s.name, "step %ld tensor %zu cannot be read", step, s.tensor);
        } else if (t && s.element_size == 1) {
            double e = code_error(r, s.tensor, s.name[5] == '2', got, t->data, &differ);
            if (e > codes) codes = e;
            coded += s.n;
        } else if (t) {
            float *want = load(r, step, s.tensor, name, s.n);
            double e = want ? golden_relative(got, want, s.n) : INFINITY;
            if (!(e <= floats)) floats = e;
            pl_free(want);
        }
        pl_free(got);
    }
    snprintf(what, sizeof what, "step %ld moments and scales", step);
    golden_case(r->g, what, floats, 1e-6);
    if (!coded) return;
    snprintf(what, sizeof what, "step %ld decoded codes", step);
    golden_case(r->g, what, codes, 1e-6);
    snprintf(what, sizeof what, "step %ld share of other codes", step);
    golden_case(r->g, what, (double)differ / (double)coded, 1e-4);
}

static void run_optimizer(struct golden *g, const char *path, const char *stem)
{
    struct replay r;
    int rc = open_replay(&r, g, path, stem);
    long step = 1;
    if (!rc) rc = begin(&r);
    while (!rc && !(rc = advance(&r, step, 1))) {
        compare_params(&r, step);
        compare_norms(&r, step);
        compare_states(&r, step);
        adopt(&r, step);
        step++;
    }
    if (rc < 0 || step == 1) golden_fail(g, stem, "%s", rc < 0 ? pl_status_name(rc) : "no steps");
    close_replay(&r);
}

/* --- the JSON files --------------------------------------------------------------------------- */

/* All steps, then everything that is left of them in one buffer: parameters, then moments. */
static uint8_t *run_through(struct replay *r, size_t *bytes)
{
    uint8_t *all = NULL;
    size_t used = r->total * sizeof(float);
    long step = 1;
    int rc = begin(r);
    while (!rc) rc = advance(r, step++, 0);
    if (rc == 1) {
        for (size_t k = 0; k < pl_optimizer_state_count(r->o); k++) {
            struct pl_optimizer_state s = pl_optimizer_state_at(r->o, k);
            used += s.n * s.element_size;
        }
        all = pl_alloc(used, 1);
    }
    *bytes = used;
    if (all) {
        used = r->total * sizeof(float);
        rc = r->g->be->get(all, r->value, used);
        for (size_t k = 0; k < pl_optimizer_state_count(r->o) && !rc; k++) {
            struct pl_optimizer_state s = pl_optimizer_state_at(r->o, k);
            rc = pl_optimizer_state_get(r->o, k, all + used);
            used += s.n * s.element_size;
        }
    }
    if (all && rc) {
        pl_free(all);
        all = NULL;
    }
    end(r);
    return all;
}

/* x_chunked.json refers to x_main.safetensors in the same folder. */
static void run_chunked(struct golden *g, const char *stem)
{
    char file[300];
    json_t *root, *chunk;
    const char *size;
    char *path;
    struct replay r;
    uint8_t *whole = NULL, *other = NULL;
    size_t bytes, other_bytes;
    snprintf(file, sizeof file, "%s.json", stem);
    root = golden_json(g, file);
    snprintf(file, sizeof file, "%.*smain.safetensors", (int)(strstr(stem, "chunked") - stem),
             stem);
    path = pl_path_join(g->folder, file);
    if (root && path && !open_replay(&r, g, path, stem)) {
        r.options.chunk = 0;
        whole = run_through(&r, &bytes);
        if (!whole) golden_fail(g, "whole tensors", "the steps of %s did not run", file);
        json_object_foreach(json_object_get(root, "chunk"), size, chunk)
        {
            char what[60];
            snprintf(what, sizeof what, "chunks of %.20s", size);
            r.options.chunk = strtoul(size, NULL, 10);
            other = whole ? run_through(&r, &other_bytes) : NULL;
            golden_check(g, what, other && bytes == other_bytes && !memcmp(whole, other, bytes),
                         "not bit for bit what whole tensors give");
            pl_free(other);
        }
        if (json_object_get(root, "reuse_grad_buffers_false")) {
            r.options.chunk = 0;
            r.options.keep_grad = 1;
            other = whole ? run_through(&r, &other_bytes) : NULL;
            golden_check(g, "gradients kept",
                         other && bytes == other_bytes && !memcmp(whole, other, bytes),
                         "not bit for bit what reused buffers give");
            pl_free(other);
        }
        pl_free(whole);
        close_replay(&r);
    }
    free(path);
    json_decref(root);
}

int golden_area_optim(struct golden *g, const char *path, const char *stem)
{
    size_t length = strlen(path);
    int json = length > 5 && !strcmp(path + length - 5, ".json");
    if (json && strstr(stem, "chunked")) run_chunked(g, stem);
    else if (json && strstr(stem, "thresholds")) golden_optim_thresholds(g, stem);
    else if (!json && starts(stem, "schedule")) golden_optim_schedule(g, path);
    else if (!json && (starts(stem, "lamb") || starts(stem, "adam"))) run_optimizer(g, path, stem);
    else return 0;
    return 1;
}
