/* parquet_write.h - writes a flat table as a Parquet file: plain values, compressed pages with
 * checksums, row groups. The file appears complete or not at all. */
#ifndef PL_PARQUET_WRITE_H
#define PL_PARQUET_WRITE_H

#include "parquet_read.h"

struct parquet_options {
    enum pl_codec codec;
    int level;         /* the codec's own */
    size_t group_rows; /* rows per row group, which are held in memory; 0: 8192 */
    size_t page_bytes; /* of values per page before compression; 0: 1 MiB */
};

struct parquet_writer;

/* Columns have type INT32, INT64, DOUBLE or BYTES; `column` is copied. On error *out is NULL. */
int pl_parquet_writer_open(struct parquet_writer **out, const char *path,
                           const struct parquet_column *column, size_t columns,
                           const struct parquet_options *options, struct pl_err *err);
/* Adds a metadata entry to the footer. */
int pl_parquet_writer_meta(struct parquet_writer *w, const char *key, const char *value,
                           struct pl_err *err);
/* Writes a row, one value per column; null only in optional columns. */
int pl_parquet_writer_row(struct parquet_writer *w, const struct parquet_value *row,
                          struct pl_err *err);
/* Completes the file and frees the writer, whatever is returned. */
int pl_parquet_writer_close(struct parquet_writer *w, struct pl_err *err);
/* Frees the writer and removes the unfinished file. NULL is allowed. */
void pl_parquet_writer_discard(struct parquet_writer *w);

#endif
