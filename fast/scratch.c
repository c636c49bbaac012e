/* scratch.c - a cache of large scratch buffers. Fresh pages cost more than most operations: the
 * kernel zeroes them one by one at 2 GB/s. So buffers are cached and reused, on huge pages where
 * the system provides them. */
#include "fast.h"

#include <pthread.h>
#include <stdlib.h>
#include <sys/mman.h>

#define CACHED_MAX 32 /* buffers: a few for each thread of a small machine; more are freed */
#define LARGE_PAGE (2u << 20)

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct {
    void *memory;
    size_t bytes;
    int in_use;
} cache[CACHED_MAX];

static void *allocate(size_t bytes)
{
    void *p;
    size_t page = bytes >= 2 * LARGE_PAGE ? LARGE_PAGE : 64;
    if (bytes > (size_t)PTRDIFF_MAX - page) return NULL;
    p = aligned_alloc(page, (bytes + page - 1) / page * page);
    if (p && page == LARGE_PAGE) madvise(p, bytes, MADV_HUGEPAGE); /* a hint: failure is harmless */
    return p;
}

/* The cached buffer that fits with the least waste; else an empty entry, else the smallest buffer,
 * which is replaced. -1: all are in use. */
static int best_fit(size_t bytes)
{
    int best = -1;
    for (int i = 0; i < CACHED_MAX; i++) {
        int fits = cache[i].bytes >= bytes, best_fits = best >= 0 && cache[best].bytes >= bytes;
        if (cache[i].in_use) continue;
        if (best < 0 || (fits && (!best_fits || cache[i].bytes < cache[best].bytes)) ||
            (!fits && !best_fits && cache[i].bytes < cache[best].bytes))
            best = i;
    }
    return best;
}

float *fast_scratch_alloc(size_t floats)
{
    size_t bytes;
    void *p;
    int i;
    if (pl_size_mul(&bytes, floats ? floats : 1, sizeof(float))) return NULL;
    pthread_mutex_lock(&lock);
    i = best_fit(bytes);
    if (i < 0) p = allocate(bytes);
    else {
        if (cache[i].bytes < bytes) {
            free(cache[i].memory);
            cache[i].memory = allocate(bytes);
            cache[i].bytes = cache[i].memory ? bytes : 0;
        }
        p = cache[i].memory;
        cache[i].in_use = p != NULL;
    }
    pthread_mutex_unlock(&lock);
    return p;
}

void fast_scratch_free(float *p)
{
    int i = 0;
    if (!p) return;
    pthread_mutex_lock(&lock);
    while (i < CACHED_MAX && cache[i].memory != p) i++;
    if (i < CACHED_MAX) cache[i].in_use = 0;
    pthread_mutex_unlock(&lock);
    if (i == CACHED_MAX) free(p);
}
