/* metrics.h - the record that each peer stores once per epoch for the dashboard, and the
 * dashboard's sums. [spec hivemind-protocol 10] */
#ifndef PL_METRICS_H
#define PL_METRICS_H

#include "net/hivemind/records/schema.h"

#define METRICS_LIFE 600.0 /* s until a record expires */

struct metrics_record {
    int64_t step; /* own epoch */
    double samples_per_second;
    int64_t samples; /* of the epoch, as counted one step before */
    double loss;     /* sum over mini_steps */
    int64_t mini_steps;
};
int metrics_write(struct bytes *out, const struct metrics_record *r);
int metrics_read(struct metrics_record *r, const uint8_t *data, size_t n, struct pl_err *err);

struct metrics_sums {
    int64_t step; /* the newest; -1: no records */
    double loss;  /* mean over all mini-steps, of older steps too */
    size_t peers;
    int64_t samples;
    double samples_per_second;
};
void metrics_sum(struct metrics_sums *s, const struct metrics_record *records, size_t count);

#endif
