/* memory_stream.c - stdio's own buffer in front of a growing text. */
#include "memory_stream.h"
#include "ref/small.h"

#include <stdlib.h>
#include <string.h>

#define FIRST 4096 /* bytes; doubled where they are too few */

/* Fewer bytes than n: an error, which stays with the stream. */
static ssize_t append(void *cookie, const char *from, size_t n)
{
    struct pl_memory_stream *s = cookie;
    if (pl_grow_by(&s->text, s->bytes, n + 1, &s->capacity, FIRST)) return 0; /* and a zero byte */
    memcpy(s->text + s->bytes, from, n);
    s->text[s->bytes += n] = 0;
    return (ssize_t)n;
}

static void clear(struct pl_memory_stream *s)
{
    free(s->text);
    memset(s, 0, sizeof *s);
}

FILE *pl_memory_stream_open(struct pl_memory_stream *s)
{
    const cookie_io_functions_t functions = { .write = append };
    FILE *f;
    *s = (struct pl_memory_stream){ .text = calloc(1, FIRST), .capacity = FIRST };
    if (s->text && (f = fopencookie(s, "w", functions))) return f;
    clear(s);
    return NULL;
}

int pl_memory_stream_close(struct pl_memory_stream *s, FILE *f)
{
    int broken = !f || ferror(f);
    if (f && fclose(f)) broken = 1;
    if (broken) clear(s);
    return broken ? PL_ENOMEM : PL_OK;
}
