/* source.h - random access to bytes: a file, memory, or anything else that implements read_at (such
 * as HTTP ranges). */
#ifndef PL_SOURCE_H
#define PL_SOURCE_H

#include "ref/base.h"

struct pl_source {
    const char *name; /* for error messages */
    uint64_t size;
    /* Reads exactly `bytes` bytes at offset `at`; the range is inside the source. Called from one
     * thread at a time. */
    int (*read_at)(struct pl_source *s, uint64_t at, void *out, size_t bytes, struct pl_err *err);
    void (*close)(struct pl_source *s);
};

/* *out is NULL after an error; otherwise the caller closes it. `data` is borrowed. */
int pl_source_file(struct pl_source **out, const char *path, struct pl_err *err);
int pl_source_memory(struct pl_source **out, const char *name, const void *data, size_t bytes,
                     struct pl_err *err);
void pl_source_close(struct pl_source *s);

/* Checks that the range is inside (PL_EFORMAT), then calls read_at. */
int pl_source_read(struct pl_source *s, uint64_t at, void *out, size_t bytes, struct pl_err *err);

#endif
