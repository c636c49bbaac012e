/* memory_stream.h - a stream that writes into memory, and says so where there is too little of it.
 * glibc's open_memstream() leaves out what it has no memory for, and neither ferror() nor fclose()
 * tells. */
#ifndef PL_MEMORY_STREAM_H
#define PL_MEMORY_STREAM_H

#include "ref/base.h"

#include <stdio.h>

struct pl_memory_stream {
    char *text; /* after close: zero-terminated, freed by the caller with free() */
    size_t bytes, capacity;
};

/* s lives until close. NULL: no memory. */
FILE *pl_memory_stream_open(struct pl_memory_stream *s);
/* PL_OK or PL_ENOMEM; then text is NULL. f NULL: was never opened, PL_ENOMEM. */
int pl_memory_stream_close(struct pl_memory_stream *s, FILE *f);

#endif
