/* parquet.c - any bytes as a Parquet file: every value of every column, some of them skipped. */
#include "data/parquet/parquet_read.h"

#define ROWS_MAX 20000 /* a chunk of runs can promise millions in a few bytes */

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

static void read_column(struct parquet *p, size_t group, size_t column, unsigned skip)
{
    struct parquet_cursor *cursor;
    struct parquet_value v;
    struct pl_err err;
    volatile uint8_t touched = 0;
    if (pl_parquet_cursor_open(&cursor, p, group, column, &err)) return;
    for (int r = 0; r < ROWS_MAX && !pl_parquet_cursor_next(cursor, &v, &err); r++) {
        for (size_t i = 0; i < v.length; i += 64) touched ^= v.bytes[i];
        if (v.length) touched ^= v.bytes[v.length - 1];
        if (pl_parquet_cursor_skip(cursor, skip, &err)) break;
    }
    pl_parquet_cursor_close(cursor);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    struct pl_source *source;
    struct parquet *p;
    struct pl_err err;
    if (pl_source_memory(&source, "fuzz", data, bytes, &err)) return 0;
    if (!pl_parquet_open(&p, source, &err)) {
        for (size_t g = 0; g < p->groups && g < 8; g++)
            for (size_t c = 0; c < p->columns && c < 64; c++) {
                read_column(p, g, c, 0);
                read_column(p, g, c, 3);
            }
        pl_parquet_close(p);
    }
    pl_source_close(source);
    return 0;
}
