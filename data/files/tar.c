/* tar.c - reads tar archives in memory: headers of 512 bytes with octal numbers and a checksum,
 * each followed by the file's data, padded to 512. Long names come in a record before the file (GNU
 * 'L', POSIX 'x'). */
#include "tar.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define BLOCK 512
/* in a header */
enum { NAME = 0, SIZE = 124, CHECKSUM = 148, TYPE = 156, MAGIC = 257, PREFIX = 345 };

/* A number in octal digits (twelve at most, so it fits), or in binary if its first bit is set.
 * UINT64_MAX: malformed. */
static uint64_t number(const uint8_t *p, size_t n)
{
    uint64_t x = 0;
    size_t i = 0;
    if (p[0] & 0x80) {
        for (i = 1; i < n; i++) {
            if (x >> 55) return UINT64_MAX;
            x = x << 8 | p[i];
        }
        return p[0] == 0x80 ? x : UINT64_MAX;
    }
    while (i < n && p[i] == ' ') i++;
    for (; i < n && p[i] >= '0' && p[i] <= '7'; i++) { x = x << 3 | (uint64_t)(p[i] - '0'); }
    return i == n || !p[i] || p[i] == ' ' ? x : UINT64_MAX;
}

static int is_header(const uint8_t *p)
{
    unsigned sum = 0;
    for (int i = 0; i < BLOCK; i++) sum += i >= CHECKSUM && i < CHECKSUM + 8 ? ' ' : p[i];
    return number(p + CHECKSUM, 8) == sum;
}

static int is_zero(const uint8_t *p)
{
    for (int i = 0; i < BLOCK; i++)
        if (p[i]) return 0;
    return 1;
}

/* Finds "LENGTH key=value\n" in a pax header; returns the value's length, 0 if there is no such
 * key. */
static size_t pax_value(const char **value, const char *key, const char *p, size_t n)
{
    while (n) {
        size_t length = 0, digits = 0, k = strlen(key);
        while (digits < n && digits < 9 && p[digits] >= '0' && p[digits] <= '9')
            length = 10 * length + (size_t)(p[digits++] - '0');
        if (!digits || digits == n || p[digits] != ' ' || length <= digits + 2 || length > n)
            return 0;
        const char *text = p + digits + 1;
        size_t left = length - digits - 2; /* without the newline */
        if (left > k && text[k] == '=' && !memcmp(text, key, k)) {
            *value = text + k + 1;
            return left - k - 1;
        }
        p += length;
        n -= length;
    }
    return 0;
}

static void header_name(char *name, const uint8_t *p)
{
    /* GNU's "ustar " has no prefix field */
    int posix = !memcmp(p + MAGIC, "ustar", 6) && p[PREFIX];
    snprintf(name, TAR_NAME_MAX, "%.155s%s%.100s", posix ? (const char *)p + PREFIX : "",
             posix ? "/" : "", (const char *)p + NAME);
}

int pl_tar_next(struct tar *t, struct tar_file *file, struct pl_err *err)
{
    char long_name[TAR_NAME_MAX] = "";
    uint64_t long_size = UINT64_MAX;
    while (t->bytes - t->at >= BLOCK) {
        const uint8_t *p = t->data + t->at;
        const char *value;
        size_t left, k;
        uint64_t size;
        if (is_zero(p)) return PL_ENOTFOUND;
        if (!is_header(p))
            return pl_fail(err, PL_EFORMAT, "%s: byte %zu: not a header of a tar archive", t->path,
                           t->at);
        size = long_size != UINT64_MAX ? long_size : number(p + SIZE, 12);
        left = t->bytes - t->at - BLOCK;
        if (size > left)
            return pl_fail(err, PL_EFORMAT, "%s: byte %zu: a file of %llu bytes in the last %zu",
                           t->path, t->at, (unsigned long long)size, left);
        file->at = t->at + BLOCK;
        file->data = t->data + file->at;
        file->bytes = (size_t)size;
        size_t padded = (file->bytes + BLOCK - 1) / BLOCK * BLOCK;
        t->at = padded > left ? t->bytes : file->at + padded;
        switch (p[TYPE]) {
        case '0':
        case 0:
        case '7':
            if (*long_name) snprintf(file->name, sizeof file->name, "%s", long_name);
            else header_name(file->name, p);
            return PL_OK;
        case 'L': /* GNU: the next file's name */
            snprintf(long_name, sizeof long_name, "%.*s",
                     (int)(size < TAR_NAME_MAX ? size : TAR_NAME_MAX), (const char *)file->data);
            break;
        case 'x': /* POSIX: the next file's name and size */
            if ((k = pax_value(&value, "path", (const char *)file->data, file->bytes)))
                snprintf(long_name, sizeof long_name, "%.*s",
                         (int)(k < TAR_NAME_MAX ? k : TAR_NAME_MAX), value);
            if ((k = pax_value(&value, "size", (const char *)file->data, file->bytes)) && k < 20) {
                char digits[21];
                snprintf(digits, sizeof digits, "%.*s", (int)k, value);
                long_size = strtoull(digits, NULL, 10);
            }
            break;
        default: /* a folder, a link, or metadata for all files */
            *long_name = 0;
            long_size = UINT64_MAX;
        }
    }
    return PL_ENOTFOUND;
}
