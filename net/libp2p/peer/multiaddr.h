/* multiaddr.h - self-describing addresses: binary on the wire, text for people.
 * [spec libp2p-wire 3] */
#ifndef PL_MULTIADDR_H
#define PL_MULTIADDR_H

#include "peer_id.h"

#define MULTIADDR_MAX 512 /* bytes; two peer IDs, a name of 255 and their frames fit */
#define MULTIADDR_TEXT_MAX 1024

struct multiaddr {
    uint16_t length;
    uint8_t bytes[MULTIADDR_MAX];
};

/* From text "/ip4/1.2.3.4/tcp/9/p2p/12D3..."; err names the part that is wrong. */
int multiaddr_from_text(struct multiaddr *a, const char *text, struct pl_err *err);
/* Checks every part of a received address. PL_EFORMAT, also for a protocol that we do not know: its
 * length, and so the start of the next part, is not known. */
int multiaddr_parse(struct multiaddr *a, const uint8_t *bytes, size_t n);
/* text holds MULTIADDR_TEXT_MAX bytes. A name's unprintable bytes become '?'. */
void multiaddr_text(char *text, const struct multiaddr *a);

/* An address as a dialer needs it. */
struct multiaddr_target {
    int family;      /* 4, 6, or 0 for a name */
    uint8_t ip[16];  /* ip4 uses the first 4 */
    char name[256];  /* dns, dns4, dns6 */
    int name_family; /* 0 any, 4, 6 */
    uint16_t port;
    struct peer_id peer;  /* the last /p2p; length 0 if absent */
    struct peer_id relay; /* the /p2p in front of /p2p-circuit; length 0: direct */
};
/* PL_OK for ip or name + tcp [+ p2p] [+ p2p-circuit [+ p2p]] and nothing else; PL_ENOTFOUND for an
 * address of a transport that we don't speak. */
int multiaddr_target(struct multiaddr_target *t, const struct multiaddr *a);

/* Builders: append to the address. PL_ELIMIT when it does not fit. */
int multiaddr_add_ip(struct multiaddr *a, int family, const uint8_t *ip);
int multiaddr_add_tcp(struct multiaddr *a, uint16_t port);
int multiaddr_add_peer(struct multiaddr *a, const struct peer_id *id);
int multiaddr_add_circuit(struct multiaddr *a);
/* Drops a final /p2p/ID, if the address has one. */
void multiaddr_strip_peer(struct multiaddr *a, const struct peer_id *id);
int multiaddr_equal(const struct multiaddr *a, const struct multiaddr *b);

#endif
