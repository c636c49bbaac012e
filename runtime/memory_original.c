/* memory_original.c - the demonstration's calculator as it was. paper/memory.md lists its errors,
 * and the corrections in memory.c. [TTT 2.2] [spec page-and-tools 3.4, 3.6] */
#include "memory.h"

#include <math.h>

#define GIB 1073741824.0

static double parameters(const struct pl_memory_plan *plan)
{
    const struct pl_memory_model *m = &plan->model;
    double d = m->width, layer = 2 * d * m->hidden + 4 * d * d + d;
    double vocabulary = m->vocabulary * d + d, layers = m->layers * layer;
    if (plan->groups > 0) return layers / m->layers * plan->groups + vocabulary;
    return layers + vocabulary;
}

static double activations(const struct pl_memory_plan *plan)
{
    const struct pl_memory_model *m = &plan->model;
    double bs = plan->batch * m->sequence, d = m->width;
    double layer = 6 * bs * m->hidden + 47 * bs * d + 15 * bs * m->sequence;
    if (plan->layers != PL_MEMORY_STORED) layer = bs * d;
    return m->layers * layer + 3 * bs * d + 2 * bs * m->vocabulary;
}

static double optimizer(const struct pl_memory_plan *plan, double P)
{
    switch (plan->optimizer) {
    case PL_MEMORY_32BIT: return 8 * P;
    case PL_MEMORY_8BIT: return 2 * P;
    case PL_MEMORY_16BIT:
    case PL_MEMORY_FACTORED: return 4 * P;
    case PL_MEMORY_FACTORED_ALONE: break;
    }
    return log(P);
}

void pl_memory_original(struct pl_memory_original *out, const struct pl_memory_plan *plan)
{
    static const struct {
        double weights, gradients, activations;
    } bytes[] = {
        [PL_MEMORY_FULL] = { 4, 4, 4 },
        [PL_MEMORY_MIXED] = { 6, 2, 2 },
        [PL_MEMORY_HALF] = { 2, 2, 2 },
    };
    double P = parameters(plan), moved = 0;
    *out = (struct pl_memory_original){ .parameters = P };
    out->weights = bytes[plan->precision].weights * P;
    out->gradients = bytes[plan->precision].gradients * P;
    out->activations = bytes[plan->precision].activations * activations(plan);
    out->optimizer = optimizer(plan, P);
    if (plan->zero >= 1) {
        moved += out->optimizer;
        out->optimizer /= plan->devices;
    }
    if (plan->zero >= 2) {
        moved += out->gradients;
        out->gradients /= plan->devices;
    }
    if (plan->zero >= 3) {
        moved += out->weights;
        out->weights /= plan->devices;
    }
    out->transfer_s = moved / GIB / 25;
    if (plan->offload) {
        out->host = out->optimizer + out->gradients;
        out->optimizer = out->gradients = 0;
        out->transfer_s = out->host / GIB / (plan->devices <= 2 ? 12 : 6);
    }
    out->device = out->weights + out->gradients + out->activations + out->optimizer;
}
