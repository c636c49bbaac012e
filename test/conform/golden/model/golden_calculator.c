/* golden_calculator.c - the memory calculator: the published calculator's outputs, exact where they
 * are integers, and published shapes and counts for the corrected one. See
 * test/golden/calculator/README.md. */
#include "test/conform/golden/areas.h"
#include "test/conform/golden/golden.h"
#include "runtime/memory.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#define TOLERANCE 1e-12 /* of fractions, as the file says */

static void text_of(char out[64], const json_t *value)
{
    if (json_is_string(value)) snprintf(out, 64, "%s", json_string_value(value));
    else if (json_is_boolean(value))
        snprintf(out, 64, "%s", json_is_true(value) ? "true" : "false");
    else snprintf(out, 64, "%.17g", json_number_value(value));
}

/* The file's own list of shapes comes first: it may name models that we don't. */
static int start_plan(struct pl_memory_plan *plan, const json_t *models, const char *name,
                      struct pl_err *err)
{
    const json_t *shape = json_object_get(models, name), *value;
    struct pl_memory_model m = { .family = PL_FAMILY_GPT, .heads = 1 };
    const char *key;
    int rc;
    if (!shape && *name && (rc = pl_memory_model_named(&m, name, err))) return rc;
    pl_memory_plan_for(plan, &m);
    plan->layers = PL_MEMORY_STORED; /* the command line's, where a case doesn't say */
    json_object_foreach((json_t *)(uintptr_t)shape, key, value)
    {
        char text[64];
        text_of(text, value);
        if ((rc = pl_memory_set(plan, key, text, err))) return rc;
    }
    return PL_OK;
}

static int plan_of(struct pl_memory_plan *plan, const json_t *models, const json_t *in,
                   struct pl_err *err)
{
    const char *name = json_string_value(json_object_get(in, "model")), *key;
    const json_t *value;
    int rc = start_plan(plan, models, name ? name : "", err);
    json_object_foreach((json_t *)(uintptr_t)in, key, value)
    {
        char text[64];
        if (rc) return rc;
        if (!strcmp(key, "model") || json_is_null(value)) continue;
        text_of(text, value);
        rc = pl_memory_set(plan, key, text, err);
    }
    if (!rc && plan->model.hidden == 0) plan->model.hidden = 4 * plan->model.width;
    return rc ? rc : pl_memory_check(plan, err);
}

static int same(double got, const json_t *want)
{
    double w = json_number_value(want);
    if (json_is_integer(want)) return got == w;
    return json_is_real(want) && fabs(got - w) <= TOLERANCE * fabs(w);
}

static void one_case(struct golden *g, const json_t *models, const json_t *in, const json_t *out)
{
    struct pl_memory_plan plan;
    struct pl_memory_original m;
    struct pl_err err = { "" };
    char what[300] = "", wrong[300] = "";
    const json_t *value;
    const char *key;
    json_object_foreach((json_t *)(uintptr_t)in, key, value)
    {
        char text[64];
        size_t n = strlen(what);
        text_of(text, value);
        if (!json_is_null(value))
            snprintf(what + n, sizeof what - n, "%s%s %s", n ? " " : "",
                     strcmp(key, "model") ? key : "", text);
    }
    if (!json_is_object(in) || !json_object_size(out)) {
        golden_fail(g, what, "a case without \"in\" or \"out\"");
        return;
    }
    if (plan_of(&plan, models, in, &err)) {
        golden_fail(g, what, "%s", err.text);
        return;
    }
    pl_memory_original(&m, &plan);
    json_object_foreach((json_t *)(uintptr_t)out, key, value)
    {
        const struct {
            const char *key;
            double value;
        } all[] = {
            { "parameters", m.parameters },
            { "weights", m.weights },
            { "weight_gradients_gpu", m.gradients },
            { "activations", m.activations },
            { "optimizer_gpu", m.optimizer },
            { "gpu_total", m.device },
            { "ram_total", m.host },
            { "transfer_seconds", m.transfer_s },
        };
        size_t i = 0;
        while (i < PL_COUNT(all) && strcmp(all[i].key, key)) i++;
        if (i == PL_COUNT(all))
            snprintf(wrong, sizeof wrong, "%s: nothing here has that name", key);
        else if (!same(all[i].value, value))
            snprintf(wrong, sizeof wrong, "%s: %.17g, expected %.17g", key, all[i].value,
                     json_number_value(value));
    }
    golden_check(g, what, !*wrong, "%s", wrong);
}

static void cases(struct golden *g, const json_t *root)
{
    const json_t *list = json_object_get(root, "cases"), *c;
    size_t i;
    json_array_foreach((json_t *)(uintptr_t)list, i, c)
        one_case(g, json_object_get(root, "models"), json_object_get(c, "in"),
                 json_object_get(c, "out"));
}

/* --- published shapes ------------------------------------------------------------------------ */

static double parameters(const struct pl_memory_model *m, double *unshared)
{
    struct pl_memory_plan plan;
    struct pl_memory_use use;
    pl_memory_plan_for(&plan, m);
    pl_memory_estimate(&use, &plan);
    *unshared = use.unshared;
    return use.parameters;
}

static void published(struct golden *g, const char *name, const json_t *shape)
{
    double width = json_number_value(json_object_get(shape, "dmodel")), count, unshared;
    double want = golden_real(g, shape, "parameters"), heads = golden_real(g, shape, "heads");
    struct pl_memory_model m;
    struct pl_err err;
    if (pl_memory_model_named(&m, name, &err)) {
        golden_fail(g, name, "%s", err.text);
        return;
    }
    count = parameters(&m, &unshared);
    golden_check(g, name,
                 count == want && m.heads == heads &&
                     (width == 0 || width == m.published_width || width == m.width),
                 "%.0f parameters with %.0f heads, expected %.0f with %.0f", count, m.heads, want,
                 heads);
}

static void run_model(struct golden *g, const json_t *run)
{
    double image = golden_real(g, run, "image_len"), sum = 0, unshared, count;
    double want = golden_real(g, run, "trainable_parameters");
    struct pl_memory_model m = {
        .name = "run",
        .family = PL_FAMILY_DALLE,
        .sequence = golden_real(g, run, "text_len") + image,
        .width = golden_real(g, run, "dim"),
        .layers = golden_real(g, run, "depth"),
        .vocabulary = golden_real(g, run, "text_tokens") + golden_real(g, run, "image_tokens"),
        .heads = golden_real(g, run, "heads"),
        .head_width = golden_real(g, run, "dim_head"),
        .sets = golden_real(g, run, "layer_sets"),
    };
    const json_t *part;
    const char *key;
    m.hidden = 4 * m.width;
    count = parameters(&m, &unshared);
    json_object_foreach(json_object_get(run, "parts"), key, part) sum += json_number_value(part);
    golden_check(g, "run_model parameters", count == want, "%.0f, expected %.0f", count, want);
    golden_check(g, "run_model parts", sum == 0 || count == sum, "%.0f, parts add up to %.0f",
                 count, sum);
    want = golden_real(g, run, "without_sharing");
    golden_check(g, "run_model without_sharing", unshared == want, "%.0f, expected %.0f", unshared,
                 want);
}

int golden_area_calculator(struct golden *g, const char *path, const char *stem)
{
    json_t *root = golden_json(g, strrchr(path, '/') + 1), *shape;
    const char *name;
    int known = 0;
    (void)stem;
    if (!root) return 1;
    if (json_array_size(json_object_get(root, "cases"))) {
        cases(g, root);
        known = 1;
    } else if (json_is_object(json_object_get(root, "run_model")) ||
               json_is_object(json_object_get(root, "models"))) {
        if (json_object_get(root, "run_model")) run_model(g, json_object_get(root, "run_model"));
        json_object_foreach(json_object_get(root, "models"), name, shape) published(g, name, shape);
        known = 1;
    }
    json_decref(root);
    return known;
}
