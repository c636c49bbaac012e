/* parquet_write.c - writes a Parquet file. A page is a small Thrift header, then, compressed: the
 * definition levels of an optional column (which values are not null), and the values one after the
 * other. Row groups are collected in memory; the footer is written last. */
#include "parquet_write.h"
#include "data/files/file.h"
#include "thrift.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>
#include <zlib.h>

#define GROUP_ROWS 8192
#define PAGE_BYTES (1u << 20)
#define VALUE_MAX (64u << 20) /* of one value; a page with it must stay readable */

enum { ENCODING_PLAIN = 0, ENCODING_RLE = 3 };

struct writer_column {
    struct parquet_column info;
    struct pl_buffer values, levels; /* the current page; a level is one byte here */
    size_t page_rows;
    struct pl_buffer chunk; /* finished pages of the current row group */
    uint64_t unpacked;      /* their size before compression, headers included */
};

struct written_chunk {
    uint64_t at, packed, unpacked, rows;
};

struct parquet_writer {
    struct pl_file_out file;
    struct parquet_options options;
    struct writer_column *column;
    size_t columns;
    size_t rows; /* of the current row group */
    uint64_t total_rows;
    struct pl_buffer done; /* struct written_chunk, one per column and row group */
    size_t groups;
    struct pl_buffer meta; /* metadata entries, already in Thrift */
    size_t metas;
};

int pl_parquet_writer_open(struct parquet_writer **out, const char *path,
                           const struct parquet_column *column, size_t columns,
                           const struct parquet_options *options, struct pl_err *err)
{
    struct parquet_writer *w = calloc(1, sizeof *w);
    int rc;
    *out = NULL;
    assert(columns);
    if (!w || !(w->column = calloc(columns, sizeof *w->column))) {
        free(w);
        return pl_fail(err, PL_ENOMEM, "%s: no memory", path);
    }
    w->options = *options;
    if (!w->options.group_rows) w->options.group_rows = GROUP_ROWS;
    if (!w->options.page_bytes) w->options.page_bytes = PAGE_BYTES;
    rc = pl_file_create(&w->file, path, err);
    for (; !rc && w->columns < columns; w->columns++) {
        struct writer_column *c = &w->column[w->columns];
        c->info = column[w->columns];
        assert(c->info.type == PARQUET_INT32 || c->info.type == PARQUET_INT64 ||
               c->info.type == PARQUET_DOUBLE || c->info.type == PARQUET_BYTES);
        if (!(c->info.name = strdup(c->info.name)))
            rc = pl_fail(err, PL_ENOMEM, "%s: no memory", path);
    }
    if (!rc) rc = pl_file_append(&w->file, "PAR1", 4, err);
    if (rc) pl_parquet_writer_discard(w);
    else *out = w;
    return rc;
}

int pl_parquet_writer_meta(struct parquet_writer *w, const char *key, const char *value,
                           struct pl_err *err)
{
    int last = 0;
    pl_thrift_put_string(&w->meta, &last, 1, key);
    pl_thrift_put_string(&w->meta, &last, 2, value);
    pl_thrift_put_stop(&w->meta);
    w->metas++;
    return w->meta.failed ? pl_fail(err, PL_ENOMEM, "%s: no memory", w->file.path) : PL_OK;
}

/* One run if all levels are equal, otherwise one bit-packed group. */
static void put_levels(struct pl_buffer *page, const struct pl_buffer *levels)
{
    struct pl_buffer runs = { 0 };
    size_t n = levels->bytes;
    if (!memchr(levels->data, !levels->data[0], n)) {
        pl_thrift_put_varint(&runs, n << 1);
        pl_buffer_byte(&runs, levels->data[0]);
    } else {
        pl_thrift_put_varint(&runs, (n + 7) / 8 << 1 | 1);
        for (size_t i = 0; i < n; i += 8) {
            unsigned bits = 0;
            for (size_t k = 0; k < 8 && i + k < n; k++) bits |= (unsigned)levels->data[i + k] << k;
            pl_buffer_byte(&runs, (uint8_t)bits);
        }
    }
    pl_buffer_le32(page, (uint32_t)runs.bytes);
    pl_buffer_add(page, runs.data, runs.bytes);
    page->failed |= runs.failed;
    pl_buffer_clear(&runs);
}

static void put_page_header(struct pl_buffer *b, size_t unpacked, size_t packed, uint32_t crc,
                            size_t rows)
{
    int last = 0, inner = 0;
    pl_thrift_put_i32(b, &last, 1, 0); /* a data page, version 1 */
    pl_thrift_put_i32(b, &last, 2, (int32_t)unpacked);
    pl_thrift_put_i32(b, &last, 3, (int32_t)packed);
    pl_thrift_put_i32(b, &last, 4, (int32_t)crc);
    pl_thrift_put_field(b, &last, 5, THRIFT_STRUCT);
    pl_thrift_put_i32(b, &inner, 1, (int32_t)rows);
    pl_thrift_put_i32(b, &inner, 2, ENCODING_PLAIN);
    pl_thrift_put_i32(b, &inner, 3, ENCODING_RLE);
    pl_thrift_put_i32(b, &inner, 4, ENCODING_RLE);
    pl_thrift_put_stop(b);
    pl_thrift_put_stop(b);
}

static int flush_page(struct parquet_writer *w, struct writer_column *c, struct pl_err *err)
{
    struct pl_buffer page = { 0 };
    void *packed = NULL;
    size_t bytes = 0, before = c->chunk.bytes;
    int rc = PL_ENOMEM;
    if (!c->page_rows) return PL_OK;
    if (c->levels.bytes) put_levels(&page, &c->levels);
    pl_buffer_add(&page, c->values.data, c->values.bytes);
    if (!page.failed && !c->values.failed && !c->levels.failed)
        rc = pl_page_codec_pack(&packed, &bytes, page.data, page.bytes, w->options.codec,
                                w->options.level);
    if (!rc) {
        put_page_header(&c->chunk, page.bytes, bytes, (uint32_t)crc32(0, packed, (uInt)bytes),
                        c->page_rows);
        c->unpacked += c->chunk.bytes - before + page.bytes;
        pl_buffer_add(&c->chunk, packed, bytes);
        if (c->chunk.failed) rc = PL_ENOMEM;
    }
    free(packed);
    pl_buffer_clear(&page);
    c->values.bytes = c->levels.bytes = c->page_rows = 0;
    return rc ? pl_fail(err, rc, "%s: cannot pack a page: %s", w->file.path, pl_status_name(rc))
              : PL_OK;
}

static int flush_group(struct parquet_writer *w, struct pl_err *err)
{
    int rc = PL_OK;
    if (!w->rows) return PL_OK;
    for (size_t i = 0; !rc && i < w->columns; i++) {
        struct writer_column *c = &w->column[i];
        struct written_chunk done;
        if ((rc = flush_page(w, c, err))) break;
        done = (struct written_chunk){ w->file.bytes, c->chunk.bytes, c->unpacked, w->rows };
        rc = pl_file_append(&w->file, c->chunk.data, c->chunk.bytes, err);
        pl_buffer_add(&w->done, &done, sizeof done);
        c->chunk.bytes = 0;
        c->unpacked = 0;
    }
    if (!rc && w->done.failed) rc = pl_fail(err, PL_ENOMEM, "%s: no memory", w->file.path);
    w->groups++;
    w->total_rows += w->rows;
    w->rows = 0;
    return rc;
}

static void put_value(struct writer_column *c, const struct parquet_value *v)
{
    uint64_t bits;
    if (c->info.optional) pl_buffer_byte(&c->levels, !v->null);
    if (v->null) return;
    switch (c->info.type) {
    case PARQUET_INT32: pl_buffer_le32(&c->values, (uint32_t)(int32_t)v->integer); break;
    case PARQUET_INT64:
    case PARQUET_DOUBLE:
        if (c->info.type == PARQUET_INT64) bits = (uint64_t)v->integer;
        else memcpy(&bits, &v->real, sizeof bits);
        pl_buffer_le32(&c->values, (uint32_t)bits);
        pl_buffer_le32(&c->values, (uint32_t)(bits >> 32));
        break;
    default:
        pl_buffer_le32(&c->values, (uint32_t)v->length);
        pl_buffer_add(&c->values, v->bytes, v->length);
    }
}

int pl_parquet_writer_row(struct parquet_writer *w, const struct parquet_value *row,
                          struct pl_err *err)
{
    for (size_t i = 0; i < w->columns; i++) {
        struct writer_column *c = &w->column[i];
        assert(!row[i].null || c->info.optional);
        if (row[i].length > VALUE_MAX)
            return pl_fail(err, PL_ELIMIT, "%s: column %.60s: a value of %zu bytes, at most %u",
                           w->file.path, c->info.name, row[i].length, VALUE_MAX);
        put_value(c, &row[i]);
        c->page_rows++;
        if (c->values.bytes >= w->options.page_bytes) {
            int rc = flush_page(w, c, err);
            if (rc) return rc;
        }
    }
    w->rows++;
    return w->rows >= w->options.group_rows ? flush_group(w, err) : PL_OK;
}

static void put_schema(struct pl_buffer *b, const struct parquet_writer *w)
{
    int last = 0;
    pl_thrift_put_string(b, &last, 4, "schema"); /* the root */
    pl_thrift_put_i32(b, &last, 5, (int32_t)w->columns);
    pl_thrift_put_stop(b);
    for (size_t i = 0; i < w->columns; i++) {
        const struct parquet_column *c = &w->column[i].info;
        last = 0;
        pl_thrift_put_i32(b, &last, 1, (int32_t)c->type);
        pl_thrift_put_i32(b, &last, 3, c->optional ? 1 : 0);
        pl_thrift_put_string(b, &last, 4, c->name);
        if (c->text) {
            int logical = 0;
            pl_thrift_put_i32(b, &last, 6, 0); /* UTF8, for older readers */
            pl_thrift_put_field(b, &last, 10, THRIFT_STRUCT);
            pl_thrift_put_field(b, &logical, 1, THRIFT_STRUCT); /* STRING: an empty struct */
            pl_thrift_put_stop(b);
            pl_thrift_put_stop(b);
        }
        pl_thrift_put_stop(b);
    }
}

static void put_chunk(struct pl_buffer *b, const struct parquet_writer *w,
                      const struct parquet_column *c, const struct written_chunk *done)
{
    int last = 0, meta = 0;
    pl_thrift_put_i64(b, &last, 2, (int64_t)done->at);
    pl_thrift_put_field(b, &last, 3, THRIFT_STRUCT);
    pl_thrift_put_i32(b, &meta, 1, (int32_t)c->type);
    pl_thrift_put_list(b, &meta, 2, THRIFT_I32, 2);
    pl_thrift_put_varint(b, ENCODING_PLAIN << 1);
    pl_thrift_put_varint(b, ENCODING_RLE << 1);
    pl_thrift_put_list(b, &meta, 3, THRIFT_BINARY, 1);
    pl_thrift_put_binary(b, c->name, strlen(c->name));
    pl_thrift_put_i32(b, &meta, 4, (int32_t)w->options.codec);
    pl_thrift_put_i64(b, &meta, 5, (int64_t)done->rows);
    pl_thrift_put_i64(b, &meta, 6, (int64_t)done->unpacked);
    pl_thrift_put_i64(b, &meta, 7, (int64_t)done->packed);
    pl_thrift_put_i64(b, &meta, 9, (int64_t)done->at);
    pl_thrift_put_stop(b);
    pl_thrift_put_stop(b);
}

static void put_groups(struct pl_buffer *b, const struct parquet_writer *w)
{
    for (size_t g = 0; g < w->groups; g++) {
        int last = 0;
        uint64_t unpacked = 0;
        struct written_chunk done = { 0 };
        const uint8_t *first = w->done.data + g * w->columns * sizeof done;
        pl_thrift_put_list(b, &last, 1, THRIFT_STRUCT, w->columns);
        for (size_t i = 0; i < w->columns; i++) {
            memcpy(&done, first + i * sizeof done, sizeof done);
            put_chunk(b, w, &w->column[i].info, &done);
            unpacked += done.unpacked;
        }
        pl_thrift_put_i64(b, &last, 2, (int64_t)unpacked);
        pl_thrift_put_i64(b, &last, 3, (int64_t)done.rows);
        pl_thrift_put_stop(b);
    }
}

int pl_parquet_writer_close(struct parquet_writer *w, struct pl_err *err)
{
    struct pl_buffer footer = { 0 };
    int last = 0, rc = flush_group(w, err);
    uint32_t bytes;
    if (rc) goto done;
    pl_thrift_put_i32(&footer, &last, 1, 1);
    pl_thrift_put_list(&footer, &last, 2, THRIFT_STRUCT, w->columns + 1);
    put_schema(&footer, w);
    pl_thrift_put_i64(&footer, &last, 3, (int64_t)w->total_rows);
    pl_thrift_put_list(&footer, &last, 4, THRIFT_STRUCT, w->groups);
    put_groups(&footer, w);
    if (w->metas) {
        pl_thrift_put_list(&footer, &last, 5, THRIFT_STRUCT, w->metas);
        pl_buffer_add(&footer, w->meta.data, w->meta.bytes);
    }
    pl_thrift_put_string(&footer, &last, 6, "potluck version " PL_VERSION);
    pl_thrift_put_stop(&footer);
    bytes = (uint32_t)footer.bytes;
    pl_buffer_le32(&footer, bytes);
    pl_buffer_add(&footer, "PAR1", 4);
    if (footer.failed) rc = pl_fail(err, PL_ENOMEM, "%s: no memory", w->file.path);
    else if (footer.bytes > PARQUET_FOOTER_MAX)
        rc = pl_fail(err, PL_ELIMIT, "%s: a footer of %zu bytes; use larger row groups",
                     w->file.path, footer.bytes);
    if (!rc) rc = pl_file_append(&w->file, footer.data, footer.bytes, err);
    if (!rc) rc = pl_file_commit(&w->file, err);
done:
    pl_buffer_clear(&footer);
    pl_parquet_writer_discard(w);
    return rc;
}

void pl_parquet_writer_discard(struct parquet_writer *w)
{
    if (!w) return;
    pl_file_discard(&w->file);
    for (size_t i = 0; i < w->columns; i++) {
        free(w->column[i].info.name);
        pl_buffer_clear(&w->column[i].values);
        pl_buffer_clear(&w->column[i].levels);
        pl_buffer_clear(&w->column[i].chunk);
    }
    free(w->column);
    pl_buffer_clear(&w->done);
    pl_buffer_clear(&w->meta);
    free(w);
}
