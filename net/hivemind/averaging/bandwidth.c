/* bandwidth.c - the uplink's rate, from windows in which it was never idle.
 *
 *   bytes wait         a window is open: what leaves in it per second is the uplink's rate
 *   nothing waits      the window ends: the link could have taken more than there was to send
 *   the round is over  rate = best, if that is more, else rate + FALL (best - rate) */
#include "bandwidth.h"

#include <math.h>

double bandwidth_stated(const struct bandwidth *b)
{
    const double mbit = b->rate / BANDWIDTH_MBIT;
    double digit;
    if (!(mbit > 0)) return b->has_come ? BANDWIDTH_ASSUMED : PL_BANDWIDTH_UNKNOWN;
    /* Two digits: further ones are noise. */
    digit = pow(10, floor(log10(mbit)) - 1);
    return rint(mbit / digit) * digit;
}

void bandwidth_sample(struct bandwidth_meter *m, double now, double sent, int is_waiting)
{
    const double seconds = now - m->began, bytes = sent - m->sent;
    if (m->is_open && seconds >= BANDWIDTH_WINDOW && bytes >= BANDWIDTH_WINDOW_BYTES) {
        m->best = fmax(m->best, bytes / seconds);
        m->is_open = 0; /* the next window begins here */
    }
    /* A window begins when bytes wait: those sent earlier may still be in the kernel's buffers. */
    if (is_waiting && !m->is_open) {
        m->began = now;
        m->sent = sent;
    }
    m->is_open = is_waiting;
}

void bandwidth_end_round(struct bandwidth *b, const struct bandwidth_meter *m)
{
    if (!(m->best > 0)) return;
    /* The link is at least as fast as its best window. A slower round may be the receivers' fault,
     * so the rate falls by a share alone. */
    if (m->best > b->rate) b->rate = m->best;
    else b->rate += BANDWIDTH_FALL * (m->best - b->rate);
}
