/* grid.h - how many group bits a run of this size needs, so that its groups stay as small with ten
 * thousand peers as with thirty. Pure functions. [Moshpit SGD 3.2]
 *
 *   digits   0                                   up to some ALONE peers: one group, one key,
 *                                                which hivemind's peers share
 *            ceil(log2(peers / group size))      beyond
 *
 * One round a step. After a round in r random groups of N peers, of the squared differences
 *
 *   (r - 1) / N + r / N^2
 *
 * are left on average: 4 % in groups of 24. The round of the parameters, in other groups, leaves as
 * much of what the first one has left.
 *
 * Peers with different numbers of digits have different keys and do not meet. All of them count the
 * same records, but not at the same moment. So a fixed limit would split a run whose size is near
 * it, for as long as it is. Instead
 * the group size changes with the epoch, by a factor of two in all,
 * by the same pseudo-random numbers everywhere: a run that is near a limit in these epochs is not
 * in the next ones. There is no state that newcomers would lack.
 *
 * Records cost nothing, groups do: strangers' records count for TRUST times the peers that this
 * peer's own groups have shown, size x 2^digits. A peer that finds itself alone tries other numbers
 * of digits. */
#ifndef PL_GRID_H
#define PL_GRID_H

#include "group.h"
#include "net/random_source.h"

#define GRID_ALONE 64.0    /* peers in one group: with lives of hours nine rounds in ten succeed */
#define GRID_GROUP 24.0    /* on average under one key; a key with one peer alone is rare: e^-12 */
#define GRID_EPOCHS 8      /* with the same limits */
#define GRID_DIGITS_MAX 16 /* 2^16 keys of 12 peers: more than anybody has brought together */
/* Honest runs do not grow four times between two rounds; groups of 12 to 24 shrink to 3 to 6. */
#define GRID_TRUST 4.0
/* Beyond this number of records a dictionary of the DHT may hold no more: then groups count. */
#define GRID_RECORDS 1500
#define GRID_TRIES 5   /* that a peer alone tries: down to the digits of a 16th of the records */
#define GRID_RATE 0.25 /* of a moving average over rounds: one group's size varies by a fifth */

struct grid {
    double met;     /* peers of the run, as our groups show; 0: none yet */
    unsigned alone; /* rounds in a row without a group */
};
/* The donor of our state averages under keys of so many digits: until we have been in a group. */
void grid_hint(struct grid *g, size_t digits);
/* A round has ended, with a group of this size (0, 1: none) under a key of so many digits. */
void grid_round(struct grid *g, size_t group, size_t digits);
/* Peers of the run, where so many report progress. */
double grid_peers(const struct grid *g, size_t records);
/* Of the group bits in this epoch. */
size_t grid_digits(double peers, int64_t epoch);
/* bits (GROUP_BITS_MAX + 1) with that many digits: the last of what they were, and random ones in
 * front of them. */
void grid_fit_bits(char *bits, size_t digits, const struct random_source *random);

#endif
