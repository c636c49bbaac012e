/* picture_table.h - pictures and captions in a Parquet file, as img2dataset writes them with
 * output_format="parquet". [TTT 3.2: how the reference run fetched its pictures]
 *
 *   jpg, jpeg, png, webp or image   binary: the picture's file
 *   caption, text or TEXT           text
 *   key                             text, its name; optional
 *   status                          text, optional: only rows with "success" have a picture */
#ifndef PL_PICTURE_TABLE_H
#define PL_PICTURE_TABLE_H

#include "ref/base.h"

struct picture_table;

/* PL_ENOTFOUND: a Parquet file without these columns. */
int pl_picture_table_open(struct picture_table **out, const char *path, struct pl_err *err);
void pl_picture_table_close(struct picture_table *t);

struct picture_row {     /* strings are not zero-terminated; valid until the next call */
    uint64_t row;        /* of the file */
    const char *caption; /* NULL: the file has null */
    size_t caption_bytes;
    const char *key; /* NULL likewise */
    size_t key_bytes;
};
/* The next row that has a picture; PL_ENOTFOUND after the last. */
int pl_picture_table_next(struct picture_table *t, struct picture_row *row, struct pl_err *err);

/* The picture of a row, valid until the next call; moving forward is cheap. */
int pl_picture_table_picture(struct picture_table *t, uint64_t row, const uint8_t **data,
                             size_t *bytes, struct pl_err *err);

#endif
