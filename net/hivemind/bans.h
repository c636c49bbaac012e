/* bans.h - peers that we form no group with for a while, because of what they have sent: never
 * for being slow, silent or gone, which honest peers are too. Everybody judges for itself;
 * nobody's word counts. [TTT 2.1, security] */
#ifndef PL_BANS_H
#define PL_BANS_H

#include "../libp2p/peer_id.h"

#define BANS_MAX 256      /* the oldest makes room: identities cost nothing, memory does */
/* s: some hundred rounds; an end, because memory that has gone bad is replaced */
#define BANS_TIME 600.0

struct bans {
    struct ban {
        struct peer_id peer;
        double until;
    } items[BANS_MAX];
    size_t count;
};

void bans_add(struct bans *b, double now, const struct peer_id *peer);
int bans_has(const struct bans *b, double now, const struct peer_id *peer);

#endif
