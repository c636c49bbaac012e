/* averaging.h - single averaging rounds on top of a swarm: tensors of a file in the swarm's
 * order, and an averager whose calls wait. Functions may be called from any thread but the
 * loop's. */
#ifndef PL_SWARM_AVERAGING_H
#define PL_SWARM_AVERAGING_H

#include "net/hivemind/swarm/swarm.h"
#include "net/hivemind/averaging/averager.h"

/* Float32 tensors with names, in the order of metadata "param_order" (a JSON list), or of the
 * names. */
struct named_tensors {
    size_t count;
    char **name;
    struct schema_tensor *schema;
    size_t *elements;
    float **tensor;
};
int named_tensors_read(struct named_tensors *t, const char *path, struct pl_err *err);
int named_tensors_write(const struct named_tensors *t, const char *path, struct pl_err *err);
void named_tensors_clear(struct named_tensors *t);

/* "run" (by size), "none", "float16", "meanstd16", "uniform8", "quantile8", "blockwise8" for a
 * tensor with this number of elements. PL_EUSE: another name. */
int compression_named(enum pl_compression *method, const char *name, size_t elements,
                      size_t threshold);

/* "none"; "centered-clip" with or without ":RADIUS", as allreduce.h's clip; or "btard" with or
 * without ":VALIDATORS", a round, on average. PL_EUSE: none of these. */
int robust_named(double *clip, int *verify, double *validators, const char *name);

/* A copy of tensors and metadata for newcomers. NULL: no memory. */
struct state_snapshot *snapshot_of(const struct named_tensors *t, const struct bytes *metadata);

/* Opens an averager on the swarm's loop; closes it and waits until it is gone. */
int swarm_averager(struct averager **a, struct swarm *s, const struct averager_options *o,
                   struct pl_err *err);
void swarm_averager_close(struct swarm *s, struct averager *a);

/* A round's result. The group's ids and gathered messages are copies. */
struct round {
    struct averager_result result; /* .group points to the next */
    struct group group;
    struct pl_err why, differs, left_out; /* memory that the result points to */
};
int swarm_average(struct swarm *s, struct averager *a, const struct averager_step *step,
                  double timeout_s, struct round *r);
void round_clear(struct round *r);

void swarm_share(struct swarm *s, struct averager *a, struct state_snapshot *snapshot,
                 double priority);
/* *state is cleared with state_load_clear. */
int swarm_load(struct swarm *s, struct averager *a, state_check *check, void *context,
               struct state_load *state, struct peer_id *donor, struct pl_err *err);

#endif
