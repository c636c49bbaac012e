/* golden_vqgan_train.c - both quantizers alone, and three steps of a whole small model.
 * [spec images-and-text 1.4, 1.6, 1.7] */
#include "golden_vqgan.h"
#include "runtime/optimizer.h"
#include "ref/model/vqgan_train.h"
#include "runtime/models.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* -- quantizers -------------------------------------------------------------------------------- */

/* One case of a quantizers file: names are CASE.REST. Device buffers are freed together. */
struct one {
    struct golden *g;
    const struct st_file *f;
    const char *name;
    void *held[24];
    int count, failed;
    double largest; /* gradient of the file */
};

static void *hold(struct one *o, void *device)
{
    if (!device || o->count == (int)PL_COUNT(o->held)) {
        o->failed = 1;
        return NULL;
    }
    return o->held[o->count++] = device;
}

static float *host(struct one *o, const char *rest, size_t *n)
{
    char name[200];
    snprintf(name, sizeof name, "%s.%s", o->name, rest);
    return golden_floats(o->g, o->f, name, n);
}

static float *up(struct one *o, const char *rest, size_t n)
{
    size_t count;
    float *x = host(o, rest, &count), *device = NULL;
    if (x && count == n) device = hold(o, golden_up(o->g, x, n));
    else o->failed = 1;
    pl_free(x);
    return device;
}

static float *fresh(struct one *o, size_t n) { return hold(o, o->g->be->alloc(n * sizeof(float))); }

static void compare(struct one *o, const char *rest, const float *device, size_t n, int gradient)
{
    char name[200];
    size_t count;
    float *want = host(o, rest, &count), *got = pl_alloc(n, sizeof *got);
    snprintf(name, sizeof name, "%s.%s", o->name, rest);
    if (!want || !got || count != n || golden_down(o->g, got, device, n))
        golden_fail(o->g, name, "%zu values for %zu, or out of memory", n, count);
    else
        golden_case(o->g, name,
                    gradient ? golden_absolute(got, want, n) / o->largest
                             : golden_relative(got, want, n),
                    VQGAN_BLOCKS);
    pl_free(want);
    pl_free(got);
}

static void compare_number(struct one *o, const char *rest, double got)
{
    char name[200];
    size_t n;
    float *want = host(o, rest, &n);
    snprintf(name, sizeof name, "%s.%s", o->name, rest);
    if (want && n == 1)
        golden_case(o->g, name, fabs(got - want[0]) / fmax(fabs((double)want[0]), 1e-30),
                    VQGAN_BLOCKS);
    else golden_fail(o->g, name, "no single number");
    pl_free(want);
}

static double number(struct one *o, const char *rest)
{
    size_t n;
    float *x = host(o, rest, &n);
    double value = x && n == 1 ? x[0] : (o->failed = 1, 1);
    pl_free(x);
    return value;
}

static void compare_codes(struct one *o, const void *device, size_t n)
{
    char name[200];
    size_t count, wrong = 0;
    int32_t *want, *got = pl_alloc(n, sizeof *got);
    snprintf(name, sizeof name, "%s.indices", o->name);
    want = golden_ints(o->g, o->f, name, &count);
    if (want && got && count == n && !o->g->be->get(got, device, n * sizeof *got)) {
        for (size_t i = 0; i < n; i++) wrong += want[i] != got[i];
        golden_check(o->g, name, !wrong, "%zu of %zu codes differ", wrong, n);
    } else {
        golden_fail(o->g, name, "%zu codes for %zu, or out of memory", n, count);
    }
    pl_free(want);
    pl_free(got);
}

/* 1 if zq is a codebook vector at every position (straight-through); 0 for a mixture. */
static int is_hard(struct one *o, const float *table, const float *zq, int B, int D, int P, int N)
{
    for (int b = 0; b < B; b++)
        for (int p = 0; p < P; p++) {
            double least = INFINITY;
            for (int n = 0; n < N; n++) {
                double worst = 0;
                for (int d = 0; d < D; d++)
                    worst = fmax(worst, fabs((double)zq[(b * D + d) * P + p] - table[n * D + d]));
                least = fmin(least, worst);
            }
            if (least > 1e-5) return 0;
        }
    (void)o;
    return 1;
}

/* (B,C,P) of a tensor (B,C,H,W); 0 if it is none. */
static int shape_of(const struct one *o, const char *rest, int *B, int *C, int *P)
{
    char name[200];
    const struct st_tensor *t;
    snprintf(name, sizeof name, "%s.%s", o->name, rest);
    t = pl_safetensors_find(o->f, name);
    if (!t || t->dims != 4 || t->n > 1 << 26) return 0;
    *B = (int)t->shape[0];
    *C = (int)t->shape[1];
    *P = (int)(t->shape[2] * t->shape[3]);
    return t->n > 0;
}

static void run_gumbel(struct one *o)
{
    const struct pl_backend *be = o->g->be;
    int B, C, P, D, N, hard;
    size_t positions, zs, ls, es;
    float *host_table, *host_zq;
    float *z, *noise, *w, *bias, *table, *dzq, *logits, *soft, *zq, *a, *dz, *dw, *db, *dtable;
    int32_t *code;
    double kl, tau, klw;
    if (!shape_of(o, "z", &B, &C, &P) || !shape_of(o, "logits", &B, &N, &P) ||
        !shape_of(o, "zq", &B, &D, &P)) {
        golden_fail(o->g, o->name, "z, logits and zq of four dimensions are expected");
        return;
    }
    positions = (size_t)B * (size_t)P;
    zs = positions * (size_t)C;
    ls = positions * (size_t)N;
    es = positions * (size_t)D;
    host_table = host(o, "param.embed.weight", NULL);
    host_zq = host(o, "zq", NULL);
    hard = host_table && host_zq && is_hard(o, host_table, host_zq, B, D, P, N);
    pl_free(host_table);
    pl_free(host_zq);
    z = up(o, "z", zs);
    noise = up(o, "noise", ls);
    w = up(o, "param.proj.weight", (size_t)N * (size_t)C);
    bias = up(o, "param.proj.bias", (size_t)N);
    table = up(o, "param.embed.weight", (size_t)N * (size_t)D);
    dzq = up(o, "dzq", es);
    logits = fresh(o, ls);
    soft = fresh(o, ls);
    zq = fresh(o, es);
    a = fresh(o, ls);
    dz = fresh(o, zs);
    dw = fresh(o, (size_t)N * (size_t)C);
    db = fresh(o, (size_t)N);
    dtable = fresh(o, (size_t)N * (size_t)D);
    code = (int32_t *)fresh(o, positions);
    tau = number(o, "temperature");
    klw = number(o, "kl_weight");
    if (!o->failed) {
        struct pl_conv proj = { B, C, 1, P, N, 1, 1, 0, 0, 0, 0 };
        struct pl_conv against = { B, D, 1, P, N, 1, 1, 0, 0, 0, 0 };
        int rc = be->conv(logits, z, w, bias, &proj);
        if (!rc) rc = be->gumbel_soft(soft, logits, noise, (float)tau, B, N, P);
        if (!rc) rc = be->gumbel_code(code, logits, noise, B, N, P);
        if (!rc) rc = be->kl_uniform(&kl, logits, B, N, P);
        if (!rc)
            rc = hard ? be->code_rows(zq, table, code, B, D, P, N)
                      : be->conv_dx(zq, soft, table, &against);
        if (!rc) rc = be->conv(a, dzq, table, NULL, &against);
        if (!rc) rc = be->gumbel_backward(a, a, soft, logits, (float)tau, (float)klw, B, N, P);
        if (!rc) rc = be->conv_dx(dz, a, w, &proj);
        if (!rc) rc = be->conv_dw(dw, db, a, z, &proj);
        if (!rc)
            rc = hard ? be->code_rows_backward(dtable, dzq, 1, code, B, D, P, N)
                      : be->conv_dw(dtable, NULL, soft, dzq, &against);
        o->failed = rc != PL_OK;
    }
    if (o->failed) {
        golden_fail(o->g, o->name, "a tensor is missing or has another size, or out of memory");
        return;
    }
    compare(o, "logits", logits, ls, 0);
    compare(o, "soft", soft, ls, 0);
    compare_codes(o, code, positions);
    compare(o, "zq", zq, es, 0);
    compare_number(o, "kl_loss", klw * kl);
    compare(o, "dz", dz, zs, 1);
    compare(o, "grad.proj.weight", dw, (size_t)N * (size_t)C, 1);
    compare(o, "grad.proj.bias", db, (size_t)N, 1);
    compare(o, "grad.embed.weight", dtable, (size_t)N * (size_t)D, 1);
}

static void run_nearest(struct one *o, double beta)
{
    const struct pl_backend *be = o->g->be;
    const struct st_tensor *rows;
    char name[200];
    int B, D, P, N, legacy = strstr(o->name, "legacy") != NULL;
    size_t positions, zs;
    float *z, *table, *dzq, *zq, *apart, *dtable;
    int32_t *code;
    double sum;
    snprintf(name, sizeof name, "%s.param.embedding.weight", o->name);
    rows = pl_safetensors_find(o->f, name);
    if (!shape_of(o, "z", &B, &D, &P) || !rows || rows->dims != 2) {
        golden_fail(o->g, o->name, "z of four dimensions and a table are expected");
        return;
    }
    N = (int)rows->shape[0];
    positions = (size_t)B * (size_t)P;
    zs = positions * (size_t)D;
    z = up(o, "z", zs);
    dzq = up(o, "dzq", zs);
    table = up(o, "param.embedding.weight", (size_t)N * (size_t)D);
    zq = fresh(o, zs);
    apart = fresh(o, zs);
    dtable = fresh(o, (size_t)N * (size_t)D);
    code = (int32_t *)fresh(o, positions);
    if (!o->failed) {
        double to_z = 2 * (legacy ? 1 : beta) / (double)zs,
               to_table = 2 * (legacy ? beta : 1) / (double)zs;
        int rc = be->nearest_code(code, z, table, B, D, P, N);
        if (!rc) rc = be->code_rows(zq, table, code, B, D, P, N);
        if (!rc) rc = be->copy(apart, zq, zs);
        if (!rc) rc = be->axpy(apart, -1, z, zs);
        if (!rc) rc = be->sumsq(&sum, apart, zs);
        if (!rc) rc = be->axpy(dzq, (float)-to_z, apart, zs);
        if (!rc) rc = be->code_rows_backward(dtable, apart, (float)to_table, code, B, D, P, N);
        o->failed = rc != PL_OK;
    }
    if (o->failed) {
        golden_fail(o->g, o->name, "a tensor is missing or has another size, or out of memory");
        return;
    }
    compare_codes(o, code, positions);
    compare(o, "zq", zq, zs, 0);
    compare_number(o, "loss", (1 + beta) * sum / (double)zs);
    compare(o, "dz", dzq, zs, 1);
    compare(o, "grad.embedding.weight", dtable, (size_t)N * (size_t)D, 1);
}

static void run_schedule(struct golden *g, const struct st_file *f, const json_t *config,
                         const char *name)
{
    /* the official one, unless the metadata has others */
    struct pl_temperature t = { .start = 0.9, .max = 0.9, .min = 1e-6, .decay = 1000001 };
    const json_t *given = json_object_get(config, name);
    char full[200];
    const struct st_tensor *value;
    int32_t *step;
    size_t n;
    double worst = 0;
    if (given)
        t = (struct pl_temperature){ golden_real(g, given, "start"), golden_real(g, given, "max"),
                                     golden_real(g, given, "min"),
                                     golden_int(g, given, "warm_up_steps"),
                                     golden_int(g, given, "max_decay_steps") };
    snprintf(full, sizeof full, "%s.step", name);
    step = golden_ints(g, f, full, &n);
    snprintf(full, sizeof full, "%s.value", name);
    value = pl_safetensors_find(f, full);
    if (step && value && value->dtype == PL_F64 && value->n == n) {
        for (size_t i = 0; i < n; i++) {
            double want;
            memcpy(&want, (const char *)value->data + i * sizeof want, sizeof want);
            worst = fmax(worst, fabs(pl_temperature_at(&t, step[i]) - want));
        }
        golden_case(g, full, worst, 1e-12);
    } else {
        golden_fail(g, full, "not as many F64 values as steps");
    }
    pl_free(step);
}

static double largest_gradient(struct golden *g, const struct st_file *f)
{
    double most = 0;
    for (size_t i = 0; i < f->count; i++) {
        const char *name = f->tensors[i].name;
        size_t n;
        float *x;
        if (!strstr(name, "grad.") &&
            !(strlen(name) > 3 && !strcmp(name + strlen(name) - 3, ".dz")))
            continue;
        if (!(x = golden_floats(g, f, name, &n))) continue;
        for (size_t k = 0; k < n; k++) most = fmax(most, fabs((double)x[k]));
        pl_free(x);
    }
    return most;
}

void vqgan_golden_quantizers(struct golden *g, const struct st_file *f, const json_t *config)
{
    double largest = largest_gradient(g, f);
    for (size_t i = 0; i < f->count; i++) {
        const char *dot = strrchr(f->tensors[i].name, '.');
        char name[100], other[200];
        struct one o = { .g = g, .f = f, .name = name, .largest = largest };
        if (!dot || (size_t)(dot - f->tensors[i].name) >= sizeof name) continue;
        snprintf(name, sizeof name, "%.*s", (int)(dot - f->tensors[i].name), f->tensors[i].name);
        if (!strcmp(dot, ".step")) run_schedule(g, f, config, name);
        if (strcmp(dot, ".z")) continue;
        snprintf(other, sizeof other, "%s.logits", name);
        if (pl_safetensors_find(f, other)) run_gumbel(&o);
        else run_nearest(&o, golden_real(g, config, "beta"));
        while (o.count > 0) g->be->free(o.held[--o.count]);
    }
}

/* -- a whole model ----------------------------------------------------------------------------- */

struct training {
    struct golden *g;
    const struct st_file *f;
    struct pl_vqgan m;
    struct pl_vqgan_task task;
    struct pl_optimizer *optimizer;
    double lr;
    float *x, *y, *noise;
    size_t noise_step; /* floats of one step's noise */
    int B, H, W;
};

static void compare_gradients(struct training *t)
{
    double largest = largest_gradient(t->g, t->f);
    for (size_t i = 0; i < t->m.params.count; i++) {
        const struct pl_param *p = &t->m.params.list[i];
        char name[PL_NAME_MAX + 8];
        size_t n;
        float *want, *got = pl_alloc(p->n, sizeof *got);
        snprintf(name, sizeof name, "grad.%s", p->name);
        want = golden_floats(t->g, t->f, name, &n);
        if (want && got && n == p->n && !golden_down(t->g, got, pl_params_grad(&t->m.params, i), n))
            golden_case(t->g, name, golden_absolute(got, want, n) / largest, VQGAN_MODEL);
        else golden_fail(t->g, name, "%zu values for %zu", p->n, want ? n : 0);
        pl_free(want);
        pl_free(got);
    }
}

static void compare_after(struct training *t, int steps)
{
    char start[32];
    snprintf(start, sizeof start, "after%d.", steps);
    for (size_t i = 0; i < t->f->count; i++) {
        const char *name = t->f->tensors[i].name;
        long at = strncmp(name, start, strlen(start))
                      ? -1
                      : pl_params_find(&t->m.params, name + strlen(start));
        size_t n;
        float *want, *got;
        if (at < 0) continue;
        want = golden_floats(t->g, t->f, name, &n);
        got = pl_alloc(n, sizeof *got);
        if (want && got && n == t->m.params.list[at].n &&
            !pl_params_get(&t->m.params, (size_t)at, got))
            golden_case(t->g, name, golden_relative(got, want, n), VQGAN_MODEL);
        else golden_fail(t->g, name, "another size, or out of memory");
        pl_free(want);
        pl_free(got);
    }
}

static void number_case(struct training *t, const char *name, double got)
{
    size_t n;
    float *want = golden_floats(t->g, t->f, name, &n);
    if (want && n == 1)
        golden_case(t->g, name, fabs(got - want[0]) / fmax(fabs((double)want[0]), 1e-30),
                    VQGAN_MODEL);
    pl_free(want);
}

static int one_step(struct training *t, int step, double want)
{
    struct pl_params *p = &t->m.params;
    size_t n = 3 * (size_t)t->B * (size_t)t->H * (size_t)t->W, count;
    struct pl_vqgan_loss loss;
    char name[40];
    int rc = p->be->fill(p->grad, 0, p->total);
    if (!rc)
        rc = pl_vqgan_gradient(&t->m, &loss, t->y, NULL, &t->task, t->x,
                               t->noise ? t->noise + (size_t)step * t->noise_step : NULL, t->B,
                               t->H, t->W);
    if (rc) return rc;
    snprintf(name, sizeof name, "step_losses %d", step + 1);
    golden_case(t->g, name, fabs(loss.total - want) / fabs(want), VQGAN_MODEL);
    if (step == 0) {
        float *xrec = golden_floats(t->g, t->f, "xrec", &count);
        if (xrec && count == n)
            golden_case(t->g, "xrec", golden_relative(t->y, xrec, n), VQGAN_MODEL);
        else golden_fail(t->g, "xrec", "another size");
        pl_free(xrec);
        number_case(t, "rec_loss", loss.l1);
        number_case(t, "quant_loss", loss.quantizer);
        compare_gradients(t);
    }
    return pl_optimizer_step(t->optimizer, p->value, p->grad, t->lr);
}

static int set_up(struct training *t, const json_t *config)
{
    const json_t *adam = json_object_get(config, "optimizer"),
                 *betas = json_object_get(adam, "betas");
    const json_t *temperature = json_object_get(config, "temperature");
    const struct st_tensor *x = pl_safetensors_find(t->f, "x");
    struct pl_optimizer_options o = pl_adam_options(0, 32);
    int factor = pl_vqgan_factor(&t->m.config);
    size_t n;
    o.beta1 = json_number_value(json_array_get(betas, 0));
    o.beta2 = json_number_value(json_array_get(betas, 1));
    o.eps = golden_real(t->g, adam, "eps");
    t->lr = golden_real(t->g, adam, "lr");
    t->task = pl_vqgan_published_task();
    if (json_is_number(temperature)) t->task.temperature = (float)json_number_value(temperature);
    if (!x || x->dims != 4 || x->shape[1] != 3 || x->shape[2] % factor || x->shape[3] % factor) {
        golden_fail(t->g, "x", "no tensor [B,3,H,W] whose sides are multiples of %d", factor);
        return 0;
    }
    t->B = (int)x->shape[0];
    t->H = (int)x->shape[2];
    t->W = (int)x->shape[3];
    t->x = golden_floats(t->g, t->f, "x", NULL);
    t->y = pl_alloc(x->n, sizeof *t->y);
    t->noise_step = (size_t)t->B * (size_t)t->m.config.n_embed * (size_t)(t->H / factor) *
                    (size_t)(t->W / factor);
    if (t->m.config.gumbel && !(t->noise = golden_floats(t->g, t->f, "noise", &n))) return 0;
    if (t->noise &&
        (n % t->noise_step || n / t->noise_step < pl_safetensors_find(t->f, "step_losses")->n)) {
        golden_fail(t->g, "noise", "not as many values as the steps need");
        return 0;
    }
    return t->x && t->y && !pl_optimizer_open_params(&t->optimizer, &t->m.params, &o, NULL);
}

void vqgan_golden_train(struct golden *g, const struct st_file *f, const json_t *config,
                        const char *stem)
{
    struct training t = { .g = g, .f = f };
    const struct st_tensor *losses = pl_safetensors_find(f, "step_losses");
    if (!losses || losses->dtype != PL_F64) {
        golden_fail(g, "step_losses", "no F64 tensor of this name");
        return;
    }
    if (!vqgan_golden_model(g, &t.m, f, config, stem, 1)) return;
    if (set_up(&t, config)) {
        int rc = PL_OK;
        for (size_t s = 0; !rc && s < losses->n; s++) {
            double want;
            memcpy(&want, (const char *)losses->data + s * sizeof want, sizeof want);
            rc = one_step(&t, (int)s, want);
        }
        if (rc) golden_fail(g, "training", "%s", pl_status_name(rc));
        else compare_after(&t, (int)losses->n);
    } else {
        golden_fail(g, "training", "cannot be set up");
    }
    pl_optimizer_close(t.optimizer);
    pl_vqgan_clear(&t.m);
    pl_free(t.x);
    pl_free(t.y);
    pl_free(t.noise);
}
