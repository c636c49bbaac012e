/* reference_images.h - all pairs of a data set with their pictures in memory, to find the picture
 * that a drawing is nearest to. */
#ifndef PL_CMD_REFERENCE_IMAGES_H
#define PL_CMD_REFERENCE_IMAGES_H

#include "cmd/generate/sample_images.h"

struct reference_images {
    size_t count, cells; /* pairs; codes a picture */
    char **caption;
    int32_t *codes; /* (count,cells) */
    unsigned char *held_out;
    uint64_t *row, rows;      /* each pair's row over all shards; rows in all */
    struct pl_image *picture; /* decoded from the codes: the result of a perfect drawing */
};

/* Every row of the shards that passes the reference run's filter; `without`: captions that were
 * held out. */
int reference_images_open(struct reference_images *g, const char *const *shard, size_t shards,
                          const char *const *without, size_t without_count, int cells,
                          struct pl_err *err);
/* Drops the pairs that training with this limit never uses, except the held-out ones; before
 * decoding. */
void reference_images_limit(struct reference_images *g, uint64_t limit);
/* Keeps the pairs of the given captions and `most` others, evenly spread. Call it before
 * decoding. */
void reference_images_thin(struct reference_images *g, size_t most, char *const *caption,
                           size_t captions);
/* Decodes all pictures. */
int reference_images_decode(struct reference_images *g, struct image_sampler *p,
                            struct pl_err *err);
void reference_images_close(struct reference_images *g);

/* Returns the index of this caption's first pair; g->count: it has none. */
size_t reference_images_find(const struct reference_images *g, const char *caption);
/* The pair whose picture has the least squared difference of pixels. Among equals (some flags are
 * the same picture) `own`, otherwise the first. */
size_t reference_images_nearest(const struct reference_images *g, const struct pl_image *drawn,
                                size_t own);

#endif
