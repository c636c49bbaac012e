/* queue.c - events ordered by time, then by their order of arrival: a binary heap. */
#include "queue.h"

#include <stdlib.h>
#include <string.h>

static int before(const struct event *a, const struct event *b)
{
    return a->at != b->at ? a->at < b->at : a->order < b->order;
}

int queue_push(struct queue *q, const struct event *e)
{
    size_t i = q->count;
    if (q->count == q->capacity) {
        size_t capacity = q->capacity ? 2 * q->capacity : 1024;
        struct event *more = realloc(q->heap, capacity * sizeof *more);
        if (!more) return PL_ENOMEM;
        q->heap = more;
        q->capacity = capacity;
    }
    q->heap[i] = *e;
    q->heap[i].order = q->pushed++;
    q->count++;
    for (size_t up; i && before(&q->heap[i], &q->heap[up = (i - 1) / 2]); i = up) {
        struct event swap = q->heap[i];
        q->heap[i] = q->heap[up];
        q->heap[up] = swap;
    }
    return PL_OK;
}

struct event queue_pop(struct queue *q)
{
    struct event first = q->heap[0], moved = q->heap[--q->count];
    size_t i = 0, down;
    while ((down = 2 * i + 1) < q->count) {
        if (down + 1 < q->count && before(&q->heap[down + 1], &q->heap[down])) down++;
        if (!before(&q->heap[down], &moved)) break;
        q->heap[i] = q->heap[down];
        i = down;
    }
    q->heap[i] = moved;
    return first;
}

void queue_clear(struct queue *q)
{
    free(q->heap);
    memset(q, 0, sizeof *q);
}
