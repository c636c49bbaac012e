/* golden_groups.c - how parts are assigned to reducers, and a whole group's all-reduce, against
 * hivemind's. */
#include "golden_aggregate.h"
#include "ref/average.h"
#include "ref/balance.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* --- partition -------------------------------------------------------------------------------- */

/* The run's choice is spelt "run", or begins with "size adaptive". */
static int method_named(enum pl_compression *method, const char *name, size_t elements)
{
    if (!name) return PL_EFORMAT;
    if (!strcmp(name, "none")) *method = PL_COMPRESS_NONE;
    else if (!strcmp(name, "float16")) *method = PL_COMPRESS_FLOAT16;
    else if (!strcmp(name, "uniform8")) *method = PL_COMPRESS_UNIFORM8;
    else if (!strcmp(name, "run") || !strncmp(name, "size adaptive", 13))
        *method = pl_wire_adaptive(elements);
    else return PL_EFORMAT;
    return PL_OK;
}

static size_t elements_of(const json_t *shape)
{
    size_t n = 1;
    for (size_t i = 0; i < json_array_size(shape); i++)
        n *= (size_t)json_integer_value(json_array_get(shape, i));
    return n;
}

static int same_part(const struct pl_part *p, const json_t *row)
{
    const json_int_t mine[5] = { (json_int_t)p->tensor, (json_int_t)p->index, (json_int_t)p->start,
                                 (json_int_t)p->length, p->reducer };
    for (size_t i = 0; i < 5; i++)
        if (json_integer_value(json_array_get(row, i)) != mine[i]) return 0;
    return 1;
}

static void partition_case(struct golden *g, const json_t *doc, size_t index)
{
    const json_t *shapes = json_object_get(doc, "shapes"), *want = json_object_get(doc, "parts");
    const char *compression = json_string_value(json_object_get(doc, "compression"));
    size_t tensors = json_array_size(shapes), peers = 0, count = 0, same = 0;
    size_t *elements = pl_alloc(tensors, sizeof *elements);
    enum pl_compression *method = pl_alloc(tensors, sizeof *method);
    double *fraction = agg_list(g, doc, "peer_fractions", 0, &peers);
    struct pl_part *parts = NULL;
    struct pl_err err = { "" };
    char what[160];
    int rc = elements && method && fraction ? PL_OK : PL_ENOMEM;
    for (size_t t = 0; !rc && t < tensors; t++) {
        elements[t] = elements_of(json_array_get(shapes, t));
        rc = method_named(&method[t], compression, elements[t]);
    }
    if (!rc)
        rc = pl_partition(&parts, &count, elements, method, tensors, fraction, (int)peers,
                          (size_t)golden_int(g, doc, "part_size_bytes"), &err);
    snprintf(what, sizeof what, "case %zu, %zu tensors for %zu peers, %s", index, tensors, peers,
             compression ? compression : "?");
    while (same < count && same_part(&parts[same], json_array_get(want, same))) same++;
    golden_check(g, what, !rc && count == json_array_size(want) && same == count,
                 "%s; part %zu of %zu, want %zu", err.text, same, count, json_array_size(want));
    pl_free(elements);
    pl_free(method);
    pl_free(fraction);
    pl_free(parts);
}

int golden_partition(struct golden *g, const char *path, const char *stem)
{
    json_t *doc = golden_json(g, strrchr(path, '/') + 1), *row;
    const json_t *cases = json_object_get(doc, "cases");
    size_t index;
    (void)stem;
    if (doc && !json_array_size(cases)) golden_fail(g, "cases", "none there");
    json_array_foreach(cases, index, row) partition_case(g, row, index);
    json_decref(doc);
    return 1;
}

/* --- load balancing --------------------------------------------------------------------------- */

/* The time of the slowest, by the fractions before they become whole numbers. */
static double objective(const double *fraction, const double *b, size_t n)
{
    double worst = 0;
    for (size_t i = 0; i < n; i++)
        if (b[i] > 0) worst = fmax(worst, ((double)(n > 2 ? n - 2 : 0) * fraction[i] + 1) / b[i]);
    return worst;
}

static int shares_equal(const size_t *share, const double *want, size_t n, double allowed)
{
    for (size_t i = 0; i < n; i++)
        if (!(fabs((double)share[i] - want[i]) <= allowed)) return 0;
    return 1;
}

struct balance_row {
    const json_t *doc;
    size_t n, total, min_size;
    double *bandwidth, *resolved, *fraction, *want, *scores, *water;
    size_t *share;
};

static void balance_compare(struct golden *g, const struct balance_row *r, const char *what)
{
    const json_t *optimum = json_object_get(r->doc, "optimum");
    size_t sum = 0;
    for (size_t i = 0; i < r->n; i++) sum += r->share[i];
    if (sum != r->total) {
        golden_check(g, what, 0, "the shares sum to %zu", sum);
    } else if (!r->resolved || json_is_true(json_object_get(r->doc, "unique"))) {
        golden_check(g, what,
                     shares_equal(r->share, r->want, r->n, fmax(1, 1e-8 * (double)r->total)),
                     "the partition is another one");
    } else if (json_is_number(optimum)) {
        double excess = objective(r->fraction, r->resolved, r->n) - json_number_value(optimum);
        golden_case(g, what, fmax(0, excess), 1e-6);
    } else { /* one peer: nothing to optimise */
        golden_check(g, what, shares_equal(r->share, r->want, r->n, 0),
                     "the partition is another one");
    }
    if (r->scores) { /* the solver's own end; its last digits are its machine's */
        double worst = 0;
        for (size_t i = 0; i < r->n; i++) worst = fmax(worst, fabs(r->fraction[i] - r->scores[i]));
        golden_case(g, what, worst, 1e-5);
    }
    if (r->water && r->resolved) {
        double worst_level = 0;
        pl_balance_level(r->fraction, r->resolved, (int)r->n);
        for (size_t i = 0; i < r->n; i++)
            worst_level = fmax(worst_level, fabs(r->fraction[i] - r->water[i]));
        golden_case(g, what, worst_level, 1e-9);
    }
}

static void balance_row(struct golden *g, const json_t *doc, size_t index)
{
    struct balance_row r = { .doc = doc };
    struct pl_err err;
    char what[80];
    int rc;
    r.total = (size_t)golden_int(g, doc, "vector_size");
    r.min_size = (size_t)golden_int(g, doc, "min_size");
    r.bandwidth = agg_list(g, doc, "bandwidths", 0, &r.n);
    r.want = r.bandwidth ? agg_list(g, doc, "partition", r.n, NULL) : NULL;
    if (r.want && json_object_get(doc, "resolved_bandwidths"))
        r.resolved = agg_list(g, doc, "resolved_bandwidths", r.n, NULL);
    if (r.resolved && json_object_get(doc, "scores"))
        r.scores = agg_list(g, doc, "scores", r.n, NULL);
    if (r.want && json_object_get(doc, "water_fractions"))
        r.water = agg_list(g, doc, "water_fractions", r.n, NULL);
    r.fraction = pl_alloc(r.n, sizeof *r.fraction);
    r.share = pl_alloc(r.n, sizeof *r.share);
    if (r.want && r.fraction && r.share) {
        for (size_t i = 0; i < r.n; i++)
            if (isnan(r.bandwidth[i])) r.bandwidth[i] = PL_BANDWIDTH_UNKNOWN;
        snprintf(what, sizeof what, "row %zu, %zu elements for %zu peers", index, r.total, r.n);
        rc = pl_balance_fractions(r.fraction, r.bandwidth, (int)r.n, r.total, r.min_size, &err);
        if (!rc) rc = pl_balance(r.share, r.bandwidth, (int)r.n, r.total, r.min_size, &err);
        if (rc) golden_check(g, what, 0, "%s", err.text);
        else balance_compare(g, &r, what);
    }
    pl_free(r.bandwidth);
    pl_free(r.resolved);
    pl_free(r.scores);
    pl_free(r.fraction);
    pl_free(r.want);
    pl_free(r.water);
    pl_free(r.share);
}

static void round_row(struct golden *g, const json_t *doc, size_t index)
{
    size_t n = 0;
    double *score = agg_list(g, doc, "scores", 0, &n);
    double *want = score ? agg_list(g, doc, "allocated", n, NULL) : NULL;
    size_t *share = pl_alloc(n, sizeof *share);
    char what[60];
    snprintf(what, sizeof what, "Hagenbach-Bischoff %zu", index);
    if (want && share) {
        pl_balance_round(share, score, (int)n, (size_t)golden_int(g, doc, "vector_size"));
        golden_check(g, what, shares_equal(share, want, n, 0), "other whole numbers");
    }
    pl_free(score);
    pl_free(want);
    pl_free(share);
}

int golden_load_balance(struct golden *g, const char *path, const char *stem)
{
    json_t *doc = golden_json(g, strrchr(path, '/') + 1), *row;
    const json_t *rows = json_object_get(doc, "rows");
    size_t index;
    (void)stem;
    if (doc && !json_array_size(rows)) golden_fail(g, "rows", "none there");
    json_array_foreach(rows, index, row) balance_row(g, row, index);
    json_array_foreach(json_object_get(doc, "hagenbach_bishoff"), index, row)
        round_row(g, row, index);
    json_decref(doc);
    return 1;
}

/* --- all-reduce ------------------------------------------------------------------------------- */

#define MEMBERS_MAX 64
#define TENSORS_MAX 256

struct group_replay {
    struct golden *g;
    const struct st_file *f;
    struct pl_member member[MEMBERS_MAX];
    float *tensor[MEMBERS_MAX][TENSORS_MAX];
    size_t elements[TENSORS_MAX];
    enum pl_compression method[TENSORS_MAX];
    struct pl_group group;
};

/* How many tensors a sender brings: peer<i>.in0, in1, ... */
static size_t inputs_of(const struct st_file *f, int peer)
{
    char name[40];
    size_t k = 0;
    for (;; k++) {
        snprintf(name, sizeof name, "peer%d.in%zu", peer, k);
        if (k == TENSORS_MAX || !pl_safetensors_find(f, name)) return k;
    }
}

static int load_group(struct group_replay *r, const json_t *config)
{
    const char *compression = json_string_value(json_object_get(config, "compression"));
    size_t n = 0;
    double *weight = agg_list(r->g, config, "weights", 0, &n);
    double *fraction = weight ? agg_list(r->g, config, "peer_fractions", n, NULL) : NULL;
    int rc = fraction && n <= MEMBERS_MAX ? PL_OK : PL_EFORMAT;
    r->group = (struct pl_group){
        .member = r->member,
        .members = (int)n,
        .elements = r->elements,
        .method = r->method,
        .part_bytes = (size_t)golden_int(r->g, config, "part_size_bytes"),
    };
    for (size_t i = 0; !rc && i < n; i++) {
        size_t tensors = inputs_of(r->f, (int)i);
        r->member[i] = (struct pl_member){
            .role = !tensors           ? PL_AUXILIARY
                    : fraction[i] == 0 ? PL_CLIENT
                                       : PL_NODE,
            .weight = weight[i],
            .fraction = fraction[i],
            .tensor = r->tensor[i],
        };
        if (tensors) r->group.tensors = tensors;
        for (size_t k = 0; !rc && k < tensors; k++) {
            char name[60];
            snprintf(name, sizeof name, "peer%zu.in%zu", i, k);
            r->tensor[i][k] = golden_floats(r->g, r->f, name, &r->elements[k]);
            if (!r->tensor[i][k]) rc = PL_ENOMEM;
            else rc = method_named(&r->method[k], compression, r->elements[k]);
        }
    }
    if (rc) golden_fail(r->g, "config", "no group that can be replayed");
    pl_free(weight);
    pl_free(fraction);
    return rc;
}

static double deviation(const float *x, size_t n)
{
    double sum = 0, squares = 0;
    for (size_t i = 0; i < n; i++) sum += x[i], squares += (double)x[i] * x[i];
    return n > 1 ? sqrt(fmax(0, (squares - sum * sum / (double)n) / (double)(n - 1))) : 0;
}

/* Uncompressed: every value. 8 bits: a value at a bin's boundary may get the neighbouring code,
 * which changes it by a bin's width, and the means of both bins by a width over their count; nearly
 * all must agree. */
static void compare_tensor(struct group_replay *r, int peer, size_t k)
{
    char name[60], line[120];
    float *want, *got = r->tensor[peer][k];
    size_t n = r->elements[k], off = 0;
    double bin, worst;
    snprintf(name, sizeof name, "peer%d.out%zu", peer, k);
    want = agg_floats(r->g, r->f, name, n);
    if (!want) return;
    worst = golden_absolute(got, want, n);
    if (r->method[k] == PL_COMPRESS_NONE) {
        golden_case(r->g, name, worst, 1e-7);
    } else if (r->method[k] != PL_COMPRESS_UNIFORM8 || worst <= 1e-6) {
        golden_case(r->g, name, worst, 1e-6);
    } else {
        bin = 6 * deviation(want, n) / PL_CODES;
        for (size_t i = 0; i < n; i++) off += !(fabs((double)got[i] - want[i]) <= 1e-6);
        snprintf(line, sizeof line, "%s, largest in bins", name);
        golden_case(r->g, line, worst / bin, 2); /* one of the way out, one of the answer */
        snprintf(line, sizeof line, "%s, share that moved", name);
        golden_case(r->g, line, (double)off / (double)n, 0.01);
    }
    pl_free(want);
}

static void replay_group(struct group_replay *r)
{
    struct pl_err err;
    if (pl_average_group(&r->group, r->g->be, &err)) {
        golden_fail(r->g, "group", "%s", err.text);
        return;
    }
    for (int i = 0; i < r->group.members; i++)
        for (size_t k = 0; r->member[i].role != PL_AUXILIARY && k < r->group.tensors; k++)
            compare_tensor(r, i, k);
}

int golden_allreduce(struct golden *g, const char *path, const char *stem)
{
    struct group_replay *r = calloc(1, sizeof *r);
    struct st_file *f = NULL;
    struct pl_err err;
    json_t *config = NULL;
    (void)stem;
    if (!r || pl_safetensors_open(&f, path, &err)) {
        golden_fail(g, "", "%s", r ? err.text : "out of memory");
        free(r);
        return 1;
    }
    r->g = g;
    r->f = f;
    config = golden_meta(g, f, "config");
    if (config && !load_group(r, config)) replay_group(r);
    for (int i = 0; i < MEMBERS_MAX; i++)
        for (int k = 0; k < TENSORS_MAX; k++) pl_free(r->tensor[i][k]);
    json_decref(config);
    pl_safetensors_close(f);
    free(r);
    return 1;
}
