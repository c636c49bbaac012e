/* batch_stream.h - batches of pairs, read ahead by a thread of its own. The order is pairs.h's: neither
 * the thread nor how far it is ahead changes what comes. [TTT 2.1] */
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
    uint64_t given, epoch; /* pairs given up to and with this batch; passes completed by then */
};

/* ahead: batches that may be ready beforehand, 0: STREAM_AHEAD. */
int pl_batch_stream_open(struct stream **out, const struct pairs_options *options, int batch,
                         int ahead, struct pl_err *err);
/* Goes on behind the batch after which pl_batch_stream_position gave this text. Before the first batch. */
int pl_batch_stream_restore(struct stream *s, const char *position, struct pl_err *err);
/* The next batch; waits for it if need be. An error stays. */
int pl_batch_stream_next(struct stream *s, struct stream_batch *batch, struct pl_err *err);
/* Where the batch after the one last given begins, as JSON text; the caller frees it. NULL: no
 * memory. */
char *pl_batch_stream_position(struct stream *s);
/* As of the batch last given: the last complete pass over the data, or the running first one.
 * Returns 1 if it is a complete one. */
int pl_batch_stream_counts(const struct stream *s, struct pairs_counts *counts);
/* One line of text about them: "3664 pairs read: 3509 used, 0 captions too short, ...". */
void pl_batch_stream_counts_text(char *text, size_t room, const struct pairs_counts *counts);
void pl_batch_stream_close(struct stream *s);

#endif
