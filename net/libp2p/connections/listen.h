/* listen.h - where others find this peer. [spec libp2p-wire 3] */
#ifndef PL_LISTEN_H
#define PL_LISTEN_H

#include "budget.h"
#include "observed.h"

struct listener;

struct listening {
    struct host_core *core;
    struct connections *connections;
    struct listener *listeners;
    struct multiaddr *announce; /* advertised in place of the listening ones; owned */
    size_t announce_count;
    struct multiaddr mapped;  /* where our router forwards a port to us; length 0: nowhere */
    struct observed observed; /* how peers that we dialed from a listening port see us */
};

/* Listens on "/ip4/.../tcp/..." or "/ip6/...". After an error listening_stop may still be due. */
int listening_add(struct listening *l, const char *text, struct pl_err *err);
void listening_stop(struct listening *l);
/* The port of a listener of that IP version, 4 or 6; 0: there is none. */
uint16_t listening_port(const struct listening *l, int family);
/* 1: others see us at an address that no interface of this machine has, and the user has not set an
 * address to announce: a router stands between. */
int listening_is_translated(const struct listening *l, const struct multiaddr *seen);
/* The addresses that others may dial, without our ID. Returns how many were stored, at most max. */
size_t listening_addresses(const struct listening *l, struct multiaddr *out, size_t max);

#endif
