/* byte_order.h - numbers in files and messages are little-endian; in memory they have the machine's
 * order. Everything that copies numbers between the two goes through here. On a little-endian
 * machine it is memcpy, or nothing. */
#ifndef PL_BYTE_ORDER_H
#define PL_BYTE_ORDER_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#ifdef __cplusplus
extern "C" {
#endif

/* GCC and clang define these. A constant: on a little-endian machine the compiler removes the loop
 * below. */
#if defined(__BYTE_ORDER__) && __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__
#define PL_BIG_ENDIAN 1
#else
#define PL_BIG_ENDIAN 0
#endif

/* Turns n numbers of `size` bytes, at any address, into little-endian ones, or back. */
static inline void pl_little_endian(void *data, size_t size, size_t n)
{
    uint8_t *p = (uint8_t *)data;
    if (!PL_BIG_ENDIAN) return;
    /* Reversing twice gives the same bytes again, so one function does for both directions. */
    for (size_t i = 0; i < n; i++, p += size)
        for (size_t low = 0, high = size - 1; low < high; low++, high--) {
            uint8_t byte = p[low];
            p[low] = p[high];
            p[high] = byte;
        }
}

/* memcpy of n numbers of `size` bytes between memory and a file or a message. */
static inline void pl_copy_little(void *to, const void *from, size_t size, size_t n)
{
    if (n) memcpy(to, from, size * n);
    pl_little_endian(to, size, n);
}

#ifdef __cplusplus
}
#endif
#endif
