/* prepare.c - `potluck prepare`: pictures with captions into shards of codes. */
#include "cmd.h"
#include "cmd/common/interrupt.h"
#include "cmd/common/compute.h"
#include "cmd/common/progress_line.h"
#include "data/files/file.h"
#include "data/pairs/prepare.h"
#include "data/models/vqgan_file.h"
#include "../runtime/models.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <zlib.h>

static const char usage[] =
    "usage: potluck prepare --data PATH --codec FILE --out DIR [OPTION ...]\n"
    "\n"
    "Encodes pictures by a VQGAN and writes them, with their captions, as shards: Parquet files that\n"
    "`potluck train` streams. Run it again after an interruption and it goes on.\n"
    "\n"
    "  --data PATH      a list of lines 'picture<TAB>caption'; or a folder with captions.tsv, or with\n"
    "                   metadata.jsonl, or of pictures (PNG, JPEG, WebP) with name.txt beside name.png;\n"
    "                   or a tar archive or Parquet file, or a folder of them, as img2dataset makes them\n"
    "  --codec FILE     the VQGAN's weights, of any kind that `potluck vqgan` reads\n"
    "  --out DIR        where the shards go; made if it is not there\n"
    "  --stem NAME      of the shards' names (default: shard)\n"
    "  --side N         pixels a picture is resized to: short side, then the centre square\n"
    "                   (default: the codec's own resolution)\n"
    "  --rows N         pictures a shard (default 10000)\n"
    "  --batch N        pictures encoded at once (default 16)\n"
    "  --quality N      Brotli's, 0 to 11 (default 5)\n"
    "  --nsfw WORD      what the NSFW column says (default UNLIKELY, the only word that the run's\n"
    "                   filter keeps)\n" COMPUTE_USAGE;

#define CODEC_FILE_MAX (1u << 30) /* bytes: the official model has 280 MB */
#define BROKEN_SHOWN 20           /* lines about broken pictures; the others are only counted */

struct options {
    const char *data, *codec, *out, *stem, *nsfw;
    int64_t side, rows, batch, quality;
    struct compute compute;
};

struct view {
    struct progress progress;
    size_t total; /* entries of the list */
};

/* The shards lie in --out, nowhere else. */
static int check_stem(const char **stem, const char *text)
{
    *stem = text;
    if (*text && *text != '.' && !strchr(text, '/')) return 0;
    fprintf(stderr,
            "potluck prepare: --stem %s: expected a file's name without a folder or a leading "
            "dot\n",
            text);
    return 1;
}

static int parse(struct options *o, int argc, char **argv)
{
    static const struct option options[] = {
        { "data", required_argument, NULL, 'd' },
        { "codec", required_argument, NULL, 'c' },
        { "out", required_argument, NULL, 'o' },
        { "stem", required_argument, NULL, 'S' },
        { "side", required_argument, NULL, 's' },
        { "rows", required_argument, NULL, 'r' },
        { "batch", required_argument, NULL, 'b' },
        { "quality", required_argument, NULL, 'q' },
        { "nsfw", required_argument, NULL, 'n' },
        { "help", no_argument, NULL, 'h' },
        COMPUTE_OPTIONS,
        { 0 },
    };
    int c, bad = 0;
    while (!bad && (c = getopt_long(argc, argv, "h", options, NULL)) != -1) {
        switch (c) {
        case 'd': o->data = optarg; break;
        case 'c': o->codec = optarg; break;
        case 'o': o->out = optarg; break;
        case 'S': bad = check_stem(&o->stem, optarg); break;
        case 'n': o->nsfw = optarg; break;
        case 's': bad = cmd_integer(&o->side, "prepare", "--side", optarg, 1, 4096); break;
        case 'r': bad = cmd_integer(&o->rows, "prepare", "--rows", optarg, 1, 10000000); break;
        case 'b': bad = cmd_integer(&o->batch, "prepare", "--batch", optarg, 1, 1024); break;
        case 'q': bad = cmd_integer(&o->quality, "prepare", "--quality", optarg, 0, 11); break;
        case 'h': fputs(usage, stdout); exit(0);
        default: bad = compute_option(&o->compute, "prepare", c, optarg) == 1 ? 0 : PL_EUSE;
        }
    }
    if (bad || cmd_no_more("prepare", argc, argv)) return PL_EUSE;
    if (!o->data || !o->codec || !o->out)
        return cmd_misused("prepare", "--data, --codec and --out are needed");
    return PL_OK;
}

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
    progress_show(&v->progress, c->entries == v->total,
                  "%zu of %zu pictures, %zu broken, %.1f a second, %s left", c->entries, v->total,
                  c->broken, rate,
                  progress_time(left, rate > 0 ? (double)(v->total - c->entries) / rate : 0));
    return interrupted();
}

/* What tells one codec's weights from another's. */
static int identify(char text[16], const char *path, struct pl_err *err)
{
    void *data;
    size_t bytes;
    int rc = pl_file_read(&data, &bytes, path, CODEC_FILE_MAX, err);
    if (rc) return rc;
    snprintf(text, 16, "%08lx", (unsigned long)crc32_z(crc32(0, NULL, 0), data, bytes));
    free(data);
    return PL_OK;
}

static void report(const struct prepare_counts *c, const char *out)
{
    printf("%zu pictures in %zu shards of %s (%zu found complete); %zu broken ones left out\n",
           c->encoded, c->shards, out, c->found, c->broken);
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
    char id[16];
    struct prepare_options p = { .folder = o->out,
                                 .stem = o->stem,
                                 .codec = id,
                                 .nsfw = o->nsfw,
                                 .side = o->side ? (int)o->side : codec->config.resolution,
                                 .batch = (int)o->batch,
                                 .rows = (size_t)o->rows,
                                 .quality = (int)o->quality };
    int rc = identify(id, o->codec, err);
    if (rc) return rc;
    if ((rc = pl_folder_make(o->out, err))) return rc;
    if (list->uncaptioned)
        printf("%zu pictures without a caption (none, empty, or not UTF-8) are left out\n",
               list->uncaptioned);
    interrupt_catch(NULL);
    progress_begin(&v.progress, 0);
    rc = pl_prepare_shards(&counts, codec, list, &p, watch, &v, err);
    progress_end(&v.progress);
    if (rc == PL_EAGAIN)
        pl_fail(err, rc, "stopped after %zu shards; the same command goes on from there",
                counts.shards);
    if (rc == PL_ENOTFOUND)
        pl_fail(err, rc, "%s: none of the first %zu pictures can be read", o->data, counts.entries);
    if (!rc) report(&counts, o->out);
    return rc;
}

int cmd_prepare(int argc, char **argv)
{
    struct options o = {
        .stem = "shard", .nsfw = "UNLIKELY", .rows = 10000, .batch = 16, .quality = 5
    };
    struct captions list = { 0 };
    struct pl_backend be;
    struct pl_vqgan codec;
    struct pl_err err;
    int rc;
    if (parse(&o, argc, argv)) return 2;
    if (compute_open(&be, &o.compute, "prepare")) return 1;
    rc = pl_captions_read(&list, o.data, &err);
    if (!rc && (rc = pl_vqgan_open(&codec, o.codec, &be, 0, &err)))
        compute_explain(&err, rc, &be, 0, NULL);
    else if (!rc) {
        rc = run(&o, &codec, &list, &err);
        compute_explain(&err, rc, &be, o.batch, "a smaller --side");
        pl_vqgan_clear(&codec);
    }
    pl_captions_clear(&list);
    if (rc) fprintf(stderr, "potluck prepare: %s\n", err.text);
    return rc != 0;
}
