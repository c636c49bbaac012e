/* dht_clock.h - the swarm's clock from what peers say of theirs. Expirations are in it, so
 * whoever can move it ends our records or keeps others' for ever: one voice moves it a little, a
 * majority further. */
#ifndef PL_DHT_CLOCK_H
#define PL_DHT_CLOCK_H

#include <stddef.h>

#define DHT_CLOCK_TOLERANCE 1.0 /* s; farther off than that, we set our DHT clock by the others' */
#define DHT_CLOCK_AGREE \
    3.0 /* s within which voices agree: hivemind lets peers join that differ by less */
#define DHT_CLOCK_ALONE \
    5.0 /* s that voices without a majority may move it: the shortest records live for 30 */
#define DHT_CLOCK_MAX \
    3600.0 /* s that a majority may: an hour of summer time; what is more, its owner repairs */
#define DHT_CLOCK_PEERS \
    8 /* nodes that are asked beside the initial peers, if these say that we are off */

/* What to add to our clock. errors: (n) each peer's clock minus ours, sorted here. *median:
 * theirs. */
double dht_clock_correction(double *median, double *errors, size_t n);

#endif
