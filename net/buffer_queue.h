/* buffer_queue.h - a queue of bytes in pieces. Memory given to it is queued without a copy, and the
 * memory of a consumed piece is used again for a new one. */
#ifndef PL_BUFFER_QUEUE_H
#define PL_BUFFER_QUEUE_H

#include "bytes.h"

struct buffer_queue_piece {
    struct bytes bytes;
    struct buffer_queue_piece *next;
};

/* Zero-initialise to begin. The owner calls buffer_queue_clear. */
struct buffer_queue {
    size_t length;                           /* bytes in all pieces; the rest is private */
    struct buffer_queue_piece *first, *last; /* none of them empty */
    struct buffer_queue_piece *spare;        /* empty ones */
    int spares;
};

/* Frees all of it, the spares too. */
void buffer_queue_clear(struct buffer_queue *c);
/* PL_OK, or PL_ENOMEM and nothing is added. */
int buffer_queue_add(struct buffer_queue *c, const void *data, size_t n);
/* The same for the contents of *data, whose memory it takes over; *data is empty afterwards,
 * perhaps with the memory of a consumed piece. After an error *data is unchanged. */
int buffer_queue_give(struct buffer_queue *c, struct bytes *data);
/* The first piece: *n bytes, 0 if there is none. */
const uint8_t *buffer_queue_at(const struct buffer_queue *c, size_t *n);
/* Drops n bytes of the first piece; n <= its length. */
void buffer_queue_take(struct buffer_queue *c, size_t n);

#endif
