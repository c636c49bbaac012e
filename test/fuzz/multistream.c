/* multistream.c - any bytes to a listener and to a dialler, whole and byte by byte: the same
 * outcome. */
#include "net/libp2p/muxing/multistream.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

static const char *const known[] = { "/noise", "/tls/1.0.0", "Test.square" };

static int find(void *context, const char *name, size_t n)
{
    (void)context;
    for (int i = 0; i < 3; i++)
        if (strlen(known[i]) == n && !memcmp(known[i], name, n)) return i;
    return -1;
}

static int run(int listens, size_t step, const uint8_t *data, size_t n, size_t *left,
               struct bytes *out)
{
    struct multistream m;
    struct bytes in = { 0 };
    int rc = PL_EAGAIN;
    if (listens) multistream_listen(&m, find, NULL, out);
    else multistream_dial(&m, known, 3, out);
    for (size_t at = 0; at < n && rc == PL_EAGAIN; at += step) {
        struct cursor c;
        size_t part = n - at < step ? n - at : step;
        bytes_add(&in, data + at, part);
        c = (struct cursor){ bytes_at(&in), bytes_length(&in) };
        rc = multistream_receive(&m, &c, out);
        bytes_take(&in, bytes_length(&in) - c.left);
        *left = c.left + (n - at - part);
    }
    if (rc == PL_OK && (m.agreed < 0 || m.agreed > 2)) abort();
    bytes_clear(&in);
    return rc;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    for (int listens = 0; listens < 2; listens++) {
        struct bytes whole = { 0 }, pieces = { 0 };
        size_t left = 0, left_pieces = 0;
        int rc = run(listens, n ? n : 1, data, n, &left, &whole);
        if (rc != run(listens, 1, data, n, &left_pieces, &pieces)) abort();
        if (rc == PL_OK && left != left_pieces) abort(); /* not a byte more than the negotiation */
        if (bytes_length(&whole) != bytes_length(&pieces)) abort();
        bytes_clear(&whole);
        bytes_clear(&pieces);
    }
    return 0;
}
