/* kad.h - finding a peer's addresses by asking others: the part of libp2p's Kademlia that
 * hivemind's peers use. [spec libp2p-wire 11] */
#ifndef PL_KAD_H
#define PL_KAD_H

#include "net/libp2p/host/host.h"

#define KAD_REQUEST_MAX 16384   /* bytes; an honest one has one key */
#define KAD_RESPONSE_MAX 262144 /* twenty peers with sixteen addresses need a fifth of it */
#define KAD_CLOSER 20           /* peers in an answer */
#define KAD_ADDRESSES_MAX 16    /* of a peer in an answer */
#define KAD_AT_ONCE 10          /* peers asked in a round */
#define KAD_ROUNDS 3
#define KAD_ANSWER_LIMIT 10.0  /* s */
#define KAD_IDLE_LIMIT 60.0    /* s that a requester may leave its stream open */
#define KAD_CANDIDATES_MAX 128 /* in a search */

enum kad_type {
    KAD_PUT_VALUE,
    KAD_GET_VALUE,
    KAD_ADD_PROVIDER,
    KAD_GET_PROVIDERS,
    KAD_FIND_NODE,
    KAD_PING
};

struct kad_peer {
    struct peer_id id;
    struct multiaddr addresses[KAD_ADDRESSES_MAX];
    size_t address_count;
    int connection; /* 0 no, 1 connected, 2 can connect, 3 cannot */
};
struct kad_message {
    int type;
    uint8_t key[64]; /* a peer ID; longer ones are cut when read, and match no peer */
    size_t key_bytes;
    int cluster; /* clusterLevelRaw; mirrored in the answer */
    struct kad_peer *closer;
    size_t closer_count;
};
int kad_put(struct bytes *out, const struct kad_message *m); /* delimited */
/* One message's body. Peers and addresses that we cannot read are left out, more than KAD_CLOSER
 * dropped. Clear it also after an error. */
int kad_get(struct kad_message *m, const uint8_t *data, size_t n);
void kad_clear(struct kad_message *m);

/* Answers look-ups, unless in client mode, and is the host's peer router: it asks connected
 * peers, and those they name, where a peer is. */
extern const struct host_protocol kad_protocol;

#endif
