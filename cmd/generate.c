/* generate.c - `potluck generate`: captions to pictures. [TTT 3.4] */
#include "cmd.h"
#include "compute.h"
#include "paint.h"
#include "progress.h"
#include "train_data.h"
#include "../data/file.h"
#include "../data/sheet.h"

#include <ctype.h>
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

static const char usage[] =
    "usage: potluck generate [--model PATH] [OPTION ...] CAPTION ...\n"
    "\n"
    "Draws pictures from captions: one PNG each, a contact sheet (a row a caption), and pictures.json\n"
    "with captions and codes.\n"
    "\n"
    "  --model PATH     a checkpoint, or a training's folder (default: out/demo)\n"
    "  --tokenizer FILE spiece.model (default: the demo's)\n"
    "  --codec FILE     the VQGAN that decodes (default: the demo's)\n"
    "  --captions FILE  more captions, one a line\n"
    "  --out DIR        default: out/pictures\n"
    "  --n N            pictures a caption (default: 1)\n"
    "  --top-k N        draw among the N likeliest codes (default: 0, all; the paper: 256)\n"
    "  --top-p X        or among those that make up X of the probability (default: 1; the paper: 0.75)\n"
    "  --temperature X  below 1 more likely, above 1 more varied (default: 1)\n"
    "  --greedy         always the likeliest code\n"
    "  --guidance X     classifier-free guidance (default: 1, none)\n"
    "  --seed N         default: 1\n"
    "  --batch N        pictures drawn at a time (default: 16)\n"
    "  --quiet          no progress\n"
    COMPUTE_USAGE;

#define CAPTION_MAX 4096    /* bytes; a model sees at most a few hundred tokens of them */
#define CAPTIONS_MAX 100000
#define FILE_MAX (64u << 20)

enum { O_MODEL = 1, O_TOKENIZER, O_CODEC, O_CAPTIONS, O_OUT, O_N, O_K, O_P, O_TEMPERATURE, O_GREEDY,
       O_GUIDANCE, O_SEED, O_BATCH, O_QUIET };

static const struct option options[] = {
    { "model", required_argument, NULL, O_MODEL },
    { "tokenizer", required_argument, NULL, O_TOKENIZER },
    { "codec", required_argument, NULL, O_CODEC },
    { "captions", required_argument, NULL, O_CAPTIONS },
    { "out", required_argument, NULL, O_OUT },
    { "n", required_argument, NULL, O_N },
    { "top-k", required_argument, NULL, O_K },
    { "top-p", required_argument, NULL, O_P },
    { "temperature", required_argument, NULL, O_TEMPERATURE },
    { "greedy", no_argument, NULL, O_GREEDY },
    { "guidance", required_argument, NULL, O_GUIDANCE },
    { "seed", required_argument, NULL, O_SEED },
    { "batch", required_argument, NULL, O_BATCH },
    { "quiet", no_argument, NULL, O_QUIET },
    COMPUTE_OPTIONS,
    { "help", no_argument, NULL, 'h' },
    { 0 },
};

struct wishes {
    struct compute compute;
    const char *model, *tokenizer, *codec, *captions, *out;
    int64_t n, top_k, seed, batch;
    struct pl_generate_options draw;
    int quiet;
    char **caption;
    size_t count;
};

static int take(struct wishes *w, int option, const char *value)
{
    int64_t x = 0;
    int rc;
    switch (option) {
    case O_MODEL: w->model = value; return PL_OK;
    case O_TOKENIZER: w->tokenizer = value; return PL_OK;
    case O_CODEC: w->codec = value; return PL_OK;
    case O_CAPTIONS: w->captions = value; return PL_OK;
    case O_OUT: w->out = value; return PL_OK;
    case O_N: return cmd_integer(&w->n, "generate", "--n", value, 1, 100000);
    case O_K:
        rc = cmd_integer(&x, "generate", "--top-k", value, 0, INT_MAX);
        w->draw.sampling.top_k = (int)x;
        return rc;
    case O_P: return cmd_real(&w->draw.sampling.top_p, "generate", "--top-p", value, 0, 1);
    case O_TEMPERATURE:
        return cmd_real(&w->draw.sampling.temperature, "generate", "--temperature", value, 1e-3, 1e3);
    case O_GREEDY: w->draw.greedy = 1; return PL_OK;
    case O_GUIDANCE: return cmd_real(&w->draw.guidance, "generate", "--guidance", value, -100, 100);
    case O_SEED: return cmd_integer(&w->seed, "generate", "--seed", value, 0, INT64_MAX);
    case O_BATCH: return cmd_integer(&w->batch, "generate", "--batch", value, 1, 4096);
    case O_QUIET: w->quiet = 1; return PL_OK;
    default: return compute_option(&w->compute, "generate", option, value) > 0 ? PL_OK : PL_EUSE;
    }
}

static int add_caption(struct wishes *w, const char *text, const char *where, struct pl_err *err)
{
    size_t n = strlen(text);
    char **grown;
    if (n == 0 || n > CAPTION_MAX)
        return pl_fail(err, PL_ELIMIT, "%s: a caption of %zu bytes; expected 1 to %d", where, n,
                       CAPTION_MAX);
    if (w->count == CAPTIONS_MAX)
        return pl_fail(err, PL_ELIMIT, "%s: more than %d captions", where, CAPTIONS_MAX);
    grown = realloc(w->caption, (w->count + 1) * sizeof *grown);
    if (grown) w->caption = grown;
    if (!grown || !(grown[w->count] = strdup(text)))
        return pl_fail(err, PL_ENOMEM, "%s: no memory", where);
    w->count++;
    return PL_OK;
}

static int read_captions(struct wishes *w, struct pl_err *err)
{
    char *text, *save = NULL;
    size_t bytes;
    int rc = pl_file_read((void **)&text, &bytes, w->captions, FILE_MAX, err);
    if (rc) return rc;
    for (char *line = strtok_r(text, "\r\n", &save); line && !rc; line = strtok_r(NULL, "\r\n", &save))
        rc = add_caption(w, line, w->captions, err);
    free(text);
    return rc;
}

struct watch {
    struct progress progress;
    double cells;
};

static int on_code(void *context, int64_t done, int64_t total)
{
    struct watch *watch = context;
    double gone = progress_elapsed(&watch->progress);
    char left[24];
    progress_show(&watch->progress, done == total, "drawing: %.0f of %.0f pictures, %.0f codes/s, %s left",
                  (double)done / watch->cells, (double)total / watch->cells,
                  gone > 0 ? (double)done / gone : 0,
                  progress_time(left, done ? gone * (double)(total - done) / (double)done : 0));
    return 0;
}

/* "0003-a-red-apple-1.png": what the caption leaves of itself in a file name. */
static void file_name(char *name, size_t room, size_t caption, int64_t copy, int64_t copies,
                      const char *text)
{
    char slug[41];
    size_t n = 0;
    for (const char *c = text; *c && n < sizeof slug - 1; c++) {
        if (isalnum((unsigned char)*c)) slug[n++] = (char)tolower((unsigned char)*c);
        else if (n && slug[n - 1] != '-') slug[n++] = '-';
    }
    while (n && slug[n - 1] == '-') n--;
    slug[n] = 0;
    if (copies > 1) snprintf(name, room, "%04zu-%s-%lld.png", caption, slug, (long long)copy);
    else snprintf(name, room, "%04zu-%s.png", caption, slug);
}

static int write_all(const struct wishes *w, const struct pl_image *images, const int32_t *codes,
                     size_t cells, struct pl_err *err)
{
    size_t total = w->count * (size_t)w->n;
    json_t *list = json_array();
    struct pl_image sheet = { 0 };
    char *path, *text;
    int rc = PL_OK;
    for (size_t i = 0; i < total && !rc; i++) {
        size_t caption = i / (size_t)w->n;
        json_t *entry, *numbers = json_array();
        char name[120];
        file_name(name, sizeof name, caption, (int64_t)(i % (size_t)w->n), w->n, w->caption[caption]);
        path = pl_path_join(w->out, name);
        rc = path ? pl_image_write_png(path, &images[i], err) : pl_fail(err, PL_ENOMEM, "no memory");
        free(path);
        for (size_t k = 0; k < cells; k++) json_array_append_new(numbers, json_integer(codes[i * cells + k]));
        entry = json_pack("{s:s%, s:s, s:I, s:o}", "caption", w->caption[caption],
                          strlen(w->caption[caption]), "file", name, "stream", (json_int_t)i, "codes",
                          numbers);
        if (!entry) { /* a caption that is not UTF-8 has no JSON */
            entry = json_pack("{s:s, s:I}", "file", name, "stream", (json_int_t)i);
        }
        json_array_append_new(list, entry);
    }
    if (!rc) {
        int columns = w->n > 1 ? (int)w->n : (int)(total < 8 ? total : 8);
        rc = pl_sheet(&sheet, images, total, columns, 4);
        path = pl_path_join(w->out, "sheet.png");
        if (rc || !path) rc = pl_fail(err, rc ? rc : PL_ENOMEM, "contact sheet: %s", pl_status_name(rc));
        else rc = pl_image_write_png(path, &sheet, err);
        free(path);
        pl_image_clear(&sheet);
    }
    if (!rc) {
        json_t *root = json_pack("{s:I, s:O}", "seed", (json_int_t)w->seed, "pictures", list);
        text = json_dumps(root, JSON_INDENT(1));
        path = pl_path_join(w->out, "pictures.json");
        rc = text && path ? pl_file_write(path, text, strlen(text), err)
                          : pl_fail(err, PL_ENOMEM, "no memory");
        free(path);
        free(text);
        json_decref(root);
    }
    json_decref(list);
    return rc;
}

static int draw(struct wishes *w, struct painter *p, struct pl_err *err)
{
    size_t T = (size_t)p->model->config.T, I = (size_t)p->model->config.F * (size_t)p->model->config.F;
    size_t total = w->count * (size_t)w->n;
    int32_t *text = calloc(total * T, sizeof *text), *codes = calloc(total * I, sizeof *codes);
    struct pl_image *images = calloc(total, sizeof *images);
    struct watch watch = { .cells = (double)I };
    int rc = text && codes && images ? PL_OK : pl_fail(err, PL_ENOMEM, "no memory for %zu pictures", total);
    for (size_t i = 0; i < total && !rc; i++)
        rc = painter_tokens(p, text + i * T, w->caption[i / (size_t)w->n], err);
    progress_begin(&watch.progress, w->quiet);
    w->draw.progress = on_code;
    w->draw.context = &watch;
    if (!rc) rc = pl_generate(p->model, codes, text, (int)total, &w->draw, err);
    progress_end(&watch.progress);
    if (!rc) rc = painter_decode(p, images, codes, (int)total, err);
    if (!rc) rc = write_all(w, images, codes, I, err);
    if (!rc) printf("%zu pictures in %s; all of them on %s/sheet.png\n", total, w->out, w->out);
    for (size_t i = 0; images && i < total; i++) pl_image_clear(&images[i]);
    free(images);
    free(codes);
    free(text);
    return rc;
}

static int run(struct wishes *w)
{
    struct pl_backend be;
    struct painter p = { 0 };
    struct pl_err err = { "" };
    char tokenizer[PATH_MAX + 64], codec[PATH_MAX + 64];
    int rc = PL_OK;
    if (compute_open(&be, &w->compute, "generate")) return 1;
    if (w->captions) rc = read_captions(w, &err);
    if (!rc && !w->count) rc = pl_fail(&err, PL_EUSE, "no caption was given");
    if (!rc && w->count * (uint64_t)w->n > 1000000)
        rc = pl_fail(&err, PL_ELIMIT, "more than a million pictures at once");
    if (!rc) {
        train_data_demo(tokenizer, sizeof tokenizer, "t5_2k.model");
        train_data_demo(codec, sizeof codec, "codec.safetensors");
        rc = painter_open(&p, &be, w->model, w->tokenizer ? w->tokenizer : tokenizer,
                          w->codec ? w->codec : codec, &err);
    }
    if (!rc && mkdir(w->out, 0777) && errno != EEXIST)
        rc = pl_fail(&err, PL_EIO, "%s: %s", w->out, strerror(errno));
    w->draw.seed = (uint64_t)w->seed;
    w->draw.batch = (int)w->batch;
    if (!rc) rc = draw(w, &p, &err);
    if (rc) fprintf(stderr, "potluck generate: %s\n", err.text);
    painter_close(&p);
    return rc != 0;
}

int cmd_generate(int argc, char **argv)
{
    struct wishes w = { .model = "out/demo", .out = "out/pictures", .n = 1, .seed = 1, .batch = 16,
                        .draw = pl_generate_options() };
    struct pl_err err;
    int option, rc = PL_OK;
    while (!rc && (option = getopt_long(argc, argv, "h", options, NULL)) != -1) {
        if (option == 'h') {
            fputs(usage, stdout);
            return 0;
        }
        if (option == '?') {
            fputs("'potluck generate --help' lists the options\n", stderr);
            rc = PL_EUSE;
        } else rc = take(&w, option, optarg);
    }
    for (int i = optind; i < argc && !rc; i++)
        if ((rc = add_caption(&w, argv[i], "caption", &err)))
            fprintf(stderr, "potluck generate: %s\n", err.text);
    rc = rc ? 2 : run(&w);
    for (size_t i = 0; i < w.count; i++) free(w.caption[i]);
    free(w.caption);
    return rc;
}
