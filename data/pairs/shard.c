/* shard.c - rows of image tokens and captions, read from and written to Parquet columns. */
#include "shard.h"
#include "data/files/json.h"

#include <stdlib.h>
#include <string.h>

enum { CAPTION, NSFW, WIDTH, HEIGHT, CODE, COLUMNS };

static const char *const names[COLUMNS] = { "caption", "NSFW", "original_width", "original_height",
                                            "code" };

struct shard {
    struct pl_source *source;
    struct parquet *table;
    int column[COLUMNS];
    size_t group;                           /* the row group of the cursors */
    uint64_t left;                          /* rows left in it */
    struct parquet_cursor *cursor[COLUMNS]; /* NULL: no group is open */
};

static void close_cursors(struct shard *s)
{
    for (int i = 0; i < COLUMNS; i++) {
        pl_parquet_cursor_close(s->cursor[i]);
        s->cursor[i] = NULL;
    }
}

static int open_group(struct shard *s, size_t group, struct pl_err *err)
{
    int rc = PL_OK;
    close_cursors(s);
    s->group = group;
    s->left = 0;
    for (int i = 0; !rc && i < COLUMNS; i++)
        rc = pl_parquet_cursor_open(&s->cursor[i], s->table, group, (size_t)s->column[i], err);
    if (!rc) s->left = s->table->group[group].rows;
    return rc;
}

/* Text and bytes must have that type; sizes may be any kind of number. */
static int find_columns(struct shard *s, struct pl_err *err)
{
    for (int i = 0; i < COLUMNS; i++) {
        int c = pl_parquet_find(s->table, names[i]), is_number = i == WIDTH || i == HEIGHT;
        enum parquet_type type;
        if (c < 0)
            return pl_fail(err, PL_EFORMAT,
                           "%s: no flat column '%s'; a shard has caption, NSFW, "
                           "original_width, original_height and code",
                           s->source->name, names[i]);
        type = s->table->column[c].type;
        if (is_number ? type != PARQUET_INT32 && type != PARQUET_INT64 && type != PARQUET_FLOAT &&
                            type != PARQUET_DOUBLE
                      : type != PARQUET_BYTES && !(i == CODE && type == PARQUET_FIXED))
            return pl_fail(err, PL_EFORMAT, "%s: column '%s' is %s; %s was expected",
                           s->source->name, names[i], pl_parquet_type_name(type),
                           is_number ? "a number" : "BYTE_ARRAY");
        s->column[i] = c;
    }
    return PL_OK;
}

int pl_shard_open_source(struct shard **out, struct pl_source *source, struct pl_err *err)
{
    struct shard *s = calloc(1, sizeof *s);
    int rc;
    *out = NULL;
    if (!s) {
        rc = pl_fail(err, PL_ENOMEM, "%s: no memory", source->name);
        pl_source_close(source);
        return rc;
    }
    s->source = source;
    rc = pl_parquet_open(&s->table, source, err);
    if (!rc) rc = find_columns(s, err);
    if (!rc) rc = pl_shard_seek(s, 0, err);
    if (rc) pl_shard_close(s);
    else *out = s;
    return rc;
}

int pl_shard_open(struct shard **out, const char *path, struct pl_err *err)
{
    struct pl_source *source;
    int rc = pl_source_file(&source, path, err);
    *out = NULL;
    return rc ? rc : pl_shard_open_source(out, source, err);
}

uint64_t pl_shard_rows(const struct shard *s) { return s->table->rows; }

const char *pl_shard_meta(const struct shard *s, const char *key)
{
    return pl_parquet_meta(s->table, key);
}

int pl_shard_codec(char codec[SHARD_CODEC_MAX + 1], const struct shard *s)
{
    const char *origin = pl_shard_meta(s, "potluck");
    json_t *root = origin ? pl_json_load(origin, strlen(origin), 0, NULL) : NULL;
    const char *name = json_string_value(json_object_get(root, "codec"));
    size_t n = name ? strlen(name) : 0;
    *codec = 0;
    if (origin && !root && pl_json_status() == PL_ENOMEM) return PL_ENOMEM;
    for (size_t i = 0; i < n; i++)
        if (name[i] <= ' ' || name[i] > '~') n = 0;
    if (n && n <= SHARD_CODEC_MAX) memcpy(codec, name, n + 1);
    json_decref(root);
    return PL_OK;
}

int pl_shard_seek(struct shard *s, uint64_t row, struct pl_err *err)
{
    uint64_t first = 0, at;
    size_t group = 0;
    int rc = PL_OK;
    if (row > s->table->rows)
        return pl_fail(err, PL_EUSE, "%s: row %llu of %llu", s->source->name,
                       (unsigned long long)row, (unsigned long long)s->table->rows);
    while (group < s->table->groups && row - first >= s->table->group[group].rows)
        first += s->table->group[group++].rows;
    if (group == s->table->groups) { /* the end */
        close_cursors(s);
        s->group = group;
        s->left = 0;
        return PL_OK;
    }
    /* row within the open group */
    at = s->cursor[0] ? s->table->group[s->group].rows - s->left : 0;
    if (!s->cursor[0] || s->group != group || row - first < at) {
        if ((rc = open_group(s, group, err))) return rc;
        at = 0;
    }
    for (int i = 0; !rc && i < COLUMNS; i++)
        rc = pl_parquet_cursor_skip(s->cursor[i], row - first - at, err);
    s->left -= row - first - at;
    return rc;
}

int pl_shard_next(struct shard *s, struct shard_row *row, struct pl_err *err)
{
    struct parquet_value v[COLUMNS];
    int rc;
    memset(row, 0, sizeof *row);
    while (!s->left) {
        if (s->group + 1 >= s->table->groups) return PL_ENOTFOUND;
        if ((rc = open_group(s, s->group + 1, err))) return rc;
    }
    for (int i = 0; i < COLUMNS; i++)
        if ((rc = pl_parquet_cursor_next(s->cursor[i], &v[i], err))) return rc;
    s->left--;
    if (!v[CAPTION].null) {
        row->caption = (const char *)v[CAPTION].bytes;
        row->caption_bytes = v[CAPTION].length;
    }
    if (!v[NSFW].null) {
        row->nsfw = (const char *)v[NSFW].bytes;
        row->nsfw_bytes = v[NSFW].length;
    }
    if (!v[CODE].null) {
        row->code = v[CODE].bytes;
        row->code_bytes = v[CODE].length;
    }
    row->width = v[WIDTH].real;
    row->height = v[HEIGHT].real;
    return PL_OK;
}

void pl_shard_close(struct shard *s)
{
    if (!s) return;
    close_cursors(s);
    pl_parquet_close(s->table);
    pl_source_close(s->source);
    free(s);
}

/* --- writing ---------------------------------------------------------------------------------- */

int pl_shard_writer_open(struct parquet_writer **out, const char *path, int quality,
                         struct pl_err *err)
{
    static const struct parquet_column columns[] = {
        { .name = (char *)"key", .type = PARQUET_BYTES, .text = 1 },
        { .name = (char *)"caption", .type = PARQUET_BYTES, .text = 1, .optional = 1 },
        { .name = (char *)"NSFW", .type = PARQUET_BYTES, .text = 1, .optional = 1 },
        { .name = (char *)"original_width", .type = PARQUET_INT32 },
        { .name = (char *)"original_height", .type = PARQUET_INT32 },
        { .name = (char *)"code", .type = PARQUET_BYTES, .optional = 1 },
    };
    const struct parquet_options options = { .codec = PL_CODEC_BROTLI, .level = quality };
    return pl_parquet_writer_open(out, path, columns, PL_COUNT(columns), &options, err);
}

int pl_shard_writer_row(struct parquet_writer *w, const struct shard_row *row, struct pl_err *err)
{
    const struct parquet_value v[] = {
        { .bytes = (const uint8_t *)(row->key ? row->key : ""),
          .length = row->key ? strlen(row->key) : 0 },
        { .null = !row->caption,
          .bytes = (const uint8_t *)row->caption,
          .length = row->caption_bytes },
        { .null = !row->nsfw, .bytes = (const uint8_t *)row->nsfw, .length = row->nsfw_bytes },
        { .integer = (int64_t)row->width },
        { .integer = (int64_t)row->height },
        { .null = !row->code, .bytes = row->code, .length = row->code_bytes },
    };
    return pl_parquet_writer_row(w, v, err);
}
