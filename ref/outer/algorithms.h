/* algorithms.h - the algorithms there are, one line each, in the order of paper/algorithms.md.
 *
 *   gradients ... demo     something of each step's gradient travels, and the inner optimizer or
 *                          the algorithm itself steps with the mean
 *   local_sgd ... partial  peers train alone for H steps; the change theta_r - phi travels, or the
 *                          parameters do
 *
 * X is called with each name. Name x stands for the struct pl_outer_x, so an algorithm that is on
 * the list without a definition does not link. */
#ifndef PL_OUTER_ALGORITHMS_H
#define PL_OUTER_ALGORITHMS_H

#include "outer.h"

#define PL_OUTER_ALGORITHMS(X) \
    X(gradients) \
    X(delayed_gradients) \
    X(powersgd) \
    X(onebit_adam) \
    X(dgc) \
    X(demo) \
    X(local_sgd) \
    X(diloco) \
    X(streaming) \
    X(delayed) \
    X(eager) \
    X(delayed_nesterov) \
    X(sparseloco) \
    X(noloco) \
    X(partial)

#define DECLARE(name) extern const struct pl_outer_algorithm pl_outer_##name;
PL_OUTER_ALGORITHMS(DECLARE)
#undef DECLARE

#endif
