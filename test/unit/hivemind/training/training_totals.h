/* training_totals.h - a training's totals so far, copied on the loop's thread, which continues to
 * count. */
#ifndef PL_TEST_TRAINING_TOTALS_H
#define PL_TEST_TRAINING_TOTALS_H

#include "net/hivemind/training/training_internal.h"

struct totals_copy {
    const struct training *c;
    struct report_record totals;
};

static void copy_totals(void *context)
{
    struct totals_copy *t = context;
    t->totals = t->c->records.totals;
}

static struct report_record totals_of(const struct training *c)
{
    struct totals_copy t = { .c = c };
    loop_call(c->loop, copy_totals, &t);
    return t.totals;
}

#endif
