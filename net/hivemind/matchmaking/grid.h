/* grid.h - how many group bits a run of this size needs, so that its groups stay as small with ten
 * thousand peers as with thirty. Pure functions. [Moshpit SGD 3.2]
 *
 *   bits     0                                   up to some ALONE peers: one group, one key,
 *                                                which hivemind's peers share
 *            ceil(log2(peers / group size))      beyond
 *
 * A step has one round. After N peers have averaged in r random groups, this share of their squared
 * differences is left on average:
 *
 *   (r - 1) / N + r / N^2
 *
 * This is 4 % in groups of 24. The round of the parameters, in other groups, leaves the same share
 * of the rest.
 *
 * Peers with different numbers of bits have different keys and do not meet. All of them count the
 * same records, but not at the same moment. So a fixed limit would split a run for as long as its
 * size is near that limit. Instead the group size changes with the epoch, within a factor of two,
 * by a pseudo-random number that all peers compute alike: a run that is near a limit in these
 * epochs is not near one in the next. A newcomer needs no state for this.
 *
 * Anybody can publish records at no cost, but not fill groups. So the number that they show counts
 * up to TRUST times the number of peers that this peer's own groups show, group size x 2^bits. A
 * peer that finds itself alone tries other numbers of bits. */
#ifndef PL_GRID_H
#define PL_GRID_H

#include "group.h"
#include "net/random_source.h"

#define GRID_ALONE 64.0  /* peers in one group: with lives of hours nine rounds in ten succeed */
#define GRID_GROUP 24.0  /* on average under one key; a key with one peer alone is rare: e^-12 */
#define GRID_EPOCHS 8    /* with the same limits */
#define GRID_BITS_MAX 16 /* 2^16 keys of 12 peers: more than any known run */
/* Honest runs do not grow four times between two rounds; groups of 12 to 24 shrink to 3 to 6. */
#define GRID_TRUST 4.0
#define GRID_TRIES 5   /* that a peer alone tries: down to the bits of a 16th of the records */
#define GRID_RATE 0.25 /* of a moving average over rounds: one group's size varies by a fifth */

struct grid {
    double met;     /* peers of the run, as our groups show; 0: none yet */
    unsigned alone; /* rounds in a row without a group */
};
/* The donor of our state averages under keys of this many bits. Valid until we have been in a
 * group. */
void grid_hint(struct grid *g, size_t bits);
/* A round has ended, with a group of this size (0, 1: no group) under a key of this many bits. */
void grid_round(struct grid *g, size_t group, size_t bits);
/* Estimates the number of peers in the run from the number that progress records show. */
double grid_peers(const struct grid *g, size_t reported);
/* This number of peers, but at most twice as many as our groups show. */
size_t grid_bound(const struct grid *g, size_t peers);
/* The number of group bits in this epoch. */
size_t grid_bits(double peers, int64_t epoch);
/* Gives bits (GROUP_BITS_MAX + 1) this length: keeps the last ones and puts random ones in
 * front of them. */
void grid_fit_bits(char *bits, size_t count, const struct random_source *random);

#endif
