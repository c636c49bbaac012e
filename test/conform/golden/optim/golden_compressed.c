/* golden_compressed.c - PowerSGD, 1-bit Adam and Deep Gradient Compression, step by step. */
#include "golden_aggregate.h"
#include "ref/dgc.h"
#include "ref/onebit.h"
#include "ref/powersgd.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PEERS_MAX 64
#define TENSORS_MAX 64

/* --- PowerSGD --------------------------------------------------------------------------------- */

struct sgd_tensor {
    size_t n, rows, columns;
    int compressed;
    struct pl_powersgd peer[PEERS_MAX];
};

struct sgd_replay {
    struct golden *g;
    const struct st_file *f;
    int peers, rank;
    size_t tensors;
    struct sgd_tensor tensor[TENSORS_MAX];
};

static int32_t lists(const json_t *list, size_t value)
{
    for (size_t i = 0; i < json_array_size(list); i++)
        if ((size_t)json_integer_value(json_array_get(list, i)) == value) return 1;
    return 0;
}

/* Shapes and dimensions, which the configuration states and we compute. */
static int sgd_tensor_open(struct sgd_replay *r, size_t i, const json_t *config)
{
    struct sgd_tensor *t = &r->tensor[i];
    const json_t *list = json_array_get(json_object_get(config, "shapes"), i), *dims;
    int64_t shape[PL_POWERSGD_AXES_MAX];
    size_t axes = json_array_size(list);
    char name[40];
    float *q;
    int rc = PL_OK;
    if (!axes || axes > PL_POWERSGD_AXES_MAX) return PL_EFORMAT;
    t->n = 1;
    for (size_t k = 0; k < axes; k++) {
        shape[k] = json_integer_value(json_array_get(list, k));
        if (shape[k] < 1 || shape[k] > 1 << 24 || t->n > 1u << 28) return PL_EFORMAT;
        t->n *= (size_t)shape[k];
    }
    pl_powersgd_dims(&t->rows, &t->columns, shape, (int)axes);
    t->compressed = pl_powersgd_pays(t->rows, t->columns, (int)axes, r->rank,
                                     golden_real(r->g, config, "min_compression_ratio"));
    snprintf(name, sizeof name, "%zu", i);
    dims = json_object_get(json_object_get(config, "dims"), name);
    snprintf(name, sizeof name, "matrix of tensor %zu", i);
    golden_check(r->g, name,
                 t->compressed != lists(json_object_get(config, "uncompressed"), i) &&
                     (size_t)json_integer_value(json_array_get(dims, 0)) == t->rows &&
                     (axes == 1 ||
                      (size_t)json_integer_value(json_array_get(dims, 1)) == t->columns),
                 "%zu x %zu, %scompressed", t->rows, t->columns, t->compressed ? "" : "un");
    if (!t->compressed) return PL_OK;
    snprintf(name, sizeof name, "q_init%zu", i);
    q = agg_floats(r->g, r->f, name, t->columns * (size_t)r->rank);
    if (!q) return PL_EFORMAT;
    for (int k = 0; !rc && k < r->peers; k++)
        rc = pl_powersgd_init(&t->peer[k], r->g->be, (int)t->rows, (int)t->columns, r->rank, q);
    pl_free(q);
    return rc;
}

static void sgd_compare(struct sgd_replay *r, int round, const char *what, const float *device,
                        size_t n)
{
    char name[80];
    float *got = pl_alloc(n, sizeof *got), *want;
    snprintf(name, sizeof name, "r%d.%s", round, what);
    want = agg_floats(r->g, r->f, name, n);
    if (got && want && !golden_down(r->g, got, device, n))
        golden_case(r->g, name, golden_relative(got, want, n), 1e-4);
    pl_free(got);
    pl_free(want);
}

/* Every peer's copy becomes the plain mean, as the group's all-reduce would leave it. */
static int sgd_mean(struct sgd_replay *r, float **at, size_t n)
{
    const struct pl_backend *be = r->g->be;
    int rc = PL_OK;
    for (int k = 1; !rc && k < r->peers; k++) rc = be->axpy(at[0], 1, at[k], n);
    if (!rc) rc = be->scale(at[0], 1.0f / (float)r->peers, n);
    for (int k = 1; !rc && k < r->peers; k++) rc = be->copy(at[k], at[0], n);
    return rc;
}

/* The gradients of one tensor, in the backend's memory. */
static int sgd_grads(struct sgd_replay *r, int round, size_t i, float **grad)
{
    for (int k = 0; k < r->peers; k++) {
        char name[80];
        float *x;
        snprintf(name, sizeof name, "r%d.peer%d.grad%zu", round, k, i);
        x = agg_floats(r->g, r->f, name, r->tensor[i].n);
        grad[k] = x ? golden_up(r->g, x, r->tensor[i].n) : NULL;
        pl_free(x);
        if (!grad[k]) return PL_ENOMEM;
    }
    return PL_OK;
}

static int sgd_round(struct sgd_replay *r, int round, size_t i, float **grad)
{
    struct sgd_tensor *t = &r->tensor[i];
    size_t p = t->rows * (size_t)r->rank, q = t->columns * (size_t)r->rank;
    float *at[PEERS_MAX];
    char what[40];
    int rc = PL_OK;
    for (int k = 0; !rc && k < r->peers; k++) rc = pl_powersgd_p(&t->peer[k], grad[k]);
    for (int k = 0; k < r->peers; k++) at[k] = t->peer[k].P;
    if (!rc) rc = sgd_mean(r, at, p);
    snprintf(what, sizeof what, "p_mean%zu", i);
    if (!rc) sgd_compare(r, round, what, at[0], p);
    for (int k = 0; !rc && k < r->peers; k++) rc = pl_powersgd_q(&t->peer[k]);
    snprintf(what, sizeof what, "p_orth%zu", i);
    if (!rc) sgd_compare(r, round, what, at[0], p);
    for (int k = 0; k < r->peers; k++) at[k] = t->peer[k].Q;
    if (!rc) rc = sgd_mean(r, at, q);
    snprintf(what, sizeof what, "q_mean%zu", i);
    if (!rc) sgd_compare(r, round, what, at[0], q);
    for (int k = 0; !rc && k < r->peers; k++) {
        rc = pl_powersgd_restore(grad[k], &t->peer[k]);
        snprintf(what, sizeof what, "peer%d.m%zu", k, i);
        if (!rc) sgd_compare(r, round, what, t->peer[k].M, t->n);
    }
    return rc;
}

static void sgd_replay_round(struct sgd_replay *r, int round)
{
    for (size_t i = 0; i < r->tensors; i++) {
        float *grad[PEERS_MAX] = { NULL };
        char what[40];
        int rc = sgd_grads(r, round, i, grad);
        if (!rc)
            rc = r->tensor[i].compressed ? sgd_round(r, round, i, grad)
                                         : sgd_mean(r, grad, r->tensor[i].n);
        snprintf(what, sizeof what, "grad_out%zu", i);
        if (!rc) sgd_compare(r, round, what, grad[0], r->tensor[i].n);
        else golden_fail(r->g, what, "round %d: %s", round, pl_status_name(rc));
        for (int k = 0; k < r->peers; k++) r->g->be->free(grad[k]);
    }
}

int golden_powersgd(struct golden *g, const char *path, const char *stem)
{
    struct sgd_replay *r = calloc(1, sizeof *r);
    struct st_file *f;
    struct pl_err err;
    json_t *config;
    int rc = PL_OK;
    (void)stem;
    if (!r || pl_safetensors_open(&f, path, &err)) {
        golden_fail(g, "", "%s", r ? err.text : "out of memory");
        free(r);
        return 1;
    }
    r->g = g;
    r->f = f;
    if ((config = golden_meta(g, f, "config"))) {
        r->peers = (int)golden_int(g, config, "peers");
        r->rank = (int)golden_int(g, config, "rank");
        r->tensors = json_array_size(json_object_get(config, "shapes"));
        if (r->peers < 1 || r->peers > PEERS_MAX || r->rank < 1 || !r->tensors ||
            r->tensors > TENSORS_MAX)
            rc = PL_EFORMAT;
        for (size_t i = 0; !rc && i < r->tensors; i++) rc = sgd_tensor_open(r, i, config);
        if (rc) golden_fail(g, "config", "no rounds that can be replayed");
        for (int round = 0; !rc && round < golden_int(g, config, "rounds"); round++)
            sgd_replay_round(r, round);
    }
    for (size_t i = 0; i < r->tensors && i < TENSORS_MAX; i++)
        for (int k = 0; k < PEERS_MAX; k++) pl_powersgd_clear(&r->tensor[i].peer[k]);
    json_decref(config);
    pl_safetensors_close(f);
    free(r);
    return 1;
}

/* --- 1-bit Adam ------------------------------------------------------------------------------- */

struct onebit_replay {
    struct golden *g;
    const struct st_file *f;
    struct pl_onebit o;
    int workers;
    size_t n, padded, slice;
    double *p, *m, *v, *worker_error, *server_error, *worker_scale, *server_scale;
    uint8_t *worker_bits, *server_bits;
};

static void onebit_doubles(struct onebit_replay *r, long step, const char *what, const double *got,
                           size_t n)
{
    char name[80];
    snprintf(name, sizeof name, "s%ld.%s", step, what);
    agg_compare(r->g, r->f, name, got, n, 1e-12);
}

static void onebit_bytes(struct onebit_replay *r, long step, const char *what, const uint8_t *got,
                         size_t n)
{
    const struct st_tensor *t;
    char name[80];
    snprintf(name, sizeof name, "s%ld.%s", step, what);
    t = pl_safetensors_find(r->f, name);
    golden_check(r->g, name, t && t->bytes == n && !memcmp(t->data, got, n), "other bits");
}

static int onebit_allreduce(struct onebit_replay *r, long step, const double *grads)
{
    size_t workers = (size_t)r->workers;
    double *sum = pl_alloc(r->padded, sizeof *sum);
    int rc = sum ? PL_OK : PL_ENOMEM;
    for (size_t k = 0; !rc && k < workers; k++)
        rc = pl_onebit_worker(r->worker_bits + k * r->padded / 8, &r->worker_scale[k],
                              r->worker_error + k * r->padded, r->m, grads + k * r->n, r->n,
                              r->padded, r->o.beta1);
    for (int j = 0; !rc && j < r->workers; j++) {
        uint8_t *bits = r->server_bits + (size_t)j * r->slice / 8;
        rc = pl_onebit_server(bits, &r->server_scale[j], r->server_error + (size_t)j * r->slice,
                              r->worker_bits, r->worker_scale, r->workers, j, r->padded);
        if (!rc) pl_onebit_expand(sum + (size_t)j * r->slice, bits, r->server_scale[j], r->slice);
    }
    if (!rc) {
        memcpy(r->m, sum, r->n * sizeof *sum);
        onebit_bytes(r, step, "worker_bits", r->worker_bits, workers * r->padded / 8);
        onebit_bytes(r, step, "server_bits", r->server_bits, r->padded / 8);
        onebit_doubles(r, step, "worker_scale", r->worker_scale, workers);
        onebit_doubles(r, step, "server_scale", r->server_scale, workers);
        onebit_doubles(r, step, "worker_error", r->worker_error, workers * r->padded);
        onebit_doubles(r, step, "server_error", r->server_error, r->padded);
    }
    pl_free(sum);
    return rc;
}

static int onebit_one(struct onebit_replay *r, long step, int warm, const double *grads)
{
    double *mean = pl_alloc(r->n, sizeof *mean);
    int rc = mean ? PL_OK : PL_ENOMEM;
    if (!rc && warm) {
        for (size_t i = 0; i < r->n; i++) {
            for (size_t k = 0; k < (size_t)r->workers; k++) mean[i] += grads[k * r->n + i];
            mean[i] /= r->workers;
        }
        pl_onebit_warm_up(r->p, r->m, r->v, mean, r->n, &r->o);
    } else if (!rc) {
        rc = onebit_allreduce(r, step, grads);
        if (!rc) pl_onebit_step(r->p, r->m, r->v, r->n, &r->o);
    }
    pl_free(mean);
    return rc;
}

static int onebit_open(struct onebit_replay *r, const json_t *config)
{
    size_t workers;
    r->workers = (int)golden_int(r->g, config, "workers");
    r->o = (struct pl_onebit){ golden_real(r->g, config, "lr"), golden_real(r->g, config, "beta1"),
                               golden_real(r->g, config, "beta2"),
                               golden_real(r->g, config, "eps") };
    r->p = agg_doubles(r->g, r->f, "p_init", SIZE_MAX, &r->n);
    if (!r->p || r->workers < 1 || r->workers > PEERS_MAX) return PL_EFORMAT;
    workers = (size_t)r->workers;
    r->padded = pl_onebit_padded(r->n, r->workers);
    r->slice = r->padded / workers;
    golden_check(r->g, "padding", r->padded == (size_t)golden_int(r->g, config, "padded"), "%zu",
                 r->padded);
    r->m = pl_alloc(r->n, sizeof *r->m);
    r->v = pl_alloc(r->n, sizeof *r->v);
    r->worker_error = pl_alloc(workers * r->padded, sizeof *r->worker_error);
    r->server_error = pl_alloc(r->padded, sizeof *r->server_error);
    r->worker_scale = pl_alloc(workers, sizeof *r->worker_scale);
    r->server_scale = pl_alloc(workers, sizeof *r->server_scale);
    r->worker_bits = pl_alloc(workers * r->padded / 8, 1);
    r->server_bits = pl_alloc(r->padded / 8, 1);
    return r->m && r->v && r->worker_error && r->server_error && r->worker_scale &&
                   r->server_scale && r->worker_bits && r->server_bits
               ? PL_OK
               : PL_ENOMEM;
}

static void onebit_replay(struct onebit_replay *r, const json_t *config)
{
    long freeze = golden_int(r->g, config, "freeze_step");
    for (long step = 1;; step++) {
        char name[40];
        double *grads;
        int rc;
        snprintf(name, sizeof name, "s%ld.grads", step);
        if (!pl_safetensors_find(r->f, name)) {
            if (step <= freeze) golden_fail(r->g, name, "no step after the warm-up");
            return;
        }
        grads = agg_doubles(r->g, r->f, name, (size_t)r->workers * r->n, NULL);
        rc = grads ? onebit_one(r, step, step <= freeze, grads) : PL_EFORMAT;
        pl_free(grads);
        if (rc) {
            golden_fail(r->g, name, "%s", pl_status_name(rc));
            return;
        }
        onebit_doubles(r, step, "momentum", r->m, r->n);
        onebit_doubles(r, step, "v", r->v, r->n);
        onebit_doubles(r, step, "p", r->p, r->n);
    }
}

int golden_onebit(struct golden *g, const char *path, const char *stem)
{
    struct onebit_replay r = { .g = g };
    struct st_file *f;
    json_t *config;
    (void)stem;
    if (!(f = golden_open(g, path))) return 1;
    r.f = f;
    if ((config = golden_meta(g, f, "config"))) {
        if (onebit_open(&r, config)) golden_fail(g, "config", "no steps that can be replayed");
        else onebit_replay(&r, config);
    }
    pl_free(r.p);
    pl_free(r.m);
    pl_free(r.v);
    pl_free(r.worker_error);
    pl_free(r.server_error);
    pl_free(r.worker_scale);
    pl_free(r.server_scale);
    pl_free(r.worker_bits);
    pl_free(r.server_bits);
    json_decref(config);
    pl_safetensors_close(f);
    return 1;
}

/* --- Deep Gradient Compression ---------------------------------------------------------------- */

struct dgc_replay {
    struct golden *g;
    const struct st_file *f;
    size_t workers, n;
    double momentum, lr, limit;
    double *w, *u, *acc, *update, *value;
    uint32_t *index;
};

static void dgc_doubles(struct dgc_replay *r, size_t step, const char *what, const double *got,
                        size_t n)
{
    char name[80];
    snprintf(name, sizeof name, "s%zu.%s", step, what);
    agg_compare(r->g, r->f, name, got, n, 1e-12);
}

static void dgc_sent(struct dgc_replay *r, size_t step, size_t worker, size_t count)
{
    char name[80], what[40];
    size_t n = 0, wrong = 0;
    int32_t *want;
    snprintf(name, sizeof name, "s%zu.w%zu.indices", step, worker);
    want = golden_ints(r->g, r->f, name, &n);
    for (size_t k = 0; want && k < n && k < count; k++) wrong += want[k] != (int32_t)r->index[k];
    golden_check(r->g, name, want && n == count && !wrong, "%zu of %zu indices, %zu differ", count,
                 n, wrong);
    pl_free(want);
    snprintf(what, sizeof what, "w%zu.values", worker);
    dgc_doubles(r, step, what, r->value, count);
}

static int dgc_step(struct dgc_replay *r, size_t step, const json_t *meta, const double *grads)
{
    double sparsity = golden_real(r->g, meta, "sparsity");
    size_t count = pl_dgc_count(r->n, sparsity);
    memset(r->update, 0, r->n * sizeof *r->update);
    golden_check(r->g, "entries sent", count == (size_t)golden_int(r->g, meta, "k"),
                 "%zu at sparsity %g, step %zu", count, sparsity, step);
    for (size_t k = 0; k < r->workers; k++) {
        double *u = r->u + k * r->n, *acc = r->acc + k * r->n;
        pl_dgc_accumulate(u, acc, grads + k * r->n, r->n, r->momentum, r->limit);
        if (pl_dgc_take(r->index, r->value, acc, u, r->n, count)) return PL_ENOMEM;
        dgc_sent(r, step, k, count);
        pl_dgc_add(r->update, r->index, r->value, count, (int)r->workers);
    }
    for (size_t i = 0; i < r->n; i++) r->w[i] -= r->lr * r->update[i];
    dgc_doubles(r, step, "u", r->u, r->workers * r->n);
    dgc_doubles(r, step, "acc", r->acc, r->workers * r->n);
    dgc_doubles(r, step, "update", r->update, r->n);
    dgc_doubles(r, step, "w", r->w, r->n);
    return PL_OK;
}

static int dgc_open(struct dgc_replay *r, const json_t *config)
{
    long workers = golden_int(r->g, config, "workers");
    r->w = agg_doubles(r->g, r->f, "w_init", SIZE_MAX, &r->n);
    if (!r->w || workers < 1 || workers > PEERS_MAX) return PL_EFORMAT;
    r->workers = (size_t)workers;
    r->momentum = golden_real(r->g, config, "momentum");
    r->lr = golden_real(r->g, config, "lr");
    r->limit = golden_real(r->g, config, "clip_global") / sqrt((double)workers);
    r->u = pl_alloc(r->workers * r->n, sizeof *r->u);
    r->acc = pl_alloc(r->workers * r->n, sizeof *r->acc);
    r->update = pl_alloc(r->n, sizeof *r->update);
    r->value = pl_alloc(r->n, sizeof *r->value);
    r->index = pl_alloc(r->n, sizeof *r->index);
    return r->u && r->acc && r->update && r->value && r->index ? PL_OK : PL_ENOMEM;
}

int golden_dgc(struct golden *g, const char *path, const char *stem)
{
    struct dgc_replay r = { .g = g };
    struct st_file *f;
    json_t *config, *row;
    size_t step;
    (void)stem;
    if (!(f = golden_open(g, path))) return 1;
    r.f = f;
    config = golden_meta(g, f, "config");
    if (config && dgc_open(&r, config)) golden_fail(g, "config", "no steps that can be replayed");
    else if (config && !json_array_size(json_object_get(config, "per_step")))
        golden_fail(g, "per_step", "none");
    else json_array_foreach(json_object_get(config, "per_step"), step, row)
        {
            char name[40];
            double *grads;
            snprintf(name, sizeof name, "s%zu.grads", step);
            grads = agg_doubles(g, f, name, r.workers * r.n, NULL);
            if (!grads || dgc_step(&r, step, row, grads))
                golden_fail(g, name, "cannot be replayed");
            pl_free(grads);
        }
    pl_free(r.w);
    pl_free(r.u);
    pl_free(r.acc);
    pl_free(r.update);
    pl_free(r.value);
    pl_free(r.index);
    json_decref(config);
    pl_safetensors_close(f);
    return 1;
}
