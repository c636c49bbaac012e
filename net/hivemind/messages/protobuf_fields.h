/* protobuf_fields.h - protobuf's syntax as views: for the few messages whose bulk should not be
 * copied. All others are the library's (message.h). */
#ifndef PL_FIELDS_H
#define PL_FIELDS_H

#include "net/bytes.h"

enum field_type { FIELD_VARINT = 0, FIELD_FIXED64 = 1, FIELD_DELIMITED = 2, FIELD_FIXED32 = 5 };
#define FIELD_KEY(number, type) ((uint8_t)((number) << 3 | (type))) /* for numbers up to 15 */

struct field {
    uint64_t number;
    enum field_type type;
    uint64_t value;      /* FIELD_VARINT, FIELD_FIXED64 */
    const uint8_t *data; /* FIELD_DELIMITED: a view */
    size_t n;
};

/* The next field of a message; the caller checks c->left first. Any status but PL_OK: not
 * protobuf. */
int field_next(struct cursor *c, struct field *f);
/* Appends a field of bytes; returns PL_OK or out->failed. */
int field_write(struct bytes *out, unsigned number, const void *data, size_t n);
uint64_t field_le64(const uint8_t *eight);

#endif
