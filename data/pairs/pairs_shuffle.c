/* pairs_shuffle.c - the data pipeline of one peer: read rows of shards, drop those that the filter
 * refuses, tokenize captions, and pick at random from a shuffle buffer. Each pair given is replaced
 * by the next row read. */
#include "pairs_internal.h"

#include <stdlib.h>
#include <string.h>

/* random streams of the seed: which pair leaves the buffer, */
#define RNG_PICKS (UINT64_C(0x7069636b) << 32)
#define RNG_ORDER (UINT64_C(0x6f726465) << 32) /* and the order of shards, which adds the epoch */
/* longer ones are truncated before tokenizing: T is a few hundred tokens */
#define CAPTION_BYTES_MAX (1u << 20)

static int compare_text(const void *a, const void *b)
{
    const struct text *x = a, *y = b;
    int d = memcmp(x->bytes, y->bytes, x->length < y->length ? x->length : y->length);
    return d ? d : x->length < y->length ? -1 : x->length > y->length;
}

/* --- opening ------------------------------------------------------------------------------- */

static int check_options(const struct pairs_options *o, struct pl_err *err)
{
    if (!o->paths || o->paths > UINT32_MAX) return pl_fail(err, PL_EUSE, "no shards to read");
    if (o->text < 1 || o->cells < 1 || o->codes < 1 || o->codes > 1 << 15 ||
        o->buffer > PAIRS_BUFFER_MAX ||
        (o->open && (o->openers < 1 || o->openers > PAIRS_OPENERS_MAX)))
        return pl_fail(err, PL_EUSE, "%d tokens, %d codes of 0..%d, buffer of %zu: not usable",
                       o->text, o->cells, o->codes - 1, o->buffer);
    return PL_OK;
}

void pl_pairs_start_epoch(struct pairs *p)
{
    struct pl_rng rng;
    pl_rng_init(&rng, p->o.seed, RNG_ORDER + p->epoch);
    for (uint32_t i = 0; i < p->o.paths; i++) p->order[i] = i;
    for (uint32_t i = (uint32_t)p->o.paths; i > 1; i--) {
        uint32_t j = (uint32_t)pl_rng_below(&rng, i), x = p->order[i - 1];
        p->order[i - 1] = p->order[j];
        p->order[j] = x;
    }
    p->at_shard = 0;
    p->at_row = 0;
    memset(&p->now, 0, sizeof p->now);
    pl_shard_close(p->shard);
    p->shard = NULL;
}

static int copy_strings(struct pairs *p)
{
    for (size_t i = 0; i < p->o.paths; i++)
        if (!(p->name[i] = strdup(p->o.path[i]))) return PL_ENOMEM;
    for (size_t i = 0; i < p->o.excludes; i++, p->excludes++) {
        p->exclude[i].bytes = strdup(p->o.exclude[i]);
        if (!p->exclude[i].bytes) return PL_ENOMEM;
        p->exclude[i].length = strlen(p->o.exclude[i]);
    }
    qsort(p->exclude, p->excludes, sizeof *p->exclude, compare_text);
    return PL_OK;
}

int pl_pairs_open(struct pairs **out, const struct pairs_options *options, struct pl_err *err)
{
    struct pairs *p;
    size_t n;
    int rc = check_options(options, err);
    *out = NULL;
    if (rc) return rc;
    if (!(p = calloc(1, sizeof *p)))
        return pl_fail(err, PL_ENOMEM, "no memory for the data stream");
    p->o = *options;
    if (!p->o.buffer) p->o.buffer = PAIRS_BUFFER;
    n = p->o.buffer;
    p->name = calloc(p->o.paths, sizeof *p->name);
    p->rows = calloc(p->o.paths, sizeof *p->rows);
    p->first = calloc(p->o.paths, sizeof *p->first);
    p->order = calloc(p->o.paths, sizeof *p->order);
    p->exclude = calloc(p->o.excludes + 1, sizeof *p->exclude);
    p->slot = calloc(n, sizeof *p->slot);
    p->location = calloc(n, sizeof *p->location);
    p->tokens = pl_alloc(n, sizeof *p->tokens * (size_t)p->o.text);
    p->codes = pl_alloc(n, sizeof *p->codes * (size_t)p->o.cells);
    if (!p->name || !p->rows || !p->first || !p->order || !p->exclude || !p->slot || !p->location ||
        !p->tokens || !p->codes || copy_strings(p))
        rc = pl_fail(err, PL_ENOMEM, "no memory for a shuffle buffer of %zu pairs", n);
    if (!rc) rc = pl_pairs_count_rows(p, err);
    if (rc) {
        pl_pairs_close(p);
        return rc;
    }
    for (uint32_t i = 0; i < n; i++) p->slot[i] = i;
    pl_rng_init(&p->rng, p->o.seed, RNG_PICKS);
    pl_pairs_start_epoch(p);
    *out = p;
    return PL_OK;
}

const char *pl_pairs_codec(const struct pairs *p) { return p->codec; }

void pl_pairs_close(struct pairs *p)
{
    if (!p) return;
    pl_shard_close(p->shard);
    for (size_t i = 0; p->name && i < p->o.paths; i++) free(p->name[i]);
    for (size_t i = 0; i < p->excludes; i++) free(p->exclude[i].bytes);
    free(p->name);
    free(p->rows);
    free(p->first);
    free(p->order);
    free(p->exclude);
    free(p->slot);
    free(p->location);
    pl_free(p->tokens);
    pl_free(p->codes);
    free(p);
}

/* --- filter -------------------------------------------------------------------------------- */

/* Counts characters: bytes that do not continue a UTF-8 sequence. */
static size_t characters(const char *text, size_t n)
{
    size_t count = 0;
    for (size_t i = 0; i < n; i++) count += ((unsigned char)text[i] & 0xc0) != 0x80;
    return count;
}

static int held_out(const struct pairs *p, const struct shard_row *row)
{
    const struct text key = { (char *)(uintptr_t)row->caption, row->caption_bytes };
    return bsearch(&key, p->exclude, p->excludes, sizeof key, compare_text) != NULL;
}

uint64_t *pl_pairs_failed_rule(const struct pairs *p, const struct shard_row *row,
                               struct pairs_counts *counts)
{
    double w = row->width, h = row->height;
    if (!row->caption || characters(row->caption, row->caption_bytes) < PAIRS_CAPTION_CHARACTERS)
        return &counts->caption;
    if (!row->nsfw || row->nsfw_bytes != 8 || memcmp(row->nsfw, "UNLIKELY", 8))
        return &counts->nsfw;
    if (!(w > 0 && h > 0 && w <= PAIRS_ASPECT_MAX * h && h <= PAIRS_ASPECT_MAX * w))
        return &counts->aspect;
    if (!row->code) return &counts->no_code;
    return (p->excludes && held_out(p, row)) != p->o.only_excluded ? &counts->held_out : NULL;
}

int pl_pairs_within_limit(uint64_t row, uint64_t limit, uint64_t total)
{
    if (!limit || limit >= total) return 1;
    /* floor(row * limit / total) is the number of chosen rows before this one */
    return (row + 1) * limit / total != row * limit / total;
}

/* --- the buffer ---------------------------------------------------------------------------- */

int pl_pairs_fill_slot(struct pairs *p, uint32_t slot, uint32_t shard, uint64_t at,
                       const struct shard_row *row, struct pl_err *err)
{
    int32_t *tokens = p->tokens + (size_t)slot * (size_t)p->o.text;
    uint16_t *codes = p->codes + (size_t)slot * (size_t)p->o.cells;
    size_t used,
        n = row->caption_bytes < CAPTION_BYTES_MAX ? row->caption_bytes : CAPTION_BYTES_MAX;
    int rc;
    if (row->code_bytes != 2 * (size_t)p->o.cells)
        return pl_fail(
            err, PL_EFORMAT,
            "%s: row %llu: code of %zu bytes; %d codes of 2 bytes were expected, one for "
            "each image token of the model (potluck prepare --side makes fewer or more)",
            p->name[shard], (unsigned long long)at, row->code_bytes, p->o.cells);
    for (size_t i = 0; i < (size_t)p->o.cells; i++) {
        int code = shard_code(row->code, i);
        if (code < 0 || code >= p->o.codes)
            return pl_fail(err, PL_EFORMAT, "%s: row %llu: code[%zu] is %d; 0 to %d were expected",
                           p->name[shard], (unsigned long long)at, i, code, p->o.codes - 1);
        codes[i] = (uint16_t)code;
    }
    rc = pl_unigram_encode(tokens, (size_t)p->o.text, &used, p->o.tokenizer, row->caption, n,
                           UNIGRAM_TRANSFORMERS);
    if (rc)
        return pl_fail(err, rc, "%s: row %llu: caption: %s", p->name[shard], (unsigned long long)at,
                       pl_status_name(rc));
    for (size_t i = used; i < (size_t)p->o.text; i++) tokens[i] = p->o.pad;
    p->location[slot] = (struct pair_location){ shard, at };
    return PL_OK;
}

/* Adds the next row that passes the filter to the buffer; PL_ENOTFOUND at the end of the epoch. */
static int read_one(struct pairs *p, struct pl_err *err)
{
    for (;; p->at_shard++, p->at_row = 0) {
        uint32_t shard;
        int rc;
        if (p->at_shard == p->o.paths) return PL_ENOTFOUND;
        shard = p->order[p->at_shard];
        if (!p->shard) {
            if ((rc = pl_pairs_open_shard(&p->shard, p, 0, shard, err))) return rc;
            if (pl_shard_rows(p->shard) != p->rows[shard])
                return pl_fail(err, PL_EFORMAT, "%s: has changed while it was being read",
                               p->name[shard]);
            if ((rc = pl_shard_seek(p->shard, p->at_row, err))) return rc;
        }
        while (p->at_row < p->rows[shard]) {
            struct shard_row row;
            uint64_t at = p->at_row++, *dropped;
            if ((rc = pl_shard_next(p->shard, &row, err))) return rc;
            if (!pl_pairs_within_limit(p->first[shard] + at, p->o.limit, p->total)) continue;
            p->now.rows++;
            if ((dropped = pl_pairs_failed_rule(p, &row, &p->now))) {
                ++*dropped;
                continue;
            }
            p->now.used++;
            if ((rc = pl_pairs_fill_slot(p, p->slot[p->count], shard, at, &row, err))) return rc;
            p->count++;
            return PL_OK;
        }
        pl_shard_close(p->shard);
        p->shard = NULL;
    }
}

int pl_pairs_next(struct pairs *p, int32_t *tokens, int32_t *codes, struct pl_err *err)
{
    int rc = PL_OK;
    size_t pick;
    uint32_t slot;
    while (p->count < p->o.buffer && !(rc = read_one(p, err))) {}
    if (rc && rc != PL_ENOTFOUND) return rc;
    if (!p->count) { /* the epoch is over: start the next one */
        if (!p->now.used)
            return pl_fail(err, PL_ENOTFOUND,
                           "no pair of %llu is left: %llu captions too short, "
                           "%llu not NSFW UNLIKELY, %llu too long or wide, %llu without code, %llu "
                           "held out",
                           (unsigned long long)p->now.rows, (unsigned long long)p->now.caption,
                           (unsigned long long)p->now.nsfw, (unsigned long long)p->now.aspect,
                           (unsigned long long)p->now.no_code, (unsigned long long)p->now.held_out);
        p->epoch++;
        p->last = p->now;
        pl_pairs_start_epoch(p);
        return pl_pairs_next(p, tokens, codes, err);
    }
    pick = (size_t)pl_rng_below(&p->rng, p->count);
    slot = p->slot[pick];
    memcpy(tokens, p->tokens + (size_t)slot * (size_t)p->o.text,
           sizeof *tokens * (size_t)p->o.text);
    for (size_t i = 0; i < (size_t)p->o.cells; i++)
        codes[i] = p->codes[(size_t)slot * (size_t)p->o.cells + i];
    p->slot[pick] = p->slot[--p->count];
    p->slot[p->count] = slot;
    p->given++;
    return PL_OK;
}
