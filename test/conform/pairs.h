/* pairs.h - the components that have a pair test, one line each. */
#ifndef PL_PAIRS_H
#define PL_PAIRS_H

#include "pair.h"

#define PAIRS(X) \
    /* one X(name) a line, in the order of the alphabet */ \
    X(attention) \
    X(average) \
    X(codebook) \
    X(compress) \
    X(conv) \
    X(embed) \
    X(feedforward) \
    X(group_norm) \
    X(lamb) \
    X(linear) \
    X(loss) \
    X(norm) \
    X(quant) \
    X(robust) \
    X(rotary) \
    X(shift) \
    X(vector)

#define DECLARE(name) pair_fn pair_##name;
PAIRS(DECLARE)
#undef DECLARE

#endif
