/* dht_clock.c - see dht_clock.h. */
#include "dht_clock.h"

#include <math.h>
#include <stdlib.h>

static int by_value(const void *a_, const void *b_)
{
    double a = *(const double *)a_, b = *(const double *)b_;
    return (a > b) - (a < b);
}

/* Of two that disagree the median would be a mean, which a liar among them moves as far as it
 * likes: the one nearer to our clock is taken. */
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
    qsort(errors, n, sizeof *errors, by_value);
    *median = median_of(errors, n);
    for (size_t i = 0; i < n; i++) agree += fabs(errors[i] - *median) <= DHT_CLOCK_AGREE;
    if (fabs(*median) <= DHT_CLOCK_TOLERANCE) return 0;
    most = agree >= 2 && 2 * agree > n ? DHT_CLOCK_MAX : DHT_CLOCK_ALONE;
    return fmax(-most, fmin(most, *median));
}
