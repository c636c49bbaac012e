/* small.c - bytes as hexadecimal digits, and arrays that grow by doubling.
 *
 * n elements, one at a time, cost 1 + 2 + 4 + ... < 2 n copies. Growing by a constant would cost a
 * multiple of n^2. The list comes as the address of a pointer of any type, so it is read and
 * written by memcpy. */
#include "small.h"

#include "base.h"

#include <stdlib.h>

void pl_hex(char *text, const uint8_t *bytes, size_t n)
{
    static const char digits[] = "0123456789abcdef";
    for (size_t i = 0; i < n; i++) {
        *text++ = digits[bytes[i] >> 4];
        *text++ = digits[bytes[i] & 15];
    }
    *text = 0;
}

int pl_grow_array(void *list, size_t count, size_t n, size_t *capacity, size_t first, size_t size)
{
    size_t doubled = *capacity ? 2 * *capacity : first;
    void *at;
    if (n <= *capacity - count) return PL_OK;
    if (doubled - count < n) doubled = count + n;
    if (doubled > PTRDIFF_MAX / size) return PL_ENOMEM; /* or the product would wrap around */
    memcpy(&at, list, sizeof at);
    if (!(at = realloc(at, doubled * size))) return PL_ENOMEM;
    memcpy(list, &at, sizeof at);
    *capacity = doubled;
    return PL_OK;
}
