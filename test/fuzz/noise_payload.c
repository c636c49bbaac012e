/* noise_payload.c - a handshake whose initiator sends any bytes as its payload; or, when the first
 * byte is odd, any bytes in place of its messages. Keys are fixed, so that an input means the same
 * always. */
#include "net/libp2p/security/noise.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

static int hand_over(struct secure *to, struct bytes *from, struct bytes *plain,
                     struct bytes *answer)
{
    int rc = to->receive(to, bytes_at(from), bytes_length(from), plain, answer, NULL);
    bytes_take(from, bytes_length(from));
    return rc;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    static const uint8_t secret[2][32] = { { 1 }, { 2 } };
    static struct identity me;
    struct noise_fixed fixed = { .static_private = secret[0], .ephemeral_private = secret[1] };
    struct secure *a = NULL, *b = NULL;
    struct bytes from_a = { 0 }, from_b = { 0 }, plain = { 0 };
    if (!n || (!me.key && identity_make(&me, KEY_ED25519, NULL))) return 0;
    fixed.payload = data + 1;
    fixed.payload_bytes = n - 1 < 60000 ? n - 1 : 60000;
    if (noise_open_fixed(&b, &me, 0, NULL, &from_b, NULL)) return 0;
    if (data[0] & 1) {
        b->receive(b, data + 1, n - 1, &plain, &from_b, NULL);
    } else if (!noise_open_fixed(&a, &me, 1, NULL, &from_a, &fixed)) {
        if (!hand_over(b, &from_a, &plain, &from_b) && !hand_over(a, &from_b, &plain, &from_a) &&
            !hand_over(b, &from_a, &plain, &from_b) && !b->established)
            abort(); /* accepted a peer without its peer ID */
        a->close(a);
    }
    b->close(b);
    bytes_clear(&from_a);
    bytes_clear(&from_b);
    bytes_clear(&plain);
    return 0;
}
