/* generate.c - `potluck generate`: captions to pictures; options and files. [TTT 3.4] */
#include "cmd/cmd.h"
#include "cmd/common/compute.h"
#include "cmd/common/outputs.h"
#include "generate_job.h"
#include "cmd/train/train_data.h"
#include "data/files/file.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CAPTION_MAX 4096 /* bytes; a model sees at most a few hundred tokens of them */
#define CAPTIONS_MAX 100000
#define FILE_MAX (64u << 20)

struct requests {
    struct compute compute;
    const char *model, *config, *tokenizer, *codec, *clip, *vocab, *captions, *nearest;
    const char *sampled_by; /* an option that --greedy contradicts; NULL: none */
    struct generate_job job;
    int64_t among;
};

static int take_sampling(void *options, const char *name, const char *value, struct pl_err *err)
{
    struct requests *w = options;
    struct pl_sampling *s = &w->job.draw.sampling;
    int64_t k = 0;
    int rc;
    w->sampled_by = name;
    if (!strcmp(name, "top-p")) return option_real(&s->top_p, value, 0, 1, err);
    if (!strcmp(name, "temperature")) return option_real(&s->temperature, value, 1e-3, 1e3, err);
    rc = option_integer(&k, value, 0, INT_MAX, err);
    s->top_k = (int)k;
    return rc;
}

#define OPTIONS struct requests
static const struct option_row rows[] = {
    { "model", "PATH", "out/demo", OPT_PATH(model),
      "a checkpoint, or the output folder of potluck train" },
    { "config", "NAME|FILE", NULL, OPT_PATH_OR(config, train_configs),
      "sizes of a checkpoint that does not contain them: run, middle, small, demo or a JSON "
      "file (default: run)" },
    { "tokenizer", "FILE", NULL, OPT_PATH(tokenizer), "SentencePiece model (default: the demo's)" },
    { "codec", "FILE", NULL, OPT_PATH(codec),
      "VQGAN that decodes image tokens (default: the demo's)" },
    { "captions", "FILE", NULL, OPT_PATH(captions), "more captions, one per line" },
    { "out", "DIR", "out/pictures", OPT_PATH(job.out), "folder for the images" },
    { "n", "N", "1", OPT_INTEGER(job.n, 1, 100000), "images per caption" },
    { "keep", "N", NULL, OPT_INTEGER(job.keep, 1, 100000),
      "with --clip: write only the N images of each caption that CLIP scores highest (default: "
      "all, best first)" },
    { "clip", "FILE", NULL, OPT_PATH(clip),
      "CLIP weights: ViT-B-32.pt or another checkpoint of this kind" },
    { "clip-vocab", "FILE", NULL, OPT_PATH(vocab),
      "CLIP's merges (default: " RERANK_VOCAB " next to the weights)" },
    { "top-k", "N", NULL, OPT_CALL(take_sampling),
      "sample among the N most likely image tokens; 0 means all. The paper: 256 (default: 0)" },
    { "top-p", "X", NULL, OPT_CALL(take_sampling),
      "sample among the most likely image tokens that together have probability X. The paper: "
      "0.75 (default: 1)" },
    { "temperature", "X", NULL, OPT_CALL(take_sampling),
      "below 1, likely tokens become likelier; above 1, images vary more (default: 1)" },
    { "greedy", NULL, NULL, OPT_FLAG(job.draw.greedy), "always take the most likely image token" },
    { "guidance", "X", NULL, OPT_REAL(job.draw.guidance, -100, 100),
      "scale of classifier-free guidance (default: 1, none)" },
    { "nearest", "PATH", NULL, OPT_PATH(nearest),
      "a shard or a folder of shards with reference images: counts the images that are nearest "
      "to the reference image of their own caption, and writes nearest.json" },
    { "among", "N", NULL, OPT_INTEGER(among, 0, INT_MAX),
      "with --nearest: compare with only N reference images, evenly spread, and with those of "
      "the captions themselves; 0 means all (default: 0)" },
    { "seed", "N", "1", OPT_INTEGER(job.draw.seed, 0, INT64_MAX), "seed of the random source" },
    { "batch", "N", "16", OPT_INTEGER(job.draw.batch, 1, 4096), "images per batch" },
    { "quiet", NULL, NULL, OPT_FLAG(job.quiet), "print no progress" },
    { NULL, NULL, NULL, OPT_TABLE(compute, compute_rows), NULL },
    { 0 },
};

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

/* Opens the reference images: those that a perfect model would generate for the captions of these
 * shards. */
static int open_references(struct requests *w, struct reference_images *g, struct image_sampler *p,
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
    if (!rc) w->job.references = g;
    train_data_close(&data);
    return rc;
}

static int run(struct requests *w)
{
    struct generate_job *job = &w->job;
    struct pl_backend be;
    struct image_sampler p = { 0 };
    struct pl_rerank rank = { 0 };
    struct reference_images references = { 0 };
    struct pl_err err = { "" };
    int rc = PL_OK;
    if (compute_open(&be, &w->compute, "generate")) return 1;
    if (w->captions) rc = read_captions(w, &err);
    if (!rc && !job->count) rc = pl_fail(&err, PL_EUSE, "%s: no caption in it", w->captions);
    if (!rc && job->count * (uint64_t)job->n > 1000000)
        rc = pl_fail(&err, PL_ELIMIT, "more than a million pictures at once");
    if (!rc) rc = outputs_check_folder(job->out, &err);
    if (!rc && ((rc = open_parts(w, &p, &rank, &be, &err)) ||
                (w->nearest && (rc = open_references(w, &references, &p, &err)))))
        compute_explain(&err, rc, &be, 0, NULL);
    if (!rc) rc = pl_folder_make(job->out, &err);
    if (!rc && !w->clip && job->keep && job->keep < job->n)
        printf("without CLIP (--clip) the best %lld of %lld are not known: all are kept\n",
               (long long)job->keep, (long long)job->n);
    job->sampler = &p;
    if (!rc) rc = generate_job_run(job, &err);
    if (rc) command_failed("generate", "%s", err.text);
    pl_rerank_close(&rank);
    reference_images_close(&references);
    image_sampler_close(&p);
    return rc != 0;
}

static int run_generate(int argc, char **argv)
{
    struct requests w = { .job = { .draw = pl_generate_options() } };
    struct pl_err err;
    int words, status, rc = PL_OK, added = PL_OK;
    if (options_parse(&command_generate, &w, argc, argv, &words, &status)) return status;
    for (int i = 1; i <= words && !rc; i++)
        if ((rc = added = add_caption(&w, argv[i], "caption", &err)))
            command_failed("generate", "%s", err.text);
    if (!rc && !w.job.count && !w.captions)
        rc = command_misused("generate", "no caption was given");
    if (!rc && w.job.draw.greedy && w.sampled_by)
        rc = command_misused("generate", "--greedy samples nothing: --%s does not go with it",
                             w.sampled_by);
    status = added == PL_ENOMEM ? 1 : rc ? 2 : run(&w);
    for (size_t i = 0; i < w.job.count; i++) free(w.job.caption[i]);
    free(w.job.caption);
    return status;
}

const struct command command_generate = {
    .name = "generate",
    .summary = "draw images from captions",
    .synopsis = "[--model PATH] [OPTION ...] CAPTION ...",
    .about =
        "Draws images from captions. Writes one PNG for each image, a contact sheet with a row "
        "for each caption, and pictures.json with captions, image tokens and scores; with --clip "
        "also scores.svg, a sheet with the scores. The paper "
        "drew 128 images per caption and kept the 4 that CLIP scored highest:\n"
        "\n"
        "  potluck generate \"a beautiful sunset\" --n 128 --keep 4 --clip ViT-B-32.pt --top-k 256",
    .rows = rows,
    .run = run_generate,
};
