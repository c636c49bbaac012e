/* grid.c - the number of group bits, by the number of peers and the epoch. [Moshpit SGD 3.2]
 *
 *   peers    from the progress records, at most TRUST times the number that our groups show
 *   bits     the least d with peers / 2^d <= GROUP sqrt(2) s,   1/sqrt(2) <= s < sqrt(2)
 *
 * s is the epoch's: see grid.h for why the limit moves. */
#include "grid.h"

#include <math.h>
#include <string.h>

void grid_hint(struct grid *g, size_t bits)
{
    if (g->met || bits > GRID_BITS_MAX) return;
    /* No bits: the peers are so few that even TRUST times their number would be one group. */
    g->met = bits ? ldexp(GRID_GROUP, (int)bits) : GRID_ALONE / GRID_TRUST * M_SQRT1_2;
}

void grid_round(struct grid *g, size_t group, size_t bits)
{
    /* Bits are random, so each of the 2^bits keys has about as many peers as ours. */
    const double seen = ldexp((double)group, (int)bits);
    if (group < 2) {
        g->alone++;
        return;
    }
    /* After rounds alone the old mean is of another grid, or of none. */
    if (g->alone || !g->met) g->met = seen;
    else g->met += GRID_RATE * (seen - g->met);
    g->alone = 0;
}

double grid_peers(const struct grid *g, size_t reported)
{
    const double n = (double)reported;
    /* The others may have more bits or fewer; fewer where strangers' records count too much. */
    if (g->alone) return ldexp(n, -(int)((g->alone - 1) % GRID_TRIES));
    /* False records raise the estimate up to this; groups show the truth after a few rounds. */
    return g->met > 0 ? fmin(n, GRID_TRUST * g->met) : n;
}

size_t grid_bound(const struct grid *g, size_t peers)
{
    return g->met > 0 ? (size_t)fmin((double)peers, 2 * g->met) : peers;
}

/* In [0, 1), the same for all peers of an epoch: splitmix64's finalizer. */
static double dither(int64_t epoch)
{
    uint64_t x = ((uint64_t)epoch / GRID_EPOCHS + 1) * 0x9e3779b97f4a7c15u;
    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
    x = (x ^ x >> 27) * 0x94d049bb133111ebu;
    return (double)((x ^ x >> 31) >> 11) * 0x1p-53;
}

size_t grid_bits(double peers, int64_t epoch)
{
    const double scale = exp2(dither(epoch) - 0.5); /* s */
    size_t bits = 0;
    if (peers <= GRID_ALONE * scale) return 0;
    while (bits < GRID_BITS_MAX && ldexp(GRID_GROUP * M_SQRT2 * scale, (int)bits) < peers) bits++;
    return bits;
}

void grid_fit_bits(char *bits, size_t count, const struct random_source *random)
{
    const size_t length = strlen(bits), kept = length < count ? length : count;
    if (count > GROUP_BITS_MAX) return;
    memmove(bits + count - kept, bits + length - kept, kept);
    for (size_t i = 0; i < count - kept; i++) bits[i] = random_source_below(random, 2) ? '1' : '0';
    bits[count] = 0;
}
