/* prepare.c - `potluck prepare`: pictures with captions into shards of codes. */
#include "cmd.h"
#include "cmd/common/interrupt.h"
#include "cmd/common/compute.h"
#include "cmd/common/progress_line.h"
#include "cmd/common/outputs.h"
#include "cmd/common/plural.h"
#include "data/pairs/prepare.h"
#include "data/models/vqgan_file.h"
#include "../runtime/models.h"

#include <stdio.h>
#include <string.h>

#define BROKEN_SHOWN 20 /* lines about broken pictures; the others are only counted */

struct options {
    const char *data, *codec, *out, *stem, *nsfw;
    int64_t side, rows, batch, quality;
    struct compute compute;
};

struct view {
    struct progress progress;
    size_t total; /* entries of the list */
};

/* Shard names are file names in --out, never paths. */
static int take_stem(void *options, const char *name, const char *value, struct pl_err *err)
{
    ((struct options *)options)->stem = value;
    if (*value && *value != '.' && !strchr(value, '/')) return PL_OK;
    return pl_fail(err, PL_EUSE, "'%.80s' is not a file name without a folder or a leading dot",
                   value);
}

#define OPTIONS struct options
static const struct option_row rows[] = {
    { "data", "PATH", NULL, OPT_PATH(data),
      "the images: a list of lines 'image<TAB>caption'; a folder with captions.tsv or "
      "metadata.jsonl; a folder of images (PNG, JPEG, WebP) with name.txt next to name.png; or "
      "a tar archive or Parquet file as img2dataset writes them, or a folder of these" },
    { "codec", "FILE", NULL, OPT_PATH(codec),
      "VQGAN weights in any format that potluck vqgan reads" },
    { "out", "DIR", NULL, OPT_PATH(out), "folder for the shards, created if it is missing" },
    { "stem", "NAME", "shard", OPT_CALL(take_stem), "beginning of the shards' file names" },
    { "side", "N", NULL, OPT_INTEGER(side, 1, 4096),
      "pixels to which an image's shorter side is resized before the center is cropped to a "
      "square (default: the codec's own resolution)" },
    { "rows", "N", "10000", OPT_INTEGER(rows, 1, 10000000), "images per shard" },
    { "batch", "N", "16", OPT_INTEGER(batch, 1, 1024), "images encoded at a time" },
    { "quality", "N", "5", OPT_INTEGER(quality, 0, 11), "Brotli's quality, 0 to 11" },
    { "nsfw", "WORD", "UNLIKELY", OPT_TEXT(nsfw),
      "value of the NSFW column; the reference run's filter keeps only UNLIKELY" },
    { NULL, NULL, NULL, OPT_TABLE(compute, compute_rows), NULL },
    { 0 },
};

static int watch(void *context, const struct prepare_counts *c, const char *broken)
{
    struct view *v = context;
    double rate = (double)(c->entries - c->found_entries) / progress_elapsed(&v->progress);
    char left[24];
    if (broken) {
        if (c->broken <= BROKEN_SHOWN) {
            progress_end(&v->progress);
            fprintf(stderr, "left out: %s\n", broken);
        }
        return interrupted();
    }
    if (v->total) v->progress.done = (double)c->entries / (double)v->total;
    progress_show(&v->progress, c->entries == v->total,
                  "%zu of %zu pictures, %zu broken, %.1f a second, %s left", c->entries, v->total,
                  c->broken, rate,
                  progress_time(left, rate > 0 ? (double)(v->total - c->entries) / rate : 0));
    return interrupted();
}

static void report(const struct prepare_counts *c, const char *out)
{
    printf("%zu picture%s in %zu shard%s of %s (%zu found complete); %zu broken left out\n",
           c->encoded, PLURAL(c->encoded), c->shards, PLURAL(c->shards), out, c->found, c->broken);
    if (c->shard_bytes)
        printf("%.2f MB of pictures became %.3f MB of shards: %.1f times less to send\n",
               (double)c->picture_bytes / 1e6, (double)c->shard_bytes / 1e6,
               (double)c->picture_bytes / (double)c->shard_bytes);
}

static int run(const struct options *o, struct pl_vqgan *codec, struct captions *list,
               struct pl_err *err)
{
    struct view v = { .total = list->count };
    struct prepare_counts counts;
    char id[VQGAN_IDENTITY_SIZE];
    struct prepare_options p = { .folder = o->out,
                                 .stem = o->stem,
                                 .codec = id,
                                 .nsfw = o->nsfw,
                                 .side = o->side ? (int)o->side : codec->config.resolution,
                                 .batch = (int)o->batch,
                                 .rows = (size_t)o->rows,
                                 .quality = (int)o->quality };
    int rc = pl_vqgan_identity(id, o->codec, err);
    if (rc) return rc;
    if ((rc = outputs_take_folder(o->out, err))) return rc;
    if (list->uncaptioned)
        printf("%zu picture%s without a caption (none, empty, or not UTF-8) left out\n",
               list->uncaptioned, PLURAL(list->uncaptioned));
    interrupt_catch(NULL);
    progress_begin(&v.progress, 0);
    rc = pl_prepare_shards(&counts, codec, list, &p, watch, &v, err);
    progress_end(&v.progress);
    if (rc == PL_EAGAIN)
        pl_fail(err, rc, "stopped after %zu shards; the same command continues from there",
                counts.shards);
    if (rc == PL_ENOTFOUND)
        pl_fail(err, rc, "%s: cannot read any of the first %zu pictures", o->data, counts.entries);
    if (!rc) report(&counts, o->out);
    return rc;
}

static int run_prepare(int argc, char **argv)
{
    struct options o = { .side = 0 };
    struct captions list = { 0 };
    struct pl_backend be;
    struct pl_vqgan codec;
    struct pl_err err;
    int rc;
    if (options_parse(&command_prepare, &o, argc, argv, NULL, &rc)) return rc;
    if (!o.data || !o.codec || !o.out) {
        command_misused("prepare", "--data, --codec and --out are needed");
        return 2;
    }
    if (compute_open(&be, &o.compute, "prepare")) return 1;
    rc = outputs_check_folder(o.out, &err);
    if (!rc) rc = pl_captions_read(&list, o.data, &err);
    if (!rc && (rc = pl_vqgan_open(&codec, o.codec, &be, 0, &err)))
        compute_explain(&err, rc, &be, 0, NULL);
    else if (!rc) {
        rc = run(&o, &codec, &list, &err);
        compute_explain(&err, rc, &be, o.batch, "a smaller --side");
        pl_vqgan_clear(&codec);
    }
    pl_captions_clear(&list);
    if (rc) command_failed("prepare", "%s", err.text);
    return rc != 0;
}

const struct command command_prepare = {
    .name = "prepare",
    .summary = "encode images and their captions as shards for training",
    .synopsis = "--data PATH --codec FILE --out DIR [OPTION ...]",
    .about = "Encodes images with a VQGAN and writes them, with their captions, as shards: Parquet "
             "files that potluck train streams. After an interruption the same command continues.",
    .rows = rows,
    .run = run_prepare,
};
