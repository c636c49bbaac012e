/* small.h - short helpers for every folder: endings of names, bytes in little-endian order, qsort's
 * order of numbers, bytes as hexadecimal digits, arrays that grow. */
#ifndef PL_SMALL_H
#define PL_SMALL_H

#include <math.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

/* 1: "model.safetensors" ends with ".safetensors". */
static inline int pl_ends_with(const char *text, const char *end)
{
    size_t n = strlen(text), m = strlen(end);
    return n >= m && !strcmp(text + n - m, end);
}

/* Four bytes at any address, the lowest first, whatever order this machine has. */
static inline uint32_t pl_le32(const uint8_t *p)
{
    return (uint32_t)p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24;
}

static inline uint64_t pl_le64(const uint8_t *p)
{
    return pl_le32(p) | (uint64_t)pl_le32(p + 4) << 32;
}

/* For qsort: doubles in ascending order. */
static inline int pl_ascending(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* The same of floats, in one order: the negative zero before the other, NaN last. */
static inline int pl_ascending_floats(const void *a, const void *b)
{
    float x = *(const float *)a, y = *(const float *)b;
    if (isnan(x) || isnan(y)) return isnan(x) - isnan(y);
    if (x == y) return !!signbit(y) - !!signbit(x);
    return x > y ? 1 : -1;
}

/* The 2 n hexadecimal digits of n bytes, lower case, and a zero. */
void pl_hex(char *text, const uint8_t *bytes, size_t n);

/* An array `*list` of `count` elements gets places for one more, or for n: its capacity doubles,
 * beginning with `first`, so that n elements cost fewer than 2 n copies. PL_ENOMEM leaves all as it
 * is. */
#define pl_grow(list, count, capacity, first) pl_grow_by(list, count, 1, capacity, first)
#define pl_grow_by(list, count, n, capacity, first) \
    pl_grow_array((list), (count), (n), (capacity), (first), sizeof **(list))
int pl_grow_array(void *list, size_t count, size_t n, size_t *capacity, size_t first, size_t size);

#endif
