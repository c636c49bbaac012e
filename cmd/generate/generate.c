/* generate.c - `potluck generate`: captions to pictures; what to draw, and with what. [TTT 3.4] */
#include "cmd/cmd.h"
#include "cmd/common/compute.h"
#include "generate_job.h"
#include "cmd/train/train_data.h"
#include "data/files/file.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char usage[] =
    "usage: potluck generate [--model PATH] [OPTION ...] CAPTION ...\n"
    "\n"
    "Draws pictures from captions: one PNG each, a contact sheet (a row a caption), and pictures.json\n"
    "with captions, codes and scores. The paper drew 128 a caption and kept CLIP's best 4:\n"
    "\n"
    "  potluck generate \"a beautiful sunset\" --n 128 --keep 4 --clip ViT-B-32.pt --top-k 256\n"
    "\n"
    "  --model PATH     a checkpoint, or a training's folder (default: out/demo)\n"
    "  --config C       sizes of a checkpoint that does not carry its own: run, middle, small, demo or a\n"
    "                   JSON file (default: run)\n"
    "  --tokenizer FILE spiece.model (default: the demo's)\n"
    "  --codec FILE     the VQGAN that decodes (default: the demo's)\n"
    "  --captions FILE  more captions, one a line\n"
    "  --out DIR        default: out/pictures\n"
    "  --n N            pictures a caption (default: 1)\n"
    "  --keep N         of them, those that CLIP finds best (default: all, best first)\n"
    "  --clip FILE      CLIP's weights: ViT-B-32.pt or another checkpoint of its kind\n"
    "  --clip-vocab F   its merge list (default: " RERANK_VOCAB " beside the weights)\n"
    "  --top-k N        draw among the N likeliest codes (default: 0, all; the paper: 256)\n"
    "  --top-p X        or among those that make up X of the probability (default: 1; the paper: 0.75)\n"
    "  --temperature X  below 1 more likely, above 1 more varied (default: 1)\n"
    "  --greedy         always the likeliest code\n"
    "  --nearest PATH   shards (a file or a folder): how many pictures are nearest to their own caption's\n"
    "                   picture among all of these; into nearest.json\n"
    "  --among N        of these N, evenly spread, beside the captions' own (default: 0, all)\n"
    "  --guidance X     classifier-free guidance (default: 1, none)\n"
    "  --seed N         default: 1\n"
    "  --batch N        pictures drawn at a time (default: 16)\n"
    "  --quiet          no progress\n" COMPUTE_USAGE;

#define CAPTION_MAX 4096 /* bytes; a model sees at most a few hundred tokens of them */
#define CAPTIONS_MAX 100000
#define FILE_MAX (64u << 20)

enum {
    O_MODEL = 1,
    O_TOKENIZER,
    O_CODEC,
    O_CAPTIONS,
    O_OUT,
    O_N,
    O_K,
    O_P,
    O_TEMPERATURE,
    O_GREEDY,
    O_GUIDANCE,
    O_SEED,
    O_BATCH,
    O_QUIET,
    O_KEEP,
    O_CLIP,
    O_VOCAB,
    O_CONFIG,
    O_NEAREST,
    O_AMONG
};

static const struct option options[] = {
    { "model", required_argument, NULL, O_MODEL },
    { "tokenizer", required_argument, NULL, O_TOKENIZER },
    { "codec", required_argument, NULL, O_CODEC },
    { "captions", required_argument, NULL, O_CAPTIONS },
    { "out", required_argument, NULL, O_OUT },
    { "n", required_argument, NULL, O_N },
    { "keep", required_argument, NULL, O_KEEP },
    { "clip", required_argument, NULL, O_CLIP },
    { "clip-vocab", required_argument, NULL, O_VOCAB },
    { "config", required_argument, NULL, O_CONFIG },
    { "top-k", required_argument, NULL, O_K },
    { "top-p", required_argument, NULL, O_P },
    { "temperature", required_argument, NULL, O_TEMPERATURE },
    { "greedy", no_argument, NULL, O_GREEDY },
    { "nearest", required_argument, NULL, O_NEAREST },
    { "among", required_argument, NULL, O_AMONG },
    { "guidance", required_argument, NULL, O_GUIDANCE },
    { "seed", required_argument, NULL, O_SEED },
    { "batch", required_argument, NULL, O_BATCH },
    { "quiet", no_argument, NULL, O_QUIET },
    COMPUTE_OPTIONS,
    { "help", no_argument, NULL, 'h' },
    { 0 },
};

struct requests {
    struct compute compute;
    const char *model, *config, *tokenizer, *codec, *clip, *vocab, *captions, *nearest;
    struct generate_job job;
    int64_t seed, batch, among;
};

static int take(struct requests *w, int option, const char *value)
{
    int64_t x = 0;
    int rc;
    switch (option) {
    case O_MODEL: w->model = value; return PL_OK;
    case O_TOKENIZER: w->tokenizer = value; return PL_OK;
    case O_CODEC: w->codec = value; return PL_OK;
    case O_CAPTIONS: w->captions = value; return PL_OK;
    case O_OUT: w->job.out = value; return PL_OK;
    case O_CLIP: w->clip = value; return PL_OK;
    case O_VOCAB: w->vocab = value; return PL_OK;
    case O_CONFIG: w->config = value; return PL_OK;
    case O_N: return cmd_integer(&w->job.n, "generate", "--n", value, 1, 100000);
    case O_KEEP: return cmd_integer(&w->job.keep, "generate", "--keep", value, 1, 100000);
    case O_K:
        rc = cmd_integer(&x, "generate", "--top-k", value, 0, INT_MAX);
        w->job.draw.sampling.top_k = (int)x;
        return rc;
    case O_P: return cmd_real(&w->job.draw.sampling.top_p, "generate", "--top-p", value, 0, 1);
    case O_TEMPERATURE:
        return cmd_real(&w->job.draw.sampling.temperature, "generate", "--temperature", value, 1e-3,
                        1e3);
    case O_NEAREST: w->nearest = value; return PL_OK;
    case O_AMONG: return cmd_integer(&w->among, "generate", "--among", value, 0, INT_MAX);
    case O_GREEDY: w->job.draw.greedy = 1; return PL_OK;
    case O_GUIDANCE:
        return cmd_real(&w->job.draw.guidance, "generate", "--guidance", value, -100, 100);
    case O_SEED: return cmd_integer(&w->seed, "generate", "--seed", value, 0, INT64_MAX);
    case O_BATCH: return cmd_integer(&w->batch, "generate", "--batch", value, 1, 4096);
    case O_QUIET: w->job.quiet = 1; return PL_OK;
    default: return compute_option(&w->compute, "generate", option, value) > 0 ? PL_OK : PL_EUSE;
    }
}

static int add_caption(struct requests *w, const char *text, const char *where, struct pl_err *err)
{
    size_t n = strlen(text);
    char **grown;
    if (n == 0 || n > CAPTION_MAX)
        return pl_fail(err, PL_ELIMIT, "%s: a caption of %zu bytes; expected 1 to %d", where, n,
                       CAPTION_MAX);
    if (w->job.count == CAPTIONS_MAX)
        return pl_fail(err, PL_ELIMIT, "%s: more than %d captions", where, CAPTIONS_MAX);
    grown = realloc(w->job.caption, (w->job.count + 1) * sizeof *grown);
    if (grown) w->job.caption = grown;
    if (!grown || !(grown[w->job.count] = strdup(text)))
        return pl_fail(err, PL_ENOMEM, "%s: no memory", where);
    w->job.count++;
    return PL_OK;
}

static int read_captions(struct requests *w, struct pl_err *err)
{
    char *text, *save = NULL;
    int rc = pl_file_read_text(&text, w->captions, FILE_MAX, err);
    if (rc) return rc;
    for (char *line = strtok_r(text, "\r\n", &save); line && !rc;
         line = strtok_r(NULL, "\r\n", &save))
        rc = add_caption(w, line, w->captions, err);
    free(text);
    return rc;
}

static int open_parts(struct requests *w, struct image_sampler *p, struct pl_rerank *rank,
                      const struct pl_backend *be, struct pl_err *err)
{
    char tokenizer[PATH_MAX + 64], codec[PATH_MAX + 64];
    int rc;
    train_data_demo(tokenizer, sizeof tokenizer, "t5_2k.model");
    train_data_demo(codec, sizeof codec, "codec.safetensors");
    rc = image_sampler_open(p, be, w->model, w->config, w->tokenizer ? w->tokenizer : tokenizer,
                            w->codec ? w->codec : codec, err);
    if (rc || !w->clip) return rc;
    if (!(rc = pl_rerank_open(rank, be, w->clip, w->vocab, err))) w->job.rank = rank;
    return rc;
}

/* What a perfect drawing of each caption in these shards would give. */
static int open_gallery(struct requests *w, struct reference_images *g, struct image_sampler *p,
                        struct pl_err *err)
{
    struct train_data data = { 0 };
    int F = p->model->config.F, rc = train_data_add(&data, w->nearest, err);
    if (!rc)
        rc = reference_images_open(g, (const char *const *)data.path, data.paths, NULL, 0, F * F,
                                   err);
    if (!rc && w->among && (size_t)w->among < g->count)
        reference_images_thin(g, (size_t)w->among, w->job.caption, w->job.count);
    if (!rc) rc = reference_images_decode(g, p, err);
    if (!rc) w->job.gallery = g;
    train_data_close(&data);
    return rc;
}

static int run(struct requests *w)
{
    struct generate_job *job = &w->job;
    struct pl_backend be;
    struct image_sampler p = { 0 };
    struct pl_rerank rank = { 0 };
    struct reference_images gallery = { 0 };
    struct pl_err err = { "" };
    int rc = PL_OK;
    if (compute_open(&be, &w->compute, "generate")) return 1;
    if (w->captions) rc = read_captions(w, &err);
    if (!rc && !job->count) rc = pl_fail(&err, PL_EUSE, "%s: no caption in it", w->captions);
    if (!rc && job->count * (uint64_t)job->n > 1000000)
        rc = pl_fail(&err, PL_ELIMIT, "more than a million pictures at once");
    if (!rc && ((rc = open_parts(w, &p, &rank, &be, &err)) ||
                (w->nearest && (rc = open_gallery(w, &gallery, &p, &err)))))
        compute_explain(&err, rc, &be, 0, NULL);
    if (!rc) rc = pl_folder_make(job->out, &err);
    if (!rc && !w->clip && job->keep && job->keep < job->n)
        printf("without CLIP (--clip) nobody can tell the best %lld of %lld: all are kept\n",
               (long long)job->keep, (long long)job->n);
    job->painter = &p;
    job->draw.seed = (uint64_t)w->seed;
    job->draw.batch = (int)w->batch;
    if (!rc) rc = generate_job_run(job, &err);
    if (rc) fprintf(stderr, "potluck generate: %s\n", err.text);
    pl_rerank_close(&rank);
    reference_images_close(&gallery);
    image_sampler_close(&p);
    return rc != 0;
}

int cmd_generate(int argc, char **argv)
{
    struct requests w = { .model = "out/demo",
                          .seed = 1,
                          .batch = 16,
                          .job = { .out = "out/pictures", .n = 1, .draw = pl_generate_options() } };
    struct pl_err err;
    const char *chance = NULL; /* a flag about draws */
    int option, rc = PL_OK;
    while (!rc && (option = getopt_long(argc, argv, "h", options, NULL)) != -1) {
        if (option == 'h') {
            fputs(usage, stdout);
            return 0;
        }
        if (option == O_TEMPERATURE) chance = "--temperature";
        if (option == O_K) chance = "--top-k";
        if (option == O_P) chance = "--top-p";
        rc = option == '?' ? PL_EUSE : take(&w, option, optarg);
    }
    for (int i = optind; i < argc && !rc; i++)
        if ((rc = add_caption(&w, argv[i], "caption", &err)))
            fprintf(stderr, "potluck generate: %s\n", err.text);
    if (!rc && !w.job.count && !w.captions) {
        fputs("potluck generate: no caption was given\n", stderr);
        rc = PL_EUSE;
    }
    if (!rc && w.job.draw.greedy && chance) {
        fprintf(stderr,
                "potluck generate: --greedy leaves nothing to chance: %s does not go with it\n",
                chance);
        rc = PL_EUSE;
    }
    rc = rc ? 2 : run(&w);
    for (size_t i = 0; i < w.job.count; i++) free(w.job.caption[i]);
    free(w.job.caption);
    return rc;
}
