/* wire_blockwise.c - BLOCKWISE_8BIT, the method by the optimizer's quantizer, written and read.
 * [spec numerics 3] [spec hivemind-protocol 6]
 *
 *   blocks | 256 | absmax of each block | book of 256 values | codes
 *
 * The quantizer works in the backend's memory, so values go there and codes come back. */
#include "wire.h"
#include "backend.h"
#include "byte_order.h"

static void put_u64(uint8_t *p, uint64_t x) { pl_copy_little(p, &x, sizeof x, 1); }

struct blockwise {
    float *x, *absmax;
    uint8_t *codes;
};

/* x in float32, one byte a code, one absmax for each 4096 values: all in the backend's memory,
 * where the optimizer's quantizer works: x is copied there, codes and scales are copied back. */
static int blockwise_open(struct blockwise *w, const struct pl_backend *be, size_t n)
{
    w->x = be->alloc(n * sizeof *w->x);
    w->absmax = be->alloc(pl_blocks(n, PL_WIRE_BLOCK) * sizeof *w->absmax);
    w->codes = be->alloc(n);
    return w->x && w->absmax && w->codes ? PL_OK : PL_ENOMEM;
}

static void blockwise_close(struct blockwise *w, const struct pl_backend *be)
{
    be->free(w->x);
    be->free(w->absmax);
    be->free(w->codes);
}

/* absmax = max |x| of a block of 4096; code = the entry nearest to x / absmax, quant.c's rule of
 * the reference run. The book travels with every tensor. */
int pl_wire_encode_blockwise(uint8_t *buffer, const struct pl_backend *be, const float *x, size_t n)
{
    size_t blocks = pl_blocks(n, PL_WIRE_BLOCK);
    uint8_t *absmax = buffer + 16, *book = absmax + blocks * sizeof(float);
    uint8_t *codes = book + PL_CODES * sizeof(float);
    struct blockwise w;
    float entries[PL_CODES];
    int rc = blockwise_open(&w, be, n);
    pl_codebook(entries, PL_MAP_SIGNED, PL_RULE_RUN);
    /* the header, the book, then absmax and codes where the backend made them */
    put_u64(buffer, blocks);
    put_u64(buffer + 8, PL_CODES);
    pl_copy_little(book, entries, sizeof *entries, PL_CODES);
    if (!rc) rc = be->put(w.x, x, n * sizeof *x);
    if (!rc)
        rc = be->quantize(w.codes, w.absmax, w.x, n, PL_WIRE_BLOCK, PL_MAP_SIGNED, PL_RULE_RUN);
    if (!rc) rc = be->get(absmax, w.absmax, blocks * sizeof *w.absmax);
    if (!rc) rc = be->get(codes, w.codes, n);
    pl_little_endian(absmax, sizeof(float), blocks);
    blockwise_close(&w, be);
    return rc;
}

/* Copies n floats of a message to the device. */
static int put_little(const struct pl_backend *be, float *to, const uint8_t *from, size_t n)
{
    float *copy;
    int rc;
    if (!PL_BIG_ENDIAN) return be->put(to, from, n * sizeof *to);
    if (!(copy = pl_alloc(n, sizeof *copy))) return PL_ENOMEM;
    pl_copy_little(copy, from, sizeof *copy, n);
    rc = be->put(to, copy, n * sizeof *to);
    pl_free(copy);
    return rc;
}

/* x = book[code] absmax, with the sender's own book */
int pl_wire_decode_blockwise(float *x, const struct pl_backend *be, const uint8_t *buffer, size_t n)
{
    size_t blocks = pl_blocks(n, PL_WIRE_BLOCK);
    const uint8_t *absmax = buffer + 16, *book = absmax + blocks * sizeof(float);
    const uint8_t *codes = book + PL_CODES * sizeof(float);
    /* The sender's book is used, so a peer with another codebook is still understood. */
    struct blockwise w;
    float entries[PL_CODES];
    int rc = blockwise_open(&w, be, n);
    pl_copy_little(entries, book, sizeof *entries, PL_CODES);
    if (!rc) rc = put_little(be, w.absmax, absmax, blocks);
    if (!rc) rc = be->put(w.codes, codes, n);
    if (!rc) rc = be->dequantize(w.x, w.codes, w.absmax, n, PL_WIRE_BLOCK, entries);
    if (!rc) rc = be->get(x, w.x, n * sizeof *x);
    blockwise_close(&w, be);
    return rc;
}
