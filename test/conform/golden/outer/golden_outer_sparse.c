/* golden_outer_sparse.c - DeMo and SparseLoCo: chunks, transforms, messages, and whole steps. */
#include "golden_outer.h"
#include "ref/byte_order.h"
#include "ref/outer/chunks.h"
#include "ref/outer/sparse.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- chunks ---- */

void golden_outer_sides(struct golden *g, const json_t *doc)
{
    const json_t *row;
    size_t i, same = 0, all = json_array_size(json_object_get(doc, "cases"));
    json_array_foreach(json_object_get(doc, "cases"), i, row)
    {
        size_t n = (size_t)json_integer_value(json_array_get(row, 0));
        size_t target = (size_t)json_integer_value(json_array_get(row, 1));
        same += n && target &&
                pl_chunk_side(n, target) == (size_t)json_integer_value(json_array_get(row, 2));
    }
    golden_check(g, "sides", all && same == all, "%zu of %zu", same, all);
}

static void basis(struct golden *g, const struct st_file *f, const struct st_tensor *t)
{
    int inverse = !strncmp(t->name, "inverse", 7);
    size_t n = (size_t)t->shape[0];
    double *F = pl_alloc(n * n, sizeof *F), worst = 0;
    float *want = outer_floats(g, f, n * n, "%s", t->name);
    if (F) pl_dct_basis(F, n);
    for (size_t j = 0; F && want && j < n; j++)
        for (size_t k = 0; k < n; k++)
            worst = fmax(worst, fabs(F[j * n + k] - want[inverse ? k * n + j : j * n + k]));
    if (F && want) golden_case(g, t->name, worst, 2e-7);
    pl_free(F);
    pl_free(want);
}

void golden_outer_dct(struct golden *g, const struct st_file *f, const json_t *config)
{
    size_t target = (size_t)golden_int(g, config, "chunk");
    struct pl_outer_tensor t;
    char what[100];
    for (size_t i = 0; i < f->count; i++)
        if (!strncmp(f->tensors[i].name, "basis", 5) || !strncmp(f->tensors[i].name, "inverse", 7))
            basis(g, f, &f->tensors[i]);
    for (size_t i = 0; target && outer_shape(&t, json_object_get(config, "shapes"), i); i++) {
        struct pl_chunks c = pl_chunks_of(t.shape, t.axes, target);
        float *x = outer_floats(g, f, t.n, "x%zu", i),
              *coef = outer_floats(g, f, t.n, "coef%zu", i);
        float *back = outer_floats(g, f, t.n, "back%zu", i), *got = pl_alloc(t.n, sizeof *got);
        float *at = x ? golden_up(g, x, t.n) : NULL, *y = g->be->alloc(t.n * sizeof *y);
        if (x && coef && back && got && at && y) {
            snprintf(what, sizeof what, "coef%zu", i);
            if (g->be->chunk_cut(y, at, &c, 1) || golden_down(g, got, y, t.n))
                golden_fail(g, what, "does not run");
            golden_case(g, what, golden_relative(got, coef, t.n), 2e-6);
            snprintf(what, sizeof what, "back%zu", i);
            if (g->be->chunk_paste(at, y, &c, 1) || golden_down(g, got, at, t.n))
                golden_fail(g, what, "does not run");
            golden_case(g, what, golden_relative(got, back, t.n), 2e-6);
        } else golden_fail(g, "tensors", "the %zuth cannot be replayed", i);
        pl_free(x);
        pl_free(coef);
        pl_free(back);
        pl_free(got);
        g->be->free(at);
        g->be->free(y);
    }
}

/* ---- steps ---- */

/* A file of the compressors: tensors by config.shapes, names such as s0.p1.g2. */
struct steps {
    struct golden *g;
    const struct st_file *f;
    const json_t *config;
    struct pl_outer_tensor tensors[OUTER_TENSORS_MAX];
    struct outer_swarm s;
    struct pl_outer_setup setup;
    int t; /* step */
    struct pl_outer_message *sent;
};

static int read_shapes(struct steps *r)
{
    const json_t *shapes = json_object_get(r->config, "shapes");
    size_t n = 0;
    pl_outer_defaults(&r->setup);
    r->setup.be = r->g->be;
    r->setup.tensors = r->tensors;
    while (r->setup.count < OUTER_TENSORS_MAX &&
           outer_shape(&r->tensors[r->setup.count], shapes, (size_t)r->setup.count)) {
        r->tensors[r->setup.count].offset = n;
        n += r->tensors[r->setup.count++].n;
    }
    return r->setup.count;
}

static int open_steps(struct steps *r, const char *algorithm, const char *start)
{
    size_t n = 0;
    float *init;
    int good;
    for (int i = 0; i < r->setup.count; i++) n += r->tensors[i].n;
    init = pl_alloc((size_t)r->setup.peers * n, sizeof *init);
    good = init != NULL;
    for (int i = 0; good && i < r->setup.count; i++) {
        float *x = outer_floats(r->g, r->f, r->tensors[i].n, "init.%s%d", start, i);
        good = x != NULL;
        for (int k = 0; good && k < r->setup.peers; k++)
            memcpy(init + (size_t)k * n + r->tensors[i].offset, x, r->tensors[i].n * sizeof *x);
        pl_free(x);
    }
    if (good) good = outer_swarm_open(&r->s, r->g, algorithm, &r->setup, init);
    pl_free(init);
    return good;
}

/* Compares the i'th tensor's part of a buffer of the backend with NAME. */
static void compare_tensor(struct steps *r, const char *name, int i, const float *buffer,
                           double allowed)
{
    const struct pl_outer_tensor *t = &r->tensors[i];
    float *want = outer_floats(r->g, r->f, t->n, "%s", name), *got = pl_alloc(t->n, sizeof *got);
    if (want && got && !golden_down(r->g, got, buffer + t->offset, t->n))
        golden_case(r->g, name, golden_absolute(got, want, t->n), allowed);
    pl_free(want);
    pl_free(got);
}

static float largest(const float *x, size_t n)
{
    float most = 0;
    for (size_t i = 0; i < n; i++) most = fmaxf(most, fabsf(x[i]));
    return most;
}

/* If all entries are equally large, it is not defined which are sent. */
static int is_free(const struct steps *r, int i)
{
    const json_t *pair;
    size_t k;
    json_array_foreach(json_object_get(r->config, "zero"), k,
                       pair) if (json_integer_value(json_array_get(pair, 0)) == r->t &&
                                 json_integer_value(json_array_get(pair, 1)) == i) return 1;
    return 0;
}

/* DeMo's message against the file's indices and values. */
static void demo_sent(void *context, const struct pl_outer_message *in)
{
    struct steps *r = context;
    char name[100];
    for (int k = 0; k < r->setup.peers; k++) {
        size_t at = 0;
        for (int i = 0; i < r->setup.count; i++) {
            int32_t *want = outer_ints(r->g, r->f, SIZE_MAX, "s%d.p%d.idx%d", r->t, k, i), *index;
            const struct st_tensor *t = outer_find(r->f, "s%d.p%d.idx%d", r->t, k, i);
            size_t n = t ? t->n : 0, packed = (n + 1) / 2 * 3;
            float *want_value = outer_floats(r->g, r->f, n, "s%d.p%d.val%d", r->t, k, i);
            float *value = pl_alloc(n, sizeof *value);
            index = pl_alloc(n + 1, sizeof *index);
            snprintf(name, sizeof name, "s%d.p%d.idx%d", r->t, k, i);
            if (want && want_value && value && index && at + packed + 4 * n <= in[k].bytes) {
                pl_unpack12(index, in[k].data + at, (n + 1) / 2 * 2);
                pl_copy_little(value, in[k].data + at + packed, sizeof *value, n);
                if (!is_free(r, i))
                    golden_check(r->g, name, !memcmp(index, want, n * sizeof *want),
                                 "other indices");
                snprintf(name, sizeof name, "s%d.p%d.val%d", r->t, k, i);
                golden_case(r->g, name, golden_absolute(value, want_value, n),
                            2e-6 * fmaxf(largest(want_value, n), 1e-30f));
            } else golden_fail(r->g, name, "cannot be compared");
            at += packed + 4 * n;
            pl_free(want);
            pl_free(want_value);
            pl_free(value);
            pl_free(index);
        }
        golden_check(r->g, "bytes", at == in[k].bytes, "%zu in a message of %zu", at, in[k].bytes);
    }
}

static int no_inner(void *context, int k, float *x, const float *g)
{
    (void)context, (void)k, (void)x, (void)g;
    return PL_EUSE; /* DeMo makes the step itself */
}

/* The common step's signs: the parameters' change, in units of the rate. */
static void demo_signs(struct steps *r, int i, const float *before, const float *after, double lr)
{
    const struct pl_outer_tensor *t = &r->tensors[i];
    const struct st_tensor *want = outer_find(r->f, "s%d.sign%d", r->t, i);
    float *a = pl_alloc(t->n, sizeof *a), *b = pl_alloc(t->n, sizeof *b);
    double keep = 1 - lr * r->setup.weight_decay;
    size_t same = 0;
    char name[100];
    snprintf(name, sizeof name, "s%d.sign%d", r->t, i);
    if (a && b && want && want->n == t->n && want->bytes == t->n &&
        !golden_down(r->g, a, before + t->offset, t->n) &&
        !golden_down(r->g, b, after + t->offset, t->n))
        for (size_t k = 0; k < t->n; k++)
            same += (int8_t)lround((a[k] * keep - b[k]) / lr) == ((const int8_t *)want->data)[k];
    golden_check(r->g, name, same == t->n, "%zu of %zu", same, t->n);
    pl_free(a);
    pl_free(b);
}

static int demo_step(struct steps *r, double lr, float *g, float *before)
{
    char name[100];
    int next = r->g->be->copy(before, r->s.x[0], r->s.n);
    for (int k = 0; k < r->setup.peers && next >= 0; k++) {
        for (int i = 0; i < r->setup.count; i++) {
            float *one = outer_floats(r->g, r->f, r->tensors[i].n, "s%d.p%d.g%d", r->t, k, i);
            if (!one) return PL_EFORMAT;
            memcpy(g + r->tensors[i].offset, one, r->tensors[i].n * sizeof *one);
            pl_free(one);
        }
        next = outer_swarm_step(&r->s, k, g, lr, no_inner, NULL);
    }
    if (next >= 0) next = outer_swarm_exchange(&r->s);
    for (int i = 0; i < r->setup.count && next >= 0; i++) {
        for (int k = 0; k < r->setup.peers; k++) {
            snprintf(name, sizeof name, "s%d.x%d", r->t, i);
            compare_tensor(r, name, i, r->s.x[k], 1e-6);
            snprintf(name, sizeof name, "s%d.p%d.m%d", r->t, k, i);
            if (outer_find(r->f, "%s", name))
                compare_tensor(r, name, i, pl_outer_get(r->s.o[k], "momentum"), 1e-6);
        }
        demo_signs(r, i, before, r->s.x[0], lr);
    }
    return next;
}

void golden_outer_demo(struct golden *g, const struct st_file *f, const json_t *config)
{
    struct steps r = { .g = g, .f = f, .config = config };
    const json_t *rates = json_object_get(config, "lr");
    float *grad = NULL, *before = NULL;
    int next = 0;
    read_shapes(&r);
    r.setup.peers = (int)golden_int(g, config, "workers");
    r.setup.beta = golden_real(g, config, "beta");
    r.setup.topk = (int)golden_int(g, config, "topk");
    r.setup.chunk = (int)golden_int(g, config, "chunk");
    r.setup.weight_decay = golden_real(g, config, "weight_decay");
    if (open_steps(&r, "demo", "x")) {
        grad = pl_alloc(r.s.n, sizeof *grad);
        before = g->be->alloc(r.s.n * sizeof *before);
        r.s.sent = demo_sent;
        r.s.context = &r;
        for (r.t = 0; (size_t)r.t < json_array_size(rates) && next >= 0 && grad && before; r.t++)
            next = demo_step(&r, json_number_value(json_array_get(rates, (size_t)r.t)), grad,
                             before);
        if (next < 0 || !grad || !before) golden_fail(g, "steps", "%s", pl_status_name(next));
    } else golden_fail(g, "peers", "the file's cannot be replayed");
    g->be->free(before);
    pl_free(grad);
    outer_swarm_close(&r.s);
}

/* ---- SparseLoCo ---- */

/* Peer k's i'th tensor as sent: our packed form against the file's, and the published form read. */
static void compare_packed(struct steps *r, int k, int i, const uint8_t *in, size_t n, int m,
                           int per_chunk)
{
    const struct st_tensor *want = outer_find(r->f, "s%d.p%d.packed%d", r->t, k, i);
    const struct st_tensor *wire = outer_find(r->f, "s%d.p%d.wire_idx%d", r->t, k, i);
    const struct st_tensor *codes = outer_find(r->f, "s%d.p%d.wire_codes%d", r->t, k, i);
    float *table = outer_floats(r->g, r->f, 4, "s%d.p%d.table%d", r->t, k, i);
    float *two = outer_floats(r->g, r->f, 2, "s%d.p%d.shift_scale%d", r->t, k, i);
    float level[4], theirs[4], *a = pl_alloc(n, sizeof *a), *b = pl_alloc(n, sizeof *b);
    int32_t *x = pl_alloc(n + 1, sizeof *x), *y = pl_alloc(n + 1, sizeof *y);
    char name[100];
    snprintf(name, sizeof name, "s%d.p%d.packed%d", r->t, k, i);
    if (want && want->bytes == pl_sparse_bytes(n) && wire && wire->bytes == n / 2 * 3 && codes &&
        codes->bytes == n && table && two && a && b && x && y) {
        pl_copy_little(level, in, sizeof *level, 4);
        pl_copy_little(theirs, want->data, sizeof *theirs, 4);
        golden_case(r->g, name, golden_absolute(level, theirs, 4), 1e-6);
        golden_check(r->g, name,
                     !memcmp(in + sizeof level, (const uint8_t *)want->data + sizeof level,
                             want->bytes - sizeof level),
                     "other indices or codes");
        golden_check(r->g, name,
                     !pl_sparse_read(x, a, want->data, n, m, per_chunk) &&
                         !pl_sparse_read_published(y, b, wire->data, codes->data, table, 4, two[0],
                                                   n, m, per_chunk) &&
                         !memcmp(x, y, n * sizeof *x) && !memcmp(a, b, n * sizeof *a),
                     "the published form is read as something else");
    } else golden_fail(r->g, name, "cannot be compared");
    pl_free(table);
    pl_free(two);
    pl_free(a);
    pl_free(b);
    pl_free(x);
    pl_free(y);
}

static void sparse_sent(void *context, const struct pl_outer_message *in)
{
    struct steps *r = context;
    for (int k = 0; k < r->setup.peers; k++) {
        size_t at = 0;
        for (int i = 0; i < r->setup.count; i++) {
            const struct pl_outer_tensor *t = &r->tensors[i];
            struct pl_chunks c = pl_chunks_of(t->shape, t->axes, (size_t)r->setup.chunk);
            const struct st_tensor *index = outer_find(r->f, "s%d.p%d.idx%d", r->t, k, i);
            size_t n = index ? index->n : 0;
            if (pl_chunk_entries(&c) == 1 || !n) {
                golden_fail(r->g, "idx", "tensor %d is not in chunks", i);
                return;
            }
            if (at + pl_sparse_bytes(n) > in[k].bytes) {
                golden_fail(r->g, "bytes", "a message of %zu is too short", in[k].bytes);
                return;
            }
            compare_packed(r, k, i, in[k].data + at, n, (int)pl_chunk_entries(&c),
                           (int)(n / pl_chunks_count(&c)));
            at += pl_sparse_bytes(n);
        }
        golden_check(r->g, "bytes", at == in[k].bytes, "%zu in a message of %zu", at, in[k].bytes);
    }
}

static int add_delta(void *context, int k, float *x, const float *g)
{
    struct steps *r = context;
    (void)k;
    return r->g->be->axpy(x, -1, g, r->s.n);
}

/* phi's change by the other mean, of all peers: a second swarm, for this one step alone, with the
 * errors of the first. */
static void compare_other_mean(struct steps *r, const struct pl_outer_message *in)
{
    char name[100];
    struct pl_outer *o = r->s.o[0];
    const struct pl_backend *be = r->g->be;
    float *phi = pl_outer_get(o, "phi"), *kept = be->alloc(2 * r->s.n * sizeof *kept);
    float *x = kept + r->s.n;
    double nu = o->setup.nu;
    for (int over = 0; over <= 1 && kept; over++) {
        int rc = be->copy(kept, phi, r->s.n);
        o->setup.mean_over_all = over;
        o->setup.nu = -1;
        if (!rc) rc = be->fill(phi, 0, r->s.n); /* phi becomes G */
        if (!rc) rc = pl_outer_apply(o, x, NULL, in, r->s.peers);
        for (int i = 0; i < r->setup.count && rc >= 0; i++) {
            snprintf(name, sizeof name, "s%d.g_%s%d", r->t, over ? "all" : "senders", i);
            if (outer_find(r->f, "%s", name)) compare_tensor(r, name, i, phi, 1e-6);
        }
        if (rc >= 0) rc = be->copy(phi, kept, r->s.n);
        if (rc < 0) golden_fail(r->g, "mean", "%s", pl_status_name(rc));
    }
    o->setup.mean_over_all = 0;
    o->setup.nu = nu;
    be->free(kept);
}

static void sparse_sent_all(void *context, const struct pl_outer_message *in)
{
    struct steps *r = context;
    sparse_sent(r, in);
    compare_other_mean(r, in);
}

static int sparse_step(struct steps *r, float *delta)
{
    char name[100];
    int next = 0;
    for (int k = 0; k < r->setup.peers && next >= 0; k++) {
        for (int i = 0; i < r->setup.count; i++) {
            float *one = outer_floats(r->g, r->f, r->tensors[i].n, "s%d.p%d.delta%d", r->t, k, i);
            if (!one) return PL_EFORMAT;
            memcpy(delta + r->tensors[i].offset, one, r->tensors[i].n * sizeof *one);
            pl_free(one);
        }
        next = outer_swarm_step(&r->s, k, delta, 0, add_delta, r);
    }
    if (next >= 0) next = outer_swarm_exchange(&r->s);
    for (int i = 0; i < r->setup.count && next >= 0; i++)
        for (int k = 0; k < r->setup.peers; k++) {
            snprintf(name, sizeof name, "s%d.phi%d", r->t, i);
            compare_tensor(r, name, i, r->s.x[k], 1e-6);
            snprintf(name, sizeof name, "s%d.p%d.e%d", r->t, k, i);
            if (outer_find(r->f, "%s", name))
                compare_tensor(r, name, i, pl_outer_get(r->s.o[k], "error"), 1e-6);
        }
    return next;
}

void golden_outer_sparseloco(struct golden *g, const struct st_file *f, const json_t *config)
{
    struct steps r = { .g = g, .f = f, .config = config };
    float *delta = NULL;
    int next = 0;
    read_shapes(&r);
    r.setup.peers = (int)golden_int(g, config, "R");
    r.setup.H = 1;
    r.setup.nu = golden_real(g, config, "alpha");
    r.setup.beta = golden_real(g, config, "beta");
    r.setup.topk = (int)golden_int(g, config, "topk");
    r.setup.chunk = (int)golden_int(g, config, "chunk");
    if (open_steps(&r, "sparseloco", "phi") && (delta = pl_alloc(r.s.n, sizeof *delta))) {
        r.s.sent = sparse_sent_all;
        r.s.context = &r;
        for (r.t = 0; r.t < golden_int(g, config, "steps") && next >= 0; r.t++)
            next = sparse_step(&r, delta);
        if (next < 0) golden_fail(g, "steps", "%s", pl_status_name(next));
    } else golden_fail(g, "peers", "the file's cannot be replayed");
    pl_free(delta);
    outer_swarm_close(&r.s);
}

/* Aggregation alone, from given indices: even numbers of peers, and one that sent zeros. */
void golden_outer_aggregate(struct golden *g, const struct st_file *f, const json_t *config)
{
    const json_t *shapes = json_pack("[O]", json_object_get(config, "shape"));
    long R = golden_int(g, config, "R");
    struct pl_outer_tensor t;
    struct pl_chunks c;
    double *sum = NULL, norm[OUTER_PEERS_MAX] = { 0 }, factor[OUTER_PEERS_MAX];
    uint16_t *senders = NULL;
    float *mean = NULL, *want = NULL, *norms = NULL, *at = NULL, *y = NULL;
    int good = outer_shape(&t, shapes, 0) && R >= 1 && R <= OUTER_PEERS_MAX;
    if (good) {
        c = pl_chunks_of(t.shape, t.axes, PL_CHUNK_SIDE_MAX);
        sum = pl_alloc(t.n, sizeof *sum);
        senders = pl_alloc(t.n, sizeof *senders);
        mean = pl_alloc(t.n, sizeof *mean);
        want = outer_floats(g, f, t.n, "g_senders");
        norms = outer_floats(g, f, (size_t)R, "norm");
        good = sum && senders && mean && want && norms;
    }
    for (int pass = 0; pass < 2 && good; pass++) {
        for (long k = 0; k < R && good; k++) {
            const struct st_tensor *codes = outer_find(f, "p%ld.codes", k);
            size_t n = codes ? codes->n : 0, chunks = pl_chunks_count(&c);
            int32_t *index = outer_ints(g, f, n, "p%ld.idx", k);
            float *table = outer_floats(g, f, 4, "p%ld.table", k), *v = pl_alloc(n, sizeof *v);
            float *two = outer_floats(g, f, 2, "p%ld.shift_scale", k);
            good = index && table && two && v && n;
            for (size_t i = 0; i < n && good; i++) {
                good = ((const uint8_t *)codes->data)[i] < 4 && index[i] >= 0 &&
                       (size_t)index[i] < pl_chunk_entries(&c);
                if (good) v[i] = table[((const uint8_t *)codes->data)[i]] + two[0];
                if (!pass) norm[k] += (double)v[i] * v[i];
            }
            if (!pass) norm[k] = sqrt(norm[k]);
            else if (good)
                pl_sparse_add(sum, senders, index, v, factor[k], chunks, (int)pl_chunk_entries(&c),
                              (int)(n / chunks));
            pl_free(index);
            pl_free(table);
            pl_free(two);
            pl_free(v);
        }
        if (!pass && good) good = !pl_median_factors(factor, norm, (int)R);
    }
    if (good) {
        float got[OUTER_PEERS_MAX];
        for (long k = 0; k < R; k++) got[k] = (float)norm[k];
        golden_case(g, "norm", golden_absolute(got, norms, (size_t)R), 1e-6);
        pl_sparse_mean(mean, sum, senders, t.n, 0);
        at = golden_up(g, mean, t.n);
        y = g->be->alloc(t.n * sizeof *y);
        if (at && y && !g->be->chunk_paste(y, at, &c, 0) && !golden_down(g, mean, y, t.n))
            golden_case(g, "g", golden_absolute(mean, want, t.n), 1e-6);
    }
    if (!good || !at || !y) golden_fail(g, "peers", "the file's cannot be replayed");
    pl_free(sum);
    pl_free(senders);
    pl_free(mean);
    pl_free(want);
    pl_free(norms);
    g->be->free(at);
    g->be->free(y);
    json_decref((json_t *)(uintptr_t)shapes);
}
