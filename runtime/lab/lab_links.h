/* lab_links.h - a fluid model of a network: every peer has an uplink and a downlink, and transfers
 * share them max-min fairly, as long TCP connections nearly do.
 *
 * A transfer first drains: its bytes leave at the rate that its two links grant it. The last byte
 * then needs the latency of both ends to arrive. Nothing here knows an algorithm. */
#ifndef PL_LAB_LINKS_H
#define PL_LAB_LINKS_H

#include "ref/base.h"

#define LAB_PEERS_MAX 64 /* each has its own copy of the model in the memory of one process */

struct lab_link {
    double up, down; /* bytes a second */
    double latency;  /* s, one way between the peer and the middle of the network */
    double loss;     /* share of bytes that are sent again: the goodput is 1 - loss of the rate */
};

struct lab_transfer {
    int from, to;
    uint64_t tag; /* the caller's */
    double bytes, left;
    double rate; /* bytes a second */
    double end;  /* time at which it is drained at this rate; then, the time of its arrival */
    int is_drained;
};

struct lab_traffic {
    double sent, received;     /* bytes that have arrived */
    double cancelled;          /* bytes of transfers that were cut off */
    double peak_up, peak_down; /* bytes a second */
    double busy;               /* s during which the peer had a transfer */
    double now_up, now_down;   /* private: bytes a second at this moment */
};

struct lab_net {
    int peers;
    struct lab_link *link;       /* (peers) */
    struct lab_traffic *traffic; /* (peers) */
    struct lab_transfer *transfer;
    size_t count, capacity;
    double now;   /* s */
    int is_stale; /* private: the rates have to be computed anew */
};

/* Links are copied. PL_OK or PL_ENOMEM. */
int lab_net_open(struct lab_net *net, const struct lab_link *link, int peers);
void lab_net_close(struct lab_net *net);

/* Begins a transfer between two different peers. PL_OK or PL_ENOMEM. */
int lab_net_send(struct lab_net *net, int from, int to, double bytes, uint64_t tag);
/* Cuts off all transfers of a peer that has left. */
void lab_net_cut_peer(struct lab_net *net, int peer);
/* Cuts off all transfers whose tag, masked, is this one. */
void lab_net_cut_tag(struct lab_net *net, uint64_t tag, uint64_t mask);

/* The time of the next event; INFINITY: nothing is under way. */
double lab_net_next(struct lab_net *net);
/* Moves on to a time that is not after the next event. */
void lab_net_advance(struct lab_net *net, double time);
/* Removes one transfer that has arrived; 0: none has. */
int lab_net_take(struct lab_net *net, struct lab_transfer *out);

/* A profile by name: up, down, latency, loss; `mixed` takes another one for each peer in turn.
 * PL_ENOTFOUND: unknown name. lab_link_names ends with NULL. */
int lab_link_named(struct lab_link *link, const char *name, int peer);
extern const char *const lab_link_names[];

#endif
