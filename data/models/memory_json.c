/* memory_json.c - turns the memory calculator's structs into JSON objects, field by field. */
#include "memory_json.h"

#include <math.h>

#define EXACT 9007199254740992.0 /* 2^53 */

json_t *pl_json_number(double x)
{
    return x == floor(x) && fabs(x) < EXACT ? json_integer((json_int_t)x) : json_real(x);
}

/* A member may fail for lack of memory; the caller then gets NULL. */
static json_t *numbers(const char *const *names, const double *values, size_t n)
{
    json_t *o = json_object();
    for (size_t i = 0; o && i < n; i++)
        if (json_object_set_new(o, names[i], pl_json_number(values[i]))) {
            json_decref(o);
            o = NULL;
        }
    return o;
}

json_t *pl_memory_original_to_json(const struct pl_memory_original *m)
{
    static const char *const names[] = { "parameters",  "weights",       "weight_gradients_gpu",
                                         "activations", "optimizer_gpu", "gpu_total",
                                         "ram_total" };
    const double values[] = { m->parameters, m->weights, m->gradients, m->activations,
                              m->optimizer,  m->device,  m->host };
    json_t *o = numbers(names, values, PL_COUNT(names));
    if (o && json_object_set_new(o, "transfer_seconds", json_real(m->transfer_s))) {
        json_decref(o);
        return NULL;
    }
    return o;
}

json_t *pl_memory_use_to_json(const struct pl_memory_use *use)
{
    static const char *const names[] = { "parameters", "without_sharing", "gpu_total",
                                         "ram_total",  "allreduce_bytes", "transfer_seconds" };
    const double values[] = { use->parameters, use->unshared,        use->device,
                              use->host,       use->allreduce_bytes, use->transfer_s };
    json_t *o = numbers(names, values, PL_COUNT(names)), *terms = json_array();
    int bad = !o || !terms;
    for (int t = 0; !bad && t < PL_TERM_COUNT; t++) {
        json_t *term = json_pack("{s:s, s:o, s:o, s:s}", "term", pl_memory_term_name(t), "gpu",
                                 pl_json_number(use->term[t].device), "ram",
                                 pl_json_number(use->term[t].host), "why", pl_memory_term_why(t));
        bad = json_array_append_new(terms, term);
    }
    if (bad || json_object_set(o, "terms", terms)) {
        json_decref(o);
        o = NULL;
    }
    json_decref(terms);
    return o;
}

static json_t *model(size_t index)
{
    static const char *const families[] = { "gpt", "gptj", "bert", "t5", "blocks", "dalle" };
    static const char *const names[] = {
        "sequence",   "width",
        "hidden",     "layers",
        "vocabulary", "published_width",
        "heads",      "head_width",
        "sets",       "sequences_at_once",
        "text",       "text_vocabulary",
    };
    struct pl_memory_model m;
    json_t *o = NULL;
    if (!pl_memory_model_at(&m, index)) {
        const double values[] = { m.sequence,   m.width,
                                  m.hidden,     m.layers,
                                  m.vocabulary, m.published_width,
                                  m.heads,      m.head_width,
                                  m.sets,       m.sequences_at_once,
                                  m.text,       m.text_vocabulary };
        o = numbers(names, values, PL_COUNT(names));
    }
    if (o && (json_object_set_new(o, "name", json_string(m.name)) ||
              json_object_set_new(o, "family", json_string(families[m.family])))) {
        json_decref(o);
        return NULL;
    }
    return o;
}

json_t *pl_memory_models_to_json(void)
{
    json_t *root = json_object(), *list = json_array(), *terms = json_object();
    int bad = !root || !list || !terms;
    for (size_t i = 0; !bad && i < pl_memory_models(); i++)
        bad = json_array_append_new(list, model(i));
    for (int t = 0; !bad && t < PL_TERM_COUNT; t++)
        bad = json_object_set_new(terms, pl_memory_term_name(t),
                                  json_string(pl_memory_term_why(t)));
    if (bad || json_object_set(root, "models", list) || json_object_set(root, "terms", terms)) {
        json_decref(root);
        root = NULL;
    }
    json_decref(list);
    json_decref(terms);
    return root;
}
