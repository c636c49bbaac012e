/* parquet_read.h - columns of a Parquet file, value by value: flat tables of plain or dictionary
 * pages (both versions), Brotli, Snappy, Zstd, gzip or none. A cursor holds one page of one column
 * at a time, so memory does not grow with the file. */
#ifndef PL_PARQUET_READ_H
#define PL_PARQUET_READ_H

#include "page_codec.h"
#include "data/files/source.h"

#define PARQUET_FOOTER_MAX (64u << 20) /* bytes: 16 columns x 10,000 row groups are 20 MB */
#define PARQUET_COLUMNS_MAX 4096
#define PARQUET_GROUPS_MAX 1000000
#define PARQUET_PAGE_MAX (256u << 20) /* bytes, packed or not; writers aim at 1 MB */
#define PARQUET_HEADER_MAX (1u << 20) /* bytes of a page's header, with its statistics */

/* Physical types, Parquet's own numbers. */
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
    char *name; /* of the leaf; zero bytes inside end it */
    enum parquet_type type;
    int length;   /* bytes of a PARQUET_FIXED value */
    int text;     /* PARQUET_BYTES that are UTF-8 */
    int optional; /* values may be null */
    int nested;   /* part of a list or struct: it can be named, not read */
};

struct parquet_chunk {   /* one column of one row group */
    uint64_t begin, end; /* bytes of its pages */
    int codec;           /* its number; may be an unknown one */
    uint64_t values;
};

struct parquet_group {
    uint64_t rows;
    struct parquet_chunk *chunks; /* one a column */
};

struct parquet {
    struct pl_source *source; /* borrowed */
    uint64_t rows;
    size_t columns, groups, metas;
    struct parquet_column *column;
    struct parquet_group *group;
    char **meta_key, **meta_value; /* the file's own remarks */
};

/* Reads and checks the footer. `source` must outlive *out, which the caller closes. */
int pl_parquet_open(struct parquet **out, struct pl_source *source, struct pl_err *err);
void pl_parquet_close(struct parquet *p);

/* The index of the readable column `name`, or -1. */
int pl_parquet_find(const struct parquet *p, const char *name);
const char *pl_parquet_meta(const struct parquet *p, const char *key); /* NULL: not there */

struct parquet_value {
    int null;
    int64_t integer;      /* BOOLEAN, INT32, INT64 */
    double real;          /* FLOAT, DOUBLE; for the integer types the same number */
    const uint8_t *bytes; /* BYTES, FIXED, INT96: valid until the cursor moves on */
    size_t length;
};

/* A cursor stands before the first row of `group`. */
struct parquet_cursor;
int pl_parquet_cursor_open(struct parquet_cursor **out, struct parquet *p, size_t group,
                           size_t column, struct pl_err *err);
/* PL_ENOTFOUND after the last row. */
int pl_parquet_cursor_next(struct parquet_cursor *c, struct parquet_value *value,
                           struct pl_err *err);
/* Passes over `rows` rows; whole pages are not unpacked. */
int pl_parquet_cursor_skip(struct parquet_cursor *c, uint64_t rows, struct pl_err *err);
void pl_parquet_cursor_close(struct parquet_cursor *c);

#endif
