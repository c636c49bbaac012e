/* factors_world.h - the recorded tensors, and a round of PowerSGD by several peers in one process.
 * Included by one file of each test program. */
#ifndef PL_TEST_FACTORS_WORLD_H
#define PL_TEST_FACTORS_WORLD_H

#include "net/hivemind/powersgd/factors.h"
#include "test/unit/unit.h"

#define RANK 4
#define RECORDED 6

static struct pl_backend be;
static const struct schema_tensor schema[RECORDED] = {
    { .type = { .dtype = PL_F32, .dims = 2, .size = { 40, 30 } } },
    { .type = { .dtype = PL_F32, .dims = 1, .size = { 30 } } },
    { .type = { .dtype = PL_F32, .dims = 3, .size = { 8, 5, 6 } } },
    { .type = { .dtype = PL_F32, .dims = 2, .size = { 3, 3 } } },
    { .type = { .dtype = PL_F32, .dims = 2, .size = { 32, 64 } } },
    { .type = { .dtype = PL_F32, .dims = 3, .size = { 6, 10, 12 } } },
};
static const enum pl_compression method[RECORDED] = { PL_COMPRESS_NONE };

/* The mean over the peers, in place, as an all-reduce without compression makes it. */
static inline void average(struct factors *const *f, size_t peers, int phase, const double *weight)
{
    const struct factors_phase *first = &f[0]->phase[phase];
    for (size_t t = 0; t < first->tensors; t++)
        for (size_t i = 0; i < first->elements[t]; i++) {
            double sum = 0, total = 0;
            for (size_t k = 0; k < peers; k++) {
                sum += weight[k] * (double)f[k]->phase[phase].tensor[t][i];
                total += weight[k];
            }
            for (size_t k = 0; k < peers; k++)
                f[k]->phase[phase].tensor[t][i] = (float)(sum / total);
        }
}

static inline void play(struct factors *const *f, float *const *const *gradient, size_t peers,
                        const double *weight)
{
    for (size_t k = 0; k < peers; k++) assert_int_equal(factors_begin(f[k], gradient[k]), PL_OK);
    average(f, peers, FACTORS_P, weight);
    for (size_t k = 0; k < peers; k++) assert_int_equal(factors_project(f[k], gradient[k]), PL_OK);
    average(f, peers, FACTORS_Q, weight);
    for (size_t k = 0; k < peers; k++) assert_int_equal(factors_finish(f[k], gradient[k]), PL_OK);
}

#endif
