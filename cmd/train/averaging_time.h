/* averaging_time.h - how much of a peer's time averaging takes, by the clock on the wall, and what
 * makes it less where it is more than computing. */
#ifndef PL_CMD_AVERAGING_TIME_H
#define PL_CMD_AVERAGING_TIME_H

#include <stdint.h>

/* Seconds of this peer. Averaging includes the wait for other peers; computing is all the rest:
 * batches, optimizer steps, checkpoints, evaluations. What overlaps with them costs nothing. */
struct averaging_time {
    double computing, averaging;
    double reported_computing, reported_averaging; /* of these, at the last report */
};

/* What decides how often peers average. */
struct averaging_plan {
    const char *algorithm; /* as --algorithm */
    int is_delayed;        /* the rounds overlap with computing already */
    int64_t inner_steps, target_batch;
};

/* Prints what averaging costs, as a line of JSON or as a sentence on stderr. To be called often: it
 * reports once in a while, about the time since the last report, and in words only if averaging
 * takes more than computing. at_end: in any case, about the whole time. */
void averaging_time_report(struct averaging_time *t, const struct averaging_plan *plan,
                           const char *cmd, int at_end, int json);

#endif
