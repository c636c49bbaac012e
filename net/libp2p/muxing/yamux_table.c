/* yamux_table.c - the streams of a Yamux session: a hash table by ID, and a queue of those that
 * may send. [spec libp2p-wire 8]
 *
 * A stream is in the queue while it has bytes to send and credit to send them with. The session
 * takes one frame from its head and puts it back at the end, so no stream starves another. The
 * sums of unread and unsent bytes are kept here, with each change, for the resource manager. */
#include "yamux.h"

#include <stdlib.h>
#include <string.h>

#define BUCKETS_FIRST 16 /* most connections have fewer streams */

static void free_stream(struct yamux_stream *s)
{
    bytes_clear(&s->in);
    buffer_queue_clear(&s->waiting);
    free(s);
}

void yamux_clear(struct yamux *y)
{
    for (size_t i = 0; i < y->bucket_count; i++)
        while (y->buckets[i]) {
            struct yamux_stream *next = y->buckets[i]->next;
            free_stream(y->buckets[i]);
            y->buckets[i] = next;
        }
    free(y->buckets);
    memset(y, 0, sizeof *y);
}

/* One side's ids are all odd or all even: the lowest bit would tell nothing. */
static struct yamux_stream **bucket(const struct yamux *y, uint32_t id)
{
    return &y->buckets[(id >> 1 ^ id << 3) & (y->bucket_count - 1)];
}

struct yamux_stream *yamux_table_find(const struct yamux *y, uint32_t id)
{
    struct yamux_stream *s = y->bucket_count ? *bucket(y, id) : NULL;
    while (s && s->id != id) s = s->next;
    return s;
}

/* Doubles when it has one stream per bucket. */
static int grow_table(struct yamux *y)
{
    struct yamux_stream **old = y->buckets;
    size_t n = y->bucket_count;
    struct yamux_stream **fresh = calloc(n ? 2 * n : BUCKETS_FIRST, sizeof *fresh);
    if (!fresh) return PL_ENOMEM;
    y->buckets = fresh;
    y->bucket_count = n ? 2 * n : BUCKETS_FIRST;
    for (size_t i = 0; i < n; i++)
        while (old[i]) {
            struct yamux_stream *s = old[i], **at = bucket(y, s->id);
            old[i] = s->next;
            s->next = *at;
            *at = s;
        }
    free(old);
    return PL_OK;
}

struct yamux_stream *yamux_table_add(struct yamux *y, uint32_t id)
{
    struct yamux_stream *s, **at;
    if (y->count == y->bucket_count && grow_table(y)) return NULL;
    if (!(s = calloc(1, sizeof *s))) return NULL;
    s->id = id;
    s->credit = s->window = s->granted = YAMUX_WINDOW;
    at = bucket(y, id);
    s->next = *at;
    *at = s;
    y->count++;
    return s;
}

void yamux_ready_leave(struct yamux *y, struct yamux_stream *s)
{
    if (!s->ready) return;
    if (s->ready_prev) s->ready_prev->ready_next = s->ready_next;
    else y->ready_first = s->ready_next;
    if (s->ready_next) s->ready_next->ready_prev = s->ready_prev;
    else y->ready_last = s->ready_prev;
    s->ready = 0;
}

/* Only with both bytes and credit: the head of the queue can always send. */
void yamux_ready_join(struct yamux *y, struct yamux_stream *s)
{
    if (s->ready || s->reset || !s->credit || !s->waiting.length) return;
    s->ready = 1;
    s->ready_next = NULL;
    s->ready_prev = y->ready_last;
    if (y->ready_last) y->ready_last->ready_next = s;
    else y->ready_first = s;
    y->ready_last = s;
}

/* n more bytes wait in the stream, or with a minus fewer. */
void yamux_table_count_waiting(struct yamux *y, const struct yamux_stream *s, size_t n)
{
    y->unsent += n;
    if (s->answers) y->answers += n;
}

void yamux_table_drop_waiting(struct yamux *y, struct yamux_stream *s)
{
    yamux_table_count_waiting(y, s, -s->waiting.length);
    buffer_queue_clear(&s->waiting);
    yamux_ready_leave(y, s);
}

/* Unread bytes of a stream without a reader. */
void yamux_table_drop_in(struct yamux *y, struct yamux_stream *s)
{
    y->held -= bytes_length(&s->in);
    bytes_clear(&s->in);
}

/* Its SYN has been answered, in whatever way. */
void yamux_table_acknowledge(struct yamux *y, struct yamux_stream *s)
{
    if (s->acked) return;
    s->acked = 1;
    y->unacked--;
}

void yamux_table_remove(struct yamux *y, struct yamux_stream *s)
{
    struct yamux_stream **at = bucket(y, s->id);
    while (*at != s) at = &(*at)->next;
    *at = s->next;
    y->count--;
    y->grown -= s->window - YAMUX_WINDOW;
    if (s->remote_opened) y->inbound--;
    else yamux_table_acknowledge(y, s);
    yamux_table_drop_waiting(y, s);
    yamux_table_drop_in(y, s);
    free_stream(s);
}
