/* vqgan_find.c - finds a codec's configuration: in the file's metadata, in a published YAML in the
 * same folder, or from the shapes of its tensors. See vqgan_file.h. */
#include "vqgan_file.h"
#include "checkpoint.h"
#include "data/files/yaml.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define NOMINAL \
    256 /* resolution of every published model; only its effect on attention layers matters */

/* The part with "ddconfig": the document itself, its "model", or that one's "params". Borrowed. */
static const json_t *inner(const json_t *json)
{
    const json_t *model = json_object_get(json, "model"), *params;
    if (!model) model = json;
    params = json_object_get(model, "params");
    return json_object_get(params, "ddconfig") ? params : model;
}

/* taming.models.vqgan.GumbelVQ's default weight of the KL term. */
#define GUMBEL_KL_WEIGHT 1e-8f

static int parse(struct pl_vqgan_config *c, const json_t *json, const char *where,
                 struct pl_err *err)
{
    const json_t *part = inner(json), *model = json_object_get(json, "model");
    const char *target = json_string_value(json_object_get(model ? model : json, "target"));
    const char *name = target ? strrchr(target, '.') : NULL;
    int rc = pl_vqgan_config_parse(c, part, where, err);
    if (rc || !target || strcmp(name ? name + 1 : target, "GumbelVQ") ||
        json_object_get(part, "kl_weight"))
        return rc;
    c->gumbel = 1;
    c->kl_weight = GUMBEL_KL_WEIGHT;
    return PL_OK;
}

int pl_vqgan_config_read(struct pl_vqgan_config *config, const char *path, struct pl_err *err)
{
    json_t *json;
    int rc = pl_yaml_read(&json, path, err);
    if (!rc) rc = parse(config, json, path, err);
    json_decref(json);
    return rc;
}

/* -- from shapes ------------------------------------------------------------------------------ */

__attribute__((format(printf, 2, 3))) static const struct st_tensor *find(const struct st_file *f,
                                                                          const char *format, ...)
{
    char name[120];
    va_list args;
    va_start(args, format);
    vsnprintf(name, sizeof name, format, args);
    va_end(args);
    return pl_safetensors_find(f, name);
}

static int size(const struct st_tensor *t, int dim)
{
    return t && dim < t->dims && t->shape[dim] <= 1 << 24 ? (int)t->shape[dim] : 0;
}

static int from_shapes(struct pl_vqgan_config *c, const struct st_file *f, struct pl_err *err)
{
    const struct st_tensor *conv = pl_safetensors_find(f, "encoder.conv_in.weight");
    const struct st_tensor *table = pl_safetensors_find(f, "quantize.embed.weight");
    struct pl_err why;
    int rc;
    memset(c, 0, sizeof *c);
    c->gumbel = table != NULL;
    c->kl_weight = table ? GUMBEL_KL_WEIGHT : 0;
    if (!table) table = pl_safetensors_find(f, "quantize.embedding.weight");
    c->ch = size(conv, 0);
    c->n_embed = size(table, 0);
    c->embed_dim = size(table, 1);
    c->z_channels = size(pl_safetensors_find(f, "encoder.conv_out.weight"), 0);
    if (!c->ch || !c->n_embed || !c->z_channels)
        return pl_fail(err, PL_EFORMAT,
                       "%s: no VQGAN: encoder.conv_in, encoder.conv_out or the codes' "
                       "table is missing",
                       f->path);
    c->resolution = NOMINAL;
    c->norm_groups = PL_VQ_GROUPS;
    for (; c->levels < PL_VQ_LEVELS_MAX; c->levels++) {
        int l = c->levels, width = size(find(f, "encoder.down.%d.block.0.conv2.weight", l), 0);
        if (!width) break;
        c->ch_mult[l] = width / c->ch;
        if (find(f, "encoder.down.%d.attn.0.q.weight", l))
            c->attn_resolutions[c->attns++] = NOMINAL >> l;
    }
    while (c->num_res_blocks < PL_VQ_RES_MAX &&
           find(f, "encoder.down.0.block.%d.conv1.weight", c->num_res_blocks))
        c->num_res_blocks++;
    if ((rc = pl_vqgan_check(c, &why))) return pl_fail(err, rc, "%s: %.400s", f->path, why.text);
    return PL_OK;
}

/* -- in the same folder ------------------------------------------------------------------------ */

/* For "X.ckpt" X.yaml, for "X.model.ckpt" X.config.yml, for any file config.yaml or model.yaml in
 * its folder. The path of the first that exists, owned by the caller; NULL: none. */
static char *config_path(const char *path)
{
    static const char *const endings[] = { ".yaml", ".yml", ".json" };
    static const char *const names[] = { "config", "model" };
    const char *slash = strrchr(path, '/'), *file = slash ? slash + 1 : path,
               *dot = strrchr(file, '.');
    int folder = (int)(file - path), stem = dot ? (int)(dot - path) : (int)strlen(path);
    size_t capacity = strlen(path) + 40;
    char *out = malloc(capacity);
    for (size_t k = 0; out && k < 2 + PL_COUNT(names); k++)
        for (size_t e = 0; e < PL_COUNT(endings); e++) {
            if (k == 0) snprintf(out, capacity, "%.*s%s", stem, path, endings[e]);
            else if (k > 1)
                snprintf(out, capacity, "%.*s%s%s", folder, path, names[k - 2], endings[e]);
            else if (stem - folder > 6 && !strncmp(path + stem - 6, ".model", 6))
                snprintf(out, capacity, "%.*s.config%s", stem - 6, path, endings[e]);
            else continue;
            if (!access(out, R_OK)) return out;
        }
    free(out);
    return NULL;
}

int pl_vqgan_config_find(struct pl_vqgan_config *config, const struct st_file *f,
                         struct pl_err *err)
{
    char *path;
    int rc;
    if (pl_safetensors_meta(f, "config")) {
        json_t *json = pl_checkpoint_json(f, "config", err);
        rc = json ? parse(config, json, f->path, err) : PL_EFORMAT;
        json_decref(json);
        return rc;
    }
    if ((path = config_path(f->path))) {
        json_t *json;
        rc = pl_yaml_read(&json, path, err);
        int is_ours = !rc && json_object_get(inner(json), "ddconfig");
        if (is_ours) rc = parse(config, json, path, err);
        json_decref(json);
        free(path);
        if (rc || is_ours) return rc; /* otherwise the file describes something else */
    }
    return from_shapes(config, f, err);
}
