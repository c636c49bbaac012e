/* sample_images.c - transformer, tokenizer and codec opened together: captions to text tokens,
 * image tokens to pixels. */
#include "sample_images.h"
#include "cmd/train/train_job.h"
#include "data/models/checkpoint.h"
#include "data/models/dalle_config.h"
#include "data/models/vqgan_file.h"
#include "data/models/weights.h"
#include "../../runtime/models.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#define DECODE_BATCH 16 /* pictures at a time: bounds the memory of their feature maps */

static int find_model(char **file, const char *path, struct pl_err *err)
{
    struct stat st;
    int rc;
    *file = NULL;
    if (stat(path, &st)) {
        if (errno != ENOENT) return pl_fail(err, PL_EIO, "%s: %s", path, strerror(errno));
        return pl_fail(err, PL_ENOTFOUND,
                       "%s: no model there; 'potluck demo' trains one, --model "
                       "names another",
                       path);
    }
    if (!S_ISDIR(st.st_mode)) {
        *file = strdup(path);
        return *file ? PL_OK : pl_fail(err, PL_ENOMEM, "%s: no memory", path);
    }
    rc = pl_checkpoint_newest(file, path, err);
    if (!rc && !*file)
        rc = pl_fail(err, PL_ENOTFOUND, "%s: no checkpoint-<step>.safetensors in this folder",
                     path);
    return rc;
}

/* Reads the configuration that a checkpoint carries in its metadata, or `name`; opens the model and
 * loads it. */
static int load_model(struct pl_dalle **model, char codec[TRAIN_CODEC_MAX + 1],
                      const struct pl_backend *be, const char *path, const char *name,
                      struct pl_err *err)
{
    struct pl_dalle_config config;
    struct pl_err why;
    struct st_file *f = NULL;
    json_t *json = NULL;
    char *file;
    int rc = find_model(&file, path, err);
    *model = NULL;
    if (!rc) rc = pl_weights_open(&f, file, err);
    if (!rc && !pl_safetensors_meta(f, "config"))
        rc = pl_dalle_config_find(&config, name ? name : "run", err);
    else if (!rc && !(json = pl_checkpoint_json(f, "config", err))) rc = PL_EFORMAT;
    else if (!rc && (rc = pl_dalle_config_from_json(&config, json, 0, file, &why)))
        pl_fail(err, rc, "%s; is this a checkpoint of potluck train?", why.text);
    pl_safetensors_close(f);
    json_decref(json);
    if (!rc) rc = pl_dalle_open(model, &config, be, 0, err);
    if (!rc) rc = train_job_load(*model, NULL, NULL, NULL, NULL, file, err);
    if (!rc) rc = train_job_codec(codec, file, err);
    if (rc) {
        pl_dalle_close(*model);
        *model = NULL;
    }
    free(file);
    return rc;
}

/* Another codec decodes the same image tokens to other pictures, which look like a bad model's. */
static int compare_codecs(const char *trained, const char *model, const char *codec,
                          struct pl_err *err)
{
    char ours[VQGAN_IDENTITY_SIZE];
    int rc = pl_vqgan_identity(ours, codec, err);
    if (rc || !strcmp(ours, trained)) return rc;
    return pl_fail(
        err, PL_EUSE,
        "%.200s is trained on image tokens of codec %s, %.200s is codec %s: --codec FILE "
        "has to be the file that potluck prepare encoded the pictures with",
        model, trained, codec, ours);
}

int image_sampler_open(struct image_sampler *p, const struct pl_backend *be, const char *model,
                       const char *config, const char *tokenizer, const char *codec,
                       struct pl_err *err)
{
    char trained[TRAIN_CODEC_MAX + 1] = "";
    int rc = PL_OK;
    memset(p, 0, sizeof *p);
    if (model) rc = load_model(&p->model, trained, be, model, config, err);
    if (!rc && codec && *trained) rc = compare_codecs(trained, model, codec, err);
    if (!rc && tokenizer) rc = pl_unigram_open(&p->tokenizer, tokenizer, err);
    if (!rc && codec) {
        rc = pl_vqgan_open(&p->codec, codec, be, 0, err);
        p->has_codec = !rc;
    }
    if (!rc && p->model && p->tokenizer && pl_unigram_size(p->tokenizer) > p->model->config.V)
        rc = pl_fail(err, PL_EUSE, "%s: %d ids, but the model takes %d", tokenizer,
                     pl_unigram_size(p->tokenizer), p->model->config.V);
    if (!rc && p->model && p->has_codec && p->codec.config.n_embed > p->model->config.Vi)
        rc = pl_fail(err, PL_EUSE, "%s: %d codes, but the model draws %d", codec,
                     p->codec.config.n_embed, p->model->config.Vi);
    if (rc) image_sampler_close(p);
    return rc;
}

void image_sampler_close(struct image_sampler *p)
{
    pl_dalle_close(p->model);
    pl_unigram_close(p->tokenizer);
    if (p->has_codec) pl_vqgan_clear(&p->codec);
    memset(p, 0, sizeof *p);
}

int image_sampler_tokens(const struct image_sampler *p, int32_t *tokens, const char *caption,
                         struct pl_err *err)
{
    size_t T = (size_t)p->model->config.T, count;
    int rc = pl_unigram_encode(tokens, T, &count, p->tokenizer, caption, strlen(caption),
                               UNIGRAM_TRANSFORMERS);
    if (rc) return pl_fail(err, rc, "caption '%.60s': %s", caption, pl_status_name(rc));
    for (size_t i = count; i < T; i++) tokens[i] = p->model->config.pad;
    return PL_OK;
}

/* Planes in [-1,1] to bytes, clamped and truncated as in DALLE-pytorch. */
static void to_bytes(uint8_t *pixels, const float *x, int side)
{
    size_t places = (size_t)side * (size_t)side;
    for (size_t i = 0; i < places; i++)
        for (size_t c = 0; c < 3; c++) {
            float v = (fminf(fmaxf(x[c * places + i], -1), 1) + 1) / 2;
            pixels[3 * i + c] = (uint8_t)(v * 255);
        }
}

int image_sampler_decode(struct image_sampler *p, struct pl_image *images, const int32_t *codes,
                         int n, struct pl_err *err)
{
    int F = p->model->config.F, side = F * pl_vqgan_factor(&p->codec.config), rc = PL_OK;
    size_t I = (size_t)F * (size_t)F, pixels = 3 * (size_t)side * (size_t)side;
    float *x = pl_alloc(DECODE_BATCH * pixels, sizeof *x);
    memset(images, 0, (size_t)n * sizeof *images);
    if (!x) return pl_fail(err, PL_ENOMEM, "no memory for %d pictures", DECODE_BATCH);
    for (int first = 0; first < n && !rc; first += DECODE_BATCH) {
        int B = n - first < DECODE_BATCH ? n - first : DECODE_BATCH;
        if (pl_vqgan_count_invalid(&p->codec, codes + (size_t)first * I, (size_t)B * I)) {
            rc = pl_fail(err, PL_EFORMAT, "a code is not one of the codec's %d",
                         p->codec.config.n_embed);
            break;
        }
        rc = pl_vqgan_decode(&p->codec, x, codes + (size_t)first * I, B, F, F);
        for (int b = 0; b < B && !rc; b++) {
            rc = pl_image_init(&images[first + b], side, side, 3);
            if (!rc) to_bytes(images[first + b].pixels, x + (size_t)b * pixels, side);
        }
        if (rc) pl_fail(err, rc, "decoding: %s", pl_status_name(rc));
    }
    pl_free(x);
    return rc;
}
