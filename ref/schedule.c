/* schedule.c - see schedule.h. */
#include "schedule.h"

double pl_schedule_linear(double peak, uint64_t warmup, uint64_t total, uint64_t step)
{
    if (step < warmup) return peak * ((double)step / (double)warmup);
    if (step >= total) return 0;
    return peak * ((double)(total - step) / (double)(total - warmup));
}
