/* memory_json.c - turns the memory calculator's structs into JSON objects, field by field. */
#include "memory_json.h"

#include <math.h>

#define EXACT 9007199254740992.0 /* 2^53 */

/* An integer if x is whole and below 2^53, so that counts look like counts. */
static json_t *number_of(double x)
{
    return x == floor(x) && fabs(x) < EXACT ? json_integer((json_int_t)x) : json_real(x);
}

static json_t *numbers(const char *const *names, const double *values, size_t n)
{
    json_t *o = json_object();
    for (size_t i = 0; i < n; i++) json_object_set_new(o, names[i], number_of(values[i]));
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
    json_object_set_new(o, "transfer_seconds", json_real(m->transfer_s));
    return o;
}

json_t *pl_memory_use_to_json(const struct pl_memory_use *use)
{
    static const char *const names[] = { "parameters", "without_sharing", "gpu_total",
                                         "ram_total",  "allreduce_bytes", "transfer_seconds" };
    const double values[] = { use->parameters, use->unshared,        use->device,
                              use->host,       use->allreduce_bytes, use->transfer_s };
    json_t *o = numbers(names, values, PL_COUNT(names)), *terms = json_array();
    for (int t = 0; t < PL_TERM_COUNT; t++)
        json_array_append_new(terms,
                              json_pack("{s:s, s:o, s:o, s:s}", "term", pl_memory_term_name(t),
                                        "gpu", number_of(use->term[t].device), "ram",
                                        number_of(use->term[t].host), "why",
                                        pl_memory_term_why(t)));
    json_object_set_new(o, "terms", terms);
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
        json_object_set_new(o, "name", json_string(m.name));
        json_object_set_new(o, "family", json_string(families[m.family]));
    }
    return o;
}

json_t *pl_memory_models_to_json(void)
{
    json_t *root = json_object(), *list = json_array(), *terms = json_object();
    for (size_t i = 0; i < pl_memory_models(); i++) json_array_append_new(list, model(i));
    for (int t = 0; t < PL_TERM_COUNT; t++)
        json_object_set_new(terms, pl_memory_term_name(t), json_string(pl_memory_term_why(t)));
    json_object_set_new(root, "models", list);
    json_object_set_new(root, "terms", terms);
    return root;
}
