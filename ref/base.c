/* base.c - status and message of an error, sizes that cannot overflow, aligned memory.
 *
 * Memory is aligned to 64 bytes, a cache line and the widest vector register; larger buffers begin
 * on a large page, of which the operating system needs fewer to find them. A backend of somebody
 * else's may compile this file as it is, with -std=c11 alone. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE /* clock_gettime, madvise */
#endif
#include "base.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

#define LARGE_PAGE ((size_t)2 << 20)

/* Writes the sentence and returns the status, so that refusing is one statement. */
int pl_fail(struct pl_err *err, int status, const char *format, ...)
{
    va_list args;
    if (!err) return status;
    va_start(args, format);
    vsnprintf(err->text, sizeof err->text, format, args);
    va_end(args);
    /* The text may quote names from outside: control characters must not break the line or steer a
     * terminal. */
    for (char *c = err->text; *c; c++)
        if ((unsigned char)*c < 32 || *c == 127) *c = '?';
    return status;
}

/* For messages about errors that bring no sentence of their own. */
const char *pl_status_name(int status)
{
    switch (status) {
    case PL_OK: return "no error";
    case PL_ENOMEM: return "out of memory";
    case PL_EDEVICE: return "device missing or failed";
    case PL_EIO: return "input/output error";
    case PL_EFORMAT: return "malformed data";
    case PL_ELIMIT: return "limit exceeded";
    case PL_EPROTO: return "protocol violated";
    case PL_EUSE: return "unusable argument";
    case PL_EAGAIN: return "not finished";
    case PL_ENOTFOUND: return "not found";
    default: return "unknown status";
    }
}

/* Sizes come from files and messages, where a product may wrap around to a small number.
 * n * size <= PTRDIFF_MAX, so that differences of pointers into it are defined as well. */
int pl_size_mul(size_t *out, size_t n, size_t size)
{
    if (size && n > (size_t)PTRDIFF_MAX / size) return PL_ELIMIT;
    *out = n * size;
    return PL_OK;
}

/* aligned_alloc needs a size that is a multiple of the alignment. */
void *pl_alloc_unset(size_t n, size_t size)
{
    size_t bytes, page;
    void *p;
    if (pl_size_mul(&bytes, n, size) || bytes > (size_t)PTRDIFF_MAX - LARGE_PAGE) return NULL;
    if (!bytes) bytes = 1;
    /* from two large pages on, what rounding up wastes is less than half */
    page = bytes < 2 * LARGE_PAGE ? 64 : LARGE_PAGE;
    p = aligned_alloc(page, (bytes + page - 1) / page * page);
#ifdef MADV_HUGEPAGE
    if (p && page == LARGE_PAGE) madvise(p, bytes, MADV_HUGEPAGE); /* a hint */
#endif
    return p;
}

void *pl_alloc(size_t n, size_t size)
{
    void *p = pl_alloc_unset(n, size);
    if (p) memset(p, 0, n * size);
    return p;
}

void pl_free(void *p) { free(p); }

/* "dir/name"; the caller frees it. */
char *pl_path_join(const char *dir, const char *name)
{
    size_t a = strlen(dir), b = strlen(name);
    int slash = a && dir[a - 1] != '/';
    char *path = malloc(a + b + 2);
    if (!path) return NULL;
    memcpy(path, dir, a);
    if (slash) path[a++] = '/';
    memcpy(path + a, name, b + 1);
    return path;
}

/* Seconds of a clock that is never set back; only differences mean something. */
double pl_seconds(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}
