/* protobuf_fields.c - one field of a protobuf message after the other, without copying any. A
 * key is number << 3 | type; the type alone says how long the value is, so that fields with
 * unknown numbers can be skipped. part_message.c has an example, byte by byte. */
#include "protobuf_fields.h"

#include <string.h>

/* Fixed-width numbers are little-endian on the wire, whatever the machine's order is. */
uint64_t field_le64(const uint8_t *eight)
{
    uint64_t x = 0;
    for (int i = 7; i >= 0; i--) x = x << 8 | eight[i];
    return x;
}

int field_next(struct cursor *c, struct field *f)
{
    uint64_t key;
    const uint8_t *raw;
    int rc = get_varint(c, &key);
    memset(f, 0, sizeof *f);
    if (rc) return rc;
    f->number = key >> 3;
    f->type = (enum field_type)(key & 7);
    /* A delimited value may not be longer than the rest of the message; otherwise the message is
     * refused. */
    switch (f->type) {
    case FIELD_VARINT: return get_varint(c, &f->value);
    case FIELD_FIXED64:
        if (!(rc = get_bytes(c, &raw, 8))) f->value = field_le64(raw);
        return rc;
    case FIELD_DELIMITED: return get_delimited(c, &f->data, &f->n, c->left);
    case FIELD_FIXED32: return get_bytes(c, &raw, 4);
    }
    return PL_EFORMAT; /* 3, 4: groups, which proto3 removed; 6, 7: never defined */
}

/* Key, length, bytes. */
int field_write(struct bytes *out, unsigned number, const void *data, size_t n)
{
    bytes_varint(out, number << 3 | FIELD_DELIMITED);
    bytes_varint(out, n);
    return bytes_add(out, data, n);
}
