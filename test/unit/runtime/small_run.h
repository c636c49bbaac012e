/* small_run.h - a trainer of a model with three layers of twelve channels. */
#ifndef PL_TEST_SMALL_RUN_H
#define PL_TEST_SMALL_RUN_H

#include "runtime/trainer.h"
#include "test/unit/unit.h"

enum { T = 3, F = 2, V = 9, VI = 5 };

static struct pl_backend be;
static void (*change)(struct pl_backend *be); /* of the table that the next run gets */

struct run {
    struct pl_dalle *m;
    struct pl_trainer *t;
};

static inline struct run open_run(const struct pl_train_options *o)
{
    struct pl_dalle_config c = { .name = "test",
                                 .T = T,
                                 .F = F,
                                 .D = 12,
                                 .H = 2,
                                 .d = 8,
                                 .L = 3,
                                 .V = V,
                                 .Vi = VI,
                                 .pad = 1,
                                 .image_weight = 7 };
    struct run r;
    pl_backend_ref(&be);
    if (change) change(&be);
    pl_dalle_config_pattern(&c, 3, 1);
    assert_int_equal(pl_dalle_open(&r.m, &c, &be, 1, NULL), PL_OK);
    assert_int_equal(pl_dalle_init(r.m, 4), PL_OK);
    assert_int_equal(pl_trainer_open(&r.t, r.m, o, NULL), PL_OK);
    return r;
}

static inline void end(struct run *r)
{
    pl_trainer_close(r->t);
    pl_dalle_close(r->m);
}

/* Tokens of the text and the image, from 0 to below V and VI. */
static inline void draw_tokens(int32_t *text, size_t n, int32_t *codes, size_t count,
                               uint64_t number)
{
    struct pl_rng rng;
    pl_rng_init(&rng, 7, number);
    for (size_t i = 0; i < n; i++) text[i] = (int32_t)pl_rng_below(&rng, V);
    for (size_t i = 0; i < count; i++) codes[i] = (int32_t)pl_rng_below(&rng, VI);
}

#endif
