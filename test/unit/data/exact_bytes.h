/* exact_bytes.h - bytes that end where an inaccessible page begins: a parser that reads one byte too
 * far is killed, with or without a sanitizer. */
#ifndef TEST_EXACT_BYTES_H
#define TEST_EXACT_BYTES_H

#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

static inline size_t exact_pages(size_t bytes)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    return (bytes + page - 1) / page * page;
}

/* The caller frees the bytes with exact_free. NULL: no memory. */
static inline uint8_t *exact_alloc(size_t bytes)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE), all = exact_pages(bytes);
    uint8_t *at = mmap(NULL, all + page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1,
                       0);
    if (at == MAP_FAILED) return NULL;
    mprotect(at + all, page, PROT_NONE);
    return at + all - bytes;
}

/* The same with a copy of the data. */
static inline uint8_t *exact_copy(const void *data, size_t bytes)
{
    uint8_t *at = exact_alloc(bytes);
    if (at && bytes) memcpy(at, data, bytes);
    return at;
}

static inline void exact_free(uint8_t *copy, size_t bytes)
{
    size_t all = exact_pages(bytes);
    munmap(copy + bytes - all, all + (size_t)sysconf(_SC_PAGESIZE));
}

#endif
