/* dht_blacklist.h - peers that failed: nodes that did not answer are not asked again for a while,
 * donors of a state after all others. [spec hivemind-protocol 1.6, 7] */
#ifndef PL_DHT_BLACKLIST_H
#define PL_DHT_BLACKLIST_H

#include "net/libp2p/peer/peer_id.h"

#define BLACKLIST_FIRST 5.0 /* s, doubled with every further failure */
/* s; hivemind goes on doubling, and loses repaired peers for hours */
#define BLACKLIST_LONGEST 300.0
#define BLACKLIST_MAX 1024 /* of the largest runs' peers a few hundred are down at once */

struct dht_blacklist {
    double first, longest; /* s: the first pause, doubled with each further failure; its bound */
    size_t max;            /* peers; of more, the one whose pause ends first is forgotten */
    /* private, zero to begin with */
    struct dht_blacklisted {
        struct peer_id peer;
        int failures;
        double until; /* loop time */
    } * entries;      /* in no order */
    size_t count, capacity;
};
void dht_blacklist_close(struct dht_blacklist *b);

/* A failure that there is no memory for is not noted. */
void dht_blacklist_failed(struct dht_blacklist *b, const struct peer_id *peer, double now);
void dht_blacklist_answered(struct dht_blacklist *b, const struct peer_id *peer);
int dht_blacklist_has(const struct dht_blacklist *b, const struct peer_id *peer, double now);

#endif
