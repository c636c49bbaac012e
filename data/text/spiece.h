/* spiece.h - the contents of a spiece.model: pieces, scores, the character map. The file is a
 * protocol buffer; fields that encoding does not need are skipped. [spec images-and-text 5.1] */
#ifndef PL_SPIECE_H
#define PL_SPIECE_H

#include "ref/base.h"

#define SPIECE_FILE_MAX (16u << 20) /* the largest public models (250,000 pieces) have 4 to 6 MB */
#define SPIECE_PIECES_MAX (1u << 20)
#define SPIECE_BYTES_MAX 512  /* of one piece; trainers stop at 16 characters */
#define SPIECE_SCORE_MAX 1e9f /* log probabilities; the limit keeps sums finite */

enum spiece_type {
    SPIECE_NORMAL = 1,
    SPIECE_UNKNOWN,
    SPIECE_CONTROL,
    SPIECE_USER,
    SPIECE_UNUSED,
    SPIECE_BYTE
};

struct spiece {
    const char *text; /* borrowed from the file's bytes; valid UTF-8, not zero-terminated */
    uint32_t n;       /* 1 .. SPIECE_BYTES_MAX */
    float score;      /* at most SPIECE_SCORE_MAX either way */
    uint8_t type;
};

struct spiece_model {
    struct spiece *pieces; /* the id is the index */
    size_t count;
    int unknown;        /* id of the one piece of that type */
    const uint8_t *map; /* character map, borrowed; map_bytes may be 0 */
    size_t map_bytes;
    int dummy_prefix, collapse_spaces, escape_spaces; /* the normalizer's settings */
};

/* Parses a model; `data` must outlive it. PL_EFORMAT with a message that names `file` and the
 * position. On error *m is empty. */
int pl_spiece_read(struct spiece_model *m, const void *data, size_t bytes, const char *file,
                   struct pl_err *err);
void pl_spiece_clear(struct spiece_model *m);

#endif
