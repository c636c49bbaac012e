/* shard.h - the run's table: one row a picture, its codes beside its caption. [TTT 3.2]
 *
 *   caption          text
 *   NSFW             text: UNLIKELY, UNSURE or NSFW, LAION's guess
 *   original_width, original_height  of the picture before it was resized
 *   code             binary: little-endian int16, row by row [spec images-and-text 1.5]
 *   key              text: where the picture came from (ours; the reader does not need it)
 *
 * Whatever other columns a shard has are not looked at. */
#ifndef PL_SHARD_H
#define PL_SHARD_H

#include "data/parquet/parquet_read.h"
#include "data/parquet/parquet_write.h"

struct shard_row {
    const char *caption; /* NULL where the file has null; not ended by a zero byte */
    size_t caption_bytes;
    const char *nsfw; /* likewise */
    size_t nsfw_bytes;
    double width, height; /* original; 0 where the file has null */
    const uint8_t *code;  /* NULL where the file has null */
    size_t code_bytes;
    const char *key; /* for writing only; NULL writes an empty one */
};

/* --- reading, row after row; a row's pointers last until the next call */
struct shard;
int pl_shard_open(struct shard **out, const char *path, struct pl_err *err);
/* From a source, which the shard closes, also when opening fails. */
int pl_shard_open_source(struct shard **out, struct pl_source *source, struct pl_err *err);
uint64_t pl_shard_rows(const struct shard *s);
const char *pl_shard_name(const struct shard *s);
const char *pl_shard_meta(const struct shard *s, const char *key);
/* Row `row` (0-based) is the next; forward within a row group is cheap. */
int pl_shard_seek(struct shard *s, uint64_t row, struct pl_err *err);
/* PL_ENOTFOUND after the last row. */
int pl_shard_next(struct shard *s, struct shard_row *row, struct pl_err *err);
void pl_shard_close(struct shard *s);

/* --- writing, Brotli pages; the file appears whole when it is closed */
struct shard_writer;
int pl_shard_writer_open(struct shard_writer **out, const char *path, int quality,
                         struct pl_err *err);
int pl_shard_writer_meta(struct shard_writer *w, const char *key, const char *value,
                         struct pl_err *err);
int pl_shard_writer_row(struct shard_writer *w, const struct shard_row *row, struct pl_err *err);
int pl_shard_writer_close(struct shard_writer *w, struct pl_err *err);
void pl_shard_writer_discard(struct shard_writer *w);

/* A code of a row; the row has checked lengths. */
static inline int shard_code(const uint8_t *code, size_t i)
{
    return (int16_t)(uint16_t)(code[2 * i] | code[2 * i + 1] << 8);
}

#endif
