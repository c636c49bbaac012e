/* relay_internal.h - shared by relay_client.c (the two ends) and relay_serve.c (the middle). */
#ifndef PL_RELAY_INSIDE_H
#define PL_RELAY_INSIDE_H

#include "net/libp2p/host/exchange.h"
#include "net/libp2p/host/host_protocol.h"
#include "relay.h"

#define HOP "/libp2p/circuit/relay/0.2.0/hop"
#define STOP "/libp2p/circuit/relay/0.2.0/stop"

struct reservation { /* that another peer holds with us, while it is connected */
    struct peer_id peer;
    double until; /* s */
    struct account account;
    struct reservation *next, *prev;
};
struct circuit;
struct relay_user;

struct relay {
    struct host *host;
    struct reservation *reservations;
    struct circuit *circuits;
    struct exchange *stopping; /* stop streams whose first message has not come yet */
    struct relay_user *users;
    struct exchange *dials; /* of struct circuit_dial */
    struct host_watch watch;
};

static inline struct relay *relay_of(const struct host *h)
{
    return host_state(h, &relay_protocol);
}

/* --- relay_stream.c --- */
/* The next message in a stream. PL_EAGAIN: not yet. It is not taken; *used is its length. */
int relay_next(struct stream *c, enum relay_protocol p, struct relay_message *m, size_t *used);
void relay_send(struct stream *c, enum relay_protocol p, const struct relay_message *m);

/* --- relay_serve.c --- */
void relay_serve_hop(void *relay, struct stream *c);
void relay_serve_lost(struct relay *r, const struct peer_id *peer); /* no connection left */
void relay_serve_stop_all(struct relay *r);

#endif
