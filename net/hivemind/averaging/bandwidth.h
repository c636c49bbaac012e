/* bandwidth.h - the capacity of this peer's uplink, measured in its own rounds, and the bandwidth
 * that it states to its groupmates, which compute the shares of the reduction from it. Pure
 * functions. [TTT 2.1, communication] [Moshpit SGD, appendix on load balancing]
 *
 *   in a round      the rate at which bytes leave while others still wait for the uplink; the best
 *                   window counts, as later ones may have waited for a groupmate
 *   after it        rate = measured                       if that is more: bytes that left prove it
 *                   rate = rate + FALL (measured - rate)  otherwise
 *   is stated       Mbit/s in two digits, as users of hivemind state theirs
 *
 * Before its first measurement a peer that began the run with the others states nothing: if no peer
 * states a bandwidth, all have equal shares, as in hivemind. A newcomer, which took over the state
 * of a run, meets peers that have measured. An unknown bandwidth counts as the mean of the known
 * ones, so a newcomer with a slow uplink would hold up its first group. Instead it states
 * BANDWIDTH_ASSUMED and gets a small share or none; sending its own gradients in the first round
 * measures its uplink. */
#ifndef PL_BANDWIDTH_H
#define PL_BANDWIDTH_H

#include "ref/balance.h"

/* bytes of a window: far more than the pieces in which confirmations come */
#define BANDWIDTH_WINDOW_BYTES 4194304.0
#define BANDWIDTH_WINDOW 0.25       /* s of a window at least, however fast the link is */
#define BANDWIDTH_SAMPLE_EVERY 0.05 /* s between samples: five in the shortest window */
#define BANDWIDTH_FALL 0.5 /* a link that has become slower is known as such after two rounds */
#define BANDWIDTH_MBIT 125000.0 /* bytes */
#define BANDWIDTH_ASSUMED 10.0  /* Mbit/s: less than most uplinks of volunteers */

struct bandwidth {
    double rate;  /* bytes a second; 0: not measured yet */
    int has_come; /* 1: to a run in which the others have measured */
};
/* For the gather message; PL_BANDWIDTH_UNKNOWN: nothing. */
double bandwidth_stated(const struct bandwidth *b);

/* The measurement of one round; zeros begin it. */
struct bandwidth_meter {
    double began, sent; /* of the window under way */
    double best;        /* bytes a second; 0: no window was long enough */
    int is_open;
};
/* sent: bytes that groupmates have confirmed since the round began; is_waiting: more wait to
 * leave. */
void bandwidth_sample(struct bandwidth_meter *m, double now, double sent, int is_waiting);
/* The round is over, well or not. */
void bandwidth_end_round(struct bandwidth *b, const struct bandwidth_meter *m);

#endif
