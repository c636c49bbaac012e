/* vqgan_resume.c - the training of a codec on the disk: parameters, the optimizer's moments, and
 * what the order of pictures and codes needs, in OUT.resume next to the codec. A training that goes
 * on from there ends with the same bits as one that was never stopped. */
#include "vqgan.h"
#include "data/files/file.h"
#include "data/files/json.h"
#include "data/models/checkpoint.h"
#include "data/models/vqgan_file.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define RNG_WORDS 4

static char *path_of(const struct vqgan_options *o)
{
    char *path;
    return asprintf(&path, "%s.resume", o->out) < 0 ? NULL : path;
}

/* Values that have to be the same: the numbers by which training continues, and the model. */
static json_t *options_json(const struct vqgan_options *o, const struct pl_vqgan *m,
                            const struct pl_pictures *p)
{
    return json_pack("{s:I, s:I, s:f, s:I, s:I, s:i, s:s, s:o}", "steps", (json_int_t)o->steps,
                     "batch", (json_int_t)o->batch, "lr", o->lr, "seed", (json_int_t)o->seed,
                     "pictures", (json_int_t)p->count, "side", p->side, "init",
                     o->init ? o->init : "", "config", pl_vqgan_config_json(&m->config));
}

static json_t *place_json(const struct pl_vqgan_fit_place *at, size_t count, int codes)
{
    json_t *rng = json_array(), *order = json_array(), *uses = json_array();
    for (int i = 0; i < RNG_WORDS; i++)
        json_array_append_new(rng, json_integer((json_int_t)at->rng.s[i]));
    for (size_t i = 0; i < count; i++)
        json_array_append_new(order, json_integer((json_int_t)at->order[i]));
    for (int i = 0; i < codes; i++)
        json_array_append_new(uses, json_integer((json_int_t)at->uses[i]));
    return json_pack("{s:I, s:I, s:o, s:o, s:o}", "step", (json_int_t)at->step, "next",
                     (json_int_t)at->next, "rng", rng, "order", order, "uses", uses);
}

int vqgan_resume_save(const struct pl_vqgan *m, struct pl_vqgan_fit *f,
                      const struct vqgan_options *o, const struct pl_pictures *p,
                      struct pl_err *err)
{
    struct pl_vqgan_fit_place at = pl_vqgan_fit_place(f);
    struct pl_checkpoint c = { .params = &m->params, .optimizer = pl_vqgan_fit_optimizer(f) };
    char *path = path_of(o);
    int rc;
    pl_json_begin();
    c.config = pl_vqgan_config_json(&m->config);
    c.training = json_pack("{s:o, s:I, s:o}", "options", options_json(o, m, p), "optimizer_steps",
                           (json_int_t)pl_optimizer_steps(c.optimizer), "place",
                           place_json(&at, p->count, m->config.n_embed));
    if (!path || !c.config || !c.training || pl_json_failed())
        rc = pl_fail(err, PL_ENOMEM, "%s: no memory to save the training", o->out);
    else rc = pl_checkpoint_save(&c, path, err);
    json_decref(c.config);
    json_decref(c.training);
    free(path);
    return rc;
}

/* --- and back ------------------------------------------------------------------------------ */

/* Names the first option that differs, with both values. */
static int compare(const json_t *before, json_t *now, const char *path, struct pl_err *err)
{
    const char *key;
    json_t *value;
    int rc = PL_OK;
    json_object_foreach(now, key, value)
    {
        const json_t *old = json_object_get(before, key);
        char *a, *b;
        if (rc || (old && json_equal(old, value))) continue;
        a = json_dumps(value, JSON_ENCODE_ANY | JSON_COMPACT | JSON_REAL_PRECISION(6));
        b = old ? json_dumps(old, JSON_ENCODE_ANY | JSON_COMPACT | JSON_REAL_PRECISION(6)) : NULL;
        rc = pl_fail(err, PL_EUSE, "--resume: %.60s is %.120s here, %.120s in %.100s", key,
                     a ? a : "?", b ? b : "missing", path);
        free(a);
        free(b);
    }
    return rc;
}

/* Exactly n whole numbers of 0 and more (random words: any), or PL_EFORMAT. */
static int read_numbers(uint64_t *to, const json_t *list, size_t n, int is_any)
{
    if (json_array_size(list) != n) return PL_EFORMAT;
    for (size_t i = 0; i < n; i++) {
        const json_t *x = json_array_get(list, i);
        if (!json_is_integer(x) || (!is_any && json_integer_value(x) < 0)) return PL_EFORMAT;
        to[i] = (uint64_t)json_integer_value(x);
    }
    return PL_OK;
}

static int take_place(struct pl_vqgan_fit *f, const json_t *json, size_t count, int codes,
                      const char *path, struct pl_err *err)
{
    struct pl_vqgan_fit_place at = { .step = json_integer_value(json_object_get(json, "step")) };
    const json_int_t next = json_integer_value(json_object_get(json, "next"));
    uint64_t *order = calloc(count, sizeof *order);
    int rc;
    at.order = calloc(count, sizeof *at.order);
    at.uses = calloc((size_t)codes, sizeof *at.uses);
    if (!order || !at.order || !at.uses) {
        rc = pl_fail(err, PL_ENOMEM, "%s: no memory", path);
    } else {
        at.next = next < 0 ? SIZE_MAX : (size_t)next;
        rc = read_numbers(at.rng.s, json_object_get(json, "rng"), RNG_WORDS, 1);
        if (!rc) rc = read_numbers(order, json_object_get(json, "order"), count, 0);
        if (!rc) rc = read_numbers(at.uses, json_object_get(json, "uses"), (size_t)codes, 0);
        for (size_t i = 0; !rc && i < count; i++) at.order[i] = (size_t)order[i];
        if (!rc) rc = pl_vqgan_fit_set_place(f, &at);
        if (rc && rc != PL_ENOMEM)
            rc = pl_fail(err, PL_EFORMAT, "%s: metadata 'training' is not that of a training",
                         path);
        else if (rc) pl_fail(err, rc, "%s: no memory", path);
    }
    free(order);
    free(at.order);
    free(at.uses);
    return rc;
}

int vqgan_resume_load(struct pl_vqgan *m, struct pl_vqgan_fit *f, const struct vqgan_options *o,
                      const struct pl_pictures *p, struct pl_err *err)
{
    struct pl_optimizer *optimizer = pl_vqgan_fit_optimizer(f);
    struct st_file *file = NULL;
    json_t *training = NULL, *now = NULL;
    char *path = path_of(o);
    json_int_t steps = 0;
    int rc = path ? pl_safetensors_open(&file, path, err)
                  : pl_fail(err, PL_ENOMEM, "%s: no memory", o->out);
    if (!rc && !(training = pl_checkpoint_json(file, "training", err))) rc = PL_EFORMAT;
    if (!rc && !(now = options_json(o, m, p))) rc = pl_fail(err, PL_ENOMEM, "no memory");
    if (!rc) rc = compare(json_object_get(training, "options"), now, path, err);
    if (!rc) rc = pl_checkpoint_load_params(&m->params, file, pl_checkpoint_exact, err);
    if (!rc) rc = pl_checkpoint_load_optimizer(&m->params, optimizer, file, err);
    if (!rc) {
        steps = json_integer_value(json_object_get(training, "optimizer_steps"));
        pl_optimizer_set_steps(optimizer, steps < 0 ? 0 : (uint64_t)steps);
        rc = take_place(f, json_object_get(training, "place"), p->count, m->config.n_embed, path,
                        err);
    }
    json_decref(training);
    json_decref(now);
    pl_safetensors_close(file);
    free(path);
    return rc;
}

void vqgan_resume_remove(const struct vqgan_options *o)
{
    char *path = path_of(o);
    if (path) (void)!unlink(path);
    free(path);
}
