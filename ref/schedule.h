/* schedule.h - the learning rate over a training: linear warm-up, linear decay. [TTT 3.3] */
#ifndef PL_SCHEDULE_H
#define PL_SCHEDULE_H

#include "base.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The rate of the update that leads from epoch `step` to the next; the reference run: peak 2.5e-3,
 * 3125 steps of warm-up, 31250 in all. So the very first update moves the moments but no parameter,
 * and from `total` on nothing moves. */
double pl_schedule_linear(double peak, uint64_t warmup, uint64_t total, uint64_t step);

#ifdef __cplusplus
}
#endif
#endif
