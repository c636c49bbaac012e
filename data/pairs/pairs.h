/* pairs.h - shards -> the run's filter -> tokens and codes -> a shuffle buffer -> one pair at a
 * time, in an order that the seed alone decides. No thread here: batch_stream.h runs this ahead.
 * [TTT 2.1, 3.2] [spec images-and-text 5.3] */
#ifndef PL_PAIRS_H
#define PL_PAIRS_H

#include "data/files/source.h"
#include "data/text/unigram.h"

#define PAIRS_BUFFER 8192 /* the run's shuffle buffer */
#define PAIRS_BUFFER_MAX (1 << 20)
#define PAIRS_CAPTION_CHARACTERS 3 /* the run's filter: at least so many, */
#define PAIRS_ASPECT_MAX 2         /* sides at most 1 : 2, and NSFW exactly UNLIKELY */

struct pairs_options {
    const char *const *path; /* shards, in any order that stays the same */
    size_t paths;
    const struct unigram *tokenizer; /* borrowed */
    int text;                        /* T: tokens a caption is cut or padded to */
    int pad;                         /* the id that pads: 1 in the run */
    int cells;                       /* codes of a picture */
    int codes;                       /* they are 0 .. codes - 1; at most 32768 */
    size_t buffer;                   /* pairs that are shuffled with each other; 0: PAIRS_BUFFER */
    uint64_t seed;
    const char *const *without; /* captions that are held out; copied */
    size_t withouts;
    int only_without; /* 1: the other way round, only those: to measure on */
    uint64_t limit;   /* use only so many rows, evenly spread over the shards; 0: all */
    /* Opens a shard that is no file; NULL: all are. Called by the thread that reads. */
    int (*open)(void *context, struct pl_source **source, const char *name, struct pl_err *err);
    void *open_context;
};

/* Rows read in a pass over the data, and what became of them: each dropped row counts for the
 * first rule it breaks. */
struct pairs_counts {
    uint64_t rows, used, caption, nsfw, aspect, no_code, held_out;
};

/* Whether a row (counted over all shards) is among the `limit` of `total`: those where
 * floor(row * limit / total) steps up. At most 2^32 rows. */
int pl_pairs_within_limit(uint64_t row, uint64_t limit, uint64_t total);

struct pairs;

/* Opens every shard once, to count its rows. */
int pl_pairs_open(struct pairs **out, const struct pairs_options *options, struct pl_err *err);
void pl_pairs_close(struct pairs *p);

/* The next pair: tokens (text), codes (cells). An epoch gives every pair once, then the next one
 * begins, in another order. PL_ENOTFOUND: the filter left nothing. */
int pl_pairs_next(struct pairs *p, int32_t *tokens, int32_t *codes, struct pl_err *err);

/* Where the next pair comes from. Fill one with pl_pairs_where, at any time and as often as liked. */
struct pairs_place {
    uint32_t shard;
    uint64_t row;
};
struct pairs_position {
    uint64_t given, epoch; /* pairs since the beginning; passes completed */
    uint64_t rng[4];
    uint32_t at_shard;             /* index into the epoch's order of shards */
    uint64_t at_row;               /* next row to read there */
    struct pairs_counts now, last; /* this pass so far; the one before it */
    size_t count;                  /* pairs in the buffer */
    struct pairs_place *place;     /* theirs; owned */
};
int pl_pairs_where(const struct pairs *p, struct pairs_position *position); /* PL_OK, PL_ENOMEM */
void pl_pairs_position_clear(struct pairs_position *position);

/* As JSON text with what identifies the data (names and rows of shards, seed, buffer); the caller
 * frees it. NULL: no memory. */
char *pl_pairs_save(const struct pairs *p, const struct pairs_position *position);
/* Goes on exactly where the saved position stood. PL_EUSE if the data or options are others. */
int pl_pairs_restore(struct pairs *p, const char *json, struct pl_err *err);

#endif
