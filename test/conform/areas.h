/* areas.h - the golden areas there are, one line each. */
#ifndef PL_AREAS_H
#define PL_AREAS_H

#include "golden.h"

#define GOLDEN_AREAS(X) \
    /* one X(name) a line, in the order of the alphabet */ \
    X(aggregate) \
    X(calculator) \
    X(clip) \
    X(dalle) \
    X(gpt2) \
    X(optim) \
    X(protocol) \
    X(quant) \
    X(tokenizer) \
    X(vqgan) \
    X(wire)

#define DECLARE(name) golden_area_fn golden_area_##name;
GOLDEN_AREAS(DECLARE)
#undef DECLARE

#endif
