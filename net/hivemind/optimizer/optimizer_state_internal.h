/* optimizer_state_internal.h - the order of a state's leaves, for the files that write and read
 * it. */
#ifndef PL_OPTIMIZER_STATE_INTERNAL_H
#define PL_OPTIMIZER_STATE_INTERNAL_H

#include "optimizer_state.h"

#define STATE_LEAVES_MAX \
    10 /* of a parameter: two moments in 8 bits, their scales and books, norms */

/* The leaves that the i-th parameter has at this peer, in alphabetical order; none if the optimizer
 * is the caller's own. */
const char *const *optimizer_state_leaves(const struct optimizer_state *s, size_t i, size_t *n);
/* Of "qmap1", "state1", "qmap2", "state2": the code book's kind. */
enum pl_map optimizer_state_map(const char *name);

#endif
