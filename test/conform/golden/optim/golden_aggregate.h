/* golden_aggregate.h - what the replays of area aggregate share: values in double, which most of
 * its files hold, and lines for them. */
#ifndef PL_GOLDEN_AGGREGATE_H
#define PL_GOLDEN_AGGREGATE_H

#include "test/conform/golden/golden.h"

/* A tensor's values in double, exactly n of them (SIZE_MAX: any number, *count if given receives
 * it); NULL after a golden_fail line. Freed with pl_free. */
double *agg_doubles(struct golden *g, const struct st_file *f, const char *name, size_t n,
                    size_t *count);
/* The same in float32. */
float *agg_floats(struct golden *g, const struct st_file *f, const char *name, size_t n);

/* max |got - want| / max |want|; infinite on NaN. */
double agg_relative(const double *got, const double *want, size_t n);

/* One line: compares got (n) with the tensor `name`, within `allowed` of its largest entry. */
void agg_compare(struct golden *g, const struct st_file *f, const char *name, const double *got,
                 size_t n, double allowed);

/* Member `key` of an object as whole numbers or reals, exactly n (0: any number, *count receives
 * it); NULL after a golden_fail line. Freed with pl_free. */
double *agg_list(struct golden *g, const json_t *object, const char *key, size_t n, size_t *count);

golden_area_fn golden_partition, golden_load_balance, golden_allreduce, golden_powersgd,
    golden_centered_clip, golden_btard, golden_onebit, golden_dgc;

#endif
