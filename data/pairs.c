/* pairs.c - see pairs.h. The position of a shuffled stream is its buffer's content, kept as places
 * (shard, row); going on from a saved one reads just those rows again, not the data before them. */
#include "pairs.h"
#include "shard.h"
#include "../ref/rng.h"

#include <assert.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define RNG_PICKS (UINT64_C(0x7069636b) << 32)  /* streams of the seed: which pair leaves the buffer, */
#define RNG_ORDER (UINT64_C(0x6f726465) << 32)  /* and the order of shards, plus the epoch */
#define CAPTION_BYTES_MAX (1u << 20) /* longer captions are cut before tokenizing: T is a few hundred */

struct text {
    char *bytes;
    size_t length;
};

struct pairs {
    struct pairs_options o;
    char **name;        /* of the shards */
    uint64_t *rows;     /* rows of each */
    uint64_t *first;    /* rows in all shards before it */
    uint64_t total;
    struct text *without; /* sorted */
    size_t withouts;
    uint32_t *order;    /* of this epoch */
    struct shard *shard; /* the one being read, or NULL */
    uint64_t given, epoch, at_row;
    uint32_t at_shard;
    struct pl_rng rng;
    struct pairs_counts now, last;
    size_t count;       /* pairs in the buffer: slots slot[0 .. count-1] are in use */
    uint32_t *slot;
    struct pairs_place *place; /* by slot, as are the next two */
    int32_t *tokens;
    uint16_t *codes;
};

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
        o->buffer > PAIRS_BUFFER_MAX)
        return pl_fail(err, PL_EUSE, "%d tokens, %d codes of 0..%d, buffer of %zu: not usable",
                       o->text, o->cells, o->codes - 1, o->buffer);
    return PL_OK;
}

static int open_shard(struct shard **out, const struct pairs *p, size_t index, struct pl_err *err)
{
    struct pl_source *source;
    int rc;
    if (!p->o.open) return shard_open(out, p->name[index], err);
    *out = NULL;
    rc = p->o.open(p->o.open_context, &source, p->name[index], err);
    return rc ? rc : shard_open_source(out, source, err);
}

static int count_rows(struct pairs *p, struct pl_err *err)
{
    for (size_t i = 0; i < p->o.paths; i++) {
        struct shard *s;
        int rc = open_shard(&s, p, i, err);
        if (rc) return rc;
        p->rows[i] = shard_rows(s);
        p->first[i] = p->total;
        p->total += p->rows[i];
        shard_close(s);
    }
    if (p->o.limit >= p->total) p->o.limit = 0;
    if (p->o.limit && p->total > UINT32_MAX) /* pairs_within_limit multiplies them */
        return pl_fail(err, PL_ELIMIT,
                       "a limit of rows works for at most %lu, the shards hold %llu",
                       (unsigned long)UINT32_MAX, (unsigned long long)p->total);
    return PL_OK;
}

static void start_epoch(struct pairs *p)
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
    shard_close(p->shard);
    p->shard = NULL;
}

static int copy_strings(struct pairs *p)
{
    for (size_t i = 0; i < p->o.paths; i++)
        if (!(p->name[i] = strdup(p->o.path[i]))) return PL_ENOMEM;
    for (size_t i = 0; i < p->o.withouts; i++, p->withouts++) {
        p->without[i].bytes = strdup(p->o.without[i]);
        if (!p->without[i].bytes) return PL_ENOMEM;
        p->without[i].length = strlen(p->o.without[i]);
    }
    qsort(p->without, p->withouts, sizeof *p->without, compare_text);
    return PL_OK;
}

int pairs_open(struct pairs **out, const struct pairs_options *options, struct pl_err *err)
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
    p->without = calloc(p->o.withouts + 1, sizeof *p->without);
    p->slot = calloc(n, sizeof *p->slot);
    p->place = calloc(n, sizeof *p->place);
    p->tokens = pl_alloc(n, sizeof *p->tokens * (size_t)p->o.text);
    p->codes = pl_alloc(n, sizeof *p->codes * (size_t)p->o.cells);
    if (!p->name || !p->rows || !p->first || !p->order || !p->without || !p->slot || !p->place ||
        !p->tokens || !p->codes || copy_strings(p))
        rc = pl_fail(err, PL_ENOMEM, "no memory for a shuffle buffer of %zu pairs", n);
    if (!rc) rc = count_rows(p, err);
    if (rc) {
        pairs_close(p);
        return rc;
    }
    for (uint32_t i = 0; i < n; i++) p->slot[i] = i;
    pl_rng_init(&p->rng, p->o.seed, RNG_PICKS);
    start_epoch(p);
    *out = p;
    return PL_OK;
}

void pairs_close(struct pairs *p)
{
    if (!p) return;
    shard_close(p->shard);
    for (size_t i = 0; p->name && i < p->o.paths; i++) free(p->name[i]);
    for (size_t i = 0; i < p->withouts; i++) free(p->without[i].bytes);
    free(p->name);
    free(p->rows);
    free(p->first);
    free(p->order);
    free(p->without);
    free(p->slot);
    free(p->place);
    pl_free(p->tokens);
    pl_free(p->codes);
    free(p);
}

/* --- filter -------------------------------------------------------------------------------- */

/* Characters, not bytes: whatever does not continue one. */
static size_t characters(const char *text, size_t n)
{
    size_t count = 0;
    for (size_t i = 0; i < n; i++) count += ((unsigned char)text[i] & 0xc0) != 0x80;
    return count;
}

static int held_out(const struct pairs *p, const struct shard_row *row)
{
    const struct text key = { (char *)(uintptr_t)row->caption, row->caption_bytes };
    return bsearch(&key, p->without, p->withouts, sizeof key, compare_text) != NULL;
}

/* The counter of the first rule that the row breaks, or NULL. */
static uint64_t *broken_rule(const struct pairs *p, const struct shard_row *row,
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
    return (p->withouts && held_out(p, row)) != p->o.only_without ? &counts->held_out : NULL;
}

int pairs_within_limit(uint64_t row, uint64_t limit, uint64_t total)
{
    if (!limit || limit >= total) return 1;
    return (row + 1) * limit / total != row * limit / total;
}

/* --- the buffer ---------------------------------------------------------------------------- */

static int fill_slot(struct pairs *p, uint32_t slot, uint32_t shard, uint64_t at,
                     const struct shard_row *row, struct pl_err *err)
{
    int32_t *tokens = p->tokens + (size_t)slot * (size_t)p->o.text;
    uint16_t *codes = p->codes + (size_t)slot * (size_t)p->o.cells;
    size_t used,
        n = row->caption_bytes < CAPTION_BYTES_MAX ? row->caption_bytes : CAPTION_BYTES_MAX;
    int rc;
    if (row->code_bytes != 2 * (size_t)p->o.cells)
        return pl_fail(err, PL_EFORMAT, "%s: row %llu: code of %zu bytes; %d codes of 2 bytes were "
                       "expected", p->name[shard], (unsigned long long)at, row->code_bytes,
                       p->o.cells);
    for (size_t i = 0; i < (size_t)p->o.cells; i++) {
        int code = shard_code(row->code, i);
        if (code < 0 || code >= p->o.codes)
            return pl_fail(err, PL_EFORMAT, "%s: row %llu: code[%zu] is %d; 0 to %d were expected",
                           p->name[shard], (unsigned long long)at, i, code, p->o.codes - 1);
        codes[i] = (uint16_t)code;
    }
    rc = unigram_encode(tokens, (size_t)p->o.text, &used, p->o.tokenizer, row->caption, n,
                        UNIGRAM_TRANSFORMERS);
    if (rc)
        return pl_fail(err, rc, "%s: row %llu: caption: %s", p->name[shard], (unsigned long long)at,
                       pl_status_name(rc));
    for (size_t i = used; i < (size_t)p->o.text; i++) tokens[i] = p->o.pad;
    p->place[slot] = (struct pairs_place){ shard, at };
    return PL_OK;
}

/* Adds the next row that passes to the buffer; PL_ENOTFOUND at the epoch's end. */
static int read_one(struct pairs *p, struct pl_err *err)
{
    for (;; p->at_shard++, p->at_row = 0) {
        uint32_t shard;
        int rc;
        if (p->at_shard == p->o.paths) return PL_ENOTFOUND;
        shard = p->order[p->at_shard];
        if (!p->shard) {
            if ((rc = open_shard(&p->shard, p, shard, err))) return rc;
            if (shard_rows(p->shard) != p->rows[shard])
                return pl_fail(err, PL_EFORMAT, "%s: has changed while it was being read",
                               p->name[shard]);
            if ((rc = shard_seek(p->shard, p->at_row, err))) return rc;
        }
        while (p->at_row < p->rows[shard]) {
            struct shard_row row;
            uint64_t at = p->at_row++, *dropped;
            if ((rc = shard_next(p->shard, &row, err))) return rc;
            if (!pairs_within_limit(p->first[shard] + at, p->o.limit, p->total)) continue;
            p->now.rows++;
            if ((dropped = broken_rule(p, &row, &p->now))) {
                ++*dropped;
                continue;
            }
            p->now.used++;
            if ((rc = fill_slot(p, p->slot[p->count], shard, at, &row, err))) return rc;
            p->count++;
            return PL_OK;
        }
        shard_close(p->shard);
        p->shard = NULL;
    }
}

int pairs_next(struct pairs *p, int32_t *tokens, int32_t *codes, struct pl_err *err)
{
    int rc = PL_OK;
    size_t pick;
    uint32_t slot;
    while (p->count < p->o.buffer && !(rc = read_one(p, err))) {}
    if (rc && rc != PL_ENOTFOUND) return rc;
    if (!p->count) { /* the epoch is over: begin another */
        if (!p->now.used)
            return pl_fail(err, PL_ENOTFOUND, "no pair of %llu is left: %llu captions too short, "
                           "%llu not NSFW UNLIKELY, %llu too long or wide, %llu without code, %llu "
                           "held out", (unsigned long long)p->now.rows,
                           (unsigned long long)p->now.caption, (unsigned long long)p->now.nsfw,
                           (unsigned long long)p->now.aspect, (unsigned long long)p->now.no_code,
                           (unsigned long long)p->now.held_out);
        p->epoch++;
        p->last = p->now;
        start_epoch(p);
        return pairs_next(p, tokens, codes, err);
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

/* --- position ------------------------------------------------------------------------------ */

int pairs_where(const struct pairs *p, struct pairs_position *position)
{
    struct pairs_place *place = realloc(position->place, p->o.buffer * sizeof *place);
    if (!place) return PL_ENOMEM;
    *position = (struct pairs_position){ .given = p->given, .epoch = p->epoch,
        .at_shard = p->at_shard, .at_row = p->at_row, .now = p->now, .last = p->last,
        .count = p->count, .place = place };
    memcpy(position->rng, p->rng.s, sizeof position->rng);
    for (size_t i = 0; i < p->count; i++) place[i] = p->place[p->slot[i]];
    return PL_OK;
}

void pairs_position_clear(struct pairs_position *position)
{
    free(position->place);
    memset(position, 0, sizeof *position);
}

static const char *base_name(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}

static json_t *save_counts(const struct pairs_counts *c)
{
    return json_pack("[I,I,I,I,I,I,I]", (json_int_t)c->rows, (json_int_t)c->used,
                     (json_int_t)c->caption, (json_int_t)c->nsfw, (json_int_t)c->aspect,
                     (json_int_t)c->no_code, (json_int_t)c->held_out);
}

/* What must be the same for a position to mean anything. */
static json_t *identity(const struct pairs *p)
{
    json_t *shards = json_array();
    for (size_t i = 0; i < p->o.paths; i++)
        if (json_array_append_new(shards, json_pack("[s,I]", base_name(p->name[i]),
                                                    (json_int_t)p->rows[i]))) {
            json_decref(shards);
            return NULL;
        }
    return json_pack("{s:o, s:I, s:I, s:I, s:I}", "shards", shards, "seed", (json_int_t)p->o.seed,
                     "buffer", (json_int_t)p->o.buffer, "limit", (json_int_t)p->o.limit, "held_out",
                     (json_int_t)p->withouts);
}

char *pairs_save(const struct pairs *p, const struct pairs_position *position)
{
    char rng[4 * 16 + 1];
    json_t *places = json_array(), *root;
    char *text;
    int failed = !places;
    snprintf(rng, sizeof rng, "%016llx%016llx%016llx%016llx", (unsigned long long)position->rng[0],
             (unsigned long long)position->rng[1], (unsigned long long)position->rng[2],
             (unsigned long long)position->rng[3]);
    for (size_t i = 0; !failed && i < position->count; i++) /* shard, row, shard, row, ... */
        failed = json_array_append_new(places, json_integer(position->place[i].shard)) ||
                 json_array_append_new(places, json_integer((json_int_t)position->place[i].row));
    if (failed) {
        json_decref(places);
        return NULL;
    }
    root = json_pack("{s:o, s:I, s:I, s:I, s:I, s:s, s:o, s:o, s:o}", "data", identity(p), "given",
                     (json_int_t)position->given, "epoch", (json_int_t)position->epoch, "at_shard",
                     (json_int_t)position->at_shard, "at_row", (json_int_t)position->at_row, "rng",
                     rng, "now", save_counts(&position->now), "last", save_counts(&position->last),
                     "places", places);
    text = root ? json_dumps(root, JSON_COMPACT | JSON_SORT_KEYS) : NULL;
    json_decref(root);
    return text;
}

static int load_count(const json_t *root, const char *key, uint64_t *out)
{
    const json_t *v = json_object_get(root, key);
    if (!json_is_integer(v) || json_integer_value(v) < 0) return 0;
    *out = (uint64_t)json_integer_value(v);
    return 1;
}

static int load_counts(const json_t *root, const char *key, struct pairs_counts *c)
{
    uint64_t *slot[] = { &c->rows, &c->used, &c->caption, &c->nsfw, &c->aspect, &c->no_code,
                         &c->held_out };
    const json_t *list = json_object_get(root, key);
    if (json_array_size(list) != PL_COUNT(slot)) return 0;
    for (size_t i = 0; i < PL_COUNT(slot); i++)
        *slot[i] = (uint64_t)json_integer_value(json_array_get(list, i));
    return 1;
}

static int load_rng(const json_t *root, struct pl_rng *rng)
{
    const char *text = json_string_value(json_object_get(root, "rng"));
    unsigned long long s[4];
    if (!text || strlen(text) != 64 ||
        sscanf(text, "%16llx%16llx%16llx%16llx", &s[0], &s[1], &s[2], &s[3]) != 4)
        return 0;
    for (int i = 0; i < 4; i++) rng->s[i] = s[i];
    return 1;
}

/* A pair of the saved buffer, to be read again. */
struct want {
    struct pairs_place place;
    uint32_t slot;
};

static int compare_want(const void *a, const void *b)
{
    const struct want *x = a, *y = b;
    if (x->place.shard != y->place.shard) return x->place.shard < y->place.shard ? -1 : 1;
    return x->place.row < y->place.row ? -1 : x->place.row > y->place.row;
}

static int load_want(const struct pairs *p, const json_t *places, struct want *want, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        const json_t *at = json_array_get(places, 2 * i), *in = json_array_get(places, 2 * i + 1);
        json_int_t shard = json_integer_value(at), row = json_integer_value(in);
        if (!json_is_integer(at) || !json_is_integer(in) || shard < 0 ||
            (uint64_t)shard >= p->o.paths || row < 0 || (uint64_t)row >= p->rows[shard])
            return 0;
        want[i] = (struct want){ { (uint32_t)shard, (uint64_t)row }, (uint32_t)i };
    }
    qsort(want, n, sizeof *want, compare_want);
    return 1;
}

static int refill(struct pairs *p, const struct want *want, size_t n, struct pl_err *err)
{
    struct shard *s = NULL;
    int rc = PL_OK;
    for (size_t i = 0; !rc && i < n; i++) {
        uint32_t shard = want[i].place.shard;
        struct pairs_counts ignored;
        struct shard_row row;
        if (!s || want[i - 1].place.shard != shard) {
            shard_close(s);
            if ((rc = open_shard(&s, p, shard, err))) break;
        }
        rc = shard_seek(s, want[i].place.row, err);
        if (!rc) rc = shard_next(s, &row, err);
        if (!rc && broken_rule(p, &row, &ignored))
            rc = pl_fail(err, PL_EUSE, "%s: row %llu was used when the position was saved and is "
                         "now filtered: the data or the held-out captions have changed",
                         p->name[shard], (unsigned long long)want[i].place.row);
        if (!rc) rc = fill_slot(p, want[i].slot, shard, want[i].place.row, &row, err);
    }
    shard_close(s);
    return rc;
}

int pairs_restore(struct pairs *p, const char *json, struct pl_err *err)
{
    static const char malformed[] = "data position: malformed";
    json_t *root = json_loads(json, 0, NULL), *places, *same = identity(p);
    struct want *want = NULL;
    uint64_t at_shard, at_row, epoch, given;
    size_t n;
    int rc = PL_OK;
    if (!root || !load_count(root, "given", &given) || !load_count(root, "epoch", &epoch) ||
        !load_count(root, "at_shard", &at_shard) || !load_count(root, "at_row", &at_row) ||
        !load_rng(root, &p->rng)) {
        rc = pl_fail(err, PL_EFORMAT, malformed);
        goto done;
    }
    if (!same || !json_equal(same, json_object_get(root, "data"))) {
        rc = pl_fail(err, PL_EUSE, "data position: saved for other shards, seed, buffer, limit or "
                     "held-out captions");
        goto done;
    }
    places = json_object_get(root, "places");
    n = json_array_size(places) / 2;
    p->epoch = epoch;
    start_epoch(p);
    if (!json_is_array(places) || n > p->o.buffer || json_array_size(places) % 2 ||
        at_shard > p->o.paths ||
        (at_shard < p->o.paths ? at_row > p->rows[p->order[at_shard]] : at_row) ||
        !load_counts(root, "now", &p->now) || !load_counts(root, "last", &p->last)) {
        rc = pl_fail(err, PL_EFORMAT, malformed);
        goto done;
    }
    want = malloc((n + 1) * sizeof *want);
    if (!want) {
        rc = pl_fail(err, PL_ENOMEM, "no memory for a position of %zu pairs", n);
        goto done;
    }
    if (!load_want(p, places, want, n)) {
        rc = pl_fail(err, PL_EFORMAT, malformed);
        goto done;
    }
    for (uint32_t i = 0; i < p->o.buffer; i++) p->slot[i] = i;
    if ((rc = refill(p, want, n, err))) goto done;
    p->given = given;
    p->at_shard = (uint32_t)at_shard;
    p->at_row = at_row;
    p->count = n;
done:
    free(want);
    json_decref(same);
    json_decref(root);
    return rc;
}
