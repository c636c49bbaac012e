/* random_source.c - see random_source.h. */
#include "random_source.h"

#include <openssl/rand.h>

int chance_bytes(const struct chance *c, uint8_t *bytes, size_t n)
{
    if (c->draw) return c->draw(c->context, bytes, n);
    return RAND_bytes(bytes, (int)n) == 1 ? PL_OK : PL_ENOMEM;
}

size_t chance_below(const struct chance *c, size_t n)
{
    uint64_t x, most = UINT64_MAX - UINT64_MAX % n;
    do if (chance_bytes(c, (uint8_t *)&x, sizeof x)) return 0; while (x >= most);
    return (size_t)(x % n);
}
