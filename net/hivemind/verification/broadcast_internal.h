/* broadcast_internal.h - shared by a broadcast's sending (broadcast.c) and hearing
 * (broadcast_receive.c). */
#ifndef PL_BROADCAST_INTERNAL_H
#define PL_BROADCAST_INTERNAL_H

#include "broadcast.h"

static inline struct cell *cell_of(const struct broadcast *b, int stage, size_t peer)
{
    return &b->cell[(size_t)stage * b->count + peer];
}

/* Stages 0 to n - 1 are messages; stage n + s is the list of stage s. */
static inline int list_of(const struct broadcast *b, int stage)
{
    return b->o.rules->stages + stage;
}

static inline int has(const struct broadcast *b, int stage, size_t peer)
{
    return bytes_length(&cell_of(b, stage, peer)->message) > 0;
}

static inline int is_list(const struct broadcast *b, int stage)
{
    return stage >= b->o.rules->stages;
}

/* Adds a frame to a packet for one peer; SIZE_MAX: for all. */
void broadcast_frame(struct broadcast *b, size_t to, enum frame_kind kind, const uint8_t *data,
                     size_t n);
/* Passes the message, or the list, of peer `of` on to `to`, once. */
void broadcast_forward(struct broadcast *b, int stage, size_t to, size_t of);
/* Signs our own message, or our list, and sends it to all. */
void broadcast_send_own(struct broadcast *b, int stage, const void *body, size_t n);
/* Sends our message of a stage of pairs to one peer, again. */
void broadcast_repeat_pair(struct broadcast *b, size_t to);

#endif
