/* golden_clip_model.c - CLIP's towers against OpenAI's: from pixels and tokens to the ranking of
 * pictures. [spec images-and-text 2.1, 2.4] */
#include "golden_clip.h"
#include "golden_model.h"
#include "data/models/checkpoint.h"
#include "data/models/clip_file.h"
#include "data/images/resize.h"
#include "runtime/models.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MODEL 2e-5 /* relative to a tensor's largest value, from the README of the golden values */
#define FULL 1e-4  /* the official size */

static int get(struct golden *g, const json_t *model, const char *key)
{
    return (int)golden_int(g, model, key);
}

static int read_config(struct golden *g, struct pl_clip_config *c, const json_t *model)
{
    struct pl_err err;
    *c = (struct pl_clip_config){
        get(g, model, "embed_dim"),          get(g, model, "image_resolution"),
        get(g, model, "vision_patch_size"),  get(g, model, "vision_width"),
        get(g, model, "vision_layers"),      get(g, model, "context_length"),
        get(g, model, "vocab_size"),         get(g, model, "transformer_width"),
        get(g, model, "transformer_layers"),
    };
    if (!pl_clip_check(c, &err)) return 1;
    golden_fail(g, "model", "%s", err.text);
    return 0;
}

void clip_golden_names(struct golden *g, const char *path)
{
    json_t *doc = golden_json(g, strrchr(path, '/') + 1);
    struct pl_clip_config c;
    struct pl_clip_model m;
    if (doc && read_config(g, &c, json_object_get(doc, "model"))) {
        if (pl_clip_declare(&m, &c)) golden_fail(g, "model", "out of memory");
        else golden_names(g, doc, &m.params, NULL);
        pl_clip_clear(&m);
    }
    json_decref(doc);
}

void clip_golden_weights(struct golden *g, const char *path)
{
    struct pl_clip_model m;
    struct pl_err err;
    int rc = pl_clip_open(&m, path, g->be, &err);
    golden_check(g, "loads", !rc, "%s", rc ? err.text : "");
    if (!rc) pl_clip_clear(&m);
}

/* --- the towers ------------------------------------------------------------------------------- */

struct watching {
    struct golden *g;
    const struct st_file *f;
    const char *tower;
};

static void compare_activation(void *context, const char *name, const float *at, size_t n)
{
    struct watching *l = context;
    if (pl_safetensors_find(l->f, name)) golden_device(l->g, l->f, name, at, n, 0, MODEL);
}

/* "block0.ln_1" of a tower is "visual.block0.ln_1" in the file; "block3.out" is
 * "visual.block.3". */
static void compare_block(void *context, const char *name, const float *at, size_t n)
{
    static const struct {
        const char *ours, *theirs;
    } parts[] = {
        { "ln_1", "ln_1" },    { "attn", "attn" }, { "fc", "mlp.c_fc" },
        { "act", "mlp.gelu" }, { "mlp", "mlp" },
    };
    struct watching *l = context;
    char full[80];
    const char *dot = strchr(name, '.');
    int block = atoi(name + strlen("block"));
    if (!strcmp(dot, ".out")) snprintf(full, sizeof full, "%s.block.%d", l->tower, block);
    else {
        size_t i = 0;
        while (i < PL_COUNT(parts) && strcmp(parts[i].ours, dot + 1)) i++;
        if (i == PL_COUNT(parts)) return;
        snprintf(full, sizeof full, "%s.block%d.%s", l->tower, block, parts[i].theirs);
    }
    compare_activation(l, full, at, n);
}

/* Compares host values with a tensor. */
static void compare(struct golden *g, const struct st_file *f, const char *name, const float *got,
                    size_t n, double allowed)
{
    size_t count;
    float *want;
    if (!pl_safetensors_find(f, name) || !(want = golden_floats(g, f, name, &count))) return;
    if (count != n) golden_fail(g, name, "%zu values for %zu", n, count);
    else golden_case(g, name, golden_relative(got, want, n), allowed);
    pl_free(want);
}

static void normalise(float *out, const float *x, int rows, int E)
{
    for (int r = 0; r < rows; r++) {
        double sum = 0;
        for (int i = 0; i < E; i++) sum += (double)x[r * E + i] * x[r * E + i];
        for (int i = 0; i < E; i++) out[r * E + i] = (float)(x[r * E + i] / sqrt(sum));
    }
}

static void transpose(float *out, const float *x, int rows, int columns)
{
    for (int r = 0; r < rows; r++)
        for (int c = 0; c < columns; c++) out[c * rows + r] = x[r * columns + c];
}

static int tokens_fit(struct golden *g, const int32_t *tokens, size_t n,
                      const struct pl_clip_config *c)
{
    size_t bad = n % (size_t)c->context != 0;
    for (size_t i = 0; i < n; i++) bad += tokens[i] < 0 || tokens[i] >= c->vocab;
    if (bad) golden_fail(g, "tokens", "rows of another length, or ids outside");
    return !bad;
}

static void run_towers(struct golden *g, const struct st_file *f, struct pl_clip_model *m,
                       float *pixels, int images, const int32_t *tokens, int texts, double allowed)
{
    int E = m->config.embed;
    size_t capacity = (size_t)images * (size_t)texts;
    float *image = pl_alloc((size_t)images, (size_t)E * sizeof *image);
    float *text = pl_alloc((size_t)texts, (size_t)E * sizeof *text);
    float *unit = pl_alloc((size_t)(images + texts), (size_t)E * sizeof *unit);
    float *logits = pl_alloc(capacity, sizeof *logits), *other = pl_alloc(capacity, sizeof *other);
    int32_t *order = pl_alloc((size_t)images, sizeof *order);
    struct watching seeing = { g, f, "visual" }, reading = { g, f, "text" };
    int rc = image && text && unit && logits && other && order ? PL_OK : PL_ENOMEM;
    m->watch = compare_activation;
    m->context = &seeing;
    m->vision.watch = m->text.watch = compare_block;
    m->vision.context = &seeing;
    m->text.context = &reading;
    if (!rc) rc = pl_clip_images(m, image, pixels, images);
    if (!rc) rc = pl_clip_texts(m, text, tokens, texts);
    if (!rc) rc = pl_clip_logits(m, logits, text, texts, image, images);
    if (rc) golden_fail(g, "towers", "%s", pl_status_name(rc));
    else {
        compare(g, f, "image_features", image, (size_t)images * (size_t)E, allowed);
        compare(g, f, "text_features", text, (size_t)texts * (size_t)E, allowed);
        normalise(unit, image, images, E);
        compare(g, f, "image_features_normalized", unit, (size_t)images * (size_t)E, allowed);
        normalise(unit, text, texts, E);
        compare(g, f, "text_features_normalized", unit, (size_t)texts * (size_t)E, allowed);
        compare(g, f, "logits_per_text", logits, capacity, allowed);
        transpose(other, logits, texts, images);
        compare(g, f, "logits_per_image", other, capacity, allowed);
        for (int t = 0; t < texts; t++)
            pl_clip_rank(order, other + t * images, logits + t * images, images);
        compare(g, f, "probs_per_text", other, capacity, allowed);
    }
    pl_free(image);
    pl_free(text);
    pl_free(unit);
    pl_free(logits);
    pl_free(other);
    pl_free(order);
}

/* Reads the file's pictures, or makes them from the counter if it has none. */
static float *pixels_of(struct golden *g, const struct st_file *f, const json_t *config, int image,
                        int *B)
{
    size_t each = 3 * (size_t)image * (size_t)image, n;
    const struct st_tensor *features = pl_safetensors_find(f, "image_features");
    float *x;
    if (pl_safetensors_find(f, "pixels")) {
        if (!(x = golden_floats(g, f, "pixels", &n))) return NULL;
        *B = (int)(n / each);
        if (n % each || !n) golden_fail(g, "pixels", "no pictures of %d x %d", image, image);
        return x;
    }
    if (!features || features->dims != 2) {
        golden_fail(g, "image_features", "no such tensor of two dimensions");
        return NULL;
    }
    *B = (int)features->shape[0];
    n = (size_t)*B * each;
    if ((x = pl_alloc(n, sizeof *x)))
        golden_counter(x, "pixels", (uint64_t)golden_int(g, config, "counter_seed"), n);
    for (size_t i = 0; x && i < n; i++) x[i] *= 2;
    return x;
}

static int fill(struct golden *g, struct pl_clip_model *m, const json_t *config,
                struct st_file *weights)
{
    struct pl_err err;
    int rc;
    if (json_object_get(config, "counter")) return golden_counter_fill(g, &m->params, config, NULL);
    if (!weights) return 0;
    rc = pl_checkpoint_load_params(&m->params, weights, pl_checkpoint_exact, &err);
    if (rc) golden_fail(g, "weights", "%s", err.text);
    return !rc;
}

void clip_golden_io(struct golden *g, const struct st_file *f, const json_t *config,
                    const char *stem)
{
    int counted = json_object_get(config, "counter") != NULL, images = 0, rc;
    struct st_file *weights = counted ? NULL : golden_weights(g, stem);
    struct pl_clip_config c;
    struct pl_clip_model m;
    float *pixels = NULL;
    int32_t *tokens = NULL;
    size_t n = 0;
    if (read_config(g, &c, json_object_get(config, "model"))) {
        if ((rc = pl_clip_init(&m, &c, g->be))) golden_fail(g, "model", "%s", pl_status_name(rc));
        else {
            pixels = pixels_of(g, f, config, c.image, &images);
            tokens = golden_ints(g, f, "tokens", &n);
            if (pixels && images && tokens && tokens_fit(g, tokens, n, &c) &&
                fill(g, &m, config, weights))
                run_towers(g, f, &m, pixels, images, tokens, (int)(n / (size_t)c.context),
                           counted ? FULL : MODEL);
            pl_clip_clear(&m);
        }
    }
    pl_free(pixels);
    pl_free(tokens);
    pl_safetensors_close(weights);
}

/* --- from bytes to an order ------------------------------------------------------------------- */

static void same_ints(struct golden *g, const struct st_file *f, const char *name,
                      const int32_t *got, int rows, int columns, int step)
{
    size_t n, bad = 0;
    int32_t *want = golden_ints(g, f, name, &n);
    if (!want) return;
    if (n != (size_t)rows * (size_t)columns) bad = n + 1;
    else
        for (int r = 0; r < rows; r++)
            for (int k = 0; k < columns; k++) bad += want[r * columns + k] != got[r * step + k];
    golden_check(g, name, !bad, "%zu of %zu differ", bad, n);
    pl_free(want);
}

/* The towers' vectors of the file's pictures; all on the host. */
static int rerank_vectors(struct golden *g, const struct st_file *f, struct pl_clip_model *m,
                          const struct st_tensor *t, float *image, float *pixels)
{
    int R = m->config.image, h = (int)t->shape[1], w = (int)t->shape[2];
    size_t each = 3 * (size_t)R * (size_t)R, bytes = (size_t)h * (size_t)w * 3;
    for (int i = 0; i < (int)t->shape[0]; i++) {
        struct pl_image in = { 0 }, out = { 0 };
        int rc = pl_image_init(&in, w, h, 3);
        if (!rc) memcpy(in.pixels, (const uint8_t *)t->data + (size_t)i * bytes, bytes);
        if (!rc) rc = pl_resize_square(&out, &in, R, PL_BICUBIC);
        if (!rc) pl_clip_pixels(pixels + (size_t)i * each, out.pixels, R);
        pl_image_clear(&in);
        pl_image_clear(&out);
        if (rc) return rc;
    }
    const struct st_tensor *first = pl_safetensors_find(f, "pixels");
    if (first && first->n <= (size_t)t->shape[0] * each) {
        float *want = golden_floats(g, f, "pixels", NULL);
        if (want) golden_case(g, "pixels", golden_absolute(pixels, want, first->n), 1e-6);
        pl_free(want);
    }
    return pl_clip_images(m, image, pixels, (int)t->shape[0]);
}

static void rerank(struct golden *g, const struct st_file *f, struct pl_clip_model *m,
                   const struct st_tensor *t, const int32_t *tokens, int texts)
{
    int n = (int)t->shape[0], E = m->config.embed, R = m->config.image;
    float *image = pl_alloc((size_t)n, (size_t)E * sizeof *image);
    float *text = pl_alloc((size_t)texts, (size_t)E * sizeof *text);
    float *pixels = pl_alloc((size_t)n, 3 * (size_t)R * (size_t)R * sizeof *pixels);
    float *logits = pl_alloc((size_t)texts, (size_t)n * sizeof *logits);
    float *prob = pl_alloc((size_t)texts, (size_t)n * sizeof *prob);
    float *sorted = pl_alloc((size_t)texts, (size_t)n * sizeof *sorted);
    int32_t *order = pl_alloc((size_t)texts, (size_t)n * sizeof *order);
    int rc = image && text && pixels && logits && prob && sorted && order ? PL_OK : PL_ENOMEM;
    if (!rc) rc = rerank_vectors(g, f, m, t, image, pixels);
    if (!rc) rc = pl_clip_texts(m, text, tokens, texts);
    if (!rc) rc = pl_clip_logits(m, logits, text, texts, image, n);
    if (rc) golden_fail(g, "rerank", "%s", pl_status_name(rc));
    else {
        for (int r = 0; r < texts; r++) {
            pl_clip_rank(order + r * n, prob + r * n, logits + r * n, n);
            for (int k = 0; k < n; k++) sorted[r * n + k] = prob[r * n + order[r * n + k]];
        }
        compare(g, f, "logits_per_text", logits, (size_t)texts * (size_t)n, MODEL);
        /* exp() makes a difference of the largest logit into one of a share */
        compare(g, f, "probs", prob, (size_t)texts * (size_t)n, 100 * MODEL);
        compare(g, f, "sorted_probs", sorted, (size_t)texts * (size_t)n, 100 * MODEL);
        same_ints(g, f, "order", order, texts, n, n);
        same_ints(g, f, "best4", order, texts, 4, n);
    }
    pl_free(image);
    pl_free(text);
    pl_free(pixels);
    pl_free(logits);
    pl_free(prob);
    pl_free(sorted);
    pl_free(order);
}

void clip_golden_rerank(struct golden *g, const struct st_file *f, const json_t *config)
{
    const char *name = json_string_value(json_object_get(config, "weights"));
    const struct st_tensor *t = pl_safetensors_find(f, "images_u8");
    char *path = name && !strchr(name, '/') ? pl_path_join(g->folder, name) : NULL;
    struct pl_clip_model m;
    struct pl_err err;
    int32_t *tokens;
    size_t n;
    if (!path || !t || t->dtype != PL_U8 || t->dims != 4 || t->shape[3] != 3 || t->shape[0] < 4 ||
        t->shape[1] > IMAGE_SIDE_MAX || t->shape[2] > IMAGE_SIDE_MAX)
        golden_fail(g, "images_u8", "no U8 tensor [N,H,W,3], or no file of weights named");
    else if (pl_clip_open(&m, path, g->be, &err)) golden_fail(g, "weights", "%s", err.text);
    else {
        tokens = golden_ints(g, f, "tokens", &n);
        if (tokens && tokens_fit(g, tokens, n, &m.config))
            rerank(g, f, &m, t, tokens, (int)(n / (size_t)m.config.context));
        pl_free(tokens);
        pl_clip_clear(&m);
    }
    free(path);
}
