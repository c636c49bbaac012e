/* exif.c - walks the TIFF directory of an EXIF block to one tag, with every offset checked. */
#include "exif.h"

#include <string.h>

#define ORIENTATION 0x0112
#define SHORT 3
#define ENTRY_BYTES 12

struct block {
    const uint8_t *at;
    size_t bytes;
    int big; /* endian */
};

static unsigned get16(const struct block *b, size_t at)
{
    const uint8_t *p = b->at + at;
    return b->big ? (unsigned)p[0] << 8 | p[1] : (unsigned)p[1] << 8 | p[0];
}

static uint32_t get32(const struct block *b, size_t at)
{
    return b->big ? (uint32_t)get16(b, at) << 16 | get16(b, at + 2)
                  : (uint32_t)get16(b, at + 2) << 16 | get16(b, at);
}

int pl_exif_orientation(const void *tiff, size_t bytes)
{
    struct block b = { tiff, bytes, 0 };
    size_t at, entries;
    if (bytes < 10) return 1;
    b.big = !memcmp(b.at, "MM", 2);
    if ((!b.big && memcmp(b.at, "II", 2)) || get16(&b, 2) != 42) return 1;
    at = get32(&b, 4); /* the first directory describes the main picture */
    if (at > bytes - 2) return 1;
    entries = get16(&b, at);
    for (at += 2; entries && bytes - at >= ENTRY_BYTES; entries--, at += ENTRY_BYTES) {
        if (get16(&b, at) != ORIENTATION) continue;
        unsigned value = get16(&b, at + 8);
        return get16(&b, at + 2) == SHORT && value >= 1 && value <= 8 ? (int)value : 1;
    }
    return 1;
}
