/* algorithms.c - finds an algorithm by its name, and tells a trainer when it sends.
 *
 * An algorithm is a struct of functions (outer.h) in a file of its own. The list of algorithms.h is
 * the only place that names them all: options, saved states, tests and the laboratory go through
 * this file, so a new algorithm needs one line there and is then found, tested and compared. */
#include "algorithms.h"

#include <string.h>

static const struct pl_outer_algorithm *const algorithms[] = {
#define ENTRY(name) &pl_outer_##name,
    PL_OUTER_ALGORITHMS(ENTRY)
#undef ENTRY
};

/* The list is made from one macro, so every declared algorithm can be found by name: one without a
 * definition does not link. */
const struct pl_outer_algorithm *pl_outer_at(int index)
{
    return 0 <= index && index < (int)PL_COUNT(algorithms) ? algorithms[index] : NULL;
}

/* By the names of paper/algorithms.md, which options and saved states use. */
const struct pl_outer_algorithm *pl_outer_find(const char *name)
{
    for (size_t i = 0; i < PL_COUNT(algorithms); i++)
        if (!strcmp(algorithms[i]->name, name)) return algorithms[i];
    return NULL;
}

/* Gradients travel in every step, changes every H steps. Streaming DiLoCo sends each of its
 * fragments once in H steps, evenly spaced. */
int pl_outer_period(const struct pl_outer_algorithm *algorithm, const struct pl_outer_setup *setup)
{
    if (algorithm->sends_gradients) return 1;
    return algorithm == &pl_outer_streaming ? setup->H / setup->fragments : setup->H;
}

/* It sends tau steps before its period ends, so that the outer step is at the end. */
int pl_outer_lead(const struct pl_outer *o)
{
    return o->algorithm == &pl_outer_streaming ? o->setup.tau : 0;
}
