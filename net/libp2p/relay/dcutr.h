/* dcutr.h - from a relayed connection to a direct one. [spec libp2p-wire 14]
 *
 * A has dialed B through a relay; B holds the reservation, so B is behind NAT.
 *
 *   1 reversal   B dials A's addresses, as identify names them: A may be public
 *   2 punch      both dial each other's observed addresses at the same moment (DCUtR):
 *
 *                  B                                      A
 *                    CONNECT {B's addresses}   --->          over the relay
 *                       <---   CONNECT {A's addresses}       B measures the round trip
 *                    SYNC                      --->
 *                    half a round trip later                 at once
 *                    dials A        <------------->          dials B
 *
 *   DCUTR_TRIES times; then the connection stays relayed until a new one begins.
 *
 * On a punched connection B plays the listener above TCP and A the dialer; with go-libp2p before
 * 0.41, as in hivemind's p2pd, it is the other way around. */
#ifndef PL_DCUTR_H
#define PL_DCUTR_H

#include "net/bytes.h"
#include "net/libp2p/connections/punch.h"

#define DCUTR_MESSAGE_MAX 4096 /* bytes, by the protocol */
#define DCUTR_LIMIT 60.0       /* s for a stream, as go-libp2p */
#define DCUTR_TRIES 3          /* 97.6 % of those that succeed do at the first */

enum dcutr_type { DCUTR_CONNECT = 100, DCUTR_SYNC = 300 };

struct dcutr_message {
    enum dcutr_type type;
    struct multiaddr addresses[PUNCH_ADDRESSES_MAX];
    size_t address_count;
};
/* Delimited. */
int dcutr_put(struct bytes *out, const struct dcutr_message *m);
/* One message's body. PL_EFORMAT. Addresses that we cannot read, and relayed ones, are left out. */
int dcutr_get(struct dcutr_message *m, const uint8_t *data, size_t n);

/* Turns relayed connections into direct ones, where that can be. */
extern const struct host_protocol dcutr_protocol;

#endif
