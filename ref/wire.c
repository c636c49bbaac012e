/* wire.c - the sizes of a compressed tensor's bytes, as hivemind 1.1.12 writes and reads them, and
 * the checks of them. wire_codec.c fills and reads them. [spec numerics 3] [spec hivemind-protocol
 * 6]
 *
 *   NONE            elements                                            n elements
 *   FLOAT16         halves                                              2 n bytes
 *   MEANSTD_16BIT   halves | means | deviations, of rows of D           2 n + 8 n/D
 *   UNIFORM_8BIT,   u64 256 | table (256 floats) | codes                1032 + n
 *   QUANTILE_8BIT
 *   BLOCKWISE_8BIT  u64 blocks | u64 256 | absmax a block | book | codes   16 + 4 blocks + 1024 + n
 *
 * n elements, blocks of 4096. Numbers are little-endian, as is every machine we run on.
 *
 * A received buffer is checked in full before any of it is used: a size that the method does not
 * give for the claimed shape is an error, so no peer can claim memory without sending bytes. */
#include "wire.h"
#include "byte_order.h"

#include <string.h>

const char *pl_compression_name(enum pl_compression method)
{
    static const char *const names[PL_COMPRESSIONS] = {
        "NONE", "MEANSTD_16BIT", "FLOAT16", "QUANTILE_8BIT", "UNIFORM_8BIT", "BLOCKWISE_8BIT",
    };
    return (unsigned)method < PL_COMPRESSIONS ? names[method] : "unknown method";
}

/* Large tensors gain most from fewer bits; norms and biases cost little, and bear rounding
 * worst. */
enum pl_compression pl_wire_adaptive(size_t elements)
{
    return elements >= PL_WIRE_ADAPTIVE ? PL_COMPRESS_UNIFORM8 : PL_COMPRESS_FLOAT16;
}

int pl_wire_elements(size_t *n, const struct pl_wire_type *type, struct pl_err *err)
{
    *n = 1;
    if (type->dims < 0 || type->dims > PL_WIRE_DIMS_MAX)
        return pl_fail(err, PL_EFORMAT, "tensor: %d axes, expected at most %d", type->dims,
                       PL_WIRE_DIMS_MAX);
    if ((unsigned)type->dtype >= PL_DTYPES)
        return pl_fail(err, PL_EFORMAT, "tensor: unknown element type");
    for (int i = 0; i < type->dims; i++) {
        if (type->size[i] < 0)
            return pl_fail(err, PL_EFORMAT, "tensor: axis %d has %lld elements", i,
                           (long long)type->size[i]);
        /* A tensor with an empty axis is empty, however large the product of the others. */
        if (!type->size[i]) return *n = 0, PL_OK;
    }
    for (int i = 0; i < type->dims; i++) {
        size_t bytes; /* eight an element, and a header */
        if (pl_size_mul(n, *n, (size_t)type->size[i]) || pl_size_mul(&bytes, *n, 16))
            return pl_fail(err, PL_ELIMIT, "tensor: more elements than memory could hold");
    }
    return PL_OK;
}

/* D of MEANSTD: its rows are the last axis. */
static size_t row_length(const struct pl_wire_type *type)
{
    return (size_t)type->size[type->dims - 1];
}

static int is_float(enum pl_dtype t) { return t == PL_F64 || t == PL_F32 || t == PL_F16; }

static int refuse(enum pl_compression method, const char *why, struct pl_err *err)
{
    return pl_fail(err, PL_EUSE, "%s takes no %s", pl_compression_name(method), why);
}

int pl_wire_bytes(size_t *bytes, enum pl_compression method, const struct pl_wire_type *type,
                  struct pl_err *err)
{
    size_t n, blocks, rows;
    int rc = pl_wire_elements(&n, type, err);
    if (rc) return rc;
    switch (method) {
    case PL_COMPRESS_NONE:
        /* hivemind sends bfloat16 as float32 */
        *bytes = n * (type->dtype == PL_BF16_T ? sizeof(float) : pl_dtype_size(type->dtype));
        return PL_OK;
    case PL_COMPRESS_FLOAT16:
        if (!is_float(type->dtype)) return refuse(method, "integers and no bfloat16", err);
        *bytes = 2 * n;
        return PL_OK;
    case PL_COMPRESS_MEANSTD16:
        if (!is_float(type->dtype)) return refuse(method, "integers and no bfloat16", err);
        if (!type->dims) return refuse(method, "scalars", err);
        rows = n ? n / row_length(type) : 0;
        *bytes = 2 * n + 2 * rows * sizeof(float);
        return PL_OK;
    case PL_COMPRESS_QUANTILE8:
    case PL_COMPRESS_UNIFORM8:
        if (!is_float(type->dtype) && type->dtype != PL_BF16_T)
            return refuse(method, "integers", err);
        if (!n) return refuse(method, "empty tensors", err);
        /* u64 256, the table, one byte per element */
        *bytes = 8 + PL_CODES * sizeof(float) + n;
        return PL_OK;
    case PL_COMPRESS_BLOCKWISE8:
        blocks = pl_blocks(n, PL_WIRE_BLOCK);
        /* two u64, absmax of each block, the codebook, one byte per element */
        *bytes = 16 + (blocks + PL_CODES) * sizeof(float) + n;
        return PL_OK;
    case PL_COMPRESSIONS: break;
    }
    return pl_fail(err, PL_EFORMAT, "tensor: compression %d, expected 0 to %d", (int)method,
                   PL_COMPRESSIONS - 1);
}

static uint64_t get_u64(const uint8_t *p)
{
    uint64_t x;
    pl_copy_little(&x, p, sizeof x, 1);
    return x;
}

static int wrong(enum pl_compression method, const char *what, uint64_t got, uint64_t expected,
                 struct pl_err *err)
{
    return pl_fail(err, PL_EFORMAT, "tensor: %s: %s %llu, expected %llu",
                   pl_compression_name(method), what, (unsigned long long)got,
                   (unsigned long long)expected);
}

int pl_wire_check(size_t *n, enum pl_compression method, const struct pl_wire_type *type,
                  const uint8_t *buffer, size_t bytes, struct pl_err *err)
{
    size_t expected;
    int rc = pl_wire_bytes(&expected, method, type, err);
    if (rc == PL_EUSE) return PL_EFORMAT; /* the sentence fits: no honest peer sends that either */
    if (!rc) rc = pl_wire_elements(n, type, err);
    if (rc) return rc;
    if (method == PL_COMPRESS_NONE && type->dtype == PL_BF16_T && bytes == 2 * *n)
        return PL_OK; /* bfloat16 as it is */
    if (bytes != expected) return wrong(method, "buffer bytes", bytes, expected, err);
    switch (method) {
    case PL_COMPRESS_QUANTILE8:
    case PL_COMPRESS_UNIFORM8:
        if (get_u64(buffer) == PL_CODES) return PL_OK;
        return wrong(method, "table entries", get_u64(buffer), PL_CODES, err);
    case PL_COMPRESS_BLOCKWISE8:
        if (get_u64(buffer) != pl_blocks(*n, PL_WIRE_BLOCK))
            return wrong(method, "blocks", get_u64(buffer), pl_blocks(*n, PL_WIRE_BLOCK), err);
        if (get_u64(buffer + 8) == PL_CODES) return PL_OK;
        return wrong(method, "table entries", get_u64(buffer + 8), PL_CODES, err);
    default: return PL_OK;
    }
}
