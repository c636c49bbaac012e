/* rle.c - decodes Parquet's hybrid of runs and bit-packed groups. A run's header is a varint h: if
 * h is even, the value that follows repeats h / 2 times; if odd, h / 2 groups of 8 values with
 * `width` bits each follow. */
#include "rle.h"

#include <assert.h>
#include <string.h>

void pl_rle_init(struct rle_in *in, const uint8_t *data, size_t bytes, int width)
{
    assert(width >= 0 && width <= 32);
    memset(in, 0, sizeof *in);
    in->p = data;
    in->end = data + bytes;
    in->width = width;
}

static int next_run(struct rle_in *in)
{
    uint64_t head = 0;
    int shift = 0, value_bytes = (in->width + 7) / 8;
    do {
        if (in->p == in->end || shift > 35) return PL_EFORMAT;
        head |= (uint64_t)(*in->p & 127) << shift;
        shift += 7;
    } while (*in->p++ & 128);
    in->packed = (int)(head & 1);
    in->left = in->packed ? (head >> 1) * 8 : head >> 1;
    in->bits = 0;
    in->have = 0;
    in->value = 0;
    if (in->packed) return PL_OK;
    if (in->end - in->p < value_bytes) return PL_EFORMAT;
    for (int i = 0; i < value_bytes; i++) in->value |= (uint32_t)*in->p++ << 8 * i;
    return PL_OK;
}

int pl_rle_next(struct rle_in *in, uint32_t *value)
{
    while (!in->left) {
        int rc = next_run(in);
        if (rc) return rc;
    }
    in->left--;
    if (!in->packed) {
        *value = in->value;
        return PL_OK;
    }
    while (in->have < in->width) {
        if (in->p == in->end) return PL_EFORMAT;
        in->bits |= (uint64_t)*in->p++ << in->have;
        in->have += 8;
    }
    *value = (uint32_t)(in->bits & ((UINT64_C(1) << in->width) - 1));
    in->bits >>= in->width;
    in->have -= in->width;
    return PL_OK;
}
