/* thrift.c - Thrift's compact protocol. A struct is a list of fields, each with a byte of (id
 * delta, type), ended by 0; integers are zigzag varints, binaries have a length in front. */
#include "thrift.h"

#include <string.h>

#define DEPTH_MAX 32 /* nesting of skipped values; Parquet's own nest 6 deep */

static int bad(struct thrift_in *in, int short_of)
{
    if (!in->bad) in->short_of = short_of;
    in->bad = 1;
    in->p = in->end;
    return 0;
}

static uint8_t byte(struct thrift_in *in)
{
    if (in->p == in->end) return (uint8_t)bad(in, 1);
    return *in->p++;
}

static uint64_t varint(struct thrift_in *in)
{
    uint64_t x = 0;
    for (int shift = 0; shift < 64; shift += 7) {
        uint8_t b = byte(in);
        x |= (uint64_t)(b & 127) << shift;
        if (!(b & 128)) return in->bad ? 0 : x;
    }
    return (uint64_t)bad(in, 0);
}

static int64_t zigzag(uint64_t x) { return (int64_t)(x >> 1) ^ -(int64_t)(x & 1); }

int pl_thrift_next(struct thrift_in *in, struct thrift_field *f)
{
    uint8_t head = byte(in);
    if (in->bad || head == THRIFT_STOP) return 0;
    f->type = head & 15;
    if (head >> 4) f->id += head >> 4;
    else f->id = (int)(int16_t)zigzag(varint(in));
    if (f->type < THRIFT_TRUE || f->type > THRIFT_STRUCT || f->id > INT16_MAX) bad(in, 0);
    return !in->bad;
}

int64_t pl_thrift_integer(struct thrift_in *in, const struct thrift_field *f)
{
    switch (f->type) {
    case THRIFT_TRUE: return 1;
    case THRIFT_FALSE: return 0;
    case THRIFT_BYTE: return (int8_t)byte(in);
    case THRIFT_I16:
    case THRIFT_I32:
    case THRIFT_I64: return zigzag(varint(in));
    default: return bad(in, 0);
    }
}

const uint8_t *pl_thrift_binary(struct thrift_in *in, const struct thrift_field *f, size_t *bytes)
{
    const uint8_t *p;
    uint64_t n = f->type == THRIFT_BINARY ? varint(in) : (uint64_t)bad(in, 0);
    *bytes = 0;
    if (n > (uint64_t)(in->end - in->p)) bad(in, 1);
    p = in->p;
    if (in->bad) return p;
    in->p += n;
    *bytes = (size_t)n;
    return p;
}

size_t pl_thrift_list(struct thrift_in *in, const struct thrift_field *f, int *type)
{
    uint8_t head = f->type == THRIFT_LIST || f->type == THRIFT_SET ? byte(in) : (uint8_t)bad(in, 0);
    uint64_t n = head >> 4;
    *type = head & 15;
    if (n == 15) n = varint(in);
    if (n > (uint64_t)(in->end - in->p)) bad(in, 1);
    return in->bad ? 0 : (size_t)n;
}

static void skip(struct thrift_in *in, int type, int in_list, int depth);

static void skip_elements(struct thrift_in *in, uint64_t n, int type, int depth)
{
    for (uint64_t i = 0; i < n && !in->bad; i++) skip(in, type, 1, depth);
}

static void skip_map(struct thrift_in *in, int depth)
{
    uint64_t n = varint(in);
    uint8_t types = n ? byte(in) : 0;
    for (uint64_t i = 0; i < n && !in->bad; i++) {
        skip(in, types >> 4, 1, depth);
        skip(in, types & 15, 1, depth);
    }
}

/* In a field, a boolean's value is its type; in a list it takes a byte. */
static void skip(struct thrift_in *in, int type, int in_list, int depth)
{
    struct thrift_field f = { 0, type };
    size_t n;
    int element;
    if (depth > DEPTH_MAX) {
        bad(in, 0);
        return;
    }
    switch (type) {
    case THRIFT_TRUE:
    case THRIFT_FALSE:
        if (in_list) byte(in);
        break;
    case THRIFT_BYTE: byte(in); break;
    case THRIFT_I16:
    case THRIFT_I32:
    case THRIFT_I64: varint(in); break;
    case THRIFT_DOUBLE:
        if (in->end - in->p < 8) bad(in, 1);
        else in->p += 8;
        break;
    case THRIFT_BINARY: pl_thrift_binary(in, &f, &n); break;
    case THRIFT_LIST:
    case THRIFT_SET:
        n = pl_thrift_list(in, &f, &element);
        skip_elements(in, n, element, depth + 1);
        break;
    case THRIFT_MAP: skip_map(in, depth + 1); break;
    case THRIFT_STRUCT:
        f.id = 0;
        while (pl_thrift_next(in, &f)) skip(in, f.type, 0, depth + 1);
        break;
    default: bad(in, 0);
    }
}

void pl_thrift_skip(struct thrift_in *in, int type) { skip(in, type, 0, 0); }

void pl_thrift_put_varint(struct pl_buffer *b, uint64_t x)
{
    for (; x > 127; x >>= 7) pl_buffer_byte(b, (uint8_t)(x | 128));
    pl_buffer_byte(b, (uint8_t)x);
}

static uint64_t to_zigzag(int64_t x) { return (uint64_t)x << 1 ^ (uint64_t)(x >> 63); }

void pl_thrift_put_field(struct pl_buffer *b, int *last, int id, int type)
{
    int step = id - *last;
    if (step > 0 && step < 16) pl_buffer_byte(b, (uint8_t)(step << 4 | type));
    else {
        pl_buffer_byte(b, (uint8_t)type);
        pl_thrift_put_varint(b, to_zigzag(id));
    }
    *last = id;
}

void pl_thrift_put_i32(struct pl_buffer *b, int *last, int id, int32_t x)
{
    pl_thrift_put_field(b, last, id, THRIFT_I32);
    pl_thrift_put_varint(b, to_zigzag(x));
}

void pl_thrift_put_i64(struct pl_buffer *b, int *last, int id, int64_t x)
{
    pl_thrift_put_field(b, last, id, THRIFT_I64);
    pl_thrift_put_varint(b, to_zigzag(x));
}

void pl_thrift_put_binary(struct pl_buffer *b, const void *data, size_t bytes)
{
    pl_thrift_put_varint(b, bytes);
    pl_buffer_add(b, data, bytes);
}

void pl_thrift_put_string(struct pl_buffer *b, int *last, int id, const char *text)
{
    pl_thrift_put_field(b, last, id, THRIFT_BINARY);
    pl_thrift_put_binary(b, text, strlen(text));
}

void pl_thrift_put_list(struct pl_buffer *b, int *last, int id, int type, size_t count)
{
    pl_thrift_put_field(b, last, id, THRIFT_LIST);
    if (count < 15) pl_buffer_byte(b, (uint8_t)(count << 4 | (unsigned)type));
    else {
        pl_buffer_byte(b, (uint8_t)(15 << 4 | type));
        pl_thrift_put_varint(b, count);
    }
}

void pl_thrift_put_stop(struct pl_buffer *b) { pl_buffer_byte(b, THRIFT_STOP); }
