/* peer_record.h - signed peer records: a peer's addresses under its own signature, so that
 * others can pass them on. [spec libp2p-wire 9] */
#ifndef PL_RECORD_H
#define PL_RECORD_H

#include "identity.h"
#include "multiaddr.h"

#define RECORD_ADDRESSES_MAX 32
#define ENVELOPE_MAX 8192 /* bytes; as much as one part of an identify message may hold */

struct record {
    struct peer_id peer;
    uint64_t seq; /* ns of its clock: the highest is the newest */
    struct multiaddr addresses[RECORD_ADDRESSES_MAX];
    size_t address_count;
};

/* A record of ours in its envelope. */
int record_put(struct bytes *out, const struct identity *me, uint64_t seq,
               const struct multiaddr *addresses, size_t count);
/* Checks an envelope: its signature, and that the record is about the peer with that key. Addresses
 * that we cannot read are left out. PL_EFORMAT, PL_ELIMIT or PL_EPROTO. */
int record_get(struct record *r, const uint8_t *envelope, size_t n);

#endif
