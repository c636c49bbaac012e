/* state_pace.c - two limits. Over the whole: base + size / mean rate, so a donor that drips can't
 * hold us for hours. Within each window: the least rate, so one that stops is left soon.
 *
 * One limit alone would not do. A mean rate lets a donor that was fast at first stop for minutes; a
 * least rate, low enough for the slowest honest uplink, lets a large state take days. */
#include "state_pace.h"

void state_pace_begin(struct state_pace *p, double now)
{
    *p = (struct state_pace){ .began = now, .window_began = now };
}

int state_pace_check(struct state_pace *p, double now, size_t most, struct pl_err *err)
{
    double window = now - p->window_began;
    if (now - p->began > STATE_TIME_BASE + (double)most / STATE_RATE_MEAN)
        return pl_fail(err, PL_EAGAIN, "state: %zu bytes in %.0f s, too slow to wait for the rest",
                       p->bytes, now - p->began);
    if (window < STATE_RATE_WINDOW) return PL_OK;
    if ((double)(p->bytes - p->window_bytes) < STATE_RATE_MIN * window)
        return pl_fail(err, PL_EAGAIN, "state: %zu bytes within %.0f s, expected at least %.0f",
                       p->bytes - p->window_bytes, window, STATE_RATE_MIN * window);
    /* This window was fast enough; the next one begins. */
    p->window_began = now;
    p->window_bytes = p->bytes;
    return PL_OK;
}
