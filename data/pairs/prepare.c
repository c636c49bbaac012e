/* prepare.c - encodes pictures to image tokens and writes shards. Each shard has a fixed range of
 * the list's entries and a metadata entry that says what it was made from, so an interrupted run
 * continues without loss or repetition. */
#include "prepare.h"
#include "data/images/resize.h"
#include "shard.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>

#define ORIGIN_KEY "potluck" /* the metadata key that records how a shard was made */

struct job {
    const struct prepare_options *o;
    struct pl_vqgan *codec;
    struct captions *list;
    prepare_watch_fn *watch;
    void *context;
    struct prepare_counts *counts;
    size_t cells;        /* codes of a picture */
    float *pixels;       /* (batch,3,side,side) */
    int32_t *code;       /* (batch,cells) */
    uint8_t *bytes;      /* one row's code */
    int waiting;         /* pictures in the batch, */
    size_t *entry;       /* their entries of the list */
    int *width, *height; /* and original sizes */
};

/* --- one picture ---------------------------------------------------------------------------- */

static uint64_t file_bytes(const char *path)
{
    struct stat st;
    return stat(path, &st) ? 0 : (uint64_t)st.st_size;
}

/* Rotates by EXIF, converts to RGB over white, resizes the short side and crops the centre [spec
 * images-and-text 2.5]: unlike in CLIP's preprocessing, transparency is white. */
static int load_picture(struct job *j, size_t entry, struct pl_err *err)
{
    const char *path = j->list->path[entry];
    size_t side = (size_t)j->o->side;
    float *to = j->pixels + (size_t)j->waiting * 3 * side * side;
    struct pl_image image, square;
    uint64_t bytes;
    int rc = pl_captions_picture(&image, &bytes, j->list, entry, err);
    if (rc) return rc;
    if (pl_image_upright(&image)) {
        pl_image_clear(&image);
        return pl_fail(err, PL_ENOMEM, "%s: no memory", path);
    }
    j->entry[j->waiting] = entry;
    j->width[j->waiting] = image.width;
    j->height[j->waiting] = image.height;
    rc = pl_image_rgb(&image, PL_ALPHA_WHITE);
    if (!rc) rc = pl_resize_square(&square, &image, j->o->side, PL_BICUBIC);
    pl_image_clear(&image);
    if (rc) return pl_fail(err, rc, "%s: cannot be made square: %s", path, pl_status_name(rc));
    for (size_t c = 0; c < 3; c++)
        for (size_t i = 0; i < side * side; i++)
            to[c * side * side + i] = (float)square.pixels[3 * i + c] / 127.5f - 1;
    pl_image_clear(&square);
    j->waiting++;
    j->counts->picture_bytes += bytes;
    return PL_OK;
}

/* The file's name without folder and extension. */
static char *key_of(const char *path)
{
    const char *slash = strrchr(path, '/'), *name = slash ? slash + 1 : path;
    const char *dot = strrchr(name, '.');
    return strndup(name, dot ? (size_t)(dot - name) : strlen(name));
}

static int write_row(struct job *j, struct parquet_writer *w, int i, struct pl_err *err)
{
    const char *caption = j->list->caption[j->entry[i]];
    char *key = key_of(j->list->path[j->entry[i]]);
    struct shard_row row = { .caption = caption,
                             .caption_bytes = strlen(caption),
                             .key = key,
                             .nsfw = j->o->nsfw,
                             .nsfw_bytes = strlen(j->o->nsfw),
                             .width = j->width[i],
                             .height = j->height[i],
                             .code = j->bytes,
                             .code_bytes = 2 * j->cells };
    int rc;
    if (!key) return pl_fail(err, PL_ENOMEM, "no memory for a row");
    for (size_t k = 0; k < j->cells; k++) {
        int32_t code = j->code[(size_t)i * j->cells + k];
        j->bytes[2 * k] = (uint8_t)code;
        j->bytes[2 * k + 1] = (uint8_t)(code >> 8);
    }
    rc = pl_shard_writer_row(w, &row, err);
    free(key);
    return rc;
}

static int flush(struct job *j, struct parquet_writer *w, struct pl_err *err)
{
    int rc = PL_OK;
    if (j->waiting) {
        rc = pl_vqgan_encode(j->codec, j->code, NULL, j->pixels, NULL, j->waiting, j->o->side,
                             j->o->side);
        if (rc) return pl_fail(err, rc, "encoding %d pictures: %s", j->waiting, pl_status_name(rc));
    }
    for (int i = 0; !rc && i < j->waiting; i++) rc = write_row(j, w, i, err);
    j->counts->encoded += (size_t)j->waiting;
    j->waiting = 0;
    if (!rc && j->watch(j->context, j->counts, NULL)) rc = pl_fail(err, PL_EAGAIN, "stopped");
    return rc;
}

/* --- one shard ------------------------------------------------------------------------------ */

/* Everything that determines the shard's content. */
static int make_origin(char *text, size_t capacity, const struct job *j, size_t first, size_t end)
{
    unsigned long crc = crc32(0, NULL, 0);
    int side = pl_vqgan_codes(&j->codec->config, j->o->side);
    for (size_t i = first; i < end; i++) {
        const char *caption = j->list->caption[i];
        char *key = key_of(j->list->path[i]);
        if (!key) return PL_ENOMEM;
        crc = crc32(crc, (const Bytef *)key, (uInt)strlen(key) + 1);
        crc = crc32(crc, (const Bytef *)caption, (uInt)strlen(caption) + 1);
        free(key);
    }
    snprintf(text, capacity,
             "{\"side\": %d, \"grid\": %d, \"codes\": %d, \"codec\": \"%.40s\", "
             "\"first\": %zu, \"entries\": %zu, \"list\": \"%08lx\"}",
             j->o->side, side, j->codec->config.n_embed, j->o->codec, first, end - first, crc);
    return PL_OK;
}

/* PL_OK: the shard exists and was made in the same way. PL_ENOTFOUND: it does not exist. */
static int find_shard(struct job *j, const char *path, const char *origin, size_t entries,
                      struct pl_err *err)
{
    struct shard *s;
    const char *found;
    int rc;
    if (access(path, F_OK)) return PL_ENOTFOUND;
    if ((rc = pl_shard_open(&s, path, err))) return rc;
    found = pl_shard_meta(s, ORIGIN_KEY);
    if (!found || strcmp(found, origin) || pl_shard_rows(s) > entries)
        rc = pl_fail(err, PL_EUSE,
                     "%s: exists, made from other pictures or with other settings; remove it or "
                     "choose another folder",
                     path);
    else {
        j->counts->entries += entries;
        j->counts->encoded += (size_t)pl_shard_rows(s);
        j->counts->broken += entries - (size_t)pl_shard_rows(s);
        j->counts->found++;
        j->counts->found_entries += entries;
    }
    pl_shard_close(s);
    return rc;
}

static int write_shard(struct job *j, const char *path, const char *origin, size_t first,
                       size_t end, struct pl_err *err)
{
    struct parquet_writer *w;
    int rc = pl_shard_writer_open(&w, path, j->o->quality, err);
    if (rc) return rc;
    rc = pl_parquet_writer_meta(w, ORIGIN_KEY, origin, err);
    for (size_t i = first; !rc && i < end; i++) {
        struct pl_err why;
        int read = load_picture(j, i, &why);
        j->counts->entries++;
        if (read == PL_ENOMEM) rc = pl_fail(err, read, "%s", why.text);
        else if (read) {
            j->counts->broken++;
            if (j->watch(j->context, j->counts, why.text)) rc = pl_fail(err, PL_EAGAIN, "stopped");
        }
        if (!rc && j->waiting == j->o->batch) rc = flush(j, w, err);
    }
    if (!rc) rc = flush(j, w, err);
    if (!rc && !j->counts->encoded)
        rc = pl_fail(err, PL_ENOTFOUND, "cannot read any of the first %zu pictures", end);
    if (rc) {
        pl_parquet_writer_discard(w);
        return rc;
    }
    rc = pl_parquet_writer_close(w, err);
    j->counts->shard_bytes += file_bytes(path);
    return rc;
}

static int do_shard(struct job *j, size_t number, struct pl_err *err)
{
    size_t first = number * j->o->rows, end = first + j->o->rows;
    size_t capacity = strlen(j->o->folder) + strlen(j->o->stem) + 40;
    char origin[300], *path = malloc(capacity);
    int rc;
    if (!path) return pl_fail(err, PL_ENOMEM, "no memory for a shard's name");
    snprintf(path, capacity, "%s/%s-%05zu.parquet", j->o->folder, j->o->stem, number);
    if (first >= j->list->count) { /* beyond the last one */
        rc = access(path, F_OK)
                 ? PL_OK
                 : pl_fail(err, PL_EUSE, "%s: is left from a longer list; remove it", path);
        free(path);
        return rc;
    }
    if (end > j->list->count) end = j->list->count;
    rc = make_origin(origin, sizeof origin, j, first, end);
    if (rc) pl_fail(err, rc, "%s: no memory", path);
    else rc = find_shard(j, path, origin, end - first, err);
    if (rc == PL_ENOTFOUND) rc = write_shard(j, path, origin, first, end, err);
    if (!rc) j->counts->shards++;
    free(path);
    return rc;
}

int pl_prepare_shards(struct prepare_counts *counts, struct pl_vqgan *codec, struct captions *list,
                      const struct prepare_options *o, prepare_watch_fn *watch, void *context,
                      struct pl_err *err)
{
    struct job j = {
        .o = o, .codec = codec, .list = list, .watch = watch, .context = context, .counts = counts
    };
    int grid = pl_vqgan_codes(&codec->config, o->side), rc;
    size_t B = (size_t)o->batch, side = (size_t)o->side;
    *counts = (struct prepare_counts){ 0 };
    if (grid < 1 || o->side % pl_vqgan_factor(&codec->config) || codec->config.n_embed > 1 << 15)
        return pl_fail(err, PL_EUSE,
                       "pictures of %d pixels and a codec of factor %d with %d codes do "
                       "not fit shards of 16-bit codes",
                       o->side, pl_vqgan_factor(&codec->config), codec->config.n_embed);
    j.cells = (size_t)grid * (size_t)grid;
    j.pixels = pl_alloc(B, 3 * side * side * sizeof *j.pixels);
    j.code = pl_alloc(B, j.cells * sizeof *j.code);
    j.bytes = malloc(2 * j.cells);
    j.entry = calloc(B, sizeof *j.entry);
    j.width = calloc(B, sizeof *j.width);
    j.height = calloc(B, sizeof *j.height);
    rc = j.pixels && j.code && j.bytes && j.entry && j.width && j.height
             ? PL_OK
             : pl_fail(err, PL_ENOMEM, "no memory for %d pictures of %d pixels", o->batch, o->side);
    for (size_t i = 0; !rc && i <= (list->count + o->rows - 1) / o->rows; i++)
        rc = do_shard(&j, i, err);
    pl_free(j.pixels);
    pl_free(j.code);
    free(j.bytes);
    free(j.entry);
    free(j.width);
    free(j.height);
    return rc;
}
