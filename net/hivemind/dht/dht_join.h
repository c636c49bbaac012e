/* dht_join.h - entering a DHT through initial peers, and keeping in touch with it. */
#ifndef PL_DHT_JOIN_H
#define PL_DHT_JOIN_H

#include "net/hivemind/dht_core/dht_reachability.h"
#include "dht_walk.h"

/* HELD: waits for dht_join_enter. ENTERING: no initial peer has let us in yet. */
enum dht_join_phase { JOIN_HELD, JOIN_ENTERING, JOIN_JOINED };

struct dht_join {
    struct dht_core *core;
    struct dht_calls *calls;
    struct dht_walks *walks;
    struct dht_reachability *reachability;
    enum dht_join_phase phase;
    struct timer join_timer, maintenance_timer, retry_timer;
    double began;       /* loop time at which initial peers were asked */
    double refreshed;   /* loop time of the last search for our own id */
    double retry_after; /* s until initial peers that did not answer are tried again */
    dht_joined *joined;
    void *context;
    /* the clock: samples of nodes that are asked because the initial peers' differ from ours */
    enum { CLOCK_UNCHECKED, CLOCK_CHECKED } clock; /* CHECKED: asked for this entry */
    double clock_error; /* median difference to others' clocks, s; NAN: not known */
    double samples[DHT_INITIAL_MAX + DHT_CLOCK_PEERS];
    size_t sample_count;
    int samples_awaited;
};
/* PL_EUSE for an address that cannot be dialled. hold: 1 begins in JOIN_HELD. */
int dht_join_open(struct dht_join *j, const char *const *join, size_t count, int hold,
                  struct pl_err *err);
void dht_join_enter(struct dht_join *j);
void dht_join_run(struct dht_join *j); /* in an iteration of the loop: begins if it has not */
void dht_join_close(struct dht_join *j);

#endif
