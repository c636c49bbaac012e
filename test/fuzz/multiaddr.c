/* multiaddr.c - any bytes as an address and as its text: what is read is printed and read back
 * alike. */
#include "net/libp2p/peer/multiaddr.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    struct multiaddr a, back;
    struct multiaddr_target t;
    char text[MULTIADDR_TEXT_MAX];
    char *copy;
    if (!multiaddr_parse(&a, data, n)) {
        multiaddr_text(text, &a);
        multiaddr_target(&t, &a);
        /* A name may hold bytes that are not printed; all else must come back. */
        if (!strchr(text, '?') && strlen(text) < MULTIADDR_TEXT_MAX - 1 &&
            !multiaddr_from_text(&back, text, NULL) && back.length == a.length &&
            !multiaddr_equal(&a, &back))
            abort();
    }
    if (!(copy = malloc(n + 1))) return 0;
    memcpy(copy, data, n);
    copy[n] = 0;
    if (!multiaddr_from_text(&a, copy, NULL)) {
        if (multiaddr_parse(&back, a.bytes, a.length))
            abort(); /* an address that we build must
                                                                 * be accepted */
        multiaddr_target(&t, &a);
    }
    free(copy);
    return 0;
}
