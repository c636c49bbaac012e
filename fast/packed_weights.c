/* packed_weights.c - owns the packed copies of registered parameters. Each operation that may write
 * to parameters reports it when it has finished (fast_written), and the copies that it touched are
 * packed again by the next GEMM that needs them.
 *
 * Memory: the copies of one buffer of parameters take at most as many bytes as the buffer. Both
 * layouts, W for y = x W^T and W^T for the gradient to x, fit into that with 2 bytes a value. */
#include "packed_weights.h"

#include "../ref/small.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

struct copy {
    struct fast_packing of;
    uint32_t *panels;
    int current; /* equal to the weights, rounded */
};

struct region { /* one registered buffer */
    const float *value;
    size_t n;    /* floats */
    size_t used; /* words of all copies, at most n */
    struct copy *copies;
    size_t count, capacity;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct region *regions;
static size_t region_count, region_capacity;

int fast_weights(const float *value, size_t n)
{
    int rc;
    pthread_mutex_lock(&lock);
    rc = pl_grow(&regions, region_count, &region_capacity, 8);
    if (rc == PL_OK) regions[region_count++] = (struct region){ .value = value, .n = n };
    pthread_mutex_unlock(&lock);
    return rc;
}

void fast_free(void *p)
{
    pthread_mutex_lock(&lock);
    for (size_t r = 0; r < region_count; r++) {
        if (regions[r].value != p) continue;
        for (size_t i = 0; i < regions[r].count; i++) pl_free(regions[r].copies[i].panels);
        free(regions[r].copies);
        regions[r] = regions[--region_count];
        break;
    }
    pthread_mutex_unlock(&lock);
    pl_free(p);
}

/* One past the last float of W. */
static const float *end_of(const struct fast_packing *p)
{
    size_t rows = (size_t)(p->tb ? p->n : p->k), columns = (size_t)(p->tb ? p->k : p->n);
    return p->W + (rows - 1) * (size_t)p->ld + columns;
}

void fast_written(const void *p, size_t bytes)
{
    const char *begin = p, *end = begin + bytes;
    pthread_mutex_lock(&lock);
    for (size_t r = 0; r < region_count; r++) {
        const struct region *w = &regions[r];
        if (begin >= (const char *)(w->value + w->n) || end <= (const char *)w->value) continue;
        for (size_t i = 0; i < w->count; i++)
            if (begin < (const char *)end_of(&w->copies[i].of) &&
                end > (const char *)w->copies[i].of.W)
                w->copies[i].current = 0;
    }
    pthread_mutex_unlock(&lock);
}

int fast_put(void *device, const void *host, size_t bytes)
{
    if (bytes) memcpy(device, host, bytes);
    fast_written(device, bytes);
    return PL_OK;
}

static int is_same(const struct fast_packing *a, const struct fast_packing *b)
{
    return a->W == b->W && a->ld == b->ld && a->tb == b->tb && a->n == b->n && a->k == b->k &&
           a->slab == b->slab && a->apart == b->apart;
}

/* The copy of this packing, or a new one. NULL: no room. */
static struct copy *find_or_add(const struct fast_packing *packing, size_t count)
{
    struct region *w = regions;
    struct copy added = { .of = *packing };
    while (w < regions + region_count &&
           (packing->W < w->value || end_of(packing) > w->value + w->n))
        w++;
    if (w == regions + region_count) return NULL;
    for (size_t i = 0; i < w->count; i++)
        if (is_same(&w->copies[i].of, packing)) return &w->copies[i];
    if (count > w->n - w->used || pl_grow(&w->copies, w->count, &w->capacity, 64) ||
        !(added.panels = pl_alloc_unset(count, sizeof *added.panels)))
        return NULL;
    w->used += count;
    w->copies[w->count] = added;
    return &w->copies[w->count++];
}

/* Packs with the lock held: other threads that want the same weights wait for them. */
const uint32_t *fast_packed_weights(const struct fast_packing *packing, size_t count,
                                    void (*pack)(uint32_t *to, const void *context),
                                    const void *context)
{
    const uint32_t *panels = NULL;
    struct copy *c;
    pthread_mutex_lock(&lock);
    if ((c = find_or_add(packing, count))) {
        if (!c->current) pack(c->panels, context);
        c->current = 1;
        panels = c->panels;
    }
    pthread_mutex_unlock(&lock);
    return panels;
}
