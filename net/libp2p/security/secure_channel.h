/* secure_channel.h - a connection's encryption as an engine: bytes from the wire in, plain bytes
 * out, and the other way round. Noise and TLS fill the same struct. [spec libp2p-wire 5, 6] */
#ifndef PL_SECURE_H
#define PL_SECURE_H

#include "net/bytes.h"
#include "net/libp2p/peer/identity.h"

struct secure {
    /* Takes received bytes. Handshake answers are appended to `wire`, decrypted bytes to `plain`.
     * PL_EPROTO with a sentence ends the connection; `wire` may then hold an alert to send. */
    int (*receive)(struct secure *s, const uint8_t *in, size_t n, struct bytes *plain,
                   struct bytes *wire, struct pl_err *err);
    /* Encrypts; only once established. */
    int (*send)(struct secure *s, const uint8_t *plain, size_t n, struct bytes *wire);
    void (*close)(struct secure *s);

    int established;       /* 1: the remote side has proven its identity */
    struct peer_id remote; /* valid once established */
    int muxer_agreed;      /* 1: both named yamux in the handshake, no negotiation needed */
};

/* Opens an engine for one connection. `me` is borrowed until close. `expected`: the peer that was
 * dialed, or NULL to take anybody. The initiator's first message goes to `wire` at once.
 * PL_ENOMEM or PL_OK. */
int noise_open(struct secure **s, const struct identity *me, int initiator,
               const struct peer_id *expected, struct bytes *wire);
int tls_open(struct secure **s, const struct identity *me, int initiator,
             const struct peer_id *expected, struct bytes *wire);

#endif
