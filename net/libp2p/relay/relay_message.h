/* relay_message.h - the messages of circuit relay v2 and AutoNAT, without sockets.
 * [spec libp2p-wire 14] */
#ifndef PL_RELAY_MESSAGE_H
#define PL_RELAY_MESSAGE_H

#include "net/bytes.h"
#include "net/libp2p/peer/multiaddr.h"

#define RELAY_MESSAGE_MAX 4096 /* bytes, by the protocol */
#define RELAY_ADDRESSES_MAX 16

enum relay_protocol { RELAY_HOP, RELAY_STOP };
enum hop_type { HOP_RESERVE, HOP_CONNECT, HOP_STATUS };
enum stop_type { STOP_CONNECT, STOP_STATUS };
enum relay_status {
    RELAY_OK = 100,
    RELAY_RESERVATION_REFUSED = 200,
    RELAY_RESOURCE_LIMIT_EXCEEDED = 201,
    RELAY_PERMISSION_DENIED = 202,
    RELAY_CONNECTION_FAILED = 203,
    RELAY_NO_RESERVATION = 204,
    RELAY_MALFORMED_MESSAGE = 400,
    RELAY_UNEXPECTED_MESSAGE = 401
};
/* A few words for a status. */
const char *relay_status_text(int status);

struct relay_message {
    int type;                                        /* hop_type or stop_type */
    struct peer_id peer;                             /* length 0: absent */
    struct multiaddr addresses[RELAY_ADDRESSES_MAX]; /* the peer's, or the reservation's */
    size_t address_count;
    int has_reservation;
    uint64_t expire;       /* unix s */
    uint8_t voucher[1024]; /* signed by the relay; passed on as it is */
    size_t voucher_bytes;
    int has_limit;
    uint32_t duration_s; /* 0: no limit */
    uint64_t data_bytes; /* of one direction; 0: no limit */
    int status;          /* 0: absent */
};
/* delimited */
int relay_put(struct bytes *out, enum relay_protocol p, const struct relay_message *m);
/* One message's body. PL_EFORMAT. */
int relay_get(struct relay_message *m, enum relay_protocol p, const uint8_t *data, size_t n);

#endif
