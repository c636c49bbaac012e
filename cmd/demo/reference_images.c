/* reference_images.c - reads captions and image tokens of all pairs, decodes the images once, and
 * finds the nearest one by squared differences of pixels. */
#include "reference_images.h"
#include "data/pairs/pairs.h"
#include "data/pairs/shard.h"
#include "ref/small.h"

#include <stdlib.h>
#include <string.h>

#define REFERENCE_IMAGES_MAX 100000 /* pictures kept in memory: 1.2 GB at 64 x 64 */

static int usable(const struct shard_row *row, size_t cells)
{
    double a = row->width, b = row->height;
    return row->caption && row->caption_bytes >= PAIRS_CAPTION_CHARACTERS && row->code &&
           row->code_bytes == 2 * cells && row->nsfw && row->nsfw_bytes == 8 &&
           !memcmp(row->nsfw, "UNLIKELY", 8) && a > 0 && b > 0 && a <= PAIRS_ASPECT_MAX * b &&
           b <= PAIRS_ASPECT_MAX * a;
}

static int grow(struct reference_images *g, size_t *capacity)
{
    size_t of_captions = *capacity, of_codes = *capacity, of_marks = *capacity;
    if (pl_grow(&g->caption, g->count, &of_captions, 1024) ||
        pl_grow_array(&g->codes, g->count, 1, &of_codes, 1024, g->cells * sizeof *g->codes) ||
        pl_grow(&g->held_out, g->count, &of_marks, 1024))
        return PL_ENOMEM;
    return pl_grow(&g->row, g->count, capacity, 1024);
}

static int add_shard(struct reference_images *g, size_t *capacity, const char *path,
                     const char *const *without, size_t without_count, struct pl_err *err)
{
    struct shard *s;
    struct shard_row row;
    int rc = pl_shard_open(&s, path, err);
    if (rc) return rc;
    while (!rc && !(rc = pl_shard_next(s, &row, err))) {
        char *caption;
        uint64_t at = g->rows++;
        if (!usable(&row, g->cells)) continue;
        if (g->count == REFERENCE_IMAGES_MAX)
            rc = pl_fail(err, PL_ELIMIT, "%s: more than %d pairs", path, REFERENCE_IMAGES_MAX);
        else if (g->count == *capacity && grow(g, capacity))
            rc = pl_fail(err, PL_ENOMEM, "%s: no memory", path);
        if (rc) break;
        if (!(caption = strndup(row.caption, row.caption_bytes))) {
            rc = pl_fail(err, PL_ENOMEM, "%s: no memory", path);
            break;
        }
        g->caption[g->count] = caption;
        g->held_out[g->count] = 0;
        g->row[g->count] = at;
        for (size_t i = 0; i < without_count; i++)
            if (!strcmp(without[i], caption)) g->held_out[g->count] = 1;
        for (size_t i = 0; i < g->cells; i++)
            g->codes[g->count * g->cells + i] = shard_code(row.code, i);
        g->count++;
    }
    pl_shard_close(s);
    return rc == PL_ENOTFOUND ? PL_OK : rc;
}

int reference_images_open(struct reference_images *g, const char *const *shard, size_t shards,
                          const char *const *without, size_t without_count, int cells,
                          struct pl_err *err)
{
    size_t capacity = 0;
    int rc = PL_OK;
    memset(g, 0, sizeof *g);
    g->cells = (size_t)cells;
    for (size_t i = 0; i < shards && !rc; i++)
        rc = add_shard(g, &capacity, shard[i], without, without_count, err);
    if (!rc && !g->count) rc = pl_fail(err, PL_ENOTFOUND, "no usable pair in the shards");
    if (rc) reference_images_close(g);
    return rc;
}

/* Pair i becomes pair *kept, or goes. */
static void keep_if(struct reference_images *g, size_t *kept, size_t i, int wanted)
{
    size_t to = *kept;
    if (!wanted) {
        free(g->caption[i]);
        return;
    }
    g->caption[to] = g->caption[i];
    g->held_out[to] = g->held_out[i];
    g->row[to] = g->row[i];
    memmove(g->codes + to * g->cells, g->codes + i * g->cells, g->cells * sizeof *g->codes);
    ++*kept;
}

void reference_images_limit(struct reference_images *g, uint64_t limit)
{
    size_t kept = 0;
    for (size_t i = 0; i < g->count; i++)
        keep_if(g, &kept, i, g->held_out[i] || pl_pairs_within_limit(g->row[i], limit, g->rows));
    g->count = kept;
}

static int is_one_of(const char *text, char *const *list, size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (!strcmp(text, list[i])) return 1;
    return 0;
}

void reference_images_thin(struct reference_images *g, size_t most, char *const *caption,
                           size_t captions)
{
    size_t kept = 0, spread = 0; /* of those that are evenly spread, the next */
    for (size_t i = 0; i < g->count; i++) {
        int due = spread < most && i == spread * g->count / most;
        spread += (size_t)due;
        keep_if(g, &kept, i, due || is_one_of(g->caption[i], caption, captions));
    }
    g->count = kept;
}

int reference_images_decode(struct reference_images *g, struct image_sampler *p, struct pl_err *err)
{
    g->picture = calloc(g->count, sizeof *g->picture);
    if (!g->picture) return pl_fail(err, PL_ENOMEM, "no memory for %zu pictures", g->count);
    return image_sampler_decode(p, g->picture, g->codes, (int)g->count, err);
}

void reference_images_close(struct reference_images *g)
{
    for (size_t i = 0; i < g->count; i++) {
        free(g->caption[i]);
        if (g->picture) pl_image_clear(&g->picture[i]);
    }
    free(g->caption);
    free(g->codes);
    free(g->held_out);
    free(g->row);
    free(g->picture);
    memset(g, 0, sizeof *g);
}

size_t reference_images_find(const struct reference_images *g, const char *caption)
{
    size_t i = 0;
    while (i < g->count && strcmp(g->caption[i], caption)) i++;
    return i;
}

/* The sum of squared differences, or something above `most`. */
static uint64_t distance(const struct pl_image *a, const struct pl_image *b, uint64_t most)
{
    size_t line = 3 * (size_t)a->width, n = line * (size_t)a->height;
    uint64_t sum = 0;
    for (size_t at = 0; at < n && sum <= most; at += line) {
        uint32_t of_line = 0; /* 3 * width * 255^2: no overflow below 22,000 pixels */
        for (size_t k = at; k < at + line; k++) {
            int d = a->pixels[k] - b->pixels[k];
            of_line += (uint32_t)(d * d);
        }
        sum += of_line;
    }
    return sum;
}

size_t reference_images_nearest(const struct reference_images *g, const struct pl_image *drawn,
                                size_t own)
{
    size_t best = own;
    uint64_t least = distance(drawn, &g->picture[own],
                              UINT64_MAX); /* often the nearest: begin there */
    for (size_t i = 0; i < g->count; i++) {
        uint64_t sum = distance(drawn, &g->picture[i], least);
        if (sum < least) {
            least = sum;
            best = i;
        }
    }
    return best;
}
