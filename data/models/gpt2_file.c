/* gpt2_file.c - loads and saves GPT-2. The published files store linear weights transposed (Conv1D
 * layers), and repeat masks and the tied output layer, which are skipped. */
#include "gpt2_file.h"
#include "data/files/json.h"
#include "data/files/file.h"
#include "weights.h"
#include "../../runtime/models.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define CONFIG_BYTES_MAX (1 << 20)
static const char prefix[] = "transformer.";

int pl_gpt2_config_parse(struct pl_gpt2_config *c, const json_t *json, const char *where,
                         struct pl_err *err)
{
    struct pl_err why;
    int rc = pl_json_int(&c->layers, json, "n_layer", 1, where, err);
    if (!rc) rc = pl_json_int(&c->heads, json, "n_head", 1, where, err);
    if (!rc) rc = pl_json_int(&c->width, json, "n_embd", 1, where, err);
    if (!rc) rc = pl_json_int(&c->vocab, json, "vocab_size", 1, where, err);
    if (!rc) rc = pl_json_int(&c->positions, json, "n_positions", 1, where, err);
    if (rc) return rc;
    c->inner = 4 * c->width;
    c->groups = 0;
    if (json_object_get(json, "n_group") &&
        (rc = pl_json_int(&c->groups, json, "n_group", 1, where, err)))
        return rc;
    if (json_is_integer(json_object_get(json, "n_inner")) &&
        (rc = pl_json_int(&c->inner, json, "n_inner", 1, where, err)))
        return rc;
    if ((rc = pl_gpt2_check(c, &why))) return pl_fail(err, rc, "%s: %.400s", where, why.text);
    return PL_OK;
}

/* With or without "transformer." before the name. */
static const struct st_tensor *find(const struct st_file *f, const char *name)
{
    char full[PL_NAME_MAX + sizeof prefix];
    const struct st_tensor *t = pl_safetensors_find(f, name);
    if (t) return t;
    snprintf(full, sizeof full, "%s%s", prefix, name);
    return pl_safetensors_find(f, full);
}

int pl_gpt2_config_find(struct pl_gpt2_config *c, const struct st_file *f, int heads,
                        struct pl_err *err)
{
    const struct st_tensor *wte = find(f, "wte.weight"), *wpe = find(f, "wpe.weight");
    const struct st_tensor *fc = find(f, "h.0.mlp.c_fc.weight");
    const struct st_tensor *all[] = { wte, wpe, fc };
    struct pl_err why;
    int rc;
    memset(c, 0, sizeof *c);
    for (size_t i = 0; i < PL_COUNT(all); i++)
        if (!all[i] || all[i]->dims != 2 || all[i]->shape[0] > 1 << 24 ||
            all[i]->shape[1] > 1 << 24)
            return pl_fail(err, PL_EFORMAT,
                           "%s: not a GPT-2: wte.weight, wpe.weight or h.0.mlp.c_fc.weight is "
                           "missing or not a matrix",
                           f->path);
    c->vocab = (int)wte->shape[0];
    c->width = (int)wte->shape[1];
    c->positions = (int)wpe->shape[0];
    c->inner = (int)fc->shape[1];
    c->heads = heads ? heads : c->width % 64 ? 1 : c->width / 64;
    for (; c->layers < PL_PRENORM_LAYERS_MAX; c->layers++) {
        char name[40];
        snprintf(name, sizeof name, "h.%d.ln_1.weight", c->layers);
        if (!find(f, name)) break;
    }
    if ((rc = pl_gpt2_check(c, &why))) return pl_fail(err, rc, "%s: %.400s", f->path, why.text);
    return PL_OK;
}

long pl_gpt2_find(const struct pl_params *params, const char *name)
{
    char full[PL_NAME_MAX];
    if (!strncmp(name, prefix, sizeof prefix - 1)) return pl_params_find(params, name);
    return snprintf(full, sizeof full, "%s%s", prefix, name) < (int)sizeof full
               ? pl_params_find(params, full)
               : -1;
}

static int load_one(struct pl_gpt2 *m, size_t index, const struct st_tensor *t, const char *path,
                    struct pl_err *err)
{
    const struct pl_param *p = &m->params.list[index];
    int transposed = pl_gpt2_is_transposed(p->name), good = t->dims == p->dims && t->n == p->n, rc;
    float *host, *other;
    for (int i = 0; good && i < p->dims; i++)
        good = t->shape[i] == p->shape[transposed ? p->dims - 1 - i : i];
    if (!good)
        return pl_fail(err, PL_EFORMAT, "%s: %.100s has another shape than the model's [%lld%s",
                       path, t->name, (long long)p->shape[transposed], p->dims > 1 ? ",..]" : "]");
    host = pl_alloc(p->n, sizeof *host);
    other = transposed ? pl_alloc(p->n, sizeof *other) : NULL;
    rc = host && (other || !transposed) ? PL_OK : PL_ENOMEM;
    if (!rc) {
        pl_safetensors_to_float(host, t);
        if (transposed)
            pl_checkpoint_transpose(other, host, (size_t)t->shape[0], (size_t)t->shape[1]);
        rc = pl_params_put(&m->params, index, transposed ? other : host);
    }
    pl_free(host);
    pl_free(other);
    return rc ? pl_fail(err, rc, "%s: %s", path, pl_status_name(rc)) : PL_OK;
}

int pl_gpt2_load(struct pl_gpt2 *m, const struct st_file *f, struct pl_err *err)
{
    unsigned char *seen = calloc(m->params.count + 1, 1);
    int rc = seen ? PL_OK : pl_fail(err, PL_ENOMEM, "%s: no memory", f->path);
    for (size_t i = 0; !rc && i < f->count; i++) {
        long index = pl_gpt2_find(&m->params, f->tensors[i].name);
        if (index < 0 || seen[index]) continue;
        rc = load_one(m, (size_t)index, &f->tensors[i], f->path, err);
        pl_safetensors_release(f, &f->tensors[i]);
        seen[index] = 1;
    }
    for (size_t i = 0; !rc && i < m->params.count; i++)
        if (!seen[i])
            rc = pl_fail(err, PL_EFORMAT, "%s: no tensor %s", f->path, m->params.list[i].name);
    free(seen);
    return rc;
}

/* The metadata "config", or config.json in the same folder; *json is NULL if there is neither.
 * *source names it in messages. */
static int find_config(json_t **json, char **source, const struct st_file *f, struct pl_err *err)
{
    const char *text = pl_safetensors_meta(f, "config"), *slash = strrchr(f->path, '/');
    char *folder = slash ? strndup(f->path, (size_t)(slash - f->path)) : strdup(".");
    char *path = folder ? pl_path_join(folder, "config.json") : NULL;
    json_t *root = text ? pl_json_load(text, strlen(text), 0, NULL) : NULL, *model;
    void *data;
    size_t n;
    int rc = path && (!text || root || pl_json_status() != PL_ENOMEM) ? PL_OK : PL_ENOMEM;
    free(folder);
    *json = NULL;
    *source = NULL;
    if ((model = json_object_get(root, "model"))) {
        json_incref(model);
        json_decref(root);
        root = model;
    }
    if (!rc && json_object_get(root, "n_layer")) {
        free(path);
        *json = root;
        return (*source = strdup(f->path)) ? PL_OK : PL_ENOMEM;
    }
    json_decref(root);
    if (!rc && !access(path, R_OK) &&
        !(rc = pl_file_read(&data, &n, path, CONFIG_BYTES_MAX, err))) {
        if (!(*json = pl_json_load(data, n, 0, NULL)) && pl_json_status() == PL_ENOMEM)
            rc = PL_ENOMEM;
        free(data);
        *source = path;
        path = NULL;
    }
    free(path);
    return rc == PL_ENOMEM ? pl_fail(err, rc, "%s: no memory", f->path) : rc;
}

int pl_gpt2_open(struct pl_gpt2 *m, const char *path, const struct pl_backend *be, int with_grad,
                 struct pl_err *err)
{
    struct pl_gpt2_config config;
    struct st_file *f;
    json_t *json;
    char *source;
    int rc = pl_weights_open(&f, path, err);
    memset(m, 0, sizeof *m);
    if (rc) return rc;
    rc = find_config(&json, &source, f, err);
    if (!rc)
        rc = json ? pl_gpt2_config_parse(&config, json, source, err)
                  : pl_gpt2_config_find(&config, f, 0, err);
    json_decref(json);
    free(source);
    if (!rc) {
        rc = pl_gpt2_init(m, &config, be, with_grad);
        if (rc) pl_fail(err, rc, "%s: %s for the model", path, pl_status_name(rc));
        else if ((rc = pl_gpt2_load(m, f, err))) pl_gpt2_clear(m);
    }
    pl_safetensors_close(f);
    return rc;
}

static json_t *config_json(const struct pl_gpt2_config *c)
{
    json_t *json = json_pack("{s:i,s:i,s:i,s:i,s:i,s:i}", "n_layer", c->layers, "n_head", c->heads,
                             "n_embd", c->width, "vocab_size", c->vocab, "n_positions",
                             c->positions, "n_inner", c->inner);
    if (c->groups) json_object_set_new(json, "n_group", json_integer(c->groups));
    return json;
}

int pl_gpt2_save(const struct pl_gpt2 *m, struct pl_optimizer *optimizer, json_t *training,
                 const char *path, struct pl_err *err)
{
    struct pl_checkpoint c = { .params = &m->params,
                               .optimizer = optimizer,
                               .transposed = pl_gpt2_is_transposed,
                               .config = config_json(&m->config),
                               .training = training };
    int rc = c.config ? pl_checkpoint_save(&c, path, err)
                      : pl_fail(err, PL_ENOMEM, "%s: no memory", path);
    json_decref(c.config);
    return rc;
}

/* A copy of the model without shared layers, which computes the same; without gradients. */
static int unshare(struct pl_gpt2 *to, const struct pl_gpt2 *m)
{
    struct pl_gpt2_config config = m->config;
    int rc;
    config.groups = 0;
    rc = pl_gpt2_init(to, &config, m->params.be, 0);
    for (size_t i = 0; i < to->params.count && !rc; i++) {
        const struct pl_param *p = &to->params.list[i];
        long from = pl_params_find(&m->params, p->name);
        for (int l = 0; l < config.layers && from < 0; l++)
            for (int part = 0; part < PL_PRENORM_TENSORS; part++)
                if (to->stack.part[l][part] == i) from = (long)m->stack.part[l][part];
        rc = m->params.be->copy(pl_params_value(&to->params, i),
                                pl_params_value(&m->params, (size_t)from), p->n);
    }
    return rc;
}

int pl_gpt2_export(const struct pl_gpt2 *m, int end, const char *folder, struct pl_err *err)
{
    struct pl_gpt2 whole = { 0 };
    char *weights = pl_path_join(folder, "model.safetensors"),
         *path = pl_path_join(folder, "config.json");
    json_t *config;
    char *text = NULL;
    int rc = weights && path ? PL_OK : PL_ENOMEM;
    pl_json_begin();
    config = config_json(&m->config);
    json_object_update_new(config,
                           json_pack("{s:s,s:[s],s:s,s:f,s:b,s:o,s:o}", "model_type", "gpt2",
                                     "architectures", "GPT2LMHeadModel", "activation_function",
                                     "gelu_new", "layer_norm_epsilon", 1e-5, "tie_word_embeddings",
                                     1, "bos_token_id", end < 0 ? json_null() : json_integer(end),
                                     "eos_token_id", end < 0 ? json_null() : json_integer(end)));
    if (!rc && m->config.groups && !(rc = unshare(&whole, m))) {
        json_object_del(config, "n_group");
        m = &whole;
    }
    if (!rc && !(text = pl_json_text(config, JSON_INDENT(2)))) rc = PL_ENOMEM;
    if (rc) pl_fail(err, rc, "%s: no memory", folder);
    if (!rc) rc = pl_gpt2_save(m, NULL, NULL, weights, err);
    if (!rc) rc = pl_file_write(path, text, strlen(text), err);
    pl_gpt2_clear(&whole);
    json_decref(config);
    free(text);
    free(path);
    free(weights);
    return rc;
}
