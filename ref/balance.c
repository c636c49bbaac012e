/* balance.c - load balancing: the fraction of all values that each peer reduces, so that a round
 * ends as soon as possible. [spec hivemind-protocol 5.1] [TTT 2.1, uneven devices]
 *
 * Peer i with bandwidth b_i reduces w_i of N tensors' elements and is done after
 *
 *   t_i = (1 + (N - 2) w_i) / b_i          its own share out and in, and the others' parts
 *
 * Minimise max t_i with sum w_i = 1. hivemind solves this as a linear program, and where many
 * solutions are equally fast, all peers must take the same: the one at which its solver ends
 * (balance_program.h). The water level, w_i = (t b_i - 1) / (N - 2) with one t for all, needs no
 * solver; groups too large for it use that. */
#include "balance.h"
#include "balance_program.h"

#include <math.h>

/* w_i at time t = level */
static double fraction_at(double level, double bandwidth, int N)
{
    double w = (level * bandwidth - 1) / (N - 2);
    return bandwidth > 0 ? fmin(fmax(w, 0), 1) : 0;
}

/* sum of all w_i at that time: it rises with the level, so halving finds where it is 1 */
static double sum_at(double level, const double *b, int N)
{
    double sum = 0;
    for (int i = 0; i < N; i++) sum += fraction_at(level, b[i], N);
    return sum;
}

/* A peer that states no bandwidth counts as the mean of those that do; 0 is a client, which reduces
 * nothing. Returns how many peers reduce, negative for an error. */
static int resolve(double *b, const double *bandwidth, int N, struct pl_err *err)
{
    double sum = 0;
    int known = 0, reducers = 0;
    for (int i = 0; i < N; i++) {
        if (bandwidth[i] != PL_BANDWIDTH_UNKNOWN && !(bandwidth[i] >= 0 && isfinite(bandwidth[i])))
            return pl_fail(err, PL_EUSE, "balance: bandwidth %d is %g, expected at least 0", i,
                           bandwidth[i]);
        if (bandwidth[i] > 0) sum += bandwidth[i], known++;
    }
    for (int i = 0; i < N; i++) {
        b[i] = bandwidth[i] != PL_BANDWIDTH_UNKNOWN ? bandwidth[i] : known ? sum / known : 1;
        reducers += b[i] > 0;
    }
    if (!reducers)
        return pl_fail(err, PL_EUSE, "balance: no peer in a group of %d has bandwidth", N);
    return reducers;
}

/* The t at which sum w_i = 1, by halving down to the last bit. */
static double water_level(const double *b, int N)
{
    double low = 0, high = 0;
    for (int i = 0; i < N; i++) /* here the slowest reducer alone would take everything */
        if (b[i] > 0) high = fmax(high, (N - 1) / b[i]);
    for (;;) {
        double middle = low + (high - low) / 2;
        if (middle <= low || middle >= high) return high;
        /* too early: not everything is reduced by then */
        if (sum_at(middle, b, N) < 1) low = middle;
        else high = middle;
    }
}

/* With one or two peers N - 2 is no divisor, and equal shares are as fast as any. */
void pl_balance_level(double *fraction, const double *bandwidth, int N)
{
    double level = N > 2 ? water_level(bandwidth, N) : 0;
    int reducers = 0;
    for (int i = 0; i < N; i++) reducers += bandwidth[i] > 0;
    for (int i = 0; i < N; i++)
        fraction[i] = N > 2              ? fraction_at(level, bandwidth[i], N)
                      : bandwidth[i] > 0 ? 1.0 / reducers
                                         : 0;
}

/* Fractions of a group, as every member computes them for itself. */
int pl_balance_fractions(double *fraction, const double *bandwidth, int N, size_t total,
                         size_t min_size, struct pl_err *err)
{
    double *b, largest = 0, least = (double)min_size / (double)total;
    int reducers, known = 0, rc = PL_OK;
    if (N < 1 || N > PL_BALANCE_PEERS_MAX)
        return pl_fail(err, PL_EUSE, "balance: %d peers, expected 1 to %d", N,
                       PL_BALANCE_PEERS_MAX);
    if (!(b = pl_alloc((size_t)N, sizeof *b)))
        return pl_fail(err, PL_ENOMEM, "balance: no memory for %d peers", N);
    reducers = resolve(b, bandwidth, N, err);
    for (int i = 0; i < N; i++) known += bandwidth[i] > 0;
    if (reducers < 0) rc = reducers;
    else if (!known)
        for (int i = 0; i < N; i++) fraction[i] = b[i] > 0 ? 1.0 / reducers : 0;
    else if ((rc = pl_balance_program(fraction, b, N)) == PL_EAGAIN) {
        pl_balance_level(fraction, b, N);
        rc = PL_OK;
    } else if (rc) pl_fail(err, rc, "balance: no memory for %d peers", N);
    pl_free(b);
    if (rc) return rc;
    if (!known) return PL_OK;
    /* A share below min_size is not worth its messages. Nine decimals, as hivemind rounds them. */
    for (int i = 0; i < N; i++) largest = fmax(largest, fraction[i]);
    for (int i = 0; i < N; i++) {
        if (largest >= least && fraction[i] < least) fraction[i] = 0;
        fraction[i] = rint(fraction[i] * 1e9) / 1e9;
    }
    return PL_OK;
}

/* Whole elements: floors first, then one at a time to the peer with the most of its score left
 * (D'Hondt), as hivemind does. */
void pl_balance_round(size_t *share, const double *score, int N, size_t total)
{
    double sum = 0;
    size_t given = 0;
    for (int i = 0; i < N; i++) sum += score[i];
    for (int i = 0; i < N; i++) {
        share[i] = (size_t)((double)total * score[i] / sum);
        given += share[i];
    }
    for (; given < total; given++) {
        int best = 0;
        for (int i = 1; i < N; i++)
            if (score[i] / (double)(share[i] + 1) > score[best] / (double)(share[best] + 1))
                best = i;
        share[best]++;
    }
}

int pl_balance(size_t *share, const double *bandwidth, int N, size_t total, size_t min_size,
               struct pl_err *err)
{
    double *fraction = pl_alloc(N > 0 ? (size_t)N : 0, sizeof *fraction);
    int rc = fraction ? pl_balance_fractions(fraction, bandwidth, N, total, min_size, err)
                      : pl_fail(err, PL_ENOMEM, "balance: no memory for %d peers", N);
    if (!rc) pl_balance_round(share, fraction, N, total);
    pl_free(fraction);
    return rc;
}
