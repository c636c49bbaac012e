/* parquet_read.h - reads columns of a Parquet file value by value: flat tables with plain or
 * dictionary pages (versions 1 and 2), compressed with Brotli, Snappy, Zstd, gzip or not at all. A
 * cursor holds one page of one column at a time, so memory does not grow with the file.
 * [parquet-format: README, Encodings.md] */
#ifndef PL_PARQUET_READ_H
#define PL_PARQUET_READ_H

#include "page_codec.h"
#include "data/files/source.h"

#define PARQUET_FOOTER_MAX (64u << 20) /* bytes: 16 columns x 10,000 row groups are 20 MB */
#define PARQUET_COLUMNS_MAX 4096
#define PARQUET_GROUPS_MAX 1000000
#define PARQUET_PAGE_MAX (256u << 20) /* bytes, compressed or not; writers aim at 1 MB */
#define PARQUET_HEADER_MAX (1u << 20) /* bytes of a page's header, with its statistics */

/* Physical types, with Parquet's numbers. */
enum parquet_type {
    PARQUET_BOOLEAN = 0,
    PARQUET_INT32 = 1,
    PARQUET_INT64 = 2,
    PARQUET_INT96 = 3,
    PARQUET_FLOAT = 4,
    PARQUET_DOUBLE = 5,
    PARQUET_BYTES = 6,
    PARQUET_FIXED = 7,
    PARQUET_TYPES = 8
};
const char *pl_parquet_type_name(enum parquet_type t);

struct parquet_column {
    char *name; /* of the leaf */
    enum parquet_type type;
    int length;   /* bytes of a PARQUET_FIXED value */
    int text;     /* PARQUET_BYTES that are UTF-8 */
    int optional; /* values may be null */
    int nested;   /* part of a list or struct: listed, but cannot be read */
};

struct parquet_chunk {   /* one column of one row group */
    uint64_t begin, end; /* byte range of its pages */
    int codec;           /* Parquet's number; may be an unsupported one */
    uint64_t values;
};

struct parquet_group {
    uint64_t rows;
    struct parquet_chunk *chunks; /* one per column */
};

struct parquet {
    struct pl_source *source; /* borrowed */
    uint64_t rows;
    size_t columns, groups, metas;
    struct parquet_column *column;
    struct parquet_group *group;
    char **meta_key, **meta_value; /* the file's metadata */
};

/* Reads and checks the footer. `source` is borrowed and must outlive *out, which the caller closes.
 * On error *out is NULL. */
int pl_parquet_open(struct parquet **out, struct pl_source *source, struct pl_err *err);
void pl_parquet_close(struct parquet *p);

/* The index of the readable column `name`, or -1. */
int pl_parquet_find(const struct parquet *p, const char *name);
const char *pl_parquet_meta(const struct parquet *p, const char *key); /* NULL: no such key */

struct parquet_value {
    int null;
    int64_t integer;      /* BOOLEAN, INT32, INT64 */
    double real;          /* FLOAT, DOUBLE; for integer types the same number */
    const uint8_t *bytes; /* BYTES, FIXED, INT96: valid until the cursor moves */
    size_t length;
};

/* Opens a cursor before the first row of a row group. PL_EFORMAT for a nested column. */
struct parquet_cursor;
int pl_parquet_cursor_open(struct parquet_cursor **out, struct parquet *p, size_t group,
                           size_t column, struct pl_err *err);
/* PL_ENOTFOUND after the last row. */
int pl_parquet_cursor_next(struct parquet_cursor *c, struct parquet_value *value,
                           struct pl_err *err);
/* Skips `rows` rows; whole pages are not decompressed. */
int pl_parquet_cursor_skip(struct parquet_cursor *c, uint64_t rows, struct pl_err *err);
void pl_parquet_cursor_close(struct parquet_cursor *c);

#endif
