/* algorithms.h - the algorithms there are, one line each, in the order of paper/algorithms.md. */
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
