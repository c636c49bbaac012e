/* optimizer_state.h - a whole training state, parameters and LAMB's moments, in the form in
 * which hivemind's peers send it to newcomers, and back. [spec hivemind-protocol 7]
 *
 * The order is that of the optimizer's groups: all parameters with weight decay first, then
 * those without; if all have it, there is one group. */
#ifndef PL_OPTIMIZER_STATE_H
#define PL_OPTIMIZER_STATE_H

#include "ref/outer/outer.h"
#include "runtime/optimizer.h"
#include "net/hivemind/averaging/averager.h"

/* The layout of a swarm's tensors: set by optimizer_state_open. */
#define STATE_STEPS_MAX 1000000000LL /* epochs, steps: one a second for 30 years */

struct optimizer_state {
    struct pl_optimizer *optimizer; /* borrowed, as be; NULL: the state is the parameters alone */
    struct pl_optimizer_options options;
    const struct pl_backend *be;
    size_t count;
    struct pl_optimizer_tensor *tensors; /* in the optimizer's order */
    struct schema_tensor *schema;        /* in the swarm's order */
    size_t *order;                       /* the swarm's i-th is the optimizer's order[i]-th */
    size_t *first;                       /* (count) its first array among the optimizer's */
    size_t decayed;
    struct pl_outer *outer; /* borrowed; NULL: the optimizer's moments are everybody's */
    int is_whole;           /* all that the peers share of `outer` is in the state */
};
/* types: (count) shapes in the optimizer's order. The optimizer was opened with these tensors;
 * NULL: the caller's own optimizer, whose moments cannot be shared. */
int optimizer_state_open(struct optimizer_state *s, struct pl_optimizer *optimizer,
                         const struct pl_optimizer_options *options, const struct pl_backend *be,
                         const struct pl_optimizer_tensor *tensors,
                         const struct pl_wire_type *types, size_t count, struct pl_err *err);
/* The same over a model's parameters, with the optimizer that was opened for them. */
int optimizer_state_open_params(struct optimizer_state *s, struct pl_optimizer *optimizer,
                                const struct pl_optimizer_options *options,
                                const struct pl_params *params, struct pl_err *err);
void optimizer_state_close(struct optimizer_state *s);
/* DiLoCo and its kin: newcomers need phi and the outer momentum; each peer keeps its own moments.
 * The order is the optimizer's. [spec outer-steps 4, state download] */
int optimizer_state_use_outer(struct optimizer_state *s, struct pl_outer *outer);
/* Other algorithms: newcomers need all that peers share of its state, as one more tensor of bytes;
 * and the moments, if all peers step with the same gradient. */
void optimizer_state_use_whole_outer(struct optimizer_state *s, struct pl_outer *outer);
/* Opens the state of an algorithm over these tensors, with values x; *setup says how, but for the
 * tensors and the backend. */
int optimizer_state_open_outer(struct pl_outer **outer, const struct optimizer_state *s,
                               const struct pl_outer_algorithm *algorithm,
                               struct pl_outer_setup *setup, const float *x, struct pl_err *err);

/* A frozen copy of everything. lr: of the schedule at this epoch; initial_lr: negative without one;
 * bits: of the group key. */
struct state_snapshot *optimizer_state_snapshot(const struct optimizer_state *s, const float *value,
                                                int64_t epoch, double lr, double initial_lr,
                                                const char *bits);

/* PL_OK if a state can be taken over: our tensors, our kind of moments, an epoch >= `least`, all
 * of it finite. Else err says why; PL_EUSE: it is of another model or optimizer than ours. */
int optimizer_state_check(const struct optimizer_state *s, const struct state_load *l,
                          int64_t least, struct pl_err *err);
/* Takes over a checked state, and sets *epoch to its epoch. Without memory *epoch stays as it is,
 * and tensors may be of both states. */
int optimizer_state_take(struct optimizer_state *s, float *value, int64_t *epoch,
                         const struct state_load *l, struct pl_err *err);

/* Parameters or gradients between the flat buffer (backend memory) and host tensors in the
 * swarm's order. host: such tensors, in memory that the device can copy to directly; NULL: no
 * memory. NULL may be freed. */
float **optimizer_state_host(const struct optimizer_state *s);
void optimizer_state_host_free(const struct optimizer_state *s, float **host);
int optimizer_state_get(const struct optimizer_state *s, float *const *host, const float *flat);
/* As optimizer_state_get, but returns at once: host and flat must be left alone until
 * pl_copy_end(*ticket). *ticket 0: the backend cannot copy in the background, and the copy is
 * done. */
int optimizer_state_get_begin(const struct optimizer_state *s, float *const *host,
                              const float *flat, uint64_t *ticket);
int optimizer_state_put(const struct optimizer_state *s, float *flat, const float *const *host);

#endif
