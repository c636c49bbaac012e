/* rpc_frame.c - any bytes as calls and as streamed frames: what is read is written back alike, and
 * a piece asks for at least one byte more. */
#include "net/libp2p/rpc/rpc_frame.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    struct cursor c = { data, n };
    struct bytes out = { 0 };
    struct rpc_unary m, again;
    struct rpc_frame f;
    char text[100];
    size_t want;
    int rc = rpc_unary_get(&c, &m, 4194304, &want);
    if (rc == PL_EAGAIN && want <= n) abort();
    if (rc == PL_OK) {
        if (rpc_unary_put(&out, &m)) abort();
        c = (struct cursor){ bytes_at(&out), bytes_length(&out) };
        if (rpc_unary_get(&c, &again, 4194304, &want) || again.n != m.n || again.kind != m.kind ||
            (m.n && memcmp(again.data, m.data, m.n)))
            abort();
    }
    c = (struct cursor){ data, n };
    while ((rc = rpc_frame_get(&c, &f, 1 << 20, &want)) == PL_OK)
        if (f.marker == RPC_END) rpc_error_text(text, sizeof text, &f);
    if (rc == PL_EAGAIN && want <= c.left) abort();
    bytes_clear(&out);
    return 0;
}
