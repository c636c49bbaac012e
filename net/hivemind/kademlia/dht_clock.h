/* dht_clock.h - the swarm's time from samples of its peers' clocks. Expirations are in it, so a
 * peer that could move it could expire our records or keep others' alive. One sample moves it a
 * little, only a majority further. */
#ifndef PL_DHT_CLOCK_H
#define PL_DHT_CLOCK_H

#include <stddef.h>

/* s; farther off than that, we set our DHT clock by the others' */
#define DHT_CLOCK_TOLERANCE 1.0
/* s within which samples agree: hivemind lets peers join that differ by less */
#define DHT_CLOCK_AGREE 3.0
/* s that samples without a majority may move it: the shortest records live for 30 */
#define DHT_CLOCK_ALONE 5.0
/* s that a majority may: an hour of summer time. A larger error is the owner's to repair. */
#define DHT_CLOCK_MAX 3600.0
/* nodes that are asked besides the initial peers, if those differ from us */
#define DHT_CLOCK_PEERS 8

/* The correction to add to our clock. errors: (n) each peer's clock minus ours, sorted here.
 * *median: theirs. */
double dht_clock_correction(double *median, double *errors, size_t n);

#endif
