/* uplinks.c - the time of a group without its slowest uplinks.
 *
 * A member that reduces the fraction w of a vector sends (N - 2) w + 1 vectors over its bandwidth b
 * (ref/balance.h). If k members reduce and end together, at the time t, then summed over them
 *
 *   (N - 2) (w_1 + ... + w_k) + k = N - 2 + k = t (b_1 + ... + b_k)
 *
 * and none is done before its own vector is sent, which takes 1 / b_k. So, with the time of one
 * vector at 1 Mbit/s as the unit, a group whose k fastest members reduce takes
 *
 *   t_k = max(1 / b_k, (N - 2 + k) / (b_1 + ... + b_k))          b_1 >= b_2 >= ... >= b_k
 *
 * The leader takes the slowest away while t falls by it. */
#include "uplinks.h"

#include <math.h>
#include <stdlib.h>

struct reducer {
    struct group_member *member;
    double bandwidth;
};

static int faster_first(const void *a, const void *b)
{
    const double x = ((const struct reducer *)a)->bandwidth,
                 y = ((const struct reducer *)b)->bandwidth;
    return (x < y) - (x > y);
}

/* An unknown bandwidth counts as the mean of the known ones. 0: none is known. */
static double mean_bandwidth(const struct group *g)
{
    double sum = 0;
    size_t known = 0;
    for (size_t i = 0; i < g->count; i++) {
        const struct gather *gather = &g->members[i].gather;
        if (!gather_reduces(gather) || gather->bandwidth == PL_BANDWIDTH_UNKNOWN) continue;
        sum += gather->bandwidth;
        known++;
    }
    return known ? sum / (double)known : 0;
}

static double bandwidth_of(const struct gather *gather, double mean)
{
    return gather->bandwidth == PL_BANDWIDTH_UNKNOWN ? mean : gather->bandwidth;
}

int uplinks_are_known(const struct group *g) { return mean_bandwidth(g) > 0; }

int uplinks_relieve(struct group *g, double slow)
{
    const double mean = mean_bandwidth(g);
    struct reducer *r;
    double sum = 0;
    size_t k = 0;
    int rc = PL_OK;
    if (!(mean > 0 && slow > 0)) return PL_OK;
    if (!(r = malloc(g->count * sizeof *r))) return PL_ENOMEM;
    for (size_t i = 0; i < g->count; i++) {
        if (!gather_reduces(&g->members[i].gather)) continue;
        r[k] = (struct reducer){ &g->members[i], bandwidth_of(&g->members[i].gather, mean) };
        sum += r[k++].bandwidth;
    }
    qsort(r, k, sizeof *r, faster_first);
    for (; !rc && k > 1 && r[k - 1].bandwidth < slow; k--) {
        /* Without the slowest, k - 1 are left: is (N - 2 + k - 1) / sum below 1 / b_k? Their own
         * 1 / b_(k-1) does not count: of two equals each would keep the other. */
        sum -= r[k - 1].bandwidth;
        if ((double)(g->count + k - 3) / sum >= 1 / r[k - 1].bandwidth) break;
        /* In the gather that the leader sends to all: each member computes the same shares from
         * it. */
        rc = group_set_bandwidth(r[k - 1].member, 0);
    }
    free(r);
    return rc;
}

double uplinks_fraction(const struct group *g, const size_t *share, double rate, double slow)
{
    const double mean = mean_bandwidth(g);
    double total = 0, longest = 0;
    int full = 0;
    if (!(mean > 0 && slow > 0 && rate > 0)) return 1;
    for (size_t i = 0; i < g->count; i++) total += (double)share[i];
    for (size_t i = 0; i < g->count; i++) {
        const double w = (double)share[i] / total, b = bandwidth_of(&g->members[i].gather, mean);
        if (!share[i]) continue;
        /* The group ends when its slowest reducer does. */
        longest = fmax(longest, (1 + ((double)g->count - 2) * w) / b);
        full += g->members[i].gather.mode == GROUP_FULL;
    }
    /* rate * t vectors leave our uplink within the time t: the reducers', or that of a member at
     * `slow`, which would send all of its own meanwhile. */
    return full < UPLINKS_FULL ? 1 : fmin(1, rate * fmax(longest, 1 / slow));
}
