/* pairs.h - the components that have a pair test, one line each. */
#ifndef PL_CONFORM_PAIRS_H
#define PL_CONFORM_PAIRS_H

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
    X(outer) \
    X(quant) \
    X(robust) \
    X(rotary) \
    X(shift) \
    X(vector)

struct pair;
#define DECLARE(name) void pair_##name(struct pair *p);
PAIRS(DECLARE)
#undef DECLARE

#endif
