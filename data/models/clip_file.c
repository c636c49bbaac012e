/* clip_file.c - opens CLIP: infers the sizes from tensor shapes, then copies the weights under the
 * names that OpenAI published. */
#include "clip_file.h"
#include "checkpoint.h"
#include "weights.h"
#include "../../runtime/models.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

static const struct st_tensor *find(const struct st_file *f, const char *name, int dims,
                                    struct pl_err *err)
{
    const struct st_tensor *t = pl_safetensors_find(f, name);
    if (t && t->dims == dims && t->n) {
        for (int i = 0; i < dims; i++)
            if (t->shape[i] > 1 << 24) t = NULL;
        if (t) return t;
    }
    pl_fail(err, PL_EFORMAT, "%s: no CLIP with a vision transformer: no tensor %s of %d dimensions",
            f->path, name, dims);
    return NULL;
}

static int count_layers(const struct st_file *f, const char *prefix)
{
    char name[120];
    int n = 0;
    for (; n < PL_PRENORM_LAYERS_MAX; n++) {
        snprintf(name, sizeof name, "%s%d.ln_1.weight", prefix, n);
        if (!pl_safetensors_find(f, name)) break;
    }
    return n;
}

/* Infers the configuration from the tensors; PL_EFORMAT if one is missing or does not fit. */
static int find_config(struct pl_clip_config *c, const struct st_file *f, struct pl_err *err)
{
    const struct st_tensor *conv = find(f, "visual.conv1.weight", 4, err), *grid, *position, *token,
                           *proj;
    struct pl_err why;
    int rc;
    memset(c, 0, sizeof *c);
    if (!conv || !(grid = find(f, "visual.positional_embedding", 2, err)) ||
        !(position = find(f, "positional_embedding", 2, err)) ||
        !(token = find(f, "token_embedding.weight", 2, err)) ||
        !(proj = find(f, "text_projection", 2, err)))
        return PL_EFORMAT;
    int side = (int)lround(sqrt((double)(grid->shape[0] - 1)));
    if ((int64_t)side * side != grid->shape[0] - 1)
        return pl_fail(err, PL_EFORMAT,
                       "%s: visual.positional_embedding has %lld rows, expected one more "
                       "than a square",
                       f->path, (long long)grid->shape[0]);
    c->embed = (int)proj->shape[1];
    c->patch = (int)conv->shape[2];
    if ((int64_t)side * c->patch > 1 << 24)
        return pl_fail(err, PL_ELIMIT, "%s: patches too large", f->path);
    c->image = side * c->patch;
    c->vision_width = (int)conv->shape[0];
    c->vision_layers = count_layers(f, "visual.transformer.resblocks.");
    c->context = (int)position->shape[0];
    c->vocab = (int)token->shape[0];
    c->text_width = (int)token->shape[1];
    c->text_layers = count_layers(f, "transformer.resblocks.");
    if ((rc = pl_clip_check(c, &why))) return pl_fail(err, rc, "%s: %.400s", f->path, why.text);
    return PL_OK;
}

int pl_clip_open(struct pl_clip_model *m, const char *path, const struct pl_backend *be,
                 struct pl_err *err)
{
    struct pl_clip_config config;
    struct st_file *f;
    int rc = pl_weights_open(&f, path, err);
    memset(m, 0, sizeof *m);
    if (rc) return rc;
    rc = find_config(&config, f, err);
    if (!rc) {
        rc = pl_clip_init(m, &config, be);
        if (rc) pl_fail(err, rc, "%s: %s for the model", path, pl_status_name(rc));
        else if ((rc = pl_checkpoint_load_params(&m->params, f, pl_checkpoint_exact, err)))
            pl_clip_clear(m);
    }
    pl_safetensors_close(f);
    return rc;
}
