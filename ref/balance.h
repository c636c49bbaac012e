/* balance.h - how much of a vector each peer of a group reduces, by bandwidth, so that the exchange
 * ends soonest. [TTT 2.1, communication] [Moshpit SGD, appendix on load balancing] */
#ifndef PL_BALANCE_H
#define PL_BALANCE_H

#include "base.h"

#ifdef __cplusplus
extern "C" {
#endif

#define PL_BANDWIDTH_UNKNOWN (-1.0) /* taken as the mean of those that are known and not 0 */
#define PL_BALANCE_PEERS_MAX 65536  /* groups of the reference run have at most 256 */

/* Peer i, which reduces the fraction w_i, moves (N-2) w_i + 1 vectors over its bandwidth b_i; the
 * slowest sets the time, t. It is least where all peers that reduce end together, at the water
 * level:
 *
 *   w_i = clip((t b_i - 1) / (N - 2), 0, 1),  t the smallest with sum w = 1
 *
 * N >= 1, bandwidth (N) >= 0, one above 0; two peers share equally. */
void pl_balance_level(double *fraction, const double *bandwidth, int N);

/* Often other fractions take the same time, and all peers of a group have to choose the same: those
 * at which hivemind's solver ends [balance_program.h], or the water level's in groups that are too
 * large for it. Peers with bandwidth 0 are clients and get nothing; if no bandwidth is known, the
 * unknown ones share equally. After that, fractions below min_size / total become 0 (unless all
 * are), and 9 decimals are kept, as the peers do.
 *
 *   fraction (N)  out; sums to 1, except for fractions set to 0 by min_size, within 1e-8
 *
 * Returns PL_EUSE if no peer has bandwidth, or one is neither unknown nor finite and >= 0. */
int pl_balance_fractions(double *fraction, const double *bandwidth, int N, size_t total,
                         size_t min_size, struct pl_err *err);

/* Whole numbers that sum to total, as proportional to score (N, >= 0, one above 0) as may be
 * [Hagenbach-Bischoff]: floors first, then one each to the largest score / (share + 1). */
void pl_balance_round(size_t *share, const double *score, int N, size_t total);

/* Both: elements of a vector of `total` to each peer. */
int pl_balance(size_t *share, const double *bandwidth, int N, size_t total, size_t min_size,
               struct pl_err *err);

#ifdef __cplusplus
}
#endif
#endif
