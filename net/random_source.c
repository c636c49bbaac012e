/* random_source.c - random bytes, and numbers below a bound without bias. */
#include "random_source.h"

#include <openssl/rand.h>

int random_source_bytes(const struct random_source *c, uint8_t *bytes, size_t n)
{
    if (c->draw) return c->draw(c->context, bytes, n);
    return RAND_bytes(bytes, (int)n) == 1 ? PL_OK : PL_ENOMEM;
}

size_t random_source_below(const struct random_source *c, size_t n)
{
    uint64_t x, most = UINT64_MAX - UINT64_MAX % n;
    /* Numbers above the largest multiple of n would make small results more likely: draw again. */
    do
        if (random_source_bytes(c, (uint8_t *)&x, sizeof x)) return 0;
    while (x >= most);
    return (size_t)(x % n);
}
