/* allreduce_buffers.c - memory that outlives a message, or a round.
 *
 * To map a new page costs the kernel more time than the all-reduce spends on its contents. So
 * message buffers return to a pool, and data that a round keeps until its end is in two blocks that
 * one round hands on to the next. */
#include "allreduce_buffers.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

/* The last buffer given is taken first: it is the likeliest to be in the CPU's caches. */
struct bytes buffer_pool_take(struct buffer_pool *p)
{
    return p->count ? p->spare[--p->count] : (struct bytes){ 0 };
}

void buffer_pool_give(struct buffer_pool *p, struct bytes *b)
{
    /* Beyond the limit memory is returned to the system, so that a burst of messages does not
     * occupy it permanently. */
    if (!b->data || b->failed || p->count == BUFFER_POOL_MAX) {
        bytes_clear(b);
        return;
    }
    b->begin = b->end = 0;
    p->spare[p->count++] = *b;
    memset(b, 0, sizeof *b);
}

void buffer_pool_clear(struct buffer_pool *p)
{
    while (p->count) bytes_clear(&p->spare[--p->count]);
}

/* Ordinary pages: the buffer is written and read once per round, so huge pages gain little. A
 * virtual machine that returns free memory to its host would have to get huge pages from it
 * again. */
uint8_t *allreduce_block_reserve(struct allreduce_block *r, size_t n)
{
    r->is_new = !r->data || r->n < n;
    if (!r->is_new) return r->data;
    free(r->data);
    r->data = malloc(n + 1);
    r->n = r->data ? n : 0;
    return r->data;
}

/* In memory that is new to the system, this touches all pages of a message at once: page faults one
 * by one, at each first write, cost twice as much. */
void allreduce_block_put(const struct allreduce_block *r, uint8_t *place, const uint8_t *data,
                         size_t n)
{
#ifdef MADV_POPULATE_WRITE
    if (r->is_new) {
        uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);
        /* Only whole pages inside the message: those at its ends belong to its neighbours,
         * too. */
        uintptr_t from = ((uintptr_t)place + page - 1) / page * page;
        uintptr_t end = ((uintptr_t)place + n) / page * page;
        if (end > from) (void)madvise((void *)from, end - from, MADV_POPULATE_WRITE);
    }
#endif
    if (n) memcpy(place, data, n);
}

/* After the last round of an averager, not after each. */
void allreduce_memory_clear(struct allreduce_memory *m)
{
    free(m->messages.data);
    free(m->answers.data);
    memset(m, 0, sizeof *m);
}
