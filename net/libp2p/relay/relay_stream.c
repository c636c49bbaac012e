/* relay_stream.c - circuit relay's messages, each with its length in front, on a stream. */
#include "relay_internal.h"

int relay_next(struct stream *c, enum relay_protocol p, struct relay_message *m, size_t *used)
{
    struct cursor cursor;
    const uint8_t *body;
    size_t n, length;
    int ended, rc;
    cursor.at = stream_data(c, &n, &ended);
    cursor.left = n;
    rc = n ? get_delimited(&cursor, &body, &length, RELAY_MESSAGE_MAX) : PL_EAGAIN;
    if (rc) return rc == PL_EAGAIN && ended ? PL_EIO : rc;
    *used = n - cursor.left;
    return relay_get(m, p, body, length);
}

void relay_say(struct stream *c, enum relay_protocol p, const struct relay_message *m)
{
    struct bytes out = { 0 };
    if (!relay_put(&out, p, m)) stream_write(c, bytes_at(&out), bytes_length(&out));
    bytes_clear(&out);
}
