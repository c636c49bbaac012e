/* dht_clock.c - one clock for a swarm, from samples of its peers' clocks. Each sample is the
 * difference of a peer's clock to ours; the median is robust: fewer than half of the peers,
 * whatever they report, cannot move it beyond the honest samples. How far it may move our DHT
 * time depends on how many samples agree with it. */
#include "dht_clock.h"
#include "ref/small.h"

#include <math.h>
#include <stdlib.h>

/* An even number of samples: the mean of the two in the middle, if they agree. If they don't,
 * one Byzantine peer of two could move a mean as far as it likes, so the sample nearer to our
 * clock is taken. */
static double median_of(const double *sorted, size_t n)
{
    double low = sorted[(n - 1) / 2], high = sorted[n / 2];
    if (high - low <= DHT_CLOCK_AGREE) return (low + high) / 2;
    return fabs(low) < fabs(high) ? low : high;
}

double dht_clock_correction(double *median, double *errors, size_t n)
{
    size_t agree = 0;
    double most;
    *median = NAN;
    if (!n) return 0;
    qsort(errors, n, sizeof *errors, pl_ascending);
    *median = median_of(errors, n);
    /* How many back the median: 3 s is what hivemind itself tolerates between peers that join. */
    for (size_t i = 0; i < n; i++) agree += fabs(errors[i] - *median) <= DHT_CLOCK_AGREE;
    /* Small differences are latency and drift. */
    if (fabs(*median) <= DHT_CLOCK_TOLERANCE) return 0;
    /* Two samples and a majority may correct an hour (a wrong time zone), anything less some
     * seconds. */
    most = agree >= 2 && 2 * agree > n ? DHT_CLOCK_MAX : DHT_CLOCK_ALONE;
    return fmax(-most, fmin(most, *median));
}
