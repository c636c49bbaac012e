/* identify.h - peers exchange their keys, addresses and protocols, and the address at which they
 * see the other. [spec libp2p-wire 9] */
#ifndef PL_IDENTIFY_H
#define PL_IDENTIFY_H

#include "net/libp2p/host/host.h"
#include "net/libp2p/peer/peer_record.h"

#define IDENTIFY_PART_MAX 8192 /* bytes of one part, as go-libp2p reads them */
#define IDENTIFY_PARTS_MAX 10
#define IDENTIFY_LIMIT 60.0       /* s */
#define IDENTIFY_ADDRESSES_MAX 64 /* that we look at; a peer keeps 16 */
#define IDENTIFY_PROTOCOLS_MAX 128

/* A message. When writing, everything is borrowed; when read, it owns what `owned` holds. */
struct identify_message {
    const uint8_t *public_key, *record;
    size_t public_key_bytes, record_bytes; /* 0: absent */
    struct multiaddr addresses[IDENTIFY_ADDRESSES_MAX];
    size_t address_count;
    struct multiaddr observed; /* length 0: absent */
    const char *protocols[IDENTIFY_PROTOCOLS_MAX];
    size_t protocol_count;
    const char *protocol_version, *agent; /* NULL: absent */
    void *owned;
};
/* One delimited part, or several when it is long. */
int identify_put(struct bytes *out, const struct identify_message *m);
/* From all the parts that came before the end. PL_EFORMAT or PL_ELIMIT. Addresses that we cannot
 * read are left out. Clear it also after an error. */
int identify_get(struct identify_message *m, const uint8_t *data, size_t n);
void identify_clear(struct identify_message *m);

/* Answers, asks on every new connection, and pushes changes. */
extern const struct host_protocol identify_protocol;

#endif
