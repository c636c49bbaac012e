/* wire.h - a tensor's bytes between peers: hivemind's six methods, their buffers and their
 * refusals. The message around them (sizes, type, method) is the network's. */
#ifndef PL_WIRE_H
#define PL_WIRE_H

#include "dtype.h"
#include "quant.h"

#ifdef __cplusplus
extern "C" {
#endif

struct pl_backend;

/* Numbers as on the wire. */
enum pl_compression {
    PL_COMPRESS_NONE = 0,
    PL_COMPRESS_MEANSTD16 = 1,
    PL_COMPRESS_FLOAT16 = 2,
    PL_COMPRESS_QUANTILE8 = 3,
    PL_COMPRESS_UNIFORM8 = 4,
    PL_COMPRESS_BLOCKWISE8 = 5,
    PL_COMPRESSIONS
};
/* The protocol's name, "UNIFORM_8BIT". Never NULL. */
const char *pl_compression_name(enum pl_compression method);

#define PL_WIRE_DIMS_MAX 16    /* matrices have 2, a convolution's weights 4 */
#define PL_WIRE_BLOCK 4096     /* BLOCKWISE_8BIT's */
#define PL_WIRE_ADAPTIVE 65537 /* elements from which the reference run sent 8 bits instead of 16 */

/* The type of a tensor before encoding and after decoding: `dtype` is the type to restore, whatever
 * the buffer holds. */
struct pl_wire_type {
    enum pl_dtype dtype;
    int dims; /* 0: a scalar */
    int64_t size[PL_WIRE_DIMS_MAX];
};

/* The reference run's choice for gradients and parameters, made for a whole tensor, never for the
 * part of it that is being sent: UNIFORM_8BIT from 65537 elements on, FLOAT16 below. [TTT 3.3] */
enum pl_compression pl_wire_adaptive(size_t elements);

/* Elements of the type. PL_EFORMAT: too many axes, a negative size; PL_ELIMIT: more than memory
 * could address. */
int pl_wire_elements(size_t *n, const struct pl_wire_type *type, struct pl_err *err);

/* Length of the buffer that pl_wire_encode writes. PL_EUSE where the method refuses the tensor:
 * FLOAT16 and MEANSTD take float32, float64 and float16; QUANTILE and UNIFORM also bfloat16; these
 * two nothing empty, MEANSTD no scalar. */
int pl_wire_bytes(size_t *bytes, enum pl_compression method, const struct pl_wire_type *type,
                  struct pl_err *err);

/* Writes the buffer, pl_wire_bytes long. `data` holds the elements in host memory, row by row, as
 * aligned as their type; the buffer needs no alignment. `be` computes. */
int pl_wire_encode(uint8_t *buffer, const struct pl_backend *be, enum pl_compression method,
                   const struct pl_wire_type *type, const void *data, struct pl_err *err);

/* The beginning of a buffer of UNIFORM_8BIT or QUANTILE_8BIT, whose codes follow. */
#define PL_WIRE_TABLE (8 + PL_CODES * sizeof(float))
void pl_wire_put_table(uint8_t *buffer, const float table[PL_CODES]);

/* BLOCKWISE_8BIT of n values in float32, for the two above; the buffer has been checked. */
int pl_wire_encode_blockwise(uint8_t *buffer, const struct pl_backend *be, const float *x,
                             size_t n);
int pl_wire_decode_blockwise(float *x, const struct pl_backend *be, const uint8_t *buffer,
                             size_t n);

/* Whether a received buffer is one of this method and type; *n receives the elements to
 * allocate, which the buffer's length bounds: at most one a byte, so no peer can claim memory
 * without sending as many bytes. */
int pl_wire_check(size_t *n, enum pl_compression method, const struct pl_wire_type *type,
                  const uint8_t *buffer, size_t bytes, struct pl_err *err);

/* Restores *n elements of type->dtype at `data` (host memory, aligned as the type). Checks
 * first. */
int pl_wire_decode(void *data, const struct pl_backend *be, enum pl_compression method,
                   const struct pl_wire_type *type, const uint8_t *buffer, size_t bytes,
                   struct pl_err *err);

#ifdef __cplusplus
}
#endif
#endif
