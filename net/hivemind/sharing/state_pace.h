/* state_pace.h - how slowly a state may travel, for the donor and for the newcomer. A stream that
 * moves less than the lesser rate in a window has stalled; a whole state at the greater rate,
 * 0.5 Mbit/s, takes as long as anybody waits for it. */
#ifndef PL_STATE_PACE_H
#define PL_STATE_PACE_H

#include "ref/base.h"

#define STATE_RATE_WINDOW 30.0  /* s: some pauses of a busy uplink */
#define STATE_RATE_MIN 16384.0  /* bytes a second within a window: 0.13 Mbit/s */
#define STATE_RATE_MEAN 65536.0 /* bytes a second over the whole, */
#define STATE_TIME_BASE 60.0    /* s: in addition, so that small states have time too */

/* Times are the loop's; the owner adds to `bytes`. */
struct state_pace {
    double began, window_began;
    size_t bytes, window_bytes;
};

void state_pace_begin(struct state_pace *p, double now);
/* most: bytes of the whole. PL_EAGAIN with a sentence: too slow to go on with. */
int state_pace_check(struct state_pace *p, double now, size_t most, struct pl_err *err);

#endif
