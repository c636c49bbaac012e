/* golden_outer_rounds.c - PowerSGD's two exchanges, and averaging a part of the parameters. */
#include "golden_outer.h"
#include "ref/byte_order.h"
#include "ref/outer/partial.h"
#include "ref/powersgd.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- PowerSGD ---- */

/* Rows are [shape, rank, least gain, compressed, [a, b], shape of P, shape of Q]. */
void golden_outer_powersgd_shapes(struct golden *g, const json_t *doc)
{
    const json_t *row;
    size_t k, same = 0, all = json_array_size(json_object_get(doc, "cases"));
    json_array_foreach(json_object_get(doc, "cases"), k, row)
    {
        const json_t *ab = json_array_get(row, 4), *P = json_array_get(row, 5);
        struct pl_outer_tensor t;
        long rank = (long)json_integer_value(json_array_get(row, 1));
        int pays, want = (int)json_integer_value(json_array_get(row, 3)), good;
        size_t a, b;
        if (!outer_shape(&t, row, 0)) continue;
        pl_powersgd_dims(&a, &b, t.shape, t.axes);
        pays = pl_powersgd_pays(a, b, t.axes, (int)rank, json_number_value(json_array_get(row, 2)));
        good = pays == want;
        if (json_is_array(ab))
            good = good && (size_t)json_integer_value(json_array_get(ab, 0)) == a &&
                   (size_t)json_integer_value(json_array_get(ab, 1)) == b;
        if (json_is_array(P))
            good = good && (size_t)json_integer_value(json_array_get(P, 0)) == a &&
                   json_integer_value(json_array_get(P, 1)) == rank;
        same += (size_t)good;
    }
    golden_check(g, "shapes", all && same == all, "%zu of %zu", same, all);
}

struct powersgd {
    struct golden *g;
    const struct st_file *f, *gradients;
    struct pl_outer_tensor tensors[OUTER_TENSORS_MAX];
    struct outer_swarm s;
    struct pl_outer_setup setup;
    int is_compressed[OUTER_TENSORS_MAX];
    int round, phase, own;
};

/* Compares values on the host with NAME, relative to its largest entry. */
static void compare(struct powersgd *r, const char *name, const float *got, size_t n)
{
    float *want = outer_floats(r->g, r->f, n, "%s", name);
    if (want) golden_case(r->g, name, golden_relative(got, want, n), 1e-5);
    pl_free(want);
}

/* Factors as they are sent: in the order of the tensors. Those of the QR form may differ in sign. */
static void factors_sent(void *context, const struct pl_outer_message *in)
{
    struct powersgd *r = context;
    char name[100];
    for (int k = 0; k < r->setup.peers && !r->own; k++) {
        size_t at = 0;
        for (int i = 0; i < r->setup.count; i++) {
            const char *letter = r->phase ? "q" : "p";
            const struct st_tensor *t;
            if (!r->is_compressed[i]) continue;
            snprintf(name, sizeof name, "r%d.p%d.%s%d", r->round, k, letter, i);
            t = outer_find(r->f, "%s", name);
            if (!t || (at + t->n) * sizeof(float) > in[k].bytes) {
                golden_fail(r->g, name, "cannot be compared");
                return;
            }
            float *sent = pl_alloc(t->n, sizeof *sent);
            if (sent) pl_copy_little(sent, in[k].data + at * sizeof *sent, sizeof *sent, t->n);
            if (sent) compare(r, name, sent, t->n);
            else golden_fail(r->g, name, "no memory");
            pl_free(sent);
            at += t->n;
        }
    }
    r->phase++;
}

static int take_mean(void *context, int k, float *x, const float *g)
{
    struct powersgd *r = context;
    return r->g->be->copy(x, g, r->s.n + 0 * (size_t)k); /* x shows the mean gradient */
}

static int read_gradients(struct powersgd *r, int k, float *g)
{
    for (int i = 0; i < r->setup.count; i++) {
        float *one = outer_floats(r->g, r->gradients, r->tensors[i].n, "r%d.p%d.grad%d", r->round,
                                  k, i);
        if (!one) return 0;
        memcpy(g + r->tensors[i].offset, one, r->tensors[i].n * sizeof *one);
        pl_free(one);
    }
    return 1;
}

static int powersgd_round(struct powersgd *r, const json_t *weights, float *g)
{
    char name[100];
    int next = 0;
    r->phase = 0;
    for (int k = 0; k < r->setup.peers && next >= 0; k++) {
        r->s.weight[k] = json_number_value(json_array_get(weights, (size_t)k));
        next = read_gradients(r, k, g) ? outer_swarm_step(&r->s, k, g, 0, take_mean, r)
                                       : PL_EFORMAT;
    }
    if (next >= 0) next = outer_swarm_exchange(&r->s);
    if (next != PL_OUTER_GRADIENT && next != PL_OUTER_STEP) return next < 0 ? next : PL_EPROTO;
    for (int k = 0; k < r->setup.peers; k++) {
        float *memory = pl_alloc(r->s.n, sizeof *memory);
        if (memory && !golden_down(r->g, g, r->s.grad[k], r->s.n) &&
            !golden_down(r->g, memory, pl_outer_get(r->s.o[k], "memory"), r->s.n))
            for (int i = 0; i < r->setup.count; i++) {
                snprintf(name, sizeof name, "r%d.out%d", r->round, i);
                compare(r, name, g + r->tensors[i].offset, r->tensors[i].n);
                if (!r->is_compressed[i]) continue;
                snprintf(name, sizeof name, "r%d.p%d.m%d", r->round, k, i);
                compare(r, name, memory + r->tensors[i].offset, r->tensors[i].n);
            }
        pl_free(memory);
    }
    return 0;
}

/* Q's first values, different on each peer. */
static int read_q(struct powersgd *r, int k)
{
    float *q = pl_outer_get(r->s.o[k], "q");
    int rc = PL_OK;
    for (int i = 0; i < r->setup.count && !rc; i++) {
        const struct st_tensor *t = outer_find(r->f, "p%d.q_init%d", k, i);
        float *one;
        if (!r->is_compressed[i]) continue;
        one = t ? outer_floats(r->g, r->f, t->n, "p%d.q_init%d", k, i) : NULL;
        rc = one ? r->g->be->put(q, one, t->n * sizeof *one) : PL_EFORMAT;
        if (t) q += t->n;
        pl_free(one);
    }
    return rc;
}

static void powersgd_rounds(struct powersgd *r, const json_t *config)
{
    const json_t *shapes = json_object_get(config, "shapes"), *v;
    size_t n = 0, i;
    float *zeros, *g;
    int next = 0;
    pl_outer_defaults(&r->setup);
    r->setup.be = r->g->be;
    r->setup.tensors = r->tensors;
    while (r->setup.count < OUTER_TENSORS_MAX &&
           outer_shape(&r->tensors[r->setup.count], shapes, (size_t)r->setup.count)) {
        r->is_compressed[r->setup.count] = 1;
        r->tensors[r->setup.count].offset = n;
        n += r->tensors[r->setup.count++].n;
    }
    json_array_foreach(json_object_get(config, "uncompressed"), i,
                       v) if (json_integer_value(v) >= 0 && json_integer_value(v) < r->setup.count)
        r->is_compressed[json_integer_value(v)] = 0;
    r->setup.peers = (int)golden_int(r->g, config, "peers");
    r->setup.powersgd_rank = (int)golden_int(r->g, config, "rank");
    r->setup.own_feedback = r->own;
    r->setup.refill = 0;
    zeros = pl_alloc((size_t)abs(r->setup.peers) * n, sizeof *zeros);
    g = pl_alloc(n, sizeof *g);
    if (zeros && g && outer_swarm_open(&r->s, r->g, "powersgd", &r->setup, zeros)) {
        r->s.sent = factors_sent;
        r->s.context = r;
        for (int k = 0; k < r->setup.peers && !next; k++) next = read_q(r, k);
        for (; r->round < golden_int(r->g, config, "rounds") && !next; r->round++)
            next = powersgd_round(
                r, json_array_get(json_object_get(config, "weights"), (size_t)r->round), g);
        if (next) golden_fail(r->g, "rounds", "%s", pl_status_name(next));
    }
    outer_swarm_close(&r->s);
    pl_free(zeros);
    pl_free(g);
}

/* Gradients may lie in another file of the folder; the textbook's feedback has them there. */
void golden_outer_powersgd(struct golden *g, const struct st_file *f, const json_t *config)
{
    struct powersgd r = { .g = g, .f = f, .gradients = f };
    const char *other = json_string_value(json_object_get(config, "gradients_in"));
    struct st_file *sibling = NULL;
    struct pl_err err;
    char name[300], *path;
    r.own = !outer_find(f, "r0.p0.grad0");
    if (r.own) {
        snprintf(name, sizeof name, "%s.safetensors", other ? other : "");
        path = pl_path_join(g->folder, name);
        if (!path || pl_safetensors_open(&sibling, path, &err)) {
            golden_fail(g, "gradients", "%s", path ? err.text : "out of memory");
            free(path);
            return;
        }
        free(path);
        r.gradients = sibling;
    }
    powersgd_rounds(&r, config);
    if (sibling) pl_safetensors_close(sibling);
}

/* ---- a part of the parameters ---- */

struct partial {
    struct golden *g;
    const struct st_file *f;
    struct pl_outer_tensor t; /* the tensor at hand */
    int i;
    long R;
    const json_t *weights; /* NULL: equal */
    float *x[OUTER_PEERS_MAX];
};

/* The entries `index` of all peers become their weighted mean. */
static int average(struct partial *p, const uint32_t *index, size_t n)
{
    const struct pl_backend *be = p->g->be;
    float *values = pl_alloc(3 * n + 1, sizeof *values), *sum = values + n, *zero = sum + n;
    struct pl_coded x = { .method = PL_COMPRESS_NONE, .data = values };
    const struct pl_coded none = { .method = PL_COMPRESS_NONE, .data = zero };
    double total = 0;
    int rc = values ? PL_OK : PL_ENOMEM;
    for (long k = 0; k < p->R && !rc; k++) {
        double w = p->weights ? json_number_value(json_array_get(p->weights, (size_t)k)) : 1;
        pl_partial_take(values, p->x[k], index, n);
        rc = be->average_add(sum, &x, (float)w, n);
        total += w;
    }
    if (!rc) rc = be->average_delta(values, sum, (float)total, &none, n);
    for (long k = 0; k < p->R && !rc; k++) pl_partial_put(p->x[k], values, index, n);
    pl_free(values);
    return rc;
}

static int begin_tensor(struct partial *p, const json_t *shapes, int i)
{
    if (!outer_shape(&p->t, shapes, (size_t)i)) return 0;
    p->i = i;
    for (long k = 0; k < p->R; k++)
        if (!(p->x[k] = outer_floats(p->g, p->f, p->t.n, "p%ld.init%d", k, i))) return 0;
    return 1;
}

static void end_tensor(struct partial *p)
{
    for (long k = 0; k < p->R; k++) {
        pl_free(p->x[k]);
        p->x[k] = NULL;
    }
}

static void compare_x(struct partial *p, long t, int must)
{
    char name[100];
    for (long k = 0; k < p->R; k++) {
        float *want;
        snprintf(name, sizeof name, "s%ld.p%ld.x%d", t, k, p->i);
        if (!must && !outer_find(p->f, "%s", name)) continue;
        want = outer_floats(p->g, p->f, p->t.n, "%s", name);
        if (want) golden_case(p->g, name, golden_relative(p->x[k], want, p->t.n), 1e-6);
        pl_free(want);
    }
}

/* Drifts are added, then the entries that were drawn are averaged. */
static int sparta_round(struct partial *p, long t)
{
    const struct st_tensor *drawn = outer_find(p->f, "s%ld.idx%d", t, p->i);
    size_t n = drawn ? drawn->n : 0;
    int32_t *index = outer_ints(p->g, p->f, n, "s%ld.idx%d", t, p->i);
    int rc = index ? PL_OK : PL_EFORMAT;
    for (long k = 0; k < p->R && !rc; k++) {
        float *add = outer_floats(p->g, p->f, p->t.n, "s%ld.p%ld.add%d", t, k, p->i);
        if (!add) rc = PL_EFORMAT;
        for (size_t j = 0; add && j < p->t.n; j++) p->x[k][j] += add[j];
        pl_free(add);
    }
    for (size_t j = 0; j < n && !rc; j++)
        if (index[j] < 0 || (size_t)index[j] >= p->t.n) rc = PL_EFORMAT;
    if (!rc) rc = average(p, (const uint32_t *)(const void *)index, n);
    pl_free(index);
    if (!rc) compare_x(p, t, 1);
    return rc;
}

void golden_outer_sparta(struct golden *g, const struct st_file *f, const json_t *config)
{
    struct partial p = { .g = g, .f = f, .R = golden_int(g, config, "R") };
    const json_t *shapes = json_object_get(config, "shapes");
    int rc = p.R >= 1 && p.R <= OUTER_PEERS_MAX ? PL_OK : PL_EFORMAT;
    for (int i = 0; i < (int)json_array_size(shapes) && !rc; i++) {
        if (!begin_tensor(&p, shapes, i)) rc = PL_EFORMAT;
        for (long t = 0; t < golden_int(g, config, "rounds") && !rc; t++) rc = sparta_round(&p, t);
        end_tensor(&p);
    }
    if (rc) golden_fail(g, "rounds", "%s", pl_status_name(rc));
}

/* Round t: the entries whose partition is t modulo the partitions. Our own dealing has as many
 * partitions, of the same sizes. */
static int node0_round(struct partial *p, const json_t *config, const int32_t *partition, long t)
{
    size_t parts = (size_t)json_integer_value(
        json_array_get(json_object_get(config, "partitions"), (size_t)p->i));
    const json_t *lengths = json_array_get(json_object_get(config, "lengths"), (size_t)t);
    uint32_t *index = pl_alloc(p->t.n, sizeof *index);
    size_t n = 0, begin, end;
    char name[100];
    int rc = index && parts ? PL_OK : PL_EFORMAT;
    for (size_t j = 0; j < p->t.n && !rc; j++)
        if ((size_t)partition[j] == (size_t)t % parts) index[n++] = (uint32_t)j;
    snprintf(name, sizeof name, "r%ld.length%d", t, p->i);
    golden_check(p->g, name, (size_t)json_integer_value(json_array_get(lengths, (size_t)p->i)) == n,
                 "%zu entries", n);
    if (!rc) {
        snprintf(name, sizeof name, "r%ld.own length%d", t, p->i);
        pl_partial_range(&begin, &end, p->t.n, parts, (size_t)t % parts);
        golden_check(p->g, name,
                     parts == pl_partial_parts(p->t.n, golden_real(p->g, config, "p")) &&
                         end - begin == n,
                     "%zu entries of %zu partitions", end - begin, parts);
        rc = average(p, index, n);
    }
    pl_free(index);
    if (!rc) compare_x(p, t, 0);
    return rc;
}

void golden_outer_node0(struct golden *g, const struct st_file *f, const json_t *config)
{
    struct partial p = { .g = g, .f = f, .weights = json_object_get(config, "weights") };
    const json_t *shapes = json_object_get(config, "shapes");
    int rc;
    p.R = (long)json_array_size(p.weights);
    rc = p.R >= 1 && p.R <= OUTER_PEERS_MAX ? PL_OK : PL_EFORMAT;
    for (int i = 0; i < (int)json_array_size(shapes) && !rc; i++) {
        int32_t *partition = NULL;
        if (!begin_tensor(&p, shapes, i)) rc = PL_EFORMAT;
        else if (!(partition = outer_ints(g, f, p.t.n, "partition%d", i))) rc = PL_EFORMAT;
        for (long t = 0; t < golden_int(g, config, "rounds") && !rc; t++)
            rc = node0_round(&p, config, partition, t);
        pl_free(partition);
        end_tensor(&p);
    }
    if (rc) golden_fail(g, "rounds", "%s", pl_status_name(rc));
}
