/* pool.c - the smallest free buffer that is large enough, and at most twice as large, serves a
 * request. A list is enough: a pass holds at most a few hundred buffers. */
#include "pool.h"
#include "ref/small.h"

#include <stdlib.h>

struct pool {
    struct pl_scratch base; /* first: the models see it alone */
    const struct pl_backend *be;
    struct buffer {
        float *at;
        size_t floats;
        int busy;
    } * list;
    size_t count, capacity;
};

static struct pool *of(struct pl_scratch *scratch) { return (struct pool *)scratch; }

static void free_idle(struct pool *pool)
{
    size_t busy = 0;
    for (size_t i = 0; i < pool->count; i++) {
        if (pool->list[i].busy) pool->list[busy++] = pool->list[i];
        else pool->be->free(pool->list[i].at);
    }
    pool->count = busy;
}

static float *take(struct pl_scratch *scratch, size_t n)
{
    struct pool *pool = of(scratch);
    struct buffer *best = NULL;
    size_t bytes;
    float *at;
    for (size_t i = 0; i < pool->count; i++) {
        struct buffer *b = &pool->list[i];
        if (!b->busy && b->floats >= n && b->floats / 2 <= n && (!best || b->floats < best->floats))
            best = b;
    }
    if (best) {
        best->busy = 1;
        return best->at;
    }
    if (pl_grow(&pool->list, pool->count, &pool->capacity, 64)) return NULL;
    if (pl_size_mul(&bytes, n ? n : 1, sizeof(float))) return NULL;
    at = pool->be->alloc(bytes);
    if (!at) { /* idle buffers of other sizes may be in the way */
        free_idle(pool);
        at = pool->be->alloc(bytes);
    }
    if (at) pool->list[pool->count++] = (struct buffer){ .at = at, .floats = n, .busy = 1 };
    return at;
}

static void give(struct pl_scratch *scratch, const float *at)
{
    struct pool *pool = of(scratch);
    for (size_t i = 0; i < pool->count; i++)
        if (pool->list[i].at == at) pool->list[i].busy = 0;
}

static void give_all(struct pl_scratch *scratch)
{
    struct pool *pool = of(scratch);
    for (size_t i = 0; i < pool->count; i++) pool->list[i].busy = 0;
}

struct pl_scratch *pl_pool_open(const struct pl_backend *be)
{
    struct pool *pool = calloc(1, sizeof *pool);
    if (!pool) return NULL;
    pool->base = (struct pl_scratch){ take, give, give_all };
    pool->be = be;
    return &pool->base;
}

void pl_pool_close(struct pl_scratch *scratch)
{
    if (!scratch) return;
    give_all(scratch);
    free_idle(of(scratch));
    free(of(scratch)->list);
    free(of(scratch));
}
