/* rate_limit.c - a token bucket for each holder: it holds `burst` units at most, `rate` units
 * flow in every second, and each piece of work takes some out. Over any time t a holder gets no
 * more than burst + rate * t. The inflow is computed when a bucket is used: units at time t are
 *
 *     min(burst, left + rate * (t - at)) */
#include "rate_limit.h"

#include <math.h>

static double units_at(const struct rate_limit *l, const struct rate_holder *h, double now)
{
    if (!h->id) return l->burst;
    /* A clock that was set back brings nothing, and takes nothing away. */
    return fmin(l->burst, h->left + l->rate * fmax(0, now - h->at));
}

static size_t find(const struct rate_limit *l, uint64_t id)
{
    size_t i = 0;
    while (i < RATE_HOLDERS_MAX && l->of[i].id != id) i++;
    return i;
}

/* A free place, or the holder with most units. */
static size_t find_least_used(const struct rate_limit *l, double now)
{
    size_t best = 0;
    for (size_t i = 1; i < RATE_HOLDERS_MAX && l->of[best].id; i++)
        if (units_at(l, &l->of[i], now) > units_at(l, &l->of[best], now)) best = i;
    return best;
}

int rate_limit_has(const struct rate_limit *l, uint64_t holder, double units, double now)
{
    size_t i = find(l, holder ? holder : 1);
    return units <= (i < RATE_HOLDERS_MAX ? units_at(l, &l->of[i], now) : l->burst);
}

int rate_limit_take(struct rate_limit *l, uint64_t holder, double units, double now)
{
    uint64_t id = holder ? holder : 1; /* 0 marks free places */
    size_t i = find(l, id);
    double left;
    if (!rate_limit_has(l, id, units, now)) return 0;
    left = i < RATE_HOLDERS_MAX ? units_at(l, &l->of[i], now) : l->burst;
    if (i == RATE_HOLDERS_MAX) i = find_least_used(l, now);
    l->of[i] = (struct rate_holder){ id, left - units, now };
    return 1;
}
