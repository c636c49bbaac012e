/* vqgan.c - `potluck vqgan`: a codec of pictures - train a small one, use any. */
#include "vqgan.h"
#include "cmd/cmd.h"
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

static const char usage[] =
    "usage: potluck vqgan train   --data DIR --out FILE [OPTION ...]\n"
    "       potluck vqgan measure --weights FILE --data DIR\n"
    "       potluck vqgan encode  --weights FILE --data DIR --out CODES\n"
    "       potluck vqgan decode  --weights FILE --codes CODES --out DIR\n"
    "\n"
    "  --data DIR       a folder of PNG, JPEG or WebP pictures, or one; each is cut to a square\n"
    "  --weights FILE   a VQGAN: our own, or a published checkpoint (.ckpt, .pt, .safetensors), whose\n"
    "                   sizes are taken from the .yaml beside it or from its tensors\n"
    "  --codes CODES    what encode wrote: safetensors with 'codes' (pictures, rows, columns)\n"
    "  --sheet PNG      originals above what the codec makes of them (train, measure)\n"
    "  --side N         of the pictures in pixels (default: the model's nominal resolution)\n"
    "  --sample         encode: draw Gumbel codes as the original does; default: the likeliest\n"
    "  --seed N         default 1\n" COMPUTE_USAGE "\n"
    "train:\n"
    "  --config C       demo, f16_1024, f16_16384, gumbel_f8, or a YAML or JSON file in the\n"
    "                   original's words (default: demo)\n"
    "  --init FILE      go on from these weights\n"
    "  --steps N        default 4000        --batch N  pictures a step, default 8\n"
    "  --lr X           default 0.001       --float32  store float32, not float16\n";

int vqgan_fail(const struct pl_err *err)
{
    fprintf(stderr, "potluck vqgan: %s\n", err->text);
    return 1;
}

int vqgan_fail_status(const char *what, int rc, const struct pl_backend *be, int64_t batch,
                      const char *option)
{
    struct pl_err err;
    pl_fail(&err, rc, "%s: %s", what, pl_status_name(rc));
    compute_explain(&err, rc, be, batch, option);
    return vqgan_fail(&err);
}

int vqgan_open(struct pl_vqgan *m, const char *path, const struct pl_backend *be)
{
    struct pl_err err;
    int rc = pl_vqgan_open(m, path, be, 0, &err);
    if (!rc) return 0;
    compute_explain(&err, rc, be, 0, NULL);
    return vqgan_fail(&err);
}

/* 0, or PL_EUSE after a line. */
static int parse(struct vqgan_options *o, int argc, char **argv)
{
    static const struct option options[] = {
        { "data", required_argument, NULL, 'd' },
        { "weights", required_argument, NULL, 'w' },
        { "codes", required_argument, NULL, 'c' },
        { "out", required_argument, NULL, 'o' },
        { "sheet", required_argument, NULL, 'p' },
        { "config", required_argument, NULL, 'C' },
        { "init", required_argument, NULL, 'i' },
        { "side", required_argument, NULL, 's' },
        { "seed", required_argument, NULL, 'S' },
        { "steps", required_argument, NULL, 'n' },
        { "batch", required_argument, NULL, 'B' },
        { "lr", required_argument, NULL, 'l' },
        { "sample", no_argument, NULL, 'g' },
        { "float32", no_argument, NULL, 'f' },
        { "help", no_argument, NULL, 'h' },
        COMPUTE_OPTIONS,
        { 0 },
    };
    int c, bad = 0;
    while (!bad && (c = getopt_long(argc, argv, "h", options, NULL)) != -1) {
        switch (c) {
        case 'd': o->data = optarg; break;
        case 'w': o->weights = optarg; break;
        case 'c': o->codes = optarg; break;
        case 'o': o->out = optarg; break;
        case 'p': o->sheet = optarg; break;
        case 'C': o->config = optarg; break;
        case 'i': o->init = optarg; break;
        case 'g': o->sample = 1; break;
        case 'f': o->float32 = 1; break;
        case 's': bad = cmd_integer(&o->side, "vqgan", "--side", optarg, 1, 4096); break;
        case 'S': bad = cmd_integer(&o->seed, "vqgan", "--seed", optarg, 0, INT64_MAX); break;
        case 'n': bad = cmd_integer(&o->steps, "vqgan", "--steps", optarg, 1, 100000000); break;
        case 'B': bad = cmd_integer(&o->batch, "vqgan", "--batch", optarg, 1, 4096); break;
        case 'l': bad = cmd_real(&o->lr, "vqgan", "--lr", optarg, 1e-9, 1); break;
        case 'h': fputs(usage, stdout); exit(0);
        default: bad = compute_option(&o->compute, "vqgan", c, optarg) == 1 ? 0 : PL_EUSE;
        }
    }
    return bad ? PL_EUSE : cmd_no_more("vqgan", argc, argv);
}

int vqgan_backend(struct pl_backend *be, struct vqgan_options *o)
{
    if (compute_open(be, &o->compute, "vqgan")) return 1;
    fprintf(stderr, "backend %s\n", be->note);
    return 0;
}

int vqgan_side(const struct vqgan_options *o, const struct pl_vqgan_config *c)
{
    int factor = pl_vqgan_factor(c), side = o->side ? (int)o->side : c->resolution;
    return (side + factor - 1) / factor * factor;
}

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
    json_t *names = json_array();
    char *text;
    int rc;
    for (size_t i = 0; i < p->count; i++) json_array_append_new(names, json_string(p->name[i]));
    text = json_dumps(names, JSON_COMPACT);
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
        if (rc) rc = vqgan_fail_status("encoding", rc, &be, 0, "a smaller --side");
        else if (write_codes(o->out, code, &p, codes, &err)) rc = vqgan_fail(&err);
        else printf("%zu pictures of %dx%d codes in %s\n", p.count, codes, codes, o->out);
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
    if (!rc) printf("%lld pictures in %s\n", (long long)t->shape[0], o->out);
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
    int (*run)(struct vqgan_options *);
} verbs[] = {
    { "train", "--data and --out", 0, 1, 0, 1, vqgan_train },
    { "measure", "--weights and --data", 1, 1, 0, 0, measure },
    { "encode", "--weights, --data and --out", 1, 1, 0, 1, encode },
    { "decode", "--weights, --codes and --out", 1, 0, 1, 1, decode },
};

static int lacks(const struct vqgan_options *o, const struct verb *v)
{
    if ((o->weights || !v->weights) && (o->data || !v->data) && (o->codes || !v->codes) &&
        (o->out || !v->out))
        return PL_OK;
    return cmd_misused("vqgan", "%s: %s are needed", v->name, v->needs);
}

int cmd_vqgan(int argc, char **argv)
{
    struct vqgan_options o = { .config = "demo", .seed = 1, .steps = 4000, .batch = 8, .lr = 1e-3 };
    const char *what = argc > 1 ? argv[1] : "";
    if (!strcmp(what, "--help") || !strcmp(what, "-h")) {
        fputs(usage, stdout);
        return 0;
    }
    for (size_t i = 0; i < PL_COUNT(verbs); i++) {
        if (strcmp(what, verbs[i].name)) continue;
        argv[1] = argv[0]; /* getopt begins its complaints with it */
        if (parse(&o, argc - 1, argv + 1) || lacks(&o, &verbs[i])) return 2;
        return verbs[i].run(&o);
    }
    cmd_misused("vqgan", "'%.60s': train, measure, encode or decode comes first", what);
    return 2;
}
