/* dht_relays.h - which relays carry connections to a peer that others cannot open connections to:
 * two at a time, initial peers first, then nodes of the DHT that offer it. [spec libp2p-wire 14] */
#ifndef PL_DHT_RELAYS_H
#define PL_DHT_RELAYS_H

#include "dht_core.h"

#define DHT_RELAYS_USED 2 /* one may leave */
#define DHT_RELAYS_MAX 16 /* remembered; more would not be tried before they are out of date */
/* A relay must grant a reservation within TRIAL s, and may be without one for as long; otherwise it
 * is not asked for PAUSE s. A refusal takes one round trip; a retry comes after 30 s. */
#define DHT_RELAY_TRIAL 45.0
#define DHT_RELAY_PAUSE 600.0

struct dht_relay {
    struct peer_id peer;
    uint64_t subnet; /* dht_core_subnet; 0: not known */
    int is_initial, is_used;
    double granted; /* loop time at which it last had our reservation, or was first asked for one */
    double again;   /* loop time from which it may be asked */
};

struct dht_relays {
    struct dht_core *core;
    struct dht_relay list[DHT_RELAYS_MAX];
    size_t count;
};

/* Every few seconds. is_needed: others cannot open connections to us. Leaves relays that grant no
 * reservation and asks others; without need leaves all. */
void dht_relays_update(struct dht_relays *r, int is_needed);

#endif
