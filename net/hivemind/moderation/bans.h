/* bans.h - peers that we form no group with for a while. Everybody judges for itself; nobody's
 * word counts. [TTT 2.1, security]
 *
 * A ban needs a proof: what a peer has sent, and no honest peer ever sends. A back-off needs none:
 * it is for a peer that has cost us a round, which happens to honest ones too. It is short, and
 * twice as long each time, so that one that goes on costs less and less. */
#ifndef PL_BANS_H
#define PL_BANS_H

#include "net/libp2p/peer/peer_id.h"

#define BANS_MAX 256 /* the first that ends makes way: identities cost nothing, memory does */
/* s: some hundred rounds; an end, because memory that has gone bad is replaced */
#define BANS_TIME 600.0
#define BANS_BACK_OFF 30.0 /* s: the next round or two go on without it */
/* s after its end that a back-off is remembered, and doubled by the next */
#define BANS_MEMORY 600.0

struct bans {
    struct ban {
        struct peer_id peer;
        double until;
        double back_off; /* s: the last one; 0: a ban */
    } items[BANS_MAX];
    size_t count;
};

/* Bans it for BANS_TIME from now. Returns 1 if it was not banned. */
int bans_add(struct bans *b, double now, const struct peer_id *peer);
/* At most BANS_TIME. Does not shorten a ban. Returns how many seconds. */
double bans_back_off(struct bans *b, double now, const struct peer_id *peer);
int bans_has(const struct bans *b, double now, const struct peer_id *peer);

#endif
