/* parquet_read.c - reads a column: its pages, and the values in them. A column chunk is an optional
 * dictionary page, then data pages. A data page holds, for an optional column, definition levels
 * (one bit per row: null or not, run-length encoded), then the values that are not null: plain, or
 * as indices into the dictionary. Levels and values are compressed together (version 1), or the
 * values alone (version 2). */
#include "parquet_read.h"
#include "page_header.h"
#include "rle.h"
#include "ref/small.h"

#include <assert.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <zlib.h>

#define ENTRIES_MAX (1 << 22) /* dictionary entries; writers stop using a dictionary beyond 1 MB */
#define HEADER_FIRST 512 /* bytes first read to find a page's header: most have less than 100 */

struct parquet_cursor {
    struct parquet *p;
    const struct parquet_column *column;
    const struct parquet_chunk *chunk;
    size_t group;
    uint64_t at;        /* the next page's first byte */
    uint64_t page_at;   /* offset of the current page, for messages */
    uint64_t left;      /* rows left in the chunk */
    uint64_t page_left; /* rows left in the page */
    /* a page as stored, and decompressed; both buffers grow and are reused */
    uint8_t *packed, *page, *dictionary;
    size_t packed_capacity, page_capacity;
    /* the page's levels, dictionary indices and plain values */
    int has_levels;
    struct rle_in levels, indices;
    const uint8_t *plain, *plain_end;
    int bit; /* within a byte of plain booleans */
    enum encoding encoding;
    /* dictionary entries, by address, because BYTES vary in length */
    size_t entries;
    const uint8_t **entry;
    uint32_t *entry_length;
};

__attribute__((format(printf, 4, 5))) static int fail(const struct parquet_cursor *c,
                                                      struct pl_err *err, int rc,
                                                      const char *format, ...)
{
    char what[200];
    va_list args;
    va_start(args, format);
    vsnprintf(what, sizeof what, format, args);
    va_end(args);
    return pl_fail(err, rc, "%s: column %.60s, row group %zu, page at byte %llu: %s",
                   c->p->source->name, c->column->name, c->group, (unsigned long long)c->page_at,
                   what);
}

/* --- pages ------------------------------------------------------------------------------------ */

/* Reads the header at c->at, whose length is unknown in advance, and moves past it. */
static int read_header(struct parquet_cursor *c, struct page_header *h, struct pl_err *err)
{
    uint64_t left = c->chunk->end - c->at;
    size_t window = HEADER_FIRST;
    struct thrift_in in;
    c->page_at = c->at;
    for (;; window *= 8) {
        size_t n = window < left ? window : (size_t)left;
        int rc = pl_grow_by(&c->packed, 0, n + 1, &c->packed_capacity, HEADER_FIRST);
        if (rc) return fail(c, err, rc, "no memory");
        if ((rc = pl_source_read(c->p->source, c->at, c->packed, n, err))) return rc;
        in = (struct thrift_in){ .p = c->packed, .end = c->packed + n };
        pl_parquet_parse_header(h, &in);
        if (!in.bad || !in.short_of || n == left || window >= PARQUET_HEADER_MAX) break;
    }
    if (in.bad) return fail(c, err, PL_EFORMAT, "malformed page header");
    c->at += (uint64_t)(in.p - c->packed);
    if (h->packed < 0 || h->unpacked < 0 || h->packed > PARQUET_PAGE_MAX ||
        h->unpacked > PARQUET_PAGE_MAX)
        return fail(c, err, PL_ELIMIT, "%lld bytes compressed, %lld decompressed; the limit is %u",
                    (long long)h->packed, (long long)h->unpacked, PARQUET_PAGE_MAX);
    if ((uint64_t)h->packed > c->chunk->end - c->at)
        return fail(c, err, PL_EFORMAT, "%lld bytes, %llu are left in the column chunk",
                    (long long)h->packed, (unsigned long long)(c->chunk->end - c->at));
    return PL_OK;
}

/* Reads a page into c->page: verified and decompressed, except the first `plain` bytes, which
 * version 2 does not compress. */
static int read_body(struct parquet_cursor *c, const struct page_header *h, size_t plain,
                     struct pl_err *err)
{
    size_t packed = (size_t)h->packed, unpacked = (size_t)h->unpacked;
    const char *codec = pl_page_codec_name(c->chunk->codec);
    int rc;
    if (!codec)
        return fail(c, err, PL_EFORMAT,
                    "compression codec %d; supported are Brotli, Snappy, Zstd, gzip and none",
                    c->chunk->codec);
    if (plain > packed || plain > unpacked)
        return fail(c, err, PL_EFORMAT, "%zu bytes of levels in a page of %zu", plain, packed);
    /* one byte more, so that an empty page has an address, too */
    if (pl_grow_by(&c->packed, 0, packed + 1, &c->packed_capacity, HEADER_FIRST) ||
        pl_grow_by(&c->page, 0, unpacked + 1, &c->page_capacity, HEADER_FIRST))
        return fail(c, err, PL_ENOMEM, "no memory for %zu bytes", unpacked);
    if ((rc = pl_source_read(c->p->source, c->at, c->packed, packed, err))) return rc;
    c->at += packed;
    if (h->has_crc && (uint32_t)crc32(0, c->packed, (uInt)packed) != h->crc)
        return fail(c, err, PL_EFORMAT, "checksum mismatch: the file is damaged");
    memcpy(c->page, c->packed, plain);
    if (unpacked == plain && packed == plain) return PL_OK;
    rc = pl_page_codec_unpack(c->page + plain, unpacked - plain, c->packed + plain, packed - plain,
                              h->is_packed ? (enum pl_codec)c->chunk->codec : PL_CODEC_NONE);
    return rc ? fail(c, err, rc, "%zu bytes do not decompress to %zu by %s", packed - plain,
                     unpacked - plain, h->is_packed ? codec : "copying")
              : PL_OK;
}

/* --- dictionaries ------------------------------------------------------------------------- */

static size_t fixed_size(const struct parquet_column *column)
{
    switch (column->type) {
    case PARQUET_INT32:
    case PARQUET_FLOAT: return 4;
    case PARQUET_INT64:
    case PARQUET_DOUBLE: return 8;
    case PARQUET_INT96: return 12;
    case PARQUET_FIXED: return (size_t)column->length;
    case PARQUET_BOOLEAN:
    case PARQUET_BYTES:
    case PARQUET_TYPES: break;
    }
    return 0;
}

/* Takes a plain value at *p and moves past it; NULL if it does not fit before `end`. */
static const uint8_t *plain_value(const struct parquet_column *column, const uint8_t **p,
                                  const uint8_t *end, size_t *length)
{
    const uint8_t *value;
    if (column->type == PARQUET_BYTES) {
        if (end - *p < 4) return NULL;
        *length = pl_le32(*p);
        *p += 4;
    } else *length = fixed_size(column);
    if (*length > (size_t)(end - *p)) return NULL;
    value = *p;
    *p += *length;
    return value;
}

static int read_dictionary(struct parquet_cursor *c, const struct page_header *h,
                           struct pl_err *err)
{
    const uint8_t *p, *end;
    int rc;
    if (c->dictionary) return fail(c, err, PL_EFORMAT, "a second dictionary");
    if (c->column->type == PARQUET_BOOLEAN)
        return fail(c, err, PL_EFORMAT, "a dictionary of booleans");
    if (h->encoding != PLAIN && h->encoding != PLAIN_DICTIONARY)
        return fail(c, err, PL_EFORMAT, "a dictionary in encoding %lld", (long long)h->encoding);
    if ((rc = read_body(c, h, 0, err))) return rc;
    if (h->values < 0 || h->values > h->unpacked || h->values > ENTRIES_MAX)
        return fail(c, err, PL_EFORMAT, "%lld dictionary entries in %lld bytes",
                    (long long)h->values, (long long)h->unpacked);
    c->dictionary = c->page;
    c->page = NULL;
    c->page_capacity = 0;
    c->entries = (size_t)h->values;
    c->entry = malloc((c->entries + 1) * sizeof *c->entry);
    c->entry_length = malloc((c->entries + 1) * sizeof *c->entry_length);
    if (!c->entry || !c->entry_length) return fail(c, err, PL_ENOMEM, "no memory");
    p = c->dictionary;
    end = p + h->unpacked;
    for (size_t i = 0; i < c->entries; i++) {
        size_t length;
        c->entry[i] = plain_value(c->column, &p, end, &length);
        if (!c->entry[i])
            return fail(c, err, PL_EFORMAT, "dictionary entry %zu of %zu extends beyond the page",
                        i, c->entries);
        c->entry_length[i] = (uint32_t)length;
    }
    return PL_OK;
}

/* --- data pages --------------------------------------------------------------------------- */

/* Version 1 stores the levels' length before them, inside the compressed data. */
static int levels_v1(struct parquet_cursor *c, const struct page_header *h, const uint8_t **p,
                     const uint8_t *end, struct pl_err *err)
{
    size_t n;
    if (h->definition_encoding == BIT_PACKED) /* deprecated, most significant bit first */
        return fail(c, err, PL_EFORMAT, "levels in the deprecated bit-packed encoding");
    if (h->definition_encoding != RLE)
        return fail(c, err, PL_EFORMAT, "levels in encoding %lld",
                    (long long)h->definition_encoding);
    if (end - *p < 4 || (n = pl_le32(*p)) > (size_t)(end - *p - 4))
        return fail(c, err, PL_EFORMAT, "levels extend beyond the page");
    pl_rle_init(&c->levels, *p + 4, n, 1);
    *p += 4 + n;
    return PL_OK;
}

/* Opens the stream of values between p and end. */
static int open_values(struct parquet_cursor *c, const uint8_t *p, const uint8_t *end,
                       struct pl_err *err)
{
    c->plain = p;
    c->plain_end = end;
    c->bit = 0;
    switch ((int)c->encoding) {
    case PLAIN: return PL_OK;
    case PLAIN_DICTIONARY:
    case RLE_DICTIONARY:
        if (!c->dictionary) return fail(c, err, PL_EFORMAT, "no dictionary precedes it");
        if (p == end) { /* only nulls */
            pl_rle_init(&c->indices, p, 0, 0);
            return PL_OK;
        }
        if (*p > 32) return fail(c, err, PL_EFORMAT, "dictionary indices of %d bits", *p);
        pl_rle_init(&c->indices, p + 1, (size_t)(end - p - 1), *p);
        return PL_OK;
    case RLE:
        if (c->column->type != PARQUET_BOOLEAN) break;
        if (end - p < 4 || pl_le32(p) > (size_t)(end - p - 4))
            return fail(c, err, PL_EFORMAT, "booleans extend beyond the page");
        pl_rle_init(&c->indices, p + 4, pl_le32(p), 1);
        return PL_OK;
    }
    return fail(c, err, PL_EFORMAT, "values in encoding %d; supported are plain and dictionary",
                (int)c->encoding);
}

static int open_page(struct parquet_cursor *c, const struct page_header *h, struct pl_err *err)
{
    int v2 = h->type == PAGE_DATA_V2, rc;
    size_t levels = 0;
    const uint8_t *p, *end;
    if (v2) {
        if (h->repetition_bytes != 0 || h->definition_bytes < 0 || h->definition_bytes > h->packed)
            return fail(c, err, PL_EFORMAT, "%lld and %lld bytes of levels in a page of %lld",
                        (long long)h->repetition_bytes, (long long)h->definition_bytes,
                        (long long)h->packed);
        levels = (size_t)h->definition_bytes;
    }
    if ((rc = read_body(c, h, levels, err))) return rc;
    p = c->page;
    end = p + h->unpacked;
    c->has_levels = c->column->optional;
    c->encoding = (enum encoding)h->encoding;
    if (v2) {
        pl_rle_init(&c->levels, p, levels, 1);
        p += levels;
    } else if (c->has_levels && (rc = levels_v1(c, h, &p, end, err))) return rc;
    if ((rc = open_values(c, p, end, err))) return rc;
    c->page_left = (uint64_t)h->values;
    return PL_OK;
}

/* Moves to the next page with values. Pages of at most *skip rows are skipped without
 * decompression, and *skip reduced. */
static int next_page(struct parquet_cursor *c, uint64_t *skip, struct pl_err *err)
{
    while (!c->page_left) {
        struct page_header h;
        int rc;
        if (c->at >= c->chunk->end) {
            c->page_at = c->at;
            return fail(c, err, PL_EFORMAT, "the column chunk ends with %llu rows missing",
                        (unsigned long long)c->left);
        }
        if ((rc = read_header(c, &h, err))) return rc;
        if (h.type == PAGE_DICTIONARY) {
            if ((rc = read_dictionary(c, &h, err))) return rc;
            continue;
        }
        if (h.type != PAGE_DATA && h.type != PAGE_DATA_V2) { /* an index page, or a newer kind */
            c->at += (uint64_t)h.packed;
            continue;
        }
        if (h.values < 0 || (uint64_t)h.values > c->left)
            return fail(c, err, PL_EFORMAT, "%lld rows where %llu are left", (long long)h.values,
                        (unsigned long long)c->left);
        if (h.values && (uint64_t)h.values <= *skip) {
            *skip -= (uint64_t)h.values;
            c->left -= (uint64_t)h.values;
            c->at += (uint64_t)h.packed;
            if (!*skip) return PL_OK;
            continue;
        }
        if (h.values && (rc = open_page(c, &h, err))) return rc;
        if (!h.values) c->at += (uint64_t)h.packed;
    }
    return PL_OK;
}

/* --- values ------------------------------------------------------------------------------- */

static void widen(const struct parquet_column *column, struct parquet_value *v)
{
    uint64_t bits;
    uint32_t half;
    float f;
    switch (column->type) {
    case PARQUET_INT32:
        v->integer = (int32_t)pl_le32(v->bytes);
        v->real = (double)v->integer;
        break;
    case PARQUET_INT64:
        v->integer = (int64_t)pl_le64(v->bytes);
        v->real = (double)v->integer;
        break;
    case PARQUET_FLOAT:
        half = pl_le32(v->bytes);
        memcpy(&f, &half, sizeof f);
        v->real = f;
        break;
    case PARQUET_DOUBLE:
        bits = pl_le64(v->bytes);
        memcpy(&v->real, &bits, sizeof bits);
        break;
    case PARQUET_BOOLEAN:
    case PARQUET_INT96:
    case PARQUET_BYTES:
    case PARQUET_FIXED:
    case PARQUET_TYPES: break;
    }
}

static int read_boolean(struct parquet_cursor *c, struct parquet_value *v)
{
    uint32_t x;
    if (c->encoding == RLE) {
        if (pl_rle_next(&c->indices, &x)) return PL_EFORMAT;
    } else {
        if (c->plain == c->plain_end) return PL_EFORMAT;
        x = *c->plain >> c->bit & 1;
        if (++c->bit == 8) {
            c->bit = 0;
            c->plain++;
        }
    }
    v->integer = x;
    v->real = x;
    return PL_OK;
}

static int read_value(struct parquet_cursor *c, struct parquet_value *v, struct pl_err *err)
{
    uint32_t i;
    if (c->column->type == PARQUET_BOOLEAN) {
        if (read_boolean(c, v)) return fail(c, err, PL_EFORMAT, "ends before its last boolean");
        return PL_OK;
    }
    if (c->encoding == PLAIN) {
        v->bytes = plain_value(c->column, &c->plain, c->plain_end, &v->length);
        if (!v->bytes) return fail(c, err, PL_EFORMAT, "a value extends beyond the page");
    } else {
        if (pl_rle_next(&c->indices, &i))
            return fail(c, err, PL_EFORMAT, "ends before its last dictionary index");
        if (i >= c->entries)
            return fail(c, err, PL_EFORMAT, "dictionary index %u of %zu entries", i, c->entries);
        v->bytes = c->entry[i];
        v->length = c->entry_length[i];
    }
    widen(c->column, v);
    return PL_OK;
}

int pl_parquet_cursor_open(struct parquet_cursor **out, struct parquet *p, size_t group,
                           size_t column, struct pl_err *err)
{
    struct parquet_cursor *c = NULL;
    *out = NULL;
    assert(group < p->groups && column < p->columns);
    if (p->column[column].nested)
        return pl_fail(err, PL_EFORMAT, "%s: column %.60s is nested; only flat columns can be read",
                       p->source->name, p->column[column].name);
    if (!(c = calloc(1, sizeof *c)))
        return pl_fail(err, PL_ENOMEM, "%s: no memory", p->source->name);
    c->p = p;
    c->column = &p->column[column];
    c->chunk = &p->group[group].chunks[column];
    c->group = group;
    c->at = c->chunk->begin;
    c->left = p->group[group].rows;
    *out = c;
    return PL_OK;
}

int pl_parquet_cursor_next(struct parquet_cursor *c, struct parquet_value *v, struct pl_err *err)
{
    uint64_t no_skip = 0;
    uint32_t level = 1;
    int rc;
    memset(v, 0, sizeof *v);
    if (!c->left) return PL_ENOTFOUND;
    if ((rc = next_page(c, &no_skip, err))) return rc;
    if (c->has_levels && pl_rle_next(&c->levels, &level))
        return fail(c, err, PL_EFORMAT, "ends before its last definition level");
    c->left--;
    c->page_left--;
    v->null = !level;
    return level ? read_value(c, v, err) : PL_OK;
}

int pl_parquet_cursor_skip(struct parquet_cursor *c, uint64_t rows, struct pl_err *err)
{
    if (rows > c->left) rows = c->left;
    while (rows) {
        struct parquet_value v;
        int rc;
        if (!c->page_left && (rc = next_page(c, &rows, err))) return rc;
        for (; rows && c->page_left; rows--)
            if ((rc = pl_parquet_cursor_next(c, &v, err))) return rc;
    }
    return PL_OK;
}

void pl_parquet_cursor_close(struct parquet_cursor *c)
{
    if (!c) return;
    free(c->packed);
    free(c->page);
    free(c->dictionary);
    free(c->entry);
    free(c->entry_length);
    free(c);
}
