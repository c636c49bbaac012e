/* vqgan.c - `potluck vqgan`: a codec of pictures - train a small one, use any. */
#include "vqgan.h"
#include "data/files/json.h"
#include "cmd/cmd.h"
#include "cmd/common/outputs.h"
#include "cmd/common/plural.h"
#include "data/files/file.h"
#include "data/models/vqgan_file.h"
#include "runtime/vqgan_fit.h"
#include "ref/rng.h"
#include "../../runtime/models.h"

#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int measure(struct vqgan_options *o)
{
    struct pl_backend be;
    struct pl_vqgan m;
    struct pl_pictures p;
    struct pl_err err;
    int rc = vqgan_backend(&be, o);
    if (rc) return rc;
    if (vqgan_open(&m, o->weights, &be)) return 1;
    if (pl_pictures_read(&p, o->data, vqgan_side(o, &m.config), &err)) rc = vqgan_fail(&err);
    else rc = vqgan_report(&m, &p, o->sheet);
    pl_pictures_clear(&p);
    pl_vqgan_clear(&m);
    return rc;
}

/* -- codes ------------------------------------------------------------------------------------ */

static int write_codes(const char *path, const int32_t *code, const struct pl_pictures *p, int side,
                       struct pl_err *err)
{
    int64_t shape[3] = { (int64_t)p->count, side, side };
    struct st_writer *w = pl_safetensors_writer_new();
    json_t *names;
    char *text;
    int rc;
    pl_json_begin();
    names = json_array();
    for (size_t i = 0; i < p->count; i++) json_array_append_new(names, json_string(p->name[i]));
    text = pl_json_text(names, JSON_COMPACT);
    rc = w && text ? pl_safetensors_writer_meta(w, "names", text) : PL_ENOMEM;
    if (!rc) rc = pl_safetensors_writer_add(w, "codes", PL_I32, 3, shape, code);
    rc = rc ? pl_fail(err, rc, "%s: %s", path, pl_status_name(rc))
            : pl_safetensors_write(w, path, err);
    free(text);
    json_decref(names);
    pl_safetensors_writer_free(w);
    return rc;
}

static int encode_all(struct pl_vqgan *m, int32_t *code, const struct pl_pictures *p,
                      const struct vqgan_options *o)
{
    size_t floats = 3 * (size_t)p->side * (size_t)p->side, N = (size_t)m->config.n_embed;
    size_t codes = (size_t)pl_vqgan_codes(&m->config, p->side), places = codes * codes;
    int draws = o->sample && m->config.gumbel, rc = PL_OK;
    float *x = pl_alloc(floats, sizeof *x),
          *noise = pl_alloc(draws ? N * places : 0, sizeof *noise);
    struct pl_rng rng;
    pl_rng_init(&rng, (uint64_t)o->seed, 2);
    if (!x || !noise) rc = PL_ENOMEM;
    for (size_t i = 0; !rc && i < p->count; i++) {
        for (size_t k = 0; draws && k < N * places; k++)
            noise[k] = (float)-log(-log(pl_rng_uniform(&rng) + 0x1p-54));
        pl_pixels_in(x, p->pixels + i * floats, floats);
        rc = pl_vqgan_encode(m, code + i * places, NULL, x, draws ? noise : NULL, 1, p->side,
                             p->side);
    }
    pl_free(x);
    pl_free(noise);
    return rc;
}

static int encode(struct vqgan_options *o)
{
    struct pl_backend be;
    struct pl_vqgan m;
    struct pl_pictures p = { 0 };
    struct pl_err err;
    int32_t *code = NULL;
    int codes, rc = vqgan_backend(&be, o);
    if (rc) return rc;
    if (vqgan_open(&m, o->weights, &be)) return 1;
    if (pl_pictures_read(&p, o->data, vqgan_side(o, &m.config), &err)) {
        rc = vqgan_fail(&err);
    } else {
        codes = pl_vqgan_codes(&m.config, p.side);
        code = pl_alloc(p.count * (size_t)codes * (size_t)codes, sizeof *code);
        rc = code ? encode_all(&m, code, &p, o) : PL_ENOMEM;
        if (rc) rc = vqgan_fail_status("encoding", rc, &be, 0);
        else if (write_codes(o->out, code, &p, codes, &err)) rc = vqgan_fail(&err);
        else
            printf("%zu picture%s of %dx%d codes in %s\n", p.count, PLURAL(p.count), codes, codes,
                   o->out);
    }
    pl_free(code);
    pl_pictures_clear(&p);
    pl_vqgan_clear(&m);
    return rc;
}

static int decode_one(struct pl_vqgan *m, const int32_t *code, int h, int w, const char *path,
                      struct pl_err *err)
{
    int factor = pl_vqgan_factor(&m->config);
    size_t floats = 3 * (size_t)(h * factor) * (size_t)(w * factor);
    float *x = pl_alloc(floats, sizeof *x);
    uint8_t *planes = pl_alloc(floats, 1);
    struct pl_image image;
    int rc = x && planes ? pl_vqgan_decode(m, x, code, 1, h, w) : PL_ENOMEM;
    if (!rc) pl_pixels_out(planes, x, floats);
    if (!rc) rc = pl_picture_image(&image, planes, w * factor, h * factor);
    if (rc) {
        pl_fail(err, rc, "%s: %s", path, pl_status_name(rc));
    } else {
        rc = pl_image_write_png(path, &image, err);
        pl_image_clear(&image);
    }
    pl_free(x);
    pl_free(planes);
    return rc;
}

/* All of them, before the first picture is drawn. */
static int check_codes(const struct pl_vqgan *m, const struct st_tensor *t, int32_t *code,
                       size_t places, const char *path, struct pl_err *err)
{
    for (int64_t i = 0; i < t->shape[0]; i++) {
        memcpy(code, (const char *)t->data + (size_t)i * places * sizeof *code,
               places * sizeof *code);
        if (pl_vqgan_count_invalid(m, code, places))
            return pl_fail(err, PL_EFORMAT, "%s: picture %lld holds a code outside 0..%d", path,
                           (long long)i, m->config.n_embed - 1);
    }
    return PL_OK;
}

static int decode_all(struct pl_vqgan *m, const struct st_file *f, const struct vqgan_options *o,
                      struct pl_err *err)
{
    const struct st_tensor *t = pl_safetensors_find(f, "codes");
    int32_t *code;
    size_t places;
    int rc = PL_OK, most = 4096 / pl_vqgan_factor(&m->config);
    if (!t || t->dtype != PL_I32 || t->dims != 3 || t->shape[1] < 1 || t->shape[2] < 1 ||
        t->shape[1] > most || t->shape[2] > most)
        return pl_fail(err, PL_EFORMAT,
                       "%s: expected a tensor 'codes', I32 (pictures, rows, columns) of "
                       "at most %d rows and columns",
                       o->codes, most);
    places = (size_t)t->shape[1] * (size_t)t->shape[2];
    code = pl_alloc(places, sizeof *code);
    if (!code) return pl_fail(err, PL_ENOMEM, "%s: no memory", o->codes);
    rc = check_codes(m, t, code, places, o->codes, err);
    if (!rc) rc = pl_folder_make(o->out, err);
    for (int64_t i = 0; !rc && i < t->shape[0]; i++) {
        char name[32], *path;
        memcpy(code, (const char *)t->data + (size_t)i * places * sizeof *code,
               places * sizeof *code);
        snprintf(name, sizeof name, "%05lld.png", (long long)i);
        path = pl_path_join(o->out, name);
        rc = path ? decode_one(m, code, (int)t->shape[1], (int)t->shape[2], path, err)
                  : pl_fail(err, PL_ENOMEM, "%s: no memory", o->out);
        free(path);
    }
    pl_free(code);
    if (!rc) printf("%lld picture%s in %s\n", (long long)t->shape[0], PLURAL(t->shape[0]), o->out);
    return rc;
}

static int decode(struct vqgan_options *o)
{
    struct pl_backend be;
    struct pl_vqgan m;
    struct st_file *f;
    struct pl_err err;
    int rc = vqgan_backend(&be, o);
    if (rc) return rc;
    if (pl_safetensors_open(&f, o->codes, &err)) return vqgan_fail(&err);
    if (vqgan_open(&m, o->weights, &be)) {
        pl_safetensors_close(f);
        return 1;
    }
    if ((rc = decode_all(&m, f, o, &err))) {
        compute_explain(&err, rc, &be, 0, NULL);
        rc = vqgan_fail(&err);
    }
    pl_safetensors_close(f);
    pl_vqgan_clear(&m);
    return rc;
}

static const struct verb {
    const char *name, *needs;
    int weights, data, codes, out; /* which of them it needs */
    int (*check_out)(const char *path, struct pl_err *err);
    int (*run)(struct vqgan_options *);
} verbs[] = {
    { "train", "--data and --out", 0, 1, 0, 1, outputs_check_file, vqgan_train },
    { "measure", "--weights and --data", 1, 1, 0, 0, NULL, measure },
    { "encode", "--weights, --data and --out", 1, 1, 0, 1, outputs_check_file, encode },
    { "decode", "--weights, --codes and --out", 1, 0, 1, 1, outputs_check_folder, decode },
};

static int run_verb(const struct verb *v, struct vqgan_options *o)
{
    struct pl_err err;
    if ((v->check_out && v->check_out(o->out, &err)) || outputs_check_file(o->sheet, &err))
        return vqgan_fail(&err);
    return v->run(o);
}

static int lacks(const struct vqgan_options *o, const struct verb *v)
{
    if ((o->weights || !v->weights) && (o->data || !v->data) && (o->codes || !v->codes) &&
        (o->out || !v->out))
        return PL_OK;
    return command_misused("vqgan", "%s: %s are needed", v->name, v->needs);
}

static const char *const configs[] = { "demo", "f16_1024", "f16_16384", "gumbel_f8", NULL };

#define OPTIONS struct vqgan_options
static const struct option_row rows[] = {
    { "data", "DIR", NULL, OPT_PATH(data),
      "a PNG, JPEG or WebP image, or a folder of them; each is cropped to a square" },
    { "weights", "FILE", NULL, OPT_PATH(weights),
      "a VQGAN: our own, or a published checkpoint (.ckpt, .pt, .safetensors). Its sizes come "
      "from the .yaml file next to it or from its tensors" },
    { "codes", "FILE", NULL, OPT_PATH(codes),
      "image tokens as encode writes them: safetensors with 'codes' (images, rows, columns)" },
    { "out", "PATH", NULL, OPT_PATH(out), "where to write: a file, or a folder for decode" },
    { "sheet", "PNG", NULL, OPT_PATH(sheet),
      "train, measure: draw originals above their reconstructions" },
    { "side", "N", NULL, OPT_INTEGER(side, 1, 4096),
      "width and height of images in pixels (default: the model's nominal resolution)" },
    { "sample", NULL, NULL, OPT_FLAG(sample),
      "encode: sample Gumbel codes, as taming-transformers does (default: take the most likely)" },
    { "seed", "N", "1", OPT_INTEGER(seed, 0, INT64_MAX), "seed of the random source" },
    { NULL, NULL, NULL, OPT_HEADING, "Training" },
    { "config", "NAME|FILE", "demo", OPT_PATH_OR(config, configs),
      "the model: demo, f16_1024, f16_16384, gumbel_f8, or a YAML or JSON file with the "
      "original's keys" },
    { "init", "FILE", NULL, OPT_PATH(init), "weights to start from" },
    { "steps", "N", "4000", OPT_INTEGER(steps, 1, 100000000), "optimizer steps" },
    { "batch", "N", "8", OPT_INTEGER(batch, 1, 4096), "images per step" },
    { "lr", "X", "0.001", OPT_REAL(lr, 1e-9, 1), "learning rate" },
    { "resume", NULL, NULL, OPT_FLAG(resume),
      "train: continue a training that was stopped, from FILE.resume next to --out. Repeat the "
      "other options; one that differs is refused" },
    { "float32", NULL, NULL, OPT_FLAG(float32), "store weights as float32 (default: float16)" },
    { NULL, NULL, NULL, OPT_TABLE(compute, compute_rows), NULL },
    { 0 },
};

static int run_vqgan(int argc, char **argv)
{
    struct vqgan_options o = { .data = NULL };
    const char *names[PL_COUNT(verbs) + 1] = { NULL };
    int words, status, verb;
    if (options_parse(&command_vqgan, &o, argc, argv, &words, &status)) return status;
    for (size_t i = 0; i < PL_COUNT(verbs); i++) names[i] = verbs[i].name;
    if ((verb = command_verb("vqgan", names, words ? argv[1] : NULL)) < 0) return 2;
    if (words > 1) command_misused("vqgan", OPTIONS_STRAY, argv[2]);
    return words > 1 || lacks(&o, &verbs[verb]) ? 2 : run_verb(&verbs[verb], &o);
}

const struct command command_vqgan = {
    .name = "vqgan",
    .summary = "encode images as image tokens and decode them; train a small codec",
    .synopsis = "train   --data DIR --out FILE [OPTION ...]\n"
                "measure --weights FILE --data DIR [OPTION ...]\n"
                "encode  --weights FILE --data DIR --out FILE [OPTION ...]\n"
                "decode  --weights FILE --codes FILE --out DIR [OPTION ...]",
    .about =
        "Trains a VQGAN, measures how well it reconstructs images, or converts between images and "
        "image tokens.",
    .rows = rows,
    .run = run_vqgan,
};
