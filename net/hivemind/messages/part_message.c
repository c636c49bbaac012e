/* part_message.c - see part_message.h. */
#include "part_message.h"
#include "ref/quant.h"
#include "protobuf_fields.h"

#include <math.h>
#include <string.h>

/* --- reading ---------------------------------------------------------------------------------- */

/* Sizes come packed, or one by one from older writers. */
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
        return pl_fail(err, PL_EFORMAT, "averaging: a part that is no float32 tensor of one axis");
    m->has_part = 1;
    m->method = (enum pl_compression)method;
    return pl_wire_check(&m->elements, m->method, &type, m->buffer, m->bytes, err);
}

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
            memcpy(&m->weight, &f.value, sizeof m->weight);
    }
    if (rc) return pl_fail(err, PL_EFORMAT, "averaging: %zu bytes are no AveragingData", n);
    return tensor.data ? read_tensor(m, tensor.data, tensor.n, err) : PL_OK;
}

/* --- writing ---------------------------------------------------------------------------------- */

static size_t varint_length(uint64_t x)
{
    size_t n = 1;
    for (; x >= 128; x >>= 7) n++;
    return n;
}

static void put_le64(struct bytes *out, uint64_t x)
{
    uint8_t raw[8];
    for (int i = 0; i < 8; i++) raw[i] = (uint8_t)(x >> 8 * i);
    bytes_add(out, raw, sizeof raw);
}

/* The tensor's fields behind its buffer: size, dtype, compression. */
static size_t tail_length(const struct part_message *m)
{
    size_t size = varint_length(m->elements);
    return 1 + varint_length(size) + size + 2 + 7 + (m->method ? 2 : 0);
}

static void put_tail(struct bytes *out, const struct part_message *m)
{
    bytes_u8(out, FIELD_KEY(2, FIELD_DELIMITED));
    bytes_varint(out, varint_length(m->elements));
    bytes_varint(out, m->elements);
    bytes_u8(out, FIELD_KEY(4, FIELD_DELIMITED));
    bytes_u8(out, 7);
    bytes_add(out, "float32", 7);
    if (m->method) {
        bytes_u8(out, FIELD_KEY(5, FIELD_VARINT));
        bytes_varint(out, (uint64_t)m->method);
    }
}

int part_message_write(struct bytes *out, uint8_t **buffer, const struct part_message *m)
{
    size_t head = m->bytes ? 1 + varint_length(m->bytes) : 0, at = 0;
    uint64_t weight;
    if (m->code) {
        bytes_u8(out, FIELD_KEY(1, FIELD_VARINT));
        bytes_varint(out, (uint64_t)m->code);
    }
    if (m->group_id) {
        bytes_u8(out, FIELD_KEY(2, FIELD_DELIMITED));
        bytes_varint(out, m->group_id_n);
        bytes_add(out, m->group_id, m->group_id_n);
    }
    bytes_u8(out, FIELD_KEY(4, FIELD_DELIMITED));
    bytes_varint(out, head + m->bytes + tail_length(m));
    if (m->bytes) {
        bytes_u8(out, FIELD_KEY(1, FIELD_DELIMITED));
        bytes_varint(out, m->bytes);
        at = bytes_length(out);
        if (bytes_reserve(out, m->bytes)) out->end += m->bytes;
    }
    put_tail(out, m);
    memcpy(&weight, &m->weight, sizeof weight);
    if (weight) {
        bytes_u8(out, FIELD_KEY(5, FIELD_FIXED64));
        put_le64(out, weight);
    }
    *buffer = out->failed || !m->bytes ? NULL : out->data + out->begin + at;
    return out->failed;
}

int part_message_code(struct bytes *out, enum averaging_code code)
{
    bytes_u8(out, FIELD_KEY(1, FIELD_VARINT));
    return bytes_varint(out, (uint64_t)code);
}

/* --- values ----------------------------------------------------------------------------------- */

static int floats_within(const uint8_t *at, size_t n, float limit)
{
    uint32_t x, worst = 0, bits;
    memcpy(&bits, &limit, sizeof bits); /* what is not a number has greater ones than any number */
    for (size_t i = 0; i < n; i++) {
        memcpy(&x, at + 4 * i, sizeof x);
        x &= 0x7fffffffu;
        worst = x > worst ? x : worst;
    }
    return worst <= bits;
}

static int halves_finite(const uint8_t *at, size_t n)
{
    uint16_t x, worst = 0;
    for (size_t i = 0; i < n; i++) {
        memcpy(&x, at + 2 * i, sizeof x);
        x &= 0x7fff;
        worst = x > worst ? x : worst;
    }
    return worst < 0x7c00;
}

int part_message_is_sound(const struct part_message *m)
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
