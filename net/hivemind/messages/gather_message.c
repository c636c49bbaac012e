/* gather_message.c - a request for a piece of a groupmate's message, and the piece.
 *
 *   request   group ID 20 | offset 8
 *   piece     total 8 | epoch 8 | weight 8, as float64 | the rest: bytes of the message
 *
 * Numbers are big-endian. Each piece repeats the head, so that it can be judged by itself: a
 * receiver that gets another epoch or total stops after the first. */
#include "gather_message.h"

#include <math.h>
#include <string.h>

int gather_request_write(struct bytes *out, const struct gather_request *r)
{
    bytes_add(out, r->group, GATHER_GROUP_BYTES);
    return bytes_be64(out, r->offset);
}

int gather_request_read(struct gather_request *r, const uint8_t *data, size_t n)
{
    struct cursor c = { data, n };
    if (get_bytes(&c, &r->group, GATHER_GROUP_BYTES) || get_be64(&c, &r->offset) || c.left)
        return PL_EFORMAT;
    return PL_OK;
}

int gather_piece_write(struct bytes *out, const struct gather_piece *p)
{
    uint64_t weight;
    memcpy(&weight, &p->weight, sizeof weight);
    bytes_be64(out, p->total);
    bytes_be64(out, (uint64_t)p->epoch);
    bytes_be64(out, weight);
    return bytes_add(out, p->data, p->n);
}

int gather_piece_read(struct gather_piece *p, const uint8_t *data, size_t n)
{
    struct cursor c = { data, n };
    uint64_t epoch, weight;
    if (get_be64(&c, &p->total) || get_be64(&c, &epoch) || get_be64(&c, &weight)) return PL_EFORMAT;
    memcpy(&p->weight, &weight, sizeof weight);
    p->epoch = (int64_t)epoch;
    /* Whatever is left is the piece: its length is the frame's, and needs no field. */
    p->data = c.at;
    p->n = c.left;
    return p->n > GATHER_PIECE_MAX || epoch > INT64_MAX || !(p->weight >= 0) || !isfinite(p->weight)
               ? PL_EFORMAT
               : PL_OK;
}
