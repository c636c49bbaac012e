/* dht_blacklist.h - nodes that did not answer, and until when they are not asked again.
 * [spec hivemind-protocol 1.6] */
#ifndef PL_DHT_BLACKLIST_H
#define PL_DHT_BLACKLIST_H

#include "net/libp2p/peer/peer_id.h"

#define BLACKLIST_FIRST 5.0 /* s, doubled with every further failure */
/* s; hivemind goes on doubling, and loses repaired peers for hours */
#define BLACKLIST_LONGEST 300.0
#define BLACKLIST_MAX 1024 /* of the largest runs' peers a few hundred are down at once */

struct dht_blacklist {
    struct dht_blacklisted {
        struct peer_id peer;
        int failures;
        double until; /* loop time */
    } * entries;      /* (BLACKLIST_MAX), in no order */
    size_t count;
};
int dht_blacklist_open(struct dht_blacklist *b); /* PL_OK or PL_ENOMEM */
void dht_blacklist_close(struct dht_blacklist *b);

void dht_blacklist_failed(struct dht_blacklist *b, const struct peer_id *peer, double now);
void dht_blacklist_answered(struct dht_blacklist *b, const struct peer_id *peer);
int dht_blacklist_has(const struct dht_blacklist *b, const struct peer_id *peer, double now);

#endif
