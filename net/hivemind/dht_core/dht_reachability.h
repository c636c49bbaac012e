/* dht_reachability.h - can other peers open connections to us? */
#ifndef PL_DHT_REACHABILITY_H
#define PL_DHT_REACHABILITY_H

#include "dht_core.h"
#include "dht_relays.h"

#define REACHABILITY_ASKED 3 /* one alone may share our router, or be in trouble itself */

/* UNKNOWN counts as open: most peers are, and few initial peers can check it at once. */
enum reachability { REACH_UNKNOWN, REACH_OPEN, REACH_CLOSED };

struct dht_reachability {
    struct dht_core *core;
    struct host_watch watch;
    struct dht_relays relays;
    enum reachability state;
    int is_mapped;     /* our router forwarded a port when we last looked */
    int is_translated; /* OPEN through a router, which may let in only some peers */
    int called_back;   /* an initial peer has called us, be it on the connection that we made */
    double entered;    /* loop time; 0: not yet */
    double checked;    /* loop time of the last check; 0: never */
    size_t pending, could, could_not;
    struct timer late;
    int is_assumed; /* CLOSED before the first check has ended */
    struct dht_reachability_check {
        struct dht_reachability *of;
        struct autonat_question *question;
    } checks[REACHABILITY_ASKED];
};
void dht_reachability_open(struct dht_reachability *r);
void dht_reachability_close(struct dht_reachability *r);

/* After joining, and every few seconds: asks again when it is time, and updates our role. */
void dht_reachability_check(struct dht_reachability *r);
int dht_reachability_is_open(const struct dht_reachability *r); /* directly or by a relay */
int dht_reachability_is_known(const struct dht_reachability *r);
int dht_reachability_is_relayed(const struct dht_reachability *r);

#endif
