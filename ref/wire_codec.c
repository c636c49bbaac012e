/* wire_codec.c - a tensor into the bytes that wire.c describes, and back: each encoder is followed
 * by its decoder for each method. [spec numerics 3] [spec hivemind-protocol 6]
 *
 * Values pass through float32: a tensor of another type is widened before and narrowed after. Codes
 * are the backend's work, headers and tables ours. */
#include "wire.h"
#include "backend.h"
#include "byte_order.h"

#include <string.h>

/* A message's n halves as the backend reads them: the message itself, or on a big-endian machine a
 * copy. */
static int open_halves(const uint8_t **halves, const uint8_t *buffer, size_t n)
{
    uint8_t *copy;
    *halves = buffer;
    if (!PL_BIG_ENDIAN) return PL_OK;
    if (!(*halves = copy = pl_alloc(n, 2))) return PL_ENOMEM;
    pl_copy_little(copy, buffer, 2, n);
    return PL_OK;
}

static void close_halves(const uint8_t *halves, const uint8_t *buffer)
{
    if (halves != buffer) pl_free((void *)(uintptr_t)halves);
}

/* FLOAT16: halves of values held within +-65504, the largest half. */
static int encode_float16(uint8_t *buffer, const struct pl_backend *be, const float *x, size_t n)
{
    int rc = be->float16_encode(buffer, x, n);
    pl_little_endian(buffer, 2, n);
    return rc;
}

static int decode_float16(float *x, const struct pl_backend *be, const uint8_t *buffer, size_t n)
{
    const uint8_t *halves;
    int rc = open_halves(&halves, buffer, n);
    if (!rc) rc = be->float16_decode(x, halves, n);
    close_halves(halves, buffer);
    return rc;
}

/* MEANSTD_16BIT: halves | means | deviations. A row of D values is sent as (x - mean) / deviation,
 * which a half represents well whatever the row's scale: |value| <= sqrt(D). */
static int encode_meanstd(uint8_t *buffer, const struct pl_backend *be,
                          const struct pl_wire_type *type, const float *x, size_t n)
{
    /* per row of D: mean and deviation in float32, then (x - mean) / deviation as halves */
    size_t D = (size_t)type->size[type->dims - 1], rows = n / D;
    float *mean = pl_alloc(2 * rows, sizeof *mean);
    int rc;
    if (!mean) return PL_ENOMEM;
    rc = be->meanstd16_encode(buffer, mean, mean + rows, x, rows, D);
    pl_little_endian(buffer, 2, n);
    pl_copy_little(buffer + 2 * n, mean, sizeof *mean, 2 * rows); /* means, then deviations */
    pl_free(mean);
    return rc;
}

/* x = half deviation + mean, restored in the type's own precision */
static int decode_meanstd(void *data, const struct pl_backend *be, const struct pl_wire_type *type,
                          const uint8_t *buffer, size_t n)
{
    size_t D = (size_t)type->size[type->dims - 1], rows = n / D;
    float *mean = pl_alloc(2 * rows, sizeof *mean);
    const uint8_t *halves;
    int rc;
    if (!mean) return PL_ENOMEM;
    pl_copy_little(mean, buffer + 2 * n, sizeof *mean, 2 * rows);
    rc = open_halves(&halves, buffer, n);
    if (!rc) rc = be->meanstd16_decode(data, type->dtype, halves, mean, mean + rows, rows, D);
    close_halves(halves, buffer);
    pl_free(mean);
    return rc;
}

/* UNIFORM_8BIT, QUANTILE_8BIT: 256 | table | codes. The table's length travels in front of it as an
 * int64, as hivemind's format has it, though it is always 256. */
void pl_wire_put_table(uint8_t *buffer, const float table[PL_CODES])
{
    const uint64_t codes = PL_CODES;
    pl_copy_little(buffer, &codes, sizeof codes, 1);
    pl_copy_little(buffer + 8, table, sizeof *table, PL_CODES);
}

/* code_i indexes 256 values: bins of equal width over mean +- 3 deviations, or 256 quantiles
 * (compress.c). A 16-bit input is first widened, but its bins are made in its own precision, as
 * hivemind 1.1.12 makes them. */
static int encode_table8(uint8_t *buffer, const struct pl_backend *be, enum pl_compression method,
                         enum pl_dtype was, const float *x, size_t n)
{
    float table[PL_CODES];
    uint8_t *codes = buffer + PL_WIRE_TABLE;
    int rc = PL_OK;
    if (method == PL_COMPRESS_QUANTILE8) rc = be->quantile8_encode(codes, table, x, n);
    else if (pl_dtype_size(was) == 2) pl_uniform8_encode_narrow(codes, table, x, n, was);
    else rc = be->uniform8_encode(codes, table, x, n);
    pl_wire_put_table(buffer, table);
    return rc;
}

/* x = table[code], whichever way the table was made */
static int decode_table8(float *x, const struct pl_backend *be, const uint8_t *buffer, size_t n)
{
    float table[PL_CODES];
    pl_copy_little(table, buffer + 8, sizeof *table, PL_CODES);
    return be->table8_decode(x, buffer + 8 + sizeof table, table, n);
}

/* data -> bytes. The receiver needs method, type and bytes alone: the message names the first
 * two. */
int pl_wire_encode(uint8_t *buffer, const struct pl_backend *be, enum pl_compression method,
                   const struct pl_wire_type *type, const void *data, struct pl_err *err)
{
    size_t n, bytes;
    float *wide = NULL;
    const float *x = data;
    int rc = pl_wire_bytes(&bytes, method, type, err);
    if (!rc) rc = pl_wire_elements(&n, type, err);
    if (rc) return rc;
    /* NONE: the elements themselves; but hivemind sends bfloat16 as float32 */
    if (method == PL_COMPRESS_NONE && type->dtype != PL_BF16_T) {
        pl_copy_little(buffer, data, pl_dtype_size(type->dtype), n);
        return PL_OK;
    }
    /* every other method encodes float32 */
    if (type->dtype != PL_F32) {
        wide = pl_alloc(n, sizeof *wide);
        if (!wide) return pl_fail(err, PL_ENOMEM, "tensor: no memory for %zu elements", n);
        pl_to_float(wide, type->dtype, data, n);
        x = wide;
    }
    /* bytes a value: bfloat16 as float32 4, halves 2, all others 1, with tables and scales in
     * addition */
    switch (method) {
    case PL_COMPRESS_NONE: pl_copy_little(buffer, x, sizeof *x, n); break;
    case PL_COMPRESS_FLOAT16: rc = encode_float16(buffer, be, x, n); break;
    case PL_COMPRESS_MEANSTD16:
        if (n) rc = encode_meanstd(buffer, be, type, x, n);
        break;
    case PL_COMPRESS_QUANTILE8:
    case PL_COMPRESS_UNIFORM8: rc = encode_table8(buffer, be, method, type->dtype, x, n); break;
    case PL_COMPRESS_BLOCKWISE8: rc = pl_wire_encode_blockwise(buffer, be, x, n); break;
    case PL_COMPRESSIONS: break;
    }
    pl_free(wide);
    return rc ? pl_fail(err, rc, "tensor: %s: %s", pl_compression_name(method), pl_status_name(rc))
              : PL_OK;
}

/* pl_wire_check has refused every buffer whose size or header does not fit the claimed shape. */
int pl_wire_decode(void *data, const struct pl_backend *be, enum pl_compression method,
                   const struct pl_wire_type *type, const uint8_t *buffer, size_t bytes,
                   struct pl_err *err)
{
    size_t n;
    float *wide = NULL, *x = data;
    int rc = pl_wire_check(&n, method, type, buffer, bytes, err);
    if (rc || !n) return rc;
    /* NONE: the elements as they are */
    if (method == PL_COMPRESS_NONE && bytes == n * pl_dtype_size(type->dtype)) {
        pl_copy_little(data, buffer, pl_dtype_size(type->dtype), n);
        return PL_OK;
    }
    if (method == PL_COMPRESS_MEANSTD16) {
        /* (x - mean) / deviation was sent as halves */
        rc = decode_meanstd(data, be, type, buffer, n);
    } else if (type->dtype != PL_F32) {
        x = wide = pl_alloc(n, sizeof *wide);
        if (!wide) return pl_fail(err, PL_ENOMEM, "tensor: no memory for %zu elements", n);
    }
    switch (method) {
    case PL_COMPRESS_NONE: pl_copy_little(x, buffer, sizeof *x, n); break;
    case PL_COMPRESS_FLOAT16: rc = decode_float16(x, be, buffer, n); break;
    case PL_COMPRESS_QUANTILE8:
    case PL_COMPRESS_UNIFORM8: rc = decode_table8(x, be, buffer, n); break;
    case PL_COMPRESS_BLOCKWISE8: rc = pl_wire_decode_blockwise(x, be, buffer, n); break;
    case PL_COMPRESS_MEANSTD16: /* done above, in the type's own precision */
    case PL_COMPRESSIONS: break;
    }
    if (!rc && wide) pl_from_float(data, type->dtype, wide, n);
    pl_free(wide);
    return rc ? pl_fail(err, rc, "tensor: %s: %s", pl_compression_name(method), pl_status_name(rc))
              : PL_OK;
}
