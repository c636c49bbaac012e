/* part_message.c - the message that carries gradients. An all-reduce cuts each tensor into
 * parts; a peer sends part k to the groupmate that reduces it, and gets back the difference
 * between the average and what it sent [spec hivemind-protocol 5.4]. Both travel as
 * AveragingData, one protobuf message in one frame of a libp2p stream. This file writes and
 * reads its bytes by hand.
 *
 * Protobuf in five lines: a message is a sequence of fields in any order. Each begins with a key,
 * number << 3 | type, as a varint (7 bits a byte, least significant first, the high bit set on all
 * but the last byte: 300 is ac 02). Type 0 is a varint, 1 is 8 bytes, 2 is a length followed by
 * that many bytes, 5 is 4 bytes. A field whose value is 0 or empty is left out.
 *
 * A first message, with two float32 elements (1.0, -2.0), uncompressed, of weight 1:
 *
 *   08 04                      field 1, code        4 = PART_FOR_AVERAGING
 *   12 14 <20 bytes>           field 2, group_id    only in a stream's first message
 *   22 16                      field 4, tensor_part 22 bytes, themselves a message:
 *      0a 08                     field 1, buffer      8 bytes
 *         00 00 80 3f              1.0 as IEEE 754, little-endian
 *         00 00 00 c0             -2.0
 *      12 01 02                  field 2, size        packed: one axis of 2 elements
 *      22 07 66 6c 6f 61 74 33 32  field 4, dtype     "float32"
 *     29 00 00 00 00 00 00 f0 3f  field 5, weight      1.0 as a double
 *
 * The buffer is nearly all of a message, so it is never copied: reading gives a view of the
 * received bytes, writing leaves a gap that the compressor fills. All other messages go through
 * protobuf-c (message.c). */
#include "part_message.h"
#include "ref/byte_order.h"
#include "ref/quant.h"
#include "protobuf_fields.h"

#include <string.h>

/* --- reading ---------------------------------------------------------------------------------- */

/* The shape, field 2. proto3 packs repeated numbers: one delimited field holds all of them (12
 * 01 02 above). proto2 writers repeat the field for each number (10 02), and a reader has to
 * accept both. */
static int read_size(struct pl_wire_type *type, const struct field *f)
{
    struct cursor c = { f->data, f->n };
    uint64_t size = f->value;
    int rc = PL_OK;
    do {
        if (f->type == FIELD_DELIMITED) rc = get_varint(&c, &size);
        if (rc || type->dims == PL_WIRE_DIMS_MAX || size > UINT32_MAX) return PL_EFORMAT;
        type->size[type->dims++] = (int64_t)size;
    } while (f->type == FIELD_DELIMITED && c.left);
    return PL_OK;
}

/* The tensor inside the message. Parts are flat: averaging sees one axis of float32, whatever the
 * parameter's shape. `compression` names the coding of the buffer (float16, 8-bit codes, ...),
 * dtype the type to restore. */
static int read_tensor(struct part_message *m, const uint8_t *data, size_t n, struct pl_err *err)
{
    struct cursor c = { data, n };
    struct pl_wire_type type = { .dtype = PL_F32 };
    struct field f;
    int is_float = 0, rc = PL_OK;
    uint64_t method = 0;
    m->buffer = data;
    m->bytes = 0;
    while (c.left && !rc && !(rc = field_next(&c, &f))) {
        if (f.number == 1 && f.type == FIELD_DELIMITED) m->buffer = f.data, m->bytes = f.n;
        else if (f.number == 2 && (f.type == FIELD_VARINT || (f.type == FIELD_DELIMITED && f.n)))
            rc = read_size(&type, &f);
        else if (f.number == 4 && f.type == FIELD_DELIMITED)
            is_float = f.n == 7 && !memcmp(f.data, "float32", 7);
        else if (f.number == 5 && f.type == FIELD_VARINT) method = f.value;
    }
    if (rc || !is_float || type.dims != 1 || method >= PL_COMPRESSIONS)
        return pl_fail(err, PL_EFORMAT, "averaging: a part is not a float32 tensor with one axis");
    /* A count from the sender is never used as a length. The buffer must have the length that
     * method and element count require, so that no decoder reads past its end. */
    m->has_part = 1;
    m->method = (enum pl_compression)method;
    return pl_wire_check(&m->elements, m->method, &type, m->buffer, m->bytes, err);
}

/* Fields may come in any order and unknown ones are skipped, as protobuf asks of every reader. If a
 * field comes twice, the last one counts. */
int part_message_read(struct part_message *m, const uint8_t *data, size_t n, struct pl_err *err)
{
    struct cursor c = { data, n };
    struct field f, tensor = { 0 };
    int rc = PL_OK;
    memset(m, 0, sizeof *m);
    while (c.left && !(rc = field_next(&c, &f))) {
        if (f.number == 1 && f.type == FIELD_VARINT) m->code = (int32_t)f.value;
        else if (f.number == 2 && f.type == FIELD_DELIMITED)
            m->group_id = f.data, m->group_id_n = f.n;
        else if (f.number == 4 && f.type == FIELD_DELIMITED) tensor = f;
        else if (f.number == 5 && f.type == FIELD_FIXED64)
            /* The weight is a double's bit pattern. A sender's share of the average is weight *
             * gradient / sum of weights. */
            memcpy(&m->weight, &f.value, sizeof m->weight);
    }
    if (rc)
        return pl_fail(err, PL_EFORMAT,
                       "averaging: %zu bytes are not a valid AveragingData "
                       "message",
                       n);
    return tensor.data ? read_tensor(m, tensor.data, tensor.n, err) : PL_OK;
}

/* --- writing ---------------------------------------------------------------------------------- */

/* A delimited field's length stands before its bytes. So the sizes of nested messages must be known
 * before the first byte is written: these two functions count the bytes that put_tail will
 * write. */
static size_t varint_length(uint64_t x)
{
    size_t n = 1;
    for (; x >= 128; x >>= 7) n++;
    return n;
}

/* The bytes that put_tail writes. Keys take one byte each because all numbers are below 16: key +
 * length + sizes, key + length + "float32" (7 bytes), and key + method unless it is 0 (no
 * compression). */
static size_t tail_length(const struct part_message *m)
{
    size_t size = varint_length(m->elements);
    return 1 + varint_length(size) + size + 2 + 7 + (m->method ? 2 : 0);
}

/* Size, dtype and compression follow the buffer: fields are written in the order of their
 * numbers, and so equal messages are equal bytes, Python's and ours. */
static void put_tail(struct bytes *out, const struct part_message *m)
{
    bytes_u8(out, FIELD_KEY(2, FIELD_DELIMITED));
    bytes_varint(out, varint_length(m->elements));
    bytes_varint(out, m->elements);
    field_write(out, 4, "float32", 7);
    if (m->method) {
        bytes_u8(out, FIELD_KEY(5, FIELD_VARINT));
        bytes_varint(out, (uint64_t)m->method);
    }
}

int part_message_write(struct bytes *out, uint8_t **buffer, const struct part_message *m)
{
    /* The buffer's own key and length; an empty one is left out, as in proto3. */
    size_t head = m->bytes ? 1 + varint_length(m->bytes) : 0, at = 0;
    uint64_t weight;
    if (m->code) {
        bytes_u8(out, FIELD_KEY(1, FIELD_VARINT));
        bytes_varint(out, (uint64_t)m->code);
    }
    if (m->group_id) field_write(out, 2, m->group_id, m->group_id_n);
    /* Key and length of tensor_part, which consists of the buffer's own key and length (`head`),
     * the buffer, and the fields after it. */
    bytes_u8(out, FIELD_KEY(4, FIELD_DELIMITED));
    bytes_varint(out, head + m->bytes + tail_length(m));
    if (m->bytes) {
        bytes_u8(out, FIELD_KEY(1, FIELD_DELIMITED));
        bytes_varint(out, m->bytes);
        at = bytes_length(out);
        /* The gap: its bytes count as written; the caller fills them in before anything else is
         * appended. */
        if (bytes_reserve(out, m->bytes)) out->end += m->bytes;
    }
    put_tail(out, m);
    pl_copy_little(&weight, &m->weight, sizeof weight, 1);
    if (weight) {
        bytes_u8(out, FIELD_KEY(5, FIELD_FIXED64));
        bytes_add(out, &weight, sizeof weight);
    }
    /* An offset until now: appending may have moved the whole buffer to a larger block. */
    *buffer = out->failed || !m->bytes ? NULL : out->data + out->begin + at;
    return out->failed;
}

/* A refusal or a cancellation is a code alone, two bytes: 08 0c is GROUP_IS_FULL. */
int part_message_code(struct bytes *out, enum averaging_code code)
{
    bytes_u8(out, FIELD_KEY(1, FIELD_VARINT));
    return bytes_varint(out, (uint64_t)code);
}

/* --- values ----------------------------------------------------------------------------------- */

/* Is |x| <= limit for all n floats? Without its sign bit, a positive float's bit pattern grows
 * with its value; infinity (7f800000) and NaN (above it) are greater than every number. So one
 * integer comparison checks size and finiteness, and the loop is one that compilers vectorize. */
static int floats_within(const uint8_t *at, size_t n, float limit)
{
    uint32_t x, worst = 0, bits;
    memcpy(&bits, &limit, sizeof bits);
    for (size_t i = 0; i < n; i++) {
        pl_copy_little(&x, at + 4 * i, sizeof x, 1);
        x &= 0x7fffffffu;
        worst = x > worst ? x : worst;
    }
    return worst <= bits;
}

/* The same for float16, whose exponent is all ones from 7c00 on. Its largest number is 65504,
 * below any limit. */
static int halves_finite(const uint8_t *at, size_t n)
{
    uint16_t x, worst = 0;
    for (size_t i = 0; i < n; i++) {
        pl_copy_little(&x, at + 2 * i, sizeof x, 1);
        x &= 0x7fff;
        worst = x > worst ? x : worst;
    }
    return worst < 0x7c00;
}

/* A sum is only as sound as its worst summand: one NaN or 1e38 from one peer would spoil the
 * average for all. Quantized methods are bounded through their tables: whichever code an element
 * has, its value is one of the PL_CODES entries (or an entry times a scale), so checking the
 * table checks all elements. */
int part_message_is_finite(const struct part_message *m)
{
    size_t n = m->elements;
    uint64_t blocks;
    switch (m->method) {
    case PL_COMPRESS_NONE: return floats_within(m->buffer, n, PART_VALUE_MAX);
    case PL_COMPRESS_FLOAT16: return halves_finite(m->buffer, n);
    case PL_COMPRESS_MEANSTD16: /* one row: its mean and deviation follow */
        return halves_finite(m->buffer, n) && floats_within(m->buffer + 2 * n, 2, PART_FACTOR_MAX);
    case PL_COMPRESS_UNIFORM8:
    case PL_COMPRESS_QUANTILE8: return floats_within(m->buffer + 8, PL_CODES, PART_VALUE_MAX);
    case PL_COMPRESS_BLOCKWISE8: /* two counts, then scales and table */
        blocks = field_le64(m->buffer);
        return floats_within(m->buffer + 16, (size_t)blocks + PL_CODES, PART_FACTOR_MAX);
    case PL_COMPRESSIONS: break;
    }
    return 0;
}
