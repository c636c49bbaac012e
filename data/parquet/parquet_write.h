/* parquet_write.h - a flat table into a Parquet file: plain values, packed pages with checksums,
 * row groups. The file appears whole or not at all. */
#ifndef PL_PARQUET_WRITE_H
#define PL_PARQUET_WRITE_H

#include "parquet_read.h"

struct parquet_options {
    enum pl_codec codec;
    int level;         /* the codec's own */
    size_t group_rows; /* rows of a row group: what is held in memory; 0: 8192 */
    size_t page_bytes; /* of values before packing; 0: 1 MiB */
};

struct parquet_writer;

/* Columns are of type INT32, INT64, DOUBLE or BYTES; `column` is copied. */
int pl_parquet_writer_open(struct parquet_writer **out, const char *path,
                           const struct parquet_column *column, size_t columns,
                           const struct parquet_options *options, struct pl_err *err);
/* A remark in the footer. */
int pl_parquet_writer_meta(struct parquet_writer *w, const char *key, const char *value,
                           struct pl_err *err);
/* One value a column; null only where the column is optional. */
int pl_parquet_writer_row(struct parquet_writer *w, const struct parquet_value *row,
                          struct pl_err *err);
/* Bytes written so far, without the row group at hand. */
uint64_t pl_parquet_writer_bytes(const struct parquet_writer *w);
/* Completes the file; the writer is gone afterwards, whatever is returned. */
int pl_parquet_writer_close(struct parquet_writer *w, struct pl_err *err);
/* Gives up: nothing is left behind. NULL is welcome. */
void pl_parquet_writer_discard(struct parquet_writer *w);

#endif
