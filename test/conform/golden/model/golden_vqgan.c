/* golden_vqgan.c - golden/vqgan: which file is what, weights, names and shapes, single blocks.
 * [spec images-and-text 1] */
#include "test/conform/golden/areas.h"
#include "test/conform/golden/golden.h"
#include "golden_vqgan.h"
#include "golden_container.h"
#include "golden_model.h"
#include "data/models/checkpoint.h"
#include "data/models/vqgan_file.h"
#include "runtime/models.h"
#include "runtime/pool.h"
#include "ref/small.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* -- weights ----------------------------------------------------------------------------------- */

static int fill_from_sibling(struct golden *g, struct pl_vqgan *m, const char *stem)
{
    struct st_file *f = golden_weights(g, stem);
    struct pl_err err;
    int rc = f ? pl_checkpoint_load_params(&m->params, f, pl_checkpoint_exact, &err) : PL_EIO;
    if (f && rc) golden_fail(g, "weights", "%s", err.text);
    pl_safetensors_close(f);
    return !rc;
}

int vqgan_golden_model(struct golden *g, struct pl_vqgan *m, const struct st_file *f,
                       const json_t *config, const char *stem, int with_grad)
{
    struct pl_vqgan_config c;
    struct pl_err err;
    int rc = pl_vqgan_config_parse(&c, json_object_get(config, "model"), f->path, &err);
    if (!rc && (rc = pl_vqgan_init(m, &c, g->be, with_grad)))
        pl_fail(&err, rc, "%s for the model", pl_status_name(rc));
    if (rc) {
        golden_fail(g, "model", "%s", err.text);
        return 0;
    }
    if (json_object_get(config, "counter") ? golden_counter_fill(g, &m->params, config, NULL)
                                           : fill_from_sibling(g, m, stem))
        return 1;
    pl_vqgan_clear(m);
    return 0;
}

/* -- names and shapes -------------------------------------------------------------------------- */

static void check_names(struct golden *g, const char *path)
{
    const char *slash = strrchr(path, '/');
    json_t *doc = golden_json(g, slash ? slash + 1 : path), *parts, *value;
    struct pl_vqgan_config c;
    struct pl_vqgan m;
    struct pl_err err;
    const char *part;
    if (!doc) return;
    if (pl_vqgan_config_parse(&c, json_object_get(doc, "model"), path, &err) ||
        pl_vqgan_declare(&m, &c)) {
        golden_fail(g, "model", "%s", err.text);
        json_decref(doc);
        return;
    }
    golden_names(g, doc, &m.params, NULL);
    parts = json_object_get(doc, "by_part");
    json_object_foreach(parts, part, value)
    {
        size_t sum = 0;
        for (size_t i = 0; i < m.params.count; i++) {
            const char *name = m.params.list[i].name;
            if (!strncmp(name, part, strlen(part)) && name[strlen(part)] == '.')
                sum += m.params.list[i].n;
        }
        golden_check(g, part, (json_int_t)sum == json_integer_value(value), "%zu parameters", sum);
    }
    pl_vqgan_clear(&m);
    json_decref(doc);
}

/* -- blocks ------------------------------------------------------------------------------------ */

/* The tensor CASE.REST, or NULL. */
static const struct st_tensor *of_case(const struct st_file *f, const char *which, const char *rest)
{
    char name[200];
    snprintf(name, sizeof name, "%s.%s", which, rest);
    return pl_safetensors_find(f, name);
}

/* The kind of the case's block, by its parameters. */
static struct pl_vq_block recognise(const struct st_file *f, const char *which)
{
    const struct st_tensor *x = of_case(f, which, "x"), *y = of_case(f, which, "y"), *w;
    struct pl_vq_block b = { .kind = PL_VQ_SWISH, .in = (int)x->shape[1], .out = (int)y->shape[1] };
    if (of_case(f, which, "param.conv1.weight")) b.kind = PL_VQ_RES;
    else if (of_case(f, which, "param.q.weight")) b.kind = PL_VQ_ATTN;
    else if (of_case(f, which, "param.conv.weight"))
        b.kind = y->shape[2] > x->shape[2] ? PL_VQ_UP : PL_VQ_DOWN;
    else if ((w = of_case(f, which, "param.weight"))) {
        b.kind = w->dims == 4 ? PL_VQ_CONV : PL_VQ_NORM;
        b.K = w->dims == 4 ? (int)w->shape[2] : 0;
    }
    return b;
}

static struct pl_maps upload(struct golden *g, const struct st_file *f, const char *which,
                             const char *rest)
{
    const struct st_tensor *t = of_case(f, which, rest);
    struct pl_maps m = { 0 };
    char name[200];
    float *host;
    snprintf(name, sizeof name, "%s.%s", which, rest);
    if (!t || t->dims != 4) golden_fail(g, name, "no such tensor of four dimensions");
    else if ((host = golden_floats(g, f, name, NULL))) {
        m = (struct pl_maps){ NULL, (int)t->shape[0], (int)t->shape[1], (int)t->shape[2],
                              (int)t->shape[3] };
        m.at = golden_up(g, host, t->n);
        pl_free(host);
    }
    return m;
}

static double largest(const float *x, size_t n)
{
    double most = 0;
    for (size_t i = 0; i < n; i++) most = fmax(most, fabs((double)x[i]));
    return most;
}

/* got against CASE.REST, relative to `scale` (0: to the golden's own largest value). */
static void compare(struct golden *g, const struct st_file *f, const char *which, const char *rest,
                    const float *device, size_t n, double scale, double allowed)
{
    char name[300];
    snprintf(name, sizeof name, "%s.%s", which, rest);
    golden_device(g, f, name, device, n, scale, allowed);
}

static double largest_gradient(struct golden *g, const struct st_file *f)
{
    double most = 0;
    for (size_t i = 0; i < f->count; i++) {
        const char *name = f->tensors[i].name;
        float *x;
        size_t n;
        if (!strstr(name, ".grad.") && !pl_ends_with(name, ".dx")) continue;
        if (!(x = golden_floats(g, f, name, &n))) continue;
        most = fmax(most, largest(x, n));
        pl_free(x);
    }
    return most;
}

static void run_block(struct golden *g, const struct st_file *f, const char *which,
                      struct pl_params *p, struct pl_scratch *scratch, double scale)
{
    struct pl_vq_block block = recognise(f, which);
    struct pl_maps x = upload(g, f, which, "x"), dy = upload(g, f, which, "dy"), y, dx;
    struct pl_vq_saved saved;
    int rc = pl_vq_declare(&block, p);
    if (!rc) rc = pl_params_allocate(p, g->be, 1);
    for (size_t i = 0; !rc && i < p->count; i++) {
        char name[PL_NAME_MAX + 120];
        float *host;
        size_t n;
        snprintf(name, sizeof name, "%s.param.%s", which, p->list[i].name);
        host = golden_floats(g, f, name, &n);
        rc = host && n == p->list[i].n ? pl_params_put(p, i, host) : PL_EFORMAT;
        pl_free(host);
    }
    if (!rc && (!x.at || !dy.at)) rc = PL_EFORMAT;
    if (!rc) rc = pl_vq_forward(&block, p, scratch, &y, &x, &saved);
    if (!rc) compare(g, f, which, "y", y.at, pl_maps_floats(&y), 0, VQGAN_BLOCKS);
    if (!rc && pl_maps_floats(&dy) != pl_maps_floats(&y)) rc = PL_EFORMAT;
    if (!rc) rc = pl_vq_backward(&block, p, scratch, &dx, &dy, &saved);
    if (!rc) compare(g, f, which, "dx", dx.at, pl_maps_floats(&dx), scale, VQGAN_BLOCKS);
    for (size_t i = 0; !rc && i < p->count; i++) {
        char rest[PL_NAME_MAX + 8];
        snprintf(rest, sizeof rest, "grad.%s", p->list[i].name);
        compare(g, f, which, rest, pl_params_grad(p, i), p->list[i].n, scale, VQGAN_BLOCKS);
    }
    if (rc) golden_fail(g, which, "%s", pl_status_name(rc));
    if (x.at) g->be->free(x.at);
    if (dy.at) g->be->free(dy.at);
}

void vqgan_golden_blocks(struct golden *g, const struct st_file *f)
{
    double scale = largest_gradient(g, f);
    for (size_t i = 0; i < f->count; i++) {
        const char *name = f->tensors[i].name;
        char which[100];
        struct pl_params p = { 0 };
        struct pl_scratch *scratch;
        if (!pl_ends_with(name, ".x") || strlen(name) >= sizeof which) continue;
        snprintf(which, sizeof which, "%.*s", (int)(strlen(name) - 2), name);
        if (!of_case(f, which, "y") || of_case(f, which, "y")->dims != 4 ||
            f->tensors[i].dims != 4) {
            golden_fail(g, which, "x without a y, or not of four dimensions");
            continue;
        }
        if (!(scratch = pl_pool_open(g->be))) {
            golden_fail(g, which, "no memory");
            continue;
        }
        run_block(g, f, which, &p, scratch, scale);
        pl_params_clear(&p);
        pl_pool_close(scratch);
    }
}

/* -- dispatch ---------------------------------------------------------------------------------- */

/* A weights file is used by the .io file of the same name; here it must only open. */
static void check_weights(struct golden *g, const char *path)
{
    struct pl_vqgan m;
    struct pl_err err;
    int rc = pl_vqgan_open(&m, path, g->be, 0, &err);
    golden_check(g, "loads", !rc, "%s", rc ? err.text : "");
    if (!rc) pl_vqgan_clear(&m);
}

int golden_area_vqgan(struct golden *g, const char *path, const char *stem)
{
    struct st_file *f;
    json_t *config;
    int known = 1;
    if (!strncmp(stem, "container", 9)) {
        golden_container(g, path, stem);
        return 1;
    }
    if (pl_ends_with(stem, ".state_dict") && pl_ends_with(path, ".json")) {
        check_names(g, path);
        return 1;
    }
    if (!pl_ends_with(path, ".safetensors")) return 0;
    if (pl_ends_with(stem, ".weights")) {
        check_weights(g, path);
        return 1;
    }
    if (!(f = golden_open(g, path))) return 1;
    config = golden_meta(g, f, "config");
    if (!strncmp(stem, "blocks", 6)) vqgan_golden_blocks(g, f);
    else if (!strncmp(stem, "quantizers", 10)) vqgan_golden_quantizers(g, f, config);
    else if (!pl_ends_with(stem, ".io")) known = 0;
    else if (json_object_get(config, "optimizer")) vqgan_golden_train(g, f, config, stem);
    else vqgan_golden_io(g, f, config, stem);
    json_decref(config);
    pl_safetensors_close(f);
    return known;
}
