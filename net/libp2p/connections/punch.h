/* punch.h - several addresses of one peer are dialed together because it has asked for that, and
 * it may dial us at the same moment. [spec libp2p-wire 14]
 *
 * A router lets in packets from an address to which packets have gone out. So if two peers behind
 * NAT dial each other at the same time, from the ports that they listen on, each router takes the
 * other's packets for answers. Then neither side, or the one whose packet left later, accepts the
 * connection at TCP's level; so the two agree beforehand which of them acts as the listener above
 * TCP. */
#ifndef PL_PUNCH_H
#define PL_PUNCH_H

#include "dial.h"

#define PUNCH_ADDRESSES_MAX PUNCH_EXPECTED_MAX
#define PUNCH_LIMIT 5.0 /* s to connect, as go-libp2p; as long again for the handshakes */
#define PUNCH_REDIAL \
    0.25 /* s until an address that refused is dialed again: the other side's
                               * router may not have seen its packet leave */

enum punch_role {
    PUNCH_CALL,   /* an ordinary dial: the other side listens */
    PUNCH_DIALER, /* both dial; we play the dialer above TCP */
    PUNCH_LISTENER
};

struct punch;
/* PL_OK: connected. p is gone afterwards. */
typedef void punch_done(void *context, struct punch *p, int status, const char *why);
/* Dials at most PUNCH_ADDRESSES_MAX of them. The peer has to prove its ID, and the connections are
 * charged as if it had dialed us. NULL: no memory, or nothing to dial; done is not called. */
struct punch *punch_start(struct dialing *of, const struct peer_id *peer,
                          const struct multiaddr *to, size_t count, enum punch_role role,
                          punch_done *done, void *context);
void punch_cancel(struct punch *p); /* done is not called. NULL may be canceled */

/* Whether a peer's word is enough to dial that address, `over` being where that peer is
 * connected: public addresses; private ones if an interface of ours is in the same network; this
 * machine's only for peers of this machine. Names are not resolved. */
int punch_may_dial(const struct multiaddr *a, const struct multiaddr *over);

#endif
