/* pace.c - a window of points (time, step, samples), and growth of signed counters between
 * polls. */
#include "pace.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define RATE_MAX 1e6 /* samples a second of one peer, as in dashboard_seen.c: a count is a claim */

/* Both lists are ordered by key. A count that has fallen belongs to a peer that has begun anew. */
static double growth(const struct pace *p, const struct seen *s, double elapsed)
{
    double sum = 0;
    for (size_t i = 0, k = 0; i < s->report_count; i++) {
        const int64_t now = s->report[i].record.samples;
        int64_t before;
        while (k < p->last_count && strcmp(p->last[k].key, s->report[i].key) < 0) k++;
        if (k == p->last_count || strcmp(p->last[k].key, s->report[i].key)) continue;
        before = now >= p->last[k].samples ? p->last[k].samples : 0;
        sum += fmin((double)(now - before), RATE_MAX * elapsed);
    }
    return sum;
}

static int remember(struct pace *p, const struct seen *s)
{
    struct pace_count *last = calloc(s->report_count + 1, sizeof *last);
    if (!last) return PL_ENOMEM;
    for (size_t i = 0; i < s->report_count; i++) {
        memcpy(last[i].key, s->report[i].key, sizeof last[i].key);
        last[i].samples = s->report[i].record.samples;
    }
    free(p->last);
    p->last = last;
    p->last_count = s->report_count;
    return PL_OK;
}

int pace_add(struct pace *p, const struct seen *s, double time, int64_t step, double target)
{
    const double elapsed = time - p->last_time;
    int rc;
    /* The clock was set back, or the run began anew: earlier measurements are useless. */
    if (p->count && (elapsed < 0 || step < p->last_step)) p->count = 0;
    if (!p->count) p->began = p->stepped = (struct pace_point){ time, step, p->samples };
    else p->samples += growth(p, s, elapsed);
    if ((rc = remember(p, s))) return rc;
    if (step > p->stepped.step) p->stepped = (struct pace_point){ time, step, p->samples };
    p->target = target;
    p->last_time = time;
    p->last_step = step;
    /* The last point moves with each poll until it is PACE_EVERY after the one before it. */
    if (p->count > 1 && p->point[p->count - 1].time - p->point[p->count - 2].time < PACE_EVERY)
        p->count--;
    while (p->count && (p->count == PACE_POINTS || time - p->point[0].time > PACE_WINDOW))
        memmove(p->point, p->point + 1, --p->count * sizeof *p->point);
    p->point[p->count++] = (struct pace_point){ time, step, p->samples };
    return PL_OK;
}

void pace_clear(struct pace *p)
{
    free(p->last);
    memset(p, 0, sizeof *p);
}

/* Between two points, by what peers count. Python peers count nothing, but a step takes the target
 * at least. A step and its counts may arrive in different polls: so it is the larger one of two
 * sums, not a sum of the larger ones. */
static double made(const struct pace *p, const struct pace_point *a, const struct pace_point *b)
{
    return fmax(b->samples - a->samples, (double)(b->step - a->step) * p->target);
}

double pace_rate(const struct pace *p)
{
    const struct pace_point *a = p->point, *b = p->point + (p->count ? p->count - 1 : 0);
    /* Counts come with steps: in a window without one they say nothing yet. */
    if (!p->count || b->time - a->time < PACE_AT_LEAST || b->step == a->step) return NAN;
    return made(p, a, b) / (b->time - a->time);
}

double pace_step_s(const struct pace *p)
{
    const struct pace_point *a = p->point, *b = p->point + (p->count ? p->count - 1 : 0);
    if (!p->count || b->time - a->time < PACE_AT_LEAST || b->step == a->step) return NAN;
    return (b->time - a->time) / (double)(b->step - a->step);
}

double pace_mean(const struct pace *p)
{
    const double took = p->stepped.time - p->began.time;
    return took < PACE_AT_LEAST ? (double)NAN : made(p, &p->began, &p->stepped) / took;
}
