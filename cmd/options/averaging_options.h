/* averaging_options.h - how a run's peers average: the options that potluck train and an auxiliary
 * peer share. All peers of a run should give the same. */
#ifndef PL_CMD_AVERAGING_OPTIONS_H
#define PL_CMD_AVERAGING_OPTIONS_H

#include "options.h"

struct averaging_options {
    const char *compression, *group_bits;
    int64_t group_size;
    double matchmaking_time, averaging_timeout, allreduce_timeout; /* s */
    double bandwidth;        /* Mbit/s; PL_BANDWIDTH_UNKNOWN: measured */
    double clip, validators; /* of --robust: see averaging.h */
    int verify;
};
extern const struct option_row averaging_rows[];

extern const char *const compression_names[]; /* ends with NULL */
/* Zeros and ones; for an option_take_fn. */
int take_group_bits(const char **bits, const char *value, struct pl_err *err);

#endif
