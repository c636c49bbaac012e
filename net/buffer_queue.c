/* buffer_queue.c - a list of buffers.
 *
 * A megabyte that waits for a stream's window should be copied once, into the cipher. So a large
 * buffer joins the queue with its memory, and the giver gets the memory of one that was sent. Small
 * ones are appended to the last buffer: a list of a thousand tiny pieces would cost more. */
#include "buffer_queue.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#define SPARES 4     /* pieces kept: as many messages as are under way at once */
#define SMALL 16384u /* bytes that a piece may be moved with, so that more fit behind them */

static void free_pieces(struct buffer_queue_piece *p)
{
    while (p) {
        struct buffer_queue_piece *next = p->next;
        bytes_clear(&p->bytes);
        free(p);
        p = next;
    }
}

void buffer_queue_clear(struct buffer_queue *c)
{
    free_pieces(c->first);
    free_pieces(c->spare);
    memset(c, 0, sizeof *c);
}

/* An empty piece, with memory of one before where there is some. */
static struct buffer_queue_piece *empty_piece(struct buffer_queue *c)
{
    struct buffer_queue_piece *p = c->spare;
    if (!p) return calloc(1, sizeof *p);
    c->spare = p->next;
    c->spares--;
    p->next = NULL;
    return p;
}

/* A few empty buffers are kept: their pages are mapped already. */
static void keep_or_free(struct buffer_queue *c, struct buffer_queue_piece *p)
{
    p->next = NULL;
    if (c->spares == SPARES || p->bytes.failed) {
        free_pieces(p);
        return;
    }
    p->next = c->spare;
    c->spare = p;
    c->spares++;
}

static void append(struct buffer_queue *c, struct buffer_queue_piece *p)
{
    if (c->last) c->last->next = p;
    else c->first = p;
    c->last = p;
    c->length += bytes_length(&p->bytes);
}

/* Long pieces are not moved to append bytes to them. */
static int fits(const struct bytes *b, size_t n)
{
    return b->capacity - b->end >= n || bytes_length(b) + n <= SMALL;
}

int buffer_queue_add(struct buffer_queue *c, const void *data, size_t n)
{
    struct buffer_queue_piece *p;
    if (!n) return PL_OK;
    if (c->last && fits(&c->last->bytes, n)) {
        int rc = bytes_add(&c->last->bytes, data, n);
        if (rc) c->last->bytes.failed = PL_OK; /* its contents are complete */
        else c->length += n;
        return rc;
    }
    if (!(p = empty_piece(c))) return PL_ENOMEM;
    if (bytes_add(&p->bytes, data, n)) {
        free_pieces(p);
        return PL_ENOMEM;
    }
    append(c, p);
    return PL_OK;
}

/* The memory changes hands in both directions: nothing is allocated in a steady flow. */
int buffer_queue_give(struct buffer_queue *c, struct bytes *data)
{
    struct bytes taken = *data;
    struct buffer_queue_piece *p;
    if (data->failed) return data->failed;
    if (!bytes_length(data)) return PL_OK;
    if (!(p = empty_piece(c))) return PL_ENOMEM;
    *data = p->bytes;
    p->bytes = taken;
    append(c, p);
    return PL_OK;
}

const uint8_t *buffer_queue_at(const struct buffer_queue *c, size_t *n)
{
    *n = c->first ? bytes_length(&c->first->bytes) : 0;
    return c->first ? bytes_at(&c->first->bytes) : NULL;
}

void buffer_queue_take(struct buffer_queue *c, size_t n)
{
    struct buffer_queue_piece *p = c->first;
    if (!n) return;
    assert(p && n <= bytes_length(&p->bytes));
    bytes_take(&p->bytes, n);
    c->length -= n;
    if (bytes_length(&p->bytes)) return;
    c->first = p->next;
    if (!c->first) c->last = NULL;
    keep_or_free(c, p);
}
