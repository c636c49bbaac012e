/* gather_message.c - any bytes from a groupmate as a request for a piece of our message, and as a piece of its own. */
#include "net/hivemind/messages/gather_message.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    struct gather_request r;
    struct gather_piece p;
    struct bytes out = { 0 };
    if (!gather_request_read(&r, data, bytes)) {
        if (gather_request_write(&out, &r) || bytes_length(&out) != bytes ||
            memcmp(bytes_at(&out), data, bytes))
            abort(); /* a message that can be read is written back unchanged */
        bytes_clear(&out);
    }
    if (!gather_piece_read(&p, data, bytes)) {
        if (p.epoch < 0 || !isfinite(p.weight) || p.weight < 0 || p.n > GATHER_PIECE_MAX ||
            p.data < data || p.data + p.n > data + bytes)
            abort();
        if (gather_piece_write(&out, &p) || bytes_length(&out) != bytes ||
            memcmp(bytes_at(&out), data, bytes))
            abort();
        bytes_clear(&out);
    }
    return 0;
}
