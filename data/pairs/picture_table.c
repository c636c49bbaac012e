/* picture_table.c - reads captions and pictures from Parquet columns. Cursors of the text columns
 * advance together; the picture column has a cursor of its own, so that captions can be listed
 * without decompressing pictures. */
#include "picture_table.h"
#include "data/parquet/parquet_read.h"

#include <stdlib.h>
#include <string.h>

enum text_column { CAPTION, KEY, STATUS, TEXT_COLUMNS };

struct picture_table {
    struct pl_source *source;
    struct parquet *file;
    int picture, text[TEXT_COLUMNS]; /* column numbers; -1: no such column */
    /* the next row of pl_picture_table_next */
    size_t group;
    uint64_t row, left; /* row number in the file; rows left in the open row group */
    struct parquet_cursor *cursor[TEXT_COLUMNS];
    /* the next one of pl_picture_table_picture */
    /* of the file; the end of the row group whose cursor is open */
    uint64_t picture_row, picture_end;
    struct parquet_cursor *pictures;
};

/* The first of these columns with binary values. */
static int find_bytes(const struct parquet *p, const char *const *names)
{
    for (; *names; names++) {
        int i = pl_parquet_find(p, *names);
        if (i >= 0 && p->column[i].type == PARQUET_BYTES) return i;
    }
    return -1;
}

int pl_picture_table_open(struct picture_table **out, const char *path, struct pl_err *err)
{
    static const char *const pictures[] = { "jpg", "jpeg", "png", "webp", "image", NULL };
    static const char *const captions[] = { "caption", "text", "TEXT", NULL };
    static const char *const keys[] = { "key", NULL }, *const statuses[] = { "status", NULL };
    struct picture_table *t = calloc(1, sizeof *t);
    int rc;
    *out = NULL;
    if (!t) return pl_fail(err, PL_ENOMEM, "%s: no memory", path);
    if ((rc = pl_source_file(&t->source, path, err)) ||
        (rc = pl_parquet_open(&t->file, t->source, err)))
        goto done;
    t->picture = find_bytes(t->file, pictures);
    t->text[CAPTION] = find_bytes(t->file, captions);
    t->text[KEY] = find_bytes(t->file, keys);
    t->text[STATUS] = find_bytes(t->file, statuses);
    if (t->picture < 0 || t->text[CAPTION] < 0)
        rc = pl_fail(err, PL_ENOTFOUND, "%s: no column of %s", path,
                     t->picture < 0 ? "pictures (jpg, jpeg, png, webp or image)"
                                    : "captions (caption, text or TEXT)");
    if (!rc) *out = t;
done:
    if (rc) pl_picture_table_close(t);
    return rc;
}

static void close_texts(struct picture_table *t)
{
    for (int i = 0; i < TEXT_COLUMNS; i++) {
        pl_parquet_cursor_close(t->cursor[i]);
        t->cursor[i] = NULL;
    }
}

void pl_picture_table_close(struct picture_table *t)
{
    if (!t) return;
    close_texts(t);
    pl_parquet_cursor_close(t->pictures);
    pl_parquet_close(t->file);
    pl_source_close(t->source);
    free(t);
}

/* Opens the cursors of the next row group with rows. PL_ENOTFOUND: there is none. */
static int next_group(struct picture_table *t, struct pl_err *err)
{
    int rc = PL_OK;
    close_texts(t);
    while (t->group < t->file->groups && !t->file->group[t->group].rows) t->group++;
    if (t->group == t->file->groups) return PL_ENOTFOUND;
    for (int i = 0; !rc && i < TEXT_COLUMNS; i++)
        if (t->text[i] >= 0)
            rc = pl_parquet_cursor_open(&t->cursor[i], t->file, t->group, (size_t)t->text[i], err);
    if (!rc) t->left = t->file->group[t->group++].rows;
    return rc;
}

static int is_success(const struct parquet_value *v)
{
    return !v->null && v->length == 7 && !memcmp(v->bytes, "success", 7);
}

int pl_picture_table_next(struct picture_table *t, struct picture_row *row, struct pl_err *err)
{
    struct parquet_value v[TEXT_COLUMNS];
    do {
        int rc;
        if (!t->left && (rc = next_group(t, err))) return rc;
        memset(v, 0, sizeof v);
        for (int i = 0; i < TEXT_COLUMNS; i++)
            if (t->cursor[i] && (rc = pl_parquet_cursor_next(t->cursor[i], &v[i], err))) return rc;
        t->left--;
        t->row++;
    } while (t->cursor[STATUS] && !is_success(&v[STATUS]));
    *row = (struct picture_row){ t->row - 1, (const char *)v[CAPTION].bytes, v[CAPTION].length,
                                 (const char *)v[KEY].bytes, v[KEY].length };
    return PL_OK;
}

/* Opens the picture cursor of the row group that holds `row`, and sets the row it is at. */
static int open_pictures(struct picture_table *t, uint64_t row, struct pl_err *err)
{
    const struct parquet *p = t->file;
    uint64_t first = 0;
    size_t group = 0;
    int rc;
    if (t->pictures && row >= t->picture_row && row < t->picture_end) return PL_OK;
    pl_parquet_cursor_close(t->pictures);
    t->pictures = NULL;
    while (group < p->groups && row - first >= p->group[group].rows)
        first += p->group[group++].rows;
    if (group == p->groups)
        return pl_fail(err, PL_EUSE, "%s: row %llu of %llu", t->source->name,
                       (unsigned long long)row, (unsigned long long)p->rows);
    if ((rc = pl_parquet_cursor_open(&t->pictures, t->file, group, (size_t)t->picture, err)))
        return rc;
    t->picture_row = first;
    t->picture_end = first + p->group[group].rows;
    return PL_OK;
}

int pl_picture_table_picture(struct picture_table *t, uint64_t row, const uint8_t **data,
                             size_t *bytes, struct pl_err *err)
{
    struct parquet_value v;
    int rc = open_pictures(t, row, err);
    if (!rc) rc = pl_parquet_cursor_skip(t->pictures, row - t->picture_row, err);
    if (!rc) rc = pl_parquet_cursor_next(t->pictures, &v, err);
    if (rc) { /* the cursor's position is unknown now */
        pl_parquet_cursor_close(t->pictures);
        t->pictures = NULL;
        return rc;
    }
    t->picture_row = row + 1;
    if (v.null)
        return pl_fail(err, PL_EFORMAT, "%s: row %llu: no picture", t->source->name,
                       (unsigned long long)row);
    *data = v.bytes;
    *bytes = v.length;
    return PL_OK;
}
