/* rle.h - Parquet's run-length and bit-packing hybrid encoding, for levels and dictionary indices.
 * [parquet-format: Encodings.md, RLE] */
#ifndef PL_RLE_H
#define PL_RLE_H

#include "ref/base.h"

struct rle_in {
    const uint8_t *p, *end;
    int width;      /* bits of a value, 0..32 */
    uint64_t left;  /* values left in the current run */
    int packed;     /* it is bit-packed */
    uint32_t value; /* otherwise it repeats this */
    uint64_t bits;  /* read but not used yet */
    int have;
};

void pl_rle_init(struct rle_in *in, const uint8_t *data, size_t bytes, int width);
/* The next value; PL_EFORMAT beyond the end or for a malformed run. */
int pl_rle_next(struct rle_in *in, uint32_t *value);

#endif
