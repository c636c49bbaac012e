/* source.h - "read these bytes": a file or memory here; anything else that can answer read_at. */
#ifndef PL_SOURCE_H
#define PL_SOURCE_H

#include "ref/base.h"

struct pl_source {
    const char *name; /* for error sentences */
    uint64_t size;
    /* Fills all `bytes` from `at`, which lie inside; may be called from one thread at a time. */
    int (*read_at)(struct pl_source *s, uint64_t at, void *out, size_t bytes, struct pl_err *err);
    void (*close)(struct pl_source *s);
};

/* *out is NULL after an error; the caller closes it otherwise. The memory is borrowed. */
int pl_source_file(struct pl_source **out, const char *path, struct pl_err *err);
int pl_source_memory(struct pl_source **out, const char *name, const void *data, size_t bytes,
                     struct pl_err *err);
void pl_source_close(struct pl_source *s);

/* read_at after checking that the range lies inside. */
int pl_source_read(struct pl_source *s, uint64_t at, void *out, size_t bytes, struct pl_err *err);

#endif
