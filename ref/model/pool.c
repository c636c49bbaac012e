/* pool.c - see pool.h. A list is enough: a pass holds at most a few hundred buffers. */
#include "pool.h"

#include <stdlib.h>

/* Frees what nobody holds. */
static void shrink(struct pl_pool *pool)
{
    size_t kept = 0;
    for (size_t i = 0; i < pool->count; i++) {
        if (pool->list[i].busy) pool->list[kept++] = pool->list[i];
        else pool->be->free(pool->list[i].at);
    }
    pool->count = kept;
}

float *pl_pool_take(struct pl_pool *pool, size_t n)
{
    struct pl_pool_buffer *best = NULL;
    size_t bytes;
    float *at;
    for (size_t i = 0; i < pool->count; i++) {
        struct pl_pool_buffer *b = &pool->list[i];
        if (!b->busy && b->floats >= n && b->floats / 2 <= n && (!best || b->floats < best->floats))
            best = b;
    }
    if (best) {
        best->busy = 1;
        return best->at;
    }
    if (pool->count == pool->room) {
        size_t room = pool->room ? 2 * pool->room : 64;
        struct pl_pool_buffer *list = realloc(pool->list, room * sizeof *list);
        if (!list) return NULL;
        pool->list = list;
        pool->room = room;
    }
    if (pl_size_mul(&bytes, n ? n : 1, sizeof(float))) return NULL;
    at = pool->be->alloc(bytes);
    if (!at) {
        shrink(pool);
        at = pool->be->alloc(bytes);
    }
    if (at) pool->list[pool->count++] = (struct pl_pool_buffer){ .at = at, .floats = n, .busy = 1 };
    return at;
}

void pl_pool_give(struct pl_pool *pool, const float *at)
{
    for (size_t i = 0; i < pool->count; i++)
        if (pool->list[i].at == at) pool->list[i].busy = 0;
}

void pl_pool_give_all(struct pl_pool *pool)
{
    for (size_t i = 0; i < pool->count; i++) pool->list[i].busy = 0;
}

void pl_pool_clear(struct pl_pool *pool)
{
    pl_pool_give_all(pool);
    shrink(pool);
    free(pool->list);
    pool->list = NULL;
    pool->room = 0;
}
