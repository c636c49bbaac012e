/* scratch.c - buffers that outlive the call that needed them. Fresh pages cost more than most
 * operations here: the kernel zeroes them one by one at 2 GB/s. So big buffers are kept and lent
 * again, on large pages where the system gives them. */
#include "fast.h"

#include <pthread.h>
#include <stdlib.h>
#include <sys/mman.h>

#define KEPT 32              /* buffers: a few for each thread of a small machine; more are freed */
#define LARGE_PAGE (2u << 20)

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct {
    void *memory;
    size_t bytes;
    int lent;
} kept[KEPT];

static void *fresh(size_t bytes)
{
    void *p;
    size_t page = bytes >= 2 * LARGE_PAGE ? LARGE_PAGE : 64;
    if (bytes > (size_t)PTRDIFF_MAX - page) return NULL;
    p = aligned_alloc(page, (bytes + page - 1) / page * page);
    if (p && page == LARGE_PAGE) madvise(p, bytes, MADV_HUGEPAGE); /* a wish: failure is no trouble */
    return p;
}

/* A kept buffer that fits with the least waste; else an empty place, else the smallest buffer,
 * which is replaced; -1: all are lent. */
static int choose(size_t bytes)
{
    int best = -1;
    for (int i = 0; i < KEPT; i++) {
        int fits = kept[i].bytes >= bytes, best_fits = best >= 0 && kept[best].bytes >= bytes;
        if (kept[i].lent) continue;
        if (best < 0 || (fits && (!best_fits || kept[i].bytes < kept[best].bytes)) ||
            (!fits && !best_fits && kept[i].bytes < kept[best].bytes))
            best = i;
    }
    return best;
}

float *fast_take(size_t floats)
{
    size_t bytes;
    void *p;
    int i;
    if (pl_size_mul(&bytes, floats ? floats : 1, sizeof(float))) return NULL;
    pthread_mutex_lock(&lock);
    i = choose(bytes);
    if (i < 0) p = fresh(bytes);
    else {
        if (kept[i].bytes < bytes) {
            free(kept[i].memory);
            kept[i].memory = fresh(bytes);
            kept[i].bytes = kept[i].memory ? bytes : 0;
        }
        p = kept[i].memory;
        kept[i].lent = p != NULL;
    }
    pthread_mutex_unlock(&lock);
    return p;
}

void fast_give(float *p)
{
    int i = 0;
    if (!p) return;
    pthread_mutex_lock(&lock);
    while (i < KEPT && kept[i].memory != p) i++;
    if (i < KEPT) kept[i].lent = 0;
    pthread_mutex_unlock(&lock);
    if (i == KEPT) free(p);
}
