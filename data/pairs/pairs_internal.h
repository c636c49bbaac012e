/* pairs_internal.h - the struct shared by pairs_shuffle.c, which gives pairs, and pairs_position.c,
 * which saves and restores positions. */
#ifndef PL_PAIRS_INTERNAL_H
#define PL_PAIRS_INTERNAL_H

#include "pairs.h"
#include "shard.h"
#include "ref/rng.h"

struct text {
    char *bytes;
    size_t length;
};

struct pairs {
    struct pairs_options o;
    char **name;     /* of the shards */
    uint64_t *rows;  /* rows of each */
    uint64_t *first; /* rows in all shards before it */
    uint64_t total;
    char codec[SHARD_CODEC_MAX + 1]; /* of all shards that name one */
    struct text *exclude;            /* sorted */
    size_t excludes;
    uint32_t *order;     /* of this epoch */
    struct shard *shard; /* the one being read, or NULL */
    uint64_t given, epoch, at_row;
    uint32_t at_shard;
    struct pl_rng rng;
    struct pairs_counts now, last;
    size_t count; /* pairs in the buffer: slots slot[0 .. count-1] are in use */
    uint32_t *slot;
    struct pair_location *location; /* by slot, as the next two */
    int32_t *tokens;
    uint16_t *codes;
};

int pl_pairs_open_shard(struct shard **out, const struct pairs *p, int opener, size_t index,
                        struct pl_err *err);
/* Opens every shard: p->rows, p->first, p->total, p->codec. */
int pl_pairs_count_rows(struct pairs *p, struct pl_err *err);
/* Puts the shards into the order of p->epoch and starts with the first. */
void pl_pairs_start_epoch(struct pairs *p);
/* The counter of the first rule that the row fails, or NULL. */
uint64_t *pl_pairs_failed_rule(const struct pairs *p, const struct shard_row *row,
                               struct pairs_counts *counts);
/* Reads tokens and codes of row `at` of a shard into a slot of the buffer. */
int pl_pairs_fill_slot(struct pairs *p, uint32_t slot, uint32_t shard, uint64_t at,
                       const struct shard_row *row, struct pl_err *err);

#endif
