/* thrift.h - the part of Thrift's compact protocol that Parquet uses: structs of numbered fields,
 * lists, varint integers, binaries. [Thrift compact protocol specification] */
#ifndef PL_THRIFT_H
#define PL_THRIFT_H

#include "data/files/buffer.h"

enum thrift_type {
    THRIFT_STOP = 0,
    THRIFT_TRUE = 1,
    THRIFT_FALSE = 2,
    THRIFT_BYTE = 3,
    THRIFT_I16 = 4,
    THRIFT_I32 = 5,
    THRIFT_I64 = 6,
    THRIFT_DOUBLE = 7,
    THRIFT_BINARY = 8,
    THRIFT_LIST = 9,
    THRIFT_SET = 10,
    THRIFT_MAP = 11,
    THRIFT_STRUCT = 12
};

/* --- reading. Malformed input sets `bad`; after that every call returns zero, so a parser checks
 * once, when it is done. */
struct thrift_in {
    const uint8_t *p, *end;
    int bad;
    int short_of; /* bad because the input is truncated */
};

struct thrift_field {
    int id, type; /* start with { 0 } for each struct */
};

/* The next field's id and type; 0 after the last one. */
int pl_thrift_next(struct thrift_in *in, struct thrift_field *f);
/* The value of a field of any integer type, or of a boolean. */
int64_t pl_thrift_integer(struct thrift_in *in, const struct thrift_field *f);
/* A binary's bytes, inside the input. */
const uint8_t *pl_thrift_binary(struct thrift_in *in, const struct thrift_field *f, size_t *bytes);
/* The number of elements, at most the bytes that are left; *type is their type. */
size_t pl_thrift_list(struct thrift_in *in, const struct thrift_field *f, int *type);
void pl_thrift_skip(struct thrift_in *in, int type);

/* --- writing. *last is the id of the struct's last field; it starts at 0. */
void pl_thrift_put_field(struct pl_buffer *b, int *last, int id, int type);
void pl_thrift_put_varint(struct pl_buffer *b, uint64_t x);
void pl_thrift_put_i32(struct pl_buffer *b, int *last, int id, int32_t x);
void pl_thrift_put_i64(struct pl_buffer *b, int *last, int id, int64_t x);
void pl_thrift_put_binary(struct pl_buffer *b, const void *data, size_t bytes);
void pl_thrift_put_string(struct pl_buffer *b, int *last, int id, const char *text);
void pl_thrift_put_list(struct pl_buffer *b, int *last, int id, int type, size_t count);
void pl_thrift_put_stop(struct pl_buffer *b);

#endif
