/* pairs_position.c - saves and restores the position of a stream of pairs. The position of a
 * shuffled stream is its buffer's content, stored as a list of (shard, row): restoring it reads
 * just those rows again, not the data before them. */
#include "pairs_internal.h"
#include "data/files/json.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int pl_pairs_position(const struct pairs *p, struct pairs_position *position)
{
    struct pair_location *location = realloc(position->location, p->o.buffer * sizeof *location);
    if (!location) return PL_ENOMEM;
    *position = (struct pairs_position){ .given = p->given,
                                         .epoch = p->epoch,
                                         .at_shard = p->at_shard,
                                         .at_row = p->at_row,
                                         .now = p->now,
                                         .last = p->last,
                                         .count = p->count,
                                         .location = location };
    memcpy(position->rng, p->rng.s, sizeof position->rng);
    for (size_t i = 0; i < p->count; i++) location[i] = p->location[p->slot[i]];
    return PL_OK;
}

void pl_pairs_position_clear(struct pairs_position *position)
{
    free(position->location);
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

/* Values that must be equal for a position to be valid. */
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
                     (json_int_t)p->excludes);
}

char *pl_pairs_save(const struct pairs *p, const struct pairs_position *position)
{
    char rng[4 * 16 + 1];
    json_t *locations, *root;
    char *text;
    pl_json_begin();
    locations = json_array();
    snprintf(rng, sizeof rng, "%016llx%016llx%016llx%016llx", (unsigned long long)position->rng[0],
             (unsigned long long)position->rng[1], (unsigned long long)position->rng[2],
             (unsigned long long)position->rng[3]);
    for (size_t i = 0; i < position->count; i++) { /* shard, row, shard, row, ... */
        json_array_append_new(locations, json_integer(position->location[i].shard));
        json_array_append_new(locations, json_integer((json_int_t)position->location[i].row));
    }
    root = json_pack("{s:o, s:I, s:I, s:I, s:I, s:s, s:o, s:o, s:o}", "data", identity(p), "given",
                     (json_int_t)position->given, "epoch", (json_int_t)position->epoch, "at_shard",
                     (json_int_t)position->at_shard, "at_row", (json_int_t)position->at_row, "rng",
                     rng, "now", save_counts(&position->now), "last", save_counts(&position->last),
                     "places", locations);
    text = pl_json_text(root, JSON_COMPACT | JSON_SORT_KEYS);
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
    uint64_t *slot[] = { &c->rows,   &c->used,    &c->caption, &c->nsfw,
                         &c->aspect, &c->no_code, &c->held_out };
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
    struct pair_location location;
    uint32_t slot;
};

static int compare_want(const void *a, const void *b)
{
    const struct want *x = a, *y = b;
    if (x->location.shard != y->location.shard)
        return x->location.shard < y->location.shard ? -1 : 1;
    return x->location.row < y->location.row ? -1 : x->location.row > y->location.row;
}

static int load_want(const struct pairs *p, const json_t *locations, struct want *want, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        const json_t *at = json_array_get(locations, 2 * i),
                     *in = json_array_get(locations, 2 * i + 1);
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
        uint32_t shard = want[i].location.shard;
        struct pairs_counts ignored;
        struct shard_row row;
        if (!s || want[i - 1].location.shard != shard) {
            pl_shard_close(s);
            if ((rc = pl_pairs_open_shard(&s, p, 0, shard, err))) break;
        }
        rc = pl_shard_seek(s, want[i].location.row, err);
        if (!rc) rc = pl_shard_next(s, &row, err);
        if (!rc && pl_pairs_failed_rule(p, &row, &ignored))
            rc = pl_fail(err, PL_EUSE,
                         "%s: row %llu was used when the position was saved and is "
                         "now filtered: the data or the held-out captions have changed",
                         p->name[shard], (unsigned long long)want[i].location.row);
        if (!rc) rc = pl_pairs_fill_slot(p, want[i].slot, shard, want[i].location.row, &row, err);
    }
    pl_shard_close(s);
    return rc;
}

int pl_pairs_restore(struct pairs *p, const char *json, struct pl_err *err)
{
    static const char malformed[] = "data position: malformed";
    json_t *root = pl_json_load(json, strlen(json), 0, NULL), *locations, *same = identity(p);
    struct want *want = NULL;
    uint64_t at_shard = 0, at_row = 0, epoch = 0, given = 0;
    size_t n;
    int rc = PL_OK;
    if (!same || !root)
        rc = pl_fail(err, same ? pl_json_status() : PL_ENOMEM, "data position: %s",
                     same && pl_json_status() == PL_EFORMAT ? "malformed" : "no memory");
    else if (!load_count(root, "given", &given) || !load_count(root, "epoch", &epoch) ||
             !load_count(root, "at_shard", &at_shard) || !load_count(root, "at_row", &at_row) ||
             !load_rng(root, &p->rng))
        rc = pl_fail(err, PL_EFORMAT, malformed);
    else if (!json_equal(same, json_object_get(root, "data")))
        rc = pl_fail(err, PL_EUSE,
                     "data position: saved for other shards, seed, buffer, limit or "
                     "held-out captions");
    if (rc) goto done;
    locations = json_object_get(root, "places");
    n = json_array_size(locations) / 2;
    p->epoch = epoch;
    pl_pairs_start_epoch(p);
    if (!json_is_array(locations) || n > p->o.buffer || json_array_size(locations) % 2 ||
        at_shard > p->o.paths ||
        (at_shard < p->o.paths ? at_row > p->rows[p->order[at_shard]] : at_row) ||
        !load_counts(root, "now", &p->now) || !load_counts(root, "last", &p->last))
        rc = pl_fail(err, PL_EFORMAT, malformed);
    else if (!(want = malloc((n + 1) * sizeof *want)))
        rc = pl_fail(err, PL_ENOMEM, "no memory for a position of %zu pairs", n);
    else if (!load_want(p, locations, want, n)) rc = pl_fail(err, PL_EFORMAT, malformed);
    if (rc) goto done;
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
