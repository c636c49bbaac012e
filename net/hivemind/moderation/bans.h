/* bans.h - peers that have provably cheated. We form no group with them for ten minutes. [TTT 2.1,
 * security]
 *
 * Each peer judges for itself; reports of others do not count. A ban needs a proof: a message of
 * that peer that no honest peer ever sends. A peer that has only failed, as honest ones do at
 * times, gets a back-off instead (net/hivemind/averaging/reliability.h). */
#ifndef PL_BANS_H
#define PL_BANS_H

#include "net/libp2p/peer/peer_id.h"

#define BANS_MAX 256 /* the first that ends is forgotten: identities cost nothing, memory does */
/* s: some hundred rounds; a ban ends because bad memory, which cheats without intent, is
 * replaced */
#define BANS_TIME 600.0

struct bans { /* zeros: no peer is banned */
    struct ban {
        struct peer_id peer;
        double until; /* s, of the caller's clock */
    } items[BANS_MAX];
    size_t count;
};

/* Bans it for BANS_TIME from now. Returns 1 if it was not banned. */
int bans_add(struct bans *b, double now, const struct peer_id *peer);
int bans_has(const struct bans *b, double now, const struct peer_id *peer);

#endif
