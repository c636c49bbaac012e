/* pairs.h - the groups of algorithms whose peers exchange with a few others at a time, as NoLoCo's
 * pairs: drawn anew for each epoch, by all peers alike. Pure. [spec outer-steps 11] */
#ifndef PL_PAIRS_H
#define PL_PAIRS_H

#include "net/libp2p/peer/peer_id.h"
#include "net/hivemind/matchmaking/group.h"

/* Sorts peers (count), which `self` is one of, and draws groups of `group` peers; those left over
 * make some groups one larger. bits: of self's group key, other ones for each group; "" if there is
 * one group of all. Returns the size of self's group, or PL_ENOMEM. */
int pairs_draw(char bits[GROUP_BITS_MAX + 1], struct peer_id *peers, size_t count,
               const struct peer_id *self, int group, int64_t epoch);

#endif
