/* batch_stream.h - batches of training pairs, read ahead by a background thread. The order is that
 * of pairs.h; neither the thread nor how far it reads ahead changes it. [TTT 2.1] */
#ifndef PL_BATCH_STREAM_H
#define PL_BATCH_STREAM_H

#include "pairs.h"

#define STREAM_AHEAD 4 /* batches */
#define STREAM_AHEAD_MAX 64

struct stream;

struct stream_batch { /* valid until the next call */
    int batch;
    const int32_t *tokens; /* (batch, text) */
    const int32_t *codes;  /* (batch, cells) */
    uint64_t given, epoch; /* pairs given including this batch; epochs completed by then */
};

/* Opens the stream. ahead: batches that may be ready in advance; 0: STREAM_AHEAD. On error *out is
 * NULL. */
int pl_batch_stream_open(struct stream **out, const struct pairs_options *options, int batch,
                         int ahead, struct pl_err *err);
/* Continues after the batch at which pl_batch_stream_position gave this text. To be called before
 * the first batch. PL_EUSE if the data or options differ. */
int pl_batch_stream_restore(struct stream *s, const char *position, struct pl_err *err);
/* Gets the next batch, waiting for it if necessary. After an error every later call returns it. */
int pl_batch_stream_next(struct stream *s, struct stream_batch *batch, struct pl_err *err);
/* The position after the last batch given, as JSON text; the caller frees it. NULL: no memory. */
char *pl_batch_stream_position(struct stream *s);
/* The codec that the shards name, "" if none does; valid as long as the stream. */
const char *pl_batch_stream_codec(const struct stream *s);
/* Row counts as of the last batch given: of the last complete epoch (returns 1), or of the first
 * one, still running (returns 0). */
int pl_batch_stream_counts(const struct stream *s, struct pairs_counts *counts);
/* Formats the counts on one line: "3664 pairs read: 3509 used, 0 captions too short, ...". */
void pl_batch_stream_counts_text(char *text, size_t capacity, const struct pairs_counts *counts);
void pl_batch_stream_close(struct stream *s);

#endif
