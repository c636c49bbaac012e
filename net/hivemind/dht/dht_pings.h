/* dht_pings.h - pings on behalf of the user: is a peer alive, what does its clock show, does it
 * have an access token? */
#ifndef PL_DHT_PINGS_H
#define PL_DHT_PINGS_H

#include "dht_calls.h"

struct dht_pings {
    struct dht_core *core;
    struct dht_calls *calls;
    struct dht_task *pings, *admissions;
};
/* As dht_node_ping and dht_node_admit. */
struct dht_task *dht_ping_start(struct dht_pings *p, const struct peer_id *peer, int validate,
                                dht_pinged *pinged, void *context);
struct dht_task *dht_admit_start(struct dht_pings *p, const struct peer_id *peer,
                                 dht_admitted *admitted, void *context);
void dht_pings_close(struct dht_pings *p);

#endif
