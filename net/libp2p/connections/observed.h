/* observed.h - our address as others see it, counted by observers: an engine without sockets or
 * clocks. [spec libp2p-wire 9]
 *
 * Behind NAT a peer learns its public address from the peers that it dials (identify). A router
 * whose mapping does not depend on the destination shows all of them the same address; a
 * symmetric one shows each a different port, and none of those leads to us. An address counts
 * once OBSERVERS_AGREE observers and more than half of them have reported it. One observer is
 * one subnet, and only peers that we dialed are asked: a stranger gets no vote by connecting to
 * us. */
#ifndef PL_OBSERVED_H
#define PL_OBSERVED_H

#include "net/libp2p/peer/multiaddr.h"

#define OBSERVERS_AGREE 2        /* a false report of one of them has no effect */
#define OBSERVERS_MAX 16         /* of each IP version; the oldest report is replaced */
#define OBSERVED_TTL (40 * 60.0) /* s after its connection has ended, as go-libp2p */

struct observation {
    uint8_t observer[16]; /* its subnet: an IPv4 /24, an IPv6 /64 */
    uint8_t ip[16];
    uint16_t port;
    double at; /* s */
};

struct observed {
    struct observer_list {
        struct observation list[OBSERVERS_MAX];
        size_t count;
    } of[2]; /* of IPv4, of IPv6 */
};

/* `observer` sees us as `seen`. Its earlier report is replaced. Addresses that are not public
 * say nothing about how the internet sees us: they are dropped. Returns 1 if observed_address
 * changes. */
int observed_add(struct observed *o, const struct multiaddr *seen, const struct multiaddr *observer,
                 double now);
/* The observer is still connected: its report, if there is one, is as good as new. */
void observed_renew(struct observed *o, const struct multiaddr *observer, double now);
/* The address that was reported last, even if no other observer agrees: for one attempt to dial
 * together. */
int observed_latest(const struct observed *o, int family, double now, struct multiaddr *out);
/* The address of that IP version, 4 or 6, that counts. PL_ENOTFOUND: too few agree. */
int observed_address(const struct observed *o, int family, double now, struct multiaddr *out);

#endif
