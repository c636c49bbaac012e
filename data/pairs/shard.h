/* shard.h - a table of training pairs in Parquet, as in the reference run: one row per picture.
 * [TTT 3.2]
 *
 *   caption          text
 *   NSFW             text: UNLIKELY, UNSURE or NSFW, LAION's estimate
 *   original_width, original_height  of the picture before resizing
 *   code             binary: image tokens, little-endian int16, row by row [spec images-and-text
 *                    1.5]
 *   key              text: where the picture came from (our addition; optional)
 *
 * Other columns are ignored. */
#ifndef PL_SHARD_H
#define PL_SHARD_H

#include "data/parquet/parquet_read.h"
#include "data/parquet/parquet_write.h"

#define SHARD_CODEC_MAX 64 /* a SHA-256 in hex; ours have eight characters */

struct shard_row {
    const char *caption; /* NULL for null; not zero-terminated */
    size_t caption_bytes;
    const char *nsfw; /* likewise */
    size_t nsfw_bytes;
    double width, height; /* of the original picture; 0 for null */
    const uint8_t *code;  /* NULL for null */
    size_t code_bytes;
    const char *key; /* only for writing; NULL writes an empty one */
};

/* --- reading, row by row; a row's pointers are valid until the next call */
struct shard;
int pl_shard_open(struct shard **out, const char *path, struct pl_err *err);
/* From a source, which the shard owns, even if opening fails. */
int pl_shard_open_source(struct shard **out, struct pl_source *source, struct pl_err *err);
uint64_t pl_shard_rows(const struct shard *s);
const char *pl_shard_meta(const struct shard *s, const char *key);
/* The codec whose image tokens these are, as `potluck prepare` names it; empty: not named, or by no
 * name in printable ASCII of at most SHARD_CODEC_MAX characters. PL_OK or PL_ENOMEM. */
int pl_shard_codec(char codec[SHARD_CODEC_MAX + 1], const struct shard *s);
/* Makes `row` (from 0) the next row; moving forward within a row group is cheap. */
int pl_shard_seek(struct shard *s, uint64_t row, struct pl_err *err);
/* PL_ENOTFOUND after the last row. */
int pl_shard_next(struct shard *s, struct shard_row *row, struct pl_err *err);
void pl_shard_close(struct shard *s);

/* --- writing, with Brotli pages: rows of a Parquet file, which parquet_write.h ends */
int pl_shard_writer_open(struct parquet_writer **out, const char *path, int quality,
                         struct pl_err *err);
int pl_shard_writer_row(struct parquet_writer *w, const struct shard_row *row, struct pl_err *err);

/* Image token i of a row whose length has been checked. */
static inline int shard_code(const uint8_t *code, size_t i)
{
    return (int16_t)(uint16_t)(code[2 * i] | code[2 * i + 1] << 8);
}

#endif
