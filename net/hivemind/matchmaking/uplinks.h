/* uplinks.h - slow uplinks do not set the time of a group. Pure functions. [TTT 2.1, uneven
 * devices]
 *
 * A member that reduces nothing still sends its own values, V bytes. At 25 Mbit/s this takes longer
 * than everything else in a group, and many volunteers have no more. So:
 *
 *   leader   a member whose uplink is below `slow` states 0 from now on, the slowest first, while
 *            the others end sooner without it: it has no share, as hivemind's peers with bandwidth
 *            0 have none
 *   sender   without a share, it sends its values in as many parts as its uplink takes while the
 *            others reduce, or as one of `slow` would take; in place of each other part goes a
 *            blank one, which the reducers answer like any other (allreduce.h)
 *
 * So a slow peer sends some of its parts in each round, and each part in every k-th round. The mean
 * of a part is that of the peers that have sent it, so a slow peer's gradients count less. Nothing
 * else changes, and Python peers understand both. */
#ifndef PL_UPLINKS_H
#define PL_UPLINKS_H

#include "group.h"

#define UPLINKS_FULL 2 /* a newcomer among them may have no samples yet */

/* The leader's, before the group begins. slow: Mbit/s, the unit of bandwidths between peers that
 * measure them; 0: nothing changes. PL_OK or PL_ENOMEM. */
int uplinks_relieve(struct group *g, double slow);
/* 1: at least one reducer states a bandwidth. */
int uplinks_are_known(const struct group *g);
/* The part of its own values that a member without a share sends, in (0, 1]. share (g->count): as
 * group_shares gives them; rate: of its uplink, Mbit/s; PL_BANDWIDTH_UNKNOWN: it sends all. So does
 * everybody where fewer than UPLINKS_FULL members reduce values of their own: a part that all leave
 * blank has no mean. */
double uplinks_fraction(const struct group *g, const size_t *share, double rate, double slow);

#endif
