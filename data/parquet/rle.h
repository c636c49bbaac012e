/* rle.h - Parquet's mix of runs and bit-packed groups: levels and dictionary indices. */
#ifndef PL_RLE_H
#define PL_RLE_H

#include "ref/base.h"

struct rle_in {
    const uint8_t *p, *end;
    int width;      /* bits of a value, 0..32 */
    uint64_t left;  /* values left in the run at hand */
    int packed;     /* it is a bit-packed one */
    uint32_t value; /* or else repeats this */
    uint64_t bits;  /* read but not used yet */
    int have;
};

void pl_rle_init(struct rle_in *in, const uint8_t *data, size_t bytes, int width);
/* The next value; PL_EFORMAT past the end or for a malformed run. */
int pl_rle_next(struct rle_in *in, uint32_t *value);

#endif
