/* prepare.h - turns pictures and captions into shards: decode, resize, encode, write. The reference
 * run's data set was prepared once, so that peers stream image tokens instead of pictures. [TTT
 * 3.2] */
#ifndef PL_PREPARE_H
#define PL_PREPARE_H

#include "ref/model/vqgan.h"
#include "captions.h"

struct prepare_options {
    const char *folder; /* where the shards are written; must exist */
    const char *stem;   /* "<stem>-00000.parquet", ... */
    const char *codec;  /* identifies the codec's weights, to detect shards of another codec */
    const char *nsfw;   /* the value of the NSFW column; the reference run uses only UNLIKELY */
    int side;           /* pixels; a multiple of the codec's factor */
    int batch;          /* pictures encoded at once */
    size_t rows;        /* entries of the list per shard */
    int quality;        /* Brotli's, 0-11 */
};

struct prepare_counts {
    size_t entries;         /* of the list, processed so far */
    size_t encoded, broken; /* of these, encoded and unreadable */
    size_t shards, found;   /* shards complete; of these, found complete from a previous run, */
    size_t found_entries;   /* with this many entries */
    uint64_t picture_bytes; /* picture files read in this run, */
    uint64_t shard_bytes;   /* and the shards written from them */
};

/* Called after every batch (broken NULL), and for each unreadable picture, with the reason. A
 * nonzero result stops with PL_EAGAIN: the current shard is discarded, and a later call starts it
 * again. */
typedef int prepare_watch_fn(void *context, const struct prepare_counts *counts,
                             const char *broken);

/* Writes all shards. Shard i holds the list's entries [i * rows, (i + 1) * rows) except unreadable
 * ones; shards that exist already are checked and kept. PL_ENOTFOUND, without any shard, if none of
 * the first `rows` pictures can be read: then the list is wrong. */
int pl_prepare_shards(struct prepare_counts *counts, struct pl_vqgan *codec, struct captions *list,
                      const struct prepare_options *options, prepare_watch_fn *watch, void *context,
                      struct pl_err *err);

#endif
