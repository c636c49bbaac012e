/* multiaddr_fields.c - addresses out of and into protobuf's bytes. */
#include "multiaddr_fields.h"

void multiaddr_fields(ProtobufCBinaryData *field, const struct multiaddr *list, size_t count)
{
    for (size_t i = 0; i < count; i++) field[i] = message_bytes(list[i].bytes, list[i].length);
}

void multiaddr_of_fields(struct multiaddr *list, size_t *count, size_t max,
                         const ProtobufCBinaryData *field, size_t n)
{
    for (size_t i = 0; i < n && *count < max; i++)
        if (!multiaddr_parse(&list[*count], field[i].data, field[i].len)) ++*count;
}
