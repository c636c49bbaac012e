/* prepare.h - pictures and captions into shards: decoded, resized, encoded, written. What the run's
 * data set went through once, so that peers stream codes and not pictures. [TTT 3.2] */
#ifndef PL_PREPARE_H
#define PL_PREPARE_H

#include "ref/model/vqgan.h"
#include "captions.h"

struct prepare_options {
    const char *folder; /* where the shards go; exists */
    const char *stem;   /* "<stem>-00000.parquet", ... */
    const char *codec;  /* identifies the codec's weights, for going on after an interruption */
    const char *nsfw;   /* what the NSFW column says; the run keeps UNLIKELY only */
    int side;           /* pixels; a multiple of the codec's factor */
    int batch;          /* pictures encoded at once */
    size_t rows;        /* entries of the list that go into one shard */
    int quality;        /* Brotli's, 0-11 */
};

struct prepare_counts {
    size_t entries;         /* of the list, looked at so far */
    size_t encoded, broken; /* the two parts of them */
    size_t shards, found;   /* shards complete; of these, found complete from a run before, */
    size_t found_entries;   /* with so many entries */
    uint64_t picture_bytes; /* files read in this run, */
    uint64_t shard_bytes;   /* and the shards written from them */
};

/* After every batch (broken NULL), and for each picture that cannot be read, with the sentence why.
 * Not 0: stop, PL_EAGAIN; the shard at hand is given up, a later call begins it again. */
typedef int prepare_watch_fn(void *context, const struct prepare_counts *counts,
                             const char *broken);

/* A shard holds the list's entries [i * rows, (i + 1) * rows) but the broken ones, so an
 * interrupted run loses and repeats nothing: shards that are there already are checked and kept.
 * PL_ENOTFOUND, and no shard: of the first [0, rows) none can be read, so the list is at fault. */
int pl_prepare_shards(struct prepare_counts *counts, struct pl_vqgan *codec, struct captions *list,
                      const struct prepare_options *options, prepare_watch_fn *watch, void *context,
                      struct pl_err *err);

#endif
