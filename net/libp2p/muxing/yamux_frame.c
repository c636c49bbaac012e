/* yamux_frame.c - the 12 bytes in front of everything on a Yamux connection. [spec libp2p-wire 8]
 *
 *   version 0 | type | flags (2) | stream ID (4) | length (4)        big-endian
 *
 * The length of a data frame is that of the body behind it; of a window update, the credit that it
 * gives; of a ping, any number, which comes back. */
#include "yamux.h"

#define HEADER 12

int yamux_frame_put(struct bytes *out, const struct yamux_frame *f)
{
    uint8_t *p = bytes_reserve(out, HEADER);
    if (!p) return out->failed;
    p[0] = f->version;
    p[1] = f->type;
    p[2] = (uint8_t)(f->flags >> 8);
    p[3] = (uint8_t)f->flags;
    for (int i = 0; i < 4; i++) {
        p[4 + i] = (uint8_t)(f->stream >> (24 - 8 * i));
        p[8 + i] = (uint8_t)(f->length >> (24 - 8 * i));
    }
    out->end += HEADER;
    return PL_OK;
}

int yamux_frame_get(struct cursor *c, struct yamux_frame *f)
{
    if (c->left < HEADER) return PL_EAGAIN;
    get_u8(c, &f->version);
    get_u8(c, &f->type);
    get_be16(c, &f->flags);
    get_be32(c, &f->stream);
    get_be32(c, &f->length);
    return f->version != 0 || f->type > YAMUX_GO_AWAY ? PL_EPROTO : PL_OK;
}
