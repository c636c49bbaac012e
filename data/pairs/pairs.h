/* pairs.h - shards -> the reference run's filter -> tokens and image tokens -> a shuffle buffer ->
 * one pair at a time, in an order that depends on the seed alone. No thread here: batch_stream.h
 * reads ahead. [TTT 2.1, 3.2] [spec images-and-text 5.3] */
#ifndef PL_PAIRS_H
#define PL_PAIRS_H

#include "data/files/source.h"
#include "data/text/unigram.h"

#define PAIRS_BUFFER 8192 /* the reference run's shuffle buffer */
#define PAIRS_BUFFER_MAX (1 << 20)
#define PAIRS_OPENERS_MAX 8        /* as many as browsers' connections to a server, and two */
#define PAIRS_CAPTION_CHARACTERS 3 /* the reference run's filter: at least this many characters, */
#define PAIRS_ASPECT_MAX 2         /* sides at most 1 : 2, and NSFW exactly UNLIKELY */

struct pairs_options {
    const char *const *path; /* shards, always in the same order */
    size_t paths;
    const struct unigram *tokenizer; /* borrowed */
    int text;                        /* T: tokens to which a caption is truncated or padded */
    int pad;                         /* the padding id: 1 in the reference run */
    int cells;                       /* image tokens per picture */
    int codes;                       /* they are 0 .. codes - 1; at most 32768 */
    size_t buffer;                   /* pairs that are shuffled together; 0: PAIRS_BUFFER */
    uint64_t seed;
    const char *const *exclude; /* captions to exclude (held out); copied */
    size_t excludes;
    int only_excluded; /* 1: only these, to evaluate on */
    uint64_t limit;    /* use only this many rows, evenly spaced over the shards; 0: all */
    /* Opens a shard that is not a local file; NULL: all are files. Calls with one opener, 0 to
     * openers - 1, come one after the other, those with different openers at the same time; the
     * sources are used by the thread that calls. The reading thread is opener 0. */
    int (*open)(void *context, int opener, struct pl_source **source, const char *name,
                struct pl_err *err);
    void *open_context;
    int openers; /* 1 to PAIRS_OPENERS_MAX */
};

/* Rows read during an epoch, and their fate. A dropped row counts for the first rule it fails. */
struct pairs_counts {
    uint64_t rows, used, caption, nsfw, aspect, no_code, held_out;
};

/* Whether a row (numbered over all shards) is among `limit` rows evenly spaced in `total`: those
 * where floor(row * limit / total) increases. At most 2^32 rows. */
int pl_pairs_within_limit(uint64_t row, uint64_t limit, uint64_t total);

struct pairs;

/* Opens every shard once, to count its rows, `openers` at a time. On error *out is NULL and err
 * names the first shard that is not usable. */
int pl_pairs_open(struct pairs **out, const struct pairs_options *options, struct pl_err *err);
/* The codec that the shards name; "": none does. */
const char *pl_pairs_codec(const struct pairs *p);
void pl_pairs_close(struct pairs *p);

/* The next pair: tokens (text), codes (cells). An epoch gives every pair once; the next one has
 * another order. PL_ENOTFOUND: no row passes the filter. */
int pl_pairs_next(struct pairs *p, int32_t *tokens, int32_t *codes, struct pl_err *err);

/* A position: where the next pair comes from. pl_pairs_position fills one, at any time. */
struct pair_location {
    uint32_t shard;
    uint64_t row;
};
struct pairs_position {
    uint64_t given, epoch; /* pairs since the beginning; epochs completed */
    uint64_t rng[4];
    uint32_t at_shard;              /* index into the epoch's order of shards */
    uint64_t at_row;                /* next row to read there */
    struct pairs_counts now, last;  /* this epoch so far; the previous one */
    size_t count;                   /* pairs in the buffer */
    struct pair_location *location; /* where they are stored; owned */
};
int pl_pairs_position(const struct pairs *p,
                      struct pairs_position *position); /* PL_OK, PL_ENOMEM */
void pl_pairs_position_clear(struct pairs_position *position);

/* The position as JSON text, with the identity of the data (names and rows of shards, seed,
 * buffer); the caller frees it. NULL: no memory. */
char *pl_pairs_save(const struct pairs *p, const struct pairs_position *position);
/* Continues exactly at a saved position. PL_EUSE if the data or options differ. */
int pl_pairs_restore(struct pairs *p, const char *json, struct pl_err *err);

#endif
