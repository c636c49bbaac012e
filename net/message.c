/* message.c - protobuf messages by way of protobuf-c, with a bound on memory. A decoder
 * allocates for every repeated element, and an empty element takes 2 bytes on the wire but some
 * 60 in memory: 4 MiB from a stranger could become 240 MiB. So allocation has a budget that is
 * proportional to the received bytes. */
#include "net/message.h"

#include <stdlib.h>

#define BLOCK_COST 16 /* malloc's overhead for a block */

/* protobuf-c asks this allocator for every block. NULL makes it give up the whole message. */
static void *budget_alloc(void *budget, size_t n)
{
    size_t *left = budget;
    if (n > *left || n + BLOCK_COST > *left) return NULL;
    *left -= n + BLOCK_COST;
    return malloc(n ? n : 1);
}

static void budget_free(void *budget, void *block)
{
    (void)budget; /* scratch is not credited: the ceiling holds for the sum */
    free(block);
}

/* The budget lives on the stack: it is only needed while decoding; afterwards the message is
 * bounded. */
void *message_unpack(const ProtobufCMessageDescriptor *type, const uint8_t *data, size_t n,
                     struct pl_err *err)
{
    size_t left = MESSAGE_COST(n);
    ProtobufCAllocator allocator = { budget_alloc, budget_free, &left };
    void *m = protobuf_c_message_unpack(type, &allocator, n, data);
    if (!m) pl_fail(err, PL_EFORMAT, "%s: %zu bytes are not a valid message", type->short_name, n);
    return m;
}

/* By the allocator that made it: a library may have been linked with another malloc than ours. */
void message_free(void *m)
{
    ProtobufCAllocator allocator = { budget_alloc, budget_free, NULL };
    if (m) protobuf_c_message_free_unpacked(m, &allocator);
}

/* Two passes, as the length of nested messages comes before their bytes: measure, then write in
 * place. */
int message_pack(struct bytes *out, const ProtobufCMessage *m)
{
    size_t n = protobuf_c_message_get_packed_size(m);
    uint8_t *to = bytes_reserve(out, n);
    if (!to) return out->failed;
    out->end += protobuf_c_message_pack(m, to);
    return PL_OK;
}

int message_pack_delimited(struct bytes *out, const ProtobufCMessage *m)
{
    bytes_varint(out, protobuf_c_message_get_packed_size(m));
    return message_pack(out, m);
}

/* protobuf-c has one type for reading and writing, so its pointer is not const; packing only
 * reads it. */
ProtobufCBinaryData message_bytes(const void *data, size_t n)
{
    ProtobufCBinaryData b = { n, (uint8_t *)(uintptr_t)data };
    return b;
}
