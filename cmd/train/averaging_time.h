/* averaging_time.h - the share of a peer's wall-clock time that averaging takes, and advice for
 * reducing it where averaging takes more than computing. */
#ifndef PL_CMD_AVERAGING_TIME_H
#define PL_CMD_AVERAGING_TIME_H

#include <stdint.h>

/* Seconds of this peer. Averaging includes the wait for other peers; computing is all the rest:
 * batches, optimizer steps, checkpoints, evaluations. Averaging that overlaps with them is not
 * counted. */
struct averaging_time {
    double computing, averaging;
    double reported_computing, reported_averaging; /* of these, at the last report */
};

/* The options that decide how often peers average. */
struct averaging_plan {
    int has_local_steps; /* peers train alone between two common steps */
    int is_delayed;      /* the rounds overlap with computing already */
    int64_t inner_steps, target_batch;
};

/* Prints the cost of averaging, as a line of JSON or as a sentence on stderr. Call it often: it
 * reports at intervals, each time about the time since the last report. The sentence is printed
 * only if averaging takes more than computing. at_end: reports in any case, about the whole
 * time. */
void averaging_time_report(struct averaging_time *t, const struct averaging_plan *plan,
                           const char *cmd, int at_end, int json);

#endif
