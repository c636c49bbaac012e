/* message.h - protobuf messages to bytes and back, with a limit on the memory that strangers' can
 * take. */
#ifndef PL_MESSAGE_H
#define PL_MESSAGE_H

#include "net/bytes.h"

#include <protobuf-c/protobuf-c.h>

/* Bytes of memory for a message of n bytes: honest ones need up to 4 n (a repeated element has its
 * own block); one made of empty elements would take 60 n. */
#define MESSAGE_COST(n) (8 * (n) + (64u << 10))

/* NULL with a sentence: malformed, or beyond MESSAGE_COST. Free
 * with message_free. */
void *message_unpack(const ProtobufCMessageDescriptor *type, const uint8_t *data, size_t n,
                     struct pl_err *err);
/* m, and all that it owns, as message_unpack made them; NULL is allowed. */
void message_free(void *m);
/* Appends; returns PL_OK or out->failed. */
int message_pack(struct bytes *out, const ProtobufCMessage *m);
/* The same with the message's length in front, a varint. */
int message_pack_delimited(struct bytes *out, const ProtobufCMessage *m);

/* A view of bytes for a field; the library only reads it. */
ProtobufCBinaryData message_bytes(const void *data, size_t n);

#endif
