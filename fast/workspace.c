/* workspace.c - one scratch buffer per thread, in thread-specific storage that is freed when the
 * thread ends. */
#include "workspace.h"

#include "../ref/base.h"

#include <pthread.h>
#include <stdlib.h>

struct owned {
    size_t n;
    float *floats;
};

static pthread_key_t key;
static int have_key;
static pthread_once_t once = PTHREAD_ONCE_INIT;

static void release(void *p)
{
    struct owned *w = p;
    free(w->floats);
    free(w);
}

static void make_key(void) { have_key = !pthread_key_create(&key, release); }

float *workspace(size_t n)
{
    struct owned *w;
    size_t bytes;
    pthread_once(&once, make_key);
    if (!have_key) return NULL;
    w = pthread_getspecific(key);
    if (!w) {
        w = calloc(1, sizeof *w);
        if (!w || pthread_setspecific(key, w)) {
            free(w);
            return NULL;
        }
    }
    if (n <= w->n) return w->floats;
    if (pl_size_mul(&bytes, n, sizeof *w->floats) || bytes > (size_t)PTRDIFF_MAX - 64) return NULL;
    free(w->floats);
    w->floats = aligned_alloc(64, (bytes + 63) / 64 * 64);
    w->n = w->floats ? n : 0;
    return w->floats;
}
