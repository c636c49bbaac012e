/* vqgan.c - `potluck vqgan`: a codec of pictures - train a small one, use any. */
#include "cmd.h"
#include "interrupt.h"
#include "../data/file.h"
#include "../data/pictures.h"
#include "../data/sheet.h"
#include "../data/vqgan_file.h"
#include "../ref/model/vqgan_fit.h"

#include <getopt.h>
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
    "  --backend B      ref, fast, auto or ./library.so (default: auto)\n"
    "  --threads N      default: one a core\n"
    "  --seed N         default 1\n"
    "\n"
    "train:\n"
    "  --config C       demo, f16_1024, f16_16384, gumbel_f8, or a YAML or JSON file in the\n"
    "                   original's words (default: demo)\n"
    "  --init FILE      go on from these weights\n"
    "  --steps N        default 4000        --batch N  pictures a step, default 8\n"
    "  --lr X           default 0.001       --float32  store float32, not float16\n";

#define BATCH 16 /* pictures at a time where nothing depends on it */
#define SAVE_EVERY_S 120

struct options {
    const char *data, *weights, *codes, *out, *sheet, *config, *init, *backend;
    int64_t side, threads, seed, steps, batch;
    double lr;
    int sample, float32;
};

static int fail(const struct pl_err *err)
{
    fprintf(stderr, "potluck vqgan: %s\n", err->text);
    return 1;
}

static int fail_status(const char *what, int rc)
{
    fprintf(stderr, "potluck vqgan: %s: %s\n", what, pl_status_name(rc));
    return 1;
}

static int parse(struct options *o, int argc, char **argv)
{
    static const struct option options[] = {
        { "data", required_argument, NULL, 'd' },    { "weights", required_argument, NULL, 'w' },
        { "codes", required_argument, NULL, 'c' },   { "out", required_argument, NULL, 'o' },
        { "sheet", required_argument, NULL, 'p' },   { "config", required_argument, NULL, 'C' },
        { "init", required_argument, NULL, 'i' },    { "backend", required_argument, NULL, 'b' },
        { "side", required_argument, NULL, 's' },    { "threads", required_argument, NULL, 't' },
        { "seed", required_argument, NULL, 'S' },    { "steps", required_argument, NULL, 'n' },
        { "batch", required_argument, NULL, 'B' },   { "lr", required_argument, NULL, 'l' },
        { "sample", no_argument, NULL, 'g' },        { "float32", no_argument, NULL, 'f' },
        { "help", no_argument, NULL, 'h' },          { 0 },
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
        case 'b': o->backend = optarg; break;
        case 'g': o->sample = 1; break;
        case 'f': o->float32 = 1; break;
        case 's': bad = cmd_integer(&o->side, "vqgan", "--side", optarg, 1, 4096); break;
        case 't': bad = cmd_integer(&o->threads, "vqgan", "--threads", optarg, 1, 1024); break;
        case 'S': bad = cmd_integer(&o->seed, "vqgan", "--seed", optarg, 0, INT64_MAX); break;
        case 'n': bad = cmd_integer(&o->steps, "vqgan", "--steps", optarg, 1, 100000000); break;
        case 'B': bad = cmd_integer(&o->batch, "vqgan", "--batch", optarg, 1, 4096); break;
        case 'l': bad = cmd_real(&o->lr, "vqgan", "--lr", optarg, 1e-9, 1); break;
        case 'h': fputs(usage, stdout); exit(0);
        default: bad = PL_EUSE;
        }
    }
    return bad || optind < argc ? PL_EUSE : PL_OK;
}

static int open_backend(struct pl_backend *be, const struct options *o)
{
    struct pl_err err;
    if (pl_backend_open(be, o->backend, &err)) return fail(&err);
    if (o->threads) be->set_threads((int)o->threads);
    fprintf(stderr, "backend %s\n", be->note);
    return 0;
}

static int side_of(const struct options *o, const struct pl_vqgan_config *c)
{
    int factor = pl_vqgan_factor(c), side = o->side ? (int)o->side : c->resolution;
    return (side + factor - 1) / factor * factor;
}

/* -- measuring ------------------------------------------------------------------------------------ */

/* A codec's account of a set of pictures. */
struct account {
    double mse;       /* of pixels in [0,1] */
    double mean_psnr; /* of single pictures */
    double bits;      /* entropy of the codes */
    size_t used;      /* codes that occur */
    double most;      /* share of the most frequent one */
};

/* Encodes and decodes n pictures, as bytes; code (n, places). */
static int reconstruct(struct pl_vqgan *m, uint8_t *out, int32_t *code, const uint8_t *in, size_t n,
                       int side)
{
    size_t floats = 3 * (size_t)side * (size_t)side;
    int codes = pl_vqgan_codes(&m->config, side), rc = PL_OK;
    size_t places = (size_t)codes * (size_t)codes;
    float *x = pl_alloc(BATCH * floats, sizeof *x);
    if (!x) return PL_ENOMEM;
    for (size_t i = 0; !rc && i < n; i += BATCH) {
        size_t B = n - i < BATCH ? n - i : BATCH;
        pl_pixels_in(x, in + i * floats, B * floats);
        rc = pl_vqgan_encode(m, code + i * places, NULL, x, NULL, (int)B, side, side);
        if (!rc) rc = pl_vqgan_decode(m, x, code + i * places, (int)B, codes, codes);
        if (!rc) pl_pixels_out(out + i * floats, x, B * floats);
    }
    pl_free(x);
    return rc;
}

static double psnr(double mse) { return mse > 0 ? -10 * log10(mse) : INFINITY; }

static int examine(struct account *a, struct pl_vqgan *m, uint8_t *out, const struct pl_pictures *p)
{
    size_t floats = 3 * (size_t)p->side * (size_t)p->side;
    size_t codes = (size_t)pl_vqgan_codes(&m->config, p->side), N = (size_t)m->config.n_embed;
    size_t total = p->count * codes * codes;
    int32_t *code = pl_alloc(total, sizeof *code);
    uint64_t *uses = pl_alloc(N, sizeof *uses);
    int rc = code && uses ? reconstruct(m, out, code, p->pixels, p->count, p->side) : PL_ENOMEM;
    *a = (struct account){ 0 };
    for (size_t i = 0; !rc && i < p->count; i++) {
        double sum = 0;
        for (size_t k = i * floats; k < (i + 1) * floats; k++) {
            double d = ((double)out[k] - p->pixels[k]) / 255;
            sum += d * d;
        }
        a->mse += sum / (double)(floats * p->count);
        a->mean_psnr += psnr(sum / (double)floats) / (double)p->count;
    }
    for (size_t i = 0; !rc && i < total; i++) uses[code[i]]++;
    for (size_t n = 0; !rc && n < N; n++) {
        a->used += uses[n] > 0;
        if ((double)uses[n] / (double)total > a->most) a->most = (double)uses[n] / (double)total;
    }
    if (!rc) a->bits = pl_code_entropy(uses, N);
    pl_free(code);
    pl_free(uses);
    return rc;
}

/* A choice spread over the set: rows of originals, each above a row of reconstructions. */
static int write_sheet(const char *path, const struct pl_pictures *p, const uint8_t *out,
                       struct pl_err *err)
{
    enum { COLUMNS = 16, ROWS = 6 };
    struct pl_image *cells = calloc(2 * COLUMNS * ROWS, sizeof *cells), sheet;
    size_t floats = 3 * (size_t)p->side * (size_t)p->side;
    size_t count = p->count < COLUMNS * ROWS ? p->count : COLUMNS * ROWS;
    size_t rows = (count + COLUMNS - 1) / COLUMNS;
    int rc = cells ? PL_OK : PL_ENOMEM;
    for (size_t i = 0; !rc && i < rows * COLUMNS; i++) {
        size_t picture = (i < count ? i : 0) * p->count / count;
        size_t cell = i / COLUMNS * 2 * COLUMNS + i % COLUMNS;
        rc = pl_picture_image(&cells[cell], p->pixels + picture * floats, p->side, p->side);
        if (!rc)
            rc = pl_picture_image(&cells[cell + COLUMNS], out + picture * floats, p->side, p->side);
    }
    if (!rc) rc = pl_sheet(&sheet, cells, 2 * rows * COLUMNS, COLUMNS, 2);
    if (rc) {
        pl_fail(err, rc, "%s: %s", path, pl_status_name(rc));
    } else {
        rc = pl_image_write_png(path, &sheet, err);
        pl_image_clear(&sheet);
    }
    for (size_t i = 0; cells && i < 2 * COLUMNS * ROWS; i++) pl_image_clear(&cells[i]);
    free(cells);
    return rc;
}

static int report(struct pl_vqgan *m, const struct pl_pictures *p, const char *sheet)
{
    uint8_t *out = pl_alloc(p->count, 3 * (size_t)p->side * (size_t)p->side);
    struct account a;
    struct pl_err err;
    double start = pl_seconds();
    int rc = out ? examine(&a, m, out, p) : PL_ENOMEM;
    if (rc) {
        pl_free(out);
        return fail_status("measuring", rc);
    }
    printf("%zu pictures: PSNR %.2f dB (mean of pictures %.2f dB), %.1f pictures/s\n", p->count,
           psnr(a.mse), a.mean_psnr, (double)p->count / (pl_seconds() - start));
    printf("codes: %zu of %d used, entropy %.2f of %.2f bits, most frequent %.1f %%\n", a.used,
           m->config.n_embed, a.bits, log2(m->config.n_embed), 100 * a.most);
    if (sheet && write_sheet(sheet, p, out, &err)) rc = fail(&err);
    pl_free(out);
    return rc;
}

static int measure(const struct options *o)
{
    struct pl_backend be;
    struct pl_vqgan m;
    struct pl_pictures p;
    struct pl_err err;
    int rc = open_backend(&be, o);
    if (rc) return rc;
    if (pl_vqgan_open(&m, o->weights, &be, 0, &err)) return fail(&err);
    if (pl_pictures_read(&p, o->data, side_of(o, &m.config), &err)) rc = fail(&err);
    else rc = report(&m, &p, o->sheet);
    pl_pictures_clear(&p);
    pl_vqgan_clear(&m);
    return rc;
}

/* -- training --------------------------------------------------------------------------------------- */

static int read_config(struct pl_vqgan_config *config, const char *name, struct pl_err *err)
{
    return strpbrk(name, "./") ? pl_vqgan_config_read(config, name, err)
                               : pl_vqgan_named(config, name, err);
}

static int start_model(struct pl_vqgan *m, const struct options *o, const struct pl_backend *be,
                       struct pl_err *err)
{
    struct pl_vqgan_config config;
    int rc;
    if (o->init) return pl_vqgan_open(m, o->init, be, 1, err);
    if ((rc = read_config(&config, o->config, err))) return rc;
    rc = pl_vqgan_init(m, &config, be, 1);
    if (!rc) rc = pl_vqgan_reset(m, (uint64_t)o->seed);
    return rc ? pl_fail(err, rc, "%s: %s", o->config, pl_status_name(rc)) : PL_OK;
}

/* One line every few seconds, means over what it covers. */
struct progress {
    double start, last;
    struct pl_vqgan_loss sum;
    int64_t steps;
};

static void show_progress(struct progress *p, int64_t step, const struct options *o,
                          const struct pl_vqgan_loss *loss)
{
    double now = pl_seconds(), n;
    p->sum.l1 += loss->l1;
    p->sum.l2 += loss->l2;
    p->sum.quantizer += loss->quantizer;
    p->steps++;
    if (now - p->last < 10 && step < o->steps) return;
    n = (double)p->steps;
    printf("step %lld of %lld  L1 %.4f  PSNR %.2f dB  quantizer %.4f  %.1f pictures/s  %.0f s "
           "left\n",
           (long long)step, (long long)o->steps, p->sum.l1 / n, psnr(p->sum.l2 / n / 4),
           p->sum.quantizer / n, n * (double)o->batch / (now - p->last),
           (now - p->start) / (double)step * (double)(o->steps - step));
    fflush(stdout);
    *p = (struct progress){ .start = p->start, .last = now };
}

static int train_on(struct pl_vqgan *m, const struct options *o, const struct pl_pictures *p)
{
    struct pl_vqgan_fit_options options = pl_vqgan_fit_defaults(o->steps);
    struct progress progress = { .start = pl_seconds() };
    struct pl_vqgan_loss loss;
    struct pl_vqgan_fit *f;
    struct pl_err err;
    double saved = pl_seconds();
    int rc, unsaved = 0;
    options.batch = (int)o->batch;
    options.lr = o->lr;
    options.seed = (uint64_t)o->seed;
    if (o->init) options.free_part = 0;
    if (pl_vqgan_fit_open(&f, m, &options, p->pixels, p->count, p->side, &err)) return fail(&err);
    printf("%zu parameters, %zu pictures of %dx%d\n", m->params.trainable, p->count, p->side,
           p->side);
    progress.last = progress.start;
    interrupt_catch(NULL);
    rc = PL_OK;
    while (!rc && !interrupted() && pl_vqgan_fit_steps(f) < o->steps) {
        rc = pl_vqgan_fit_step(f, &loss);
        if (rc) break;
        show_progress(&progress, pl_vqgan_fit_steps(f), o, &loss);
        if (pl_seconds() - saved > SAVE_EVERY_S) { /* a machine that dies costs minutes, not the run */
            if ((unsaved = pl_vqgan_save(m, o->out, !o->float32, &err))) break;
            saved = pl_seconds();
        }
    }
    if (rc == PL_ELIMIT)
        fprintf(stderr,
                "potluck vqgan: step %lld: the loss is not finite; a smaller --lr may help\n",
                (long long)pl_vqgan_fit_steps(f));
    else if (rc) fail_status("training", rc);
    else if (unsaved || pl_vqgan_save(m, o->out, !o->float32, &err)) rc = fail(&err);
    else printf("%s after %lld steps, %.0f s\n", o->out, (long long)pl_vqgan_fit_steps(f),
                pl_seconds() - progress.start);
    pl_vqgan_fit_close(f);
    return rc;
}

static int train(const struct options *o)
{
    struct pl_backend be;
    struct pl_vqgan m;
    struct pl_pictures p = { 0 };
    struct pl_err err;
    int rc = open_backend(&be, o);
    if (rc) return rc;
    if (start_model(&m, o, &be, &err)) return fail(&err);
    if (pl_pictures_read(&p, o->data, side_of(o, &m.config), &err)) rc = fail(&err);
    else rc = train_on(&m, o, &p);
    pl_vqgan_clear(&m);
    /* what a reader of the file will see: float16 is part of the codec */
    if (!rc && pl_vqgan_open(&m, o->out, &be, 0, &err)) rc = fail(&err);
    else if (!rc) {
        rc = report(&m, &p, o->sheet);
        pl_vqgan_clear(&m);
    }
    pl_pictures_clear(&p);
    return rc != 0;
}

/* -- codes ------------------------------------------------------------------------------------------ */

static int write_codes(const char *path, const int32_t *code, const struct pl_pictures *p, int side,
                       struct pl_err *err)
{
    int64_t shape[3] = { (int64_t)p->count, side, side };
    struct st_writer *w = st_writer_new();
    json_t *names = json_array();
    char *text;
    int rc;
    for (size_t i = 0; i < p->count; i++) json_array_append_new(names, json_string(p->name[i]));
    text = json_dumps(names, JSON_COMPACT);
    rc = w && text ? st_writer_meta(w, "names", text) : PL_ENOMEM;
    if (!rc) rc = st_writer_add(w, "codes", PL_I32, 3, shape, code);
    rc = rc ? pl_fail(err, rc, "%s: %s", path, pl_status_name(rc)) : st_write(w, path, err);
    free(text);
    json_decref(names);
    st_writer_free(w);
    return rc;
}

static int encode_all(struct pl_vqgan *m, int32_t *code, const struct pl_pictures *p,
                      const struct options *o)
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

static int encode(const struct options *o)
{
    struct pl_backend be;
    struct pl_vqgan m;
    struct pl_pictures p = { 0 };
    struct pl_err err;
    int32_t *code = NULL;
    int codes, rc = open_backend(&be, o);
    if (rc) return rc;
    if (pl_vqgan_open(&m, o->weights, &be, 0, &err)) return fail(&err);
    if (pl_pictures_read(&p, o->data, side_of(o, &m.config), &err)) {
        rc = fail(&err);
    } else {
        codes = pl_vqgan_codes(&m.config, p.side);
        code = pl_alloc(p.count * (size_t)codes * (size_t)codes, sizeof *code);
        rc = code ? encode_all(&m, code, &p, o) : PL_ENOMEM;
        if (rc) rc = fail_status("encoding", rc);
        else if (write_codes(o->out, code, &p, codes, &err)) rc = fail(&err);
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

static int decode_all(struct pl_vqgan *m, const struct st_file *f, const struct options *o,
                      struct pl_err *err)
{
    const struct st_tensor *t = st_find(f, "codes");
    int32_t *code;
    size_t places;
    int rc = PL_OK, most = 4096 / pl_vqgan_factor(&m->config);
    if (!t || t->dtype != PL_I32 || t->dims != 3 || t->shape[1] < 1 || t->shape[2] < 1 ||
        t->shape[1] > most || t->shape[2] > most)
        return pl_fail(err, PL_EFORMAT,
                       "%s: expected a tensor 'codes', I32 (pictures, rows, columns) of "
                       "at most %d rows and columns",
                       o->codes, most);
    if ((rc = pl_folder_make(o->out, err))) return rc;
    places = (size_t)t->shape[1] * (size_t)t->shape[2];
    code = pl_alloc(places, sizeof *code);
    if (!code) return pl_fail(err, PL_ENOMEM, "%s: no memory", o->codes);
    for (int64_t i = 0; !rc && i < t->shape[0]; i++) {
        char name[32], *path;
        memcpy(code, (const char *)t->data + (size_t)i * places * sizeof *code,
               places * sizeof *code);
        if (pl_vqgan_strangers(m, code, places)) {
            rc = pl_fail(err, PL_EFORMAT, "%s: picture %lld holds a code outside 0..%d", o->codes,
                         (long long)i, m->config.n_embed - 1);
            break;
        }
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

static int decode(const struct options *o)
{
    struct pl_backend be;
    struct pl_vqgan m;
    struct st_file *f;
    struct pl_err err;
    int rc = open_backend(&be, o);
    if (rc) return rc;
    if (st_open(&f, o->codes, &err)) return fail(&err);
    if (pl_vqgan_open(&m, o->weights, &be, 0, &err)) {
        st_close(f);
        return fail(&err);
    }
    if (decode_all(&m, f, o, &err)) rc = fail(&err);
    st_close(f);
    pl_vqgan_clear(&m);
    return rc;
}

int cmd_vqgan(int argc, char **argv)
{
    struct options o = { .backend = "auto", .config = "demo", .seed = 1, .steps = 4000, .batch = 8,
                         .lr = 1e-3 };
    const char *what = argc > 1 ? argv[1] : "";
    if (!strcmp(what, "--help") || !strcmp(what, "-h")) {
        fputs(usage, stdout);
        return 0;
    }
    if (argc > 1 && !parse(&o, argc - 1, argv + 1)) {
        if (!strcmp(what, "train") && o.data && o.out) return train(&o);
        if (!strcmp(what, "measure") && o.data && o.weights) return measure(&o);
        if (!strcmp(what, "encode") && o.data && o.weights && o.out) return encode(&o);
        if (!strcmp(what, "decode") && o.codes && o.weights && o.out) return decode(&o);
    }
    cmd_misused(usage);
    return 2;
}
