/* buffer_queue.h - bytes in a line, in pieces: what is given to it joins the line as it is, without a
 * copy, and the memory of a piece that is gone serves one that comes. */
#ifndef PL_CHAIN_H
#define PL_CHAIN_H

#include "bytes.h"

struct chain_piece {
    struct bytes bytes;
    struct chain_piece *next;
};

/* Zero-initialise to begin. The owner calls chain_clear. */
struct chain {
    size_t length;                     /* bytes in all pieces; the rest is private */
    struct chain_piece *first, *last;  /* none of them empty */
    struct chain_piece *spare;         /* empty ones */
    int spares;
};

/* Frees all of it, the spares too. */
void chain_clear(struct chain *c);
/* PL_OK, or PL_ENOMEM and nothing is added. */
int chain_add(struct chain *c, const void *data, size_t n);
/* The same for what *data holds, whose memory it takes; *data is empty afterwards, perhaps in the
 * memory of a piece that is gone. After an error it is as it was. */
int chain_give(struct chain *c, struct bytes *data);
/* The first piece: *n bytes, 0 if there is none. */
const uint8_t *chain_at(const struct chain *c, size_t *n);
/* Drops n bytes of the first piece; n <= its length. */
void chain_take(struct chain *c, size_t n);

#endif
