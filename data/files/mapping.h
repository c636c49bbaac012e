/* mapping.h - a whole file mapped into memory, read only: the kernel reads pages when they are
 * accessed. */
#ifndef PL_MAPPING_H
#define PL_MAPPING_H

#include "ref/base.h"

struct pl_mapping {
    const uint8_t *at; /* never NULL while open, also for an empty file */
    size_t bytes;
};

/* Maps a file; err names it. After an error *m is all zero and need not be closed. If another
 * program truncates a mapped file, access raises SIGBUS; potluck never truncates files in place. */
int pl_mapping_open(struct pl_mapping *m, const char *path, struct pl_err *err);
/* Releases the whole pages of a part that has been read: they leave this process' memory, and are
 * read again when accessed. Ranges outside the file are ignored. */
void pl_mapping_let_go(const struct pl_mapping *m, const void *from, size_t bytes);
void pl_mapping_close(struct pl_mapping *m); /* does nothing if *m is all zero */

#endif
