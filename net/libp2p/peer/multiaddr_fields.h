/* multiaddr_fields.h - lists of addresses as fields of protobuf messages. */
#ifndef PL_MULTIADDR_FIELDS_H
#define PL_MULTIADDR_FIELDS_H

#include "multiaddr.h"
#include "net/message.h"

/* Views of the addresses' bytes, for a message that is to be packed. */
void multiaddr_fields(ProtobufCBinaryData *field, const struct multiaddr *list, size_t count);
/* Appends the fields to a list of at most `max` addresses. Those that we cannot read are left out:
 * other implementations know more transports. */
void multiaddr_of_fields(struct multiaddr *list, size_t *count, size_t max,
                         const ProtobufCBinaryData *field, size_t n);

#endif
