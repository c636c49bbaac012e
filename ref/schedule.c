/* schedule.c - the learning rate rises linearly to its peak and falls linearly to zero. [TTT 3.3]
 *
 *   lr(t) = peak t / warmup                         t < warmup
 *         = peak (total - t) / (total - warmup)     then
 *
 * LAMB's first steps have moments of a few batches, and a full rate would follow their noise. */
#include "schedule.h"

double pl_schedule_linear(double peak, uint64_t warmup, uint64_t total, uint64_t step)
{
    if (step < warmup) return peak * ((double)step / (double)warmup);
    if (step >= total) return 0;
    return peak * ((double)(total - step) / (double)(total - warmup));
}
