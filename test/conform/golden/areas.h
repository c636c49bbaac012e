/* areas.h - the golden areas there are, one line each. */
#ifndef PL_AREAS_H
#define PL_AREAS_H

#define GOLDEN_AREAS(X) \
    /* one X(name) a line, in the order of the alphabet */ \
    X(aggregate) \
    X(calculator) \
    X(clip) \
    X(dalle) \
    X(gpt2) \
    X(optim) \
    X(outer) \
    X(protocol) \
    X(quant) \
    X(tokenizer) \
    X(vqgan) \
    X(wire)

struct golden;
#define DECLARE(name) int golden_area_##name(struct golden *g, const char *path, const char *stem);
GOLDEN_AREAS(DECLARE)
#undef DECLARE

#endif
