/* relay_stream.c - circuit relay's messages, each with its length in front, on a stream. */
#include "relay_internal.h"

int relay_next(struct stream *c, enum relay_protocol p, struct relay_message *m, size_t *used)
{
    const uint8_t *body;
    size_t n;
    int rc = stream_next_message(c, &body, &n, used, RELAY_MESSAGE_MAX);
    return rc ? rc : relay_get(m, p, body, n);
}

void relay_send(struct stream *c, enum relay_protocol p, const struct relay_message *m)
{
    struct bytes out = { 0 };
    if (!relay_put(&out, p, m)) stream_write(c, bytes_at(&out), bytes_length(&out));
    bytes_clear(&out);
}
