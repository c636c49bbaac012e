/* params.c - a model's tensors side by side in one buffer, each beginning on a cache line of its
 * own: the optimizer and averaging see one array, checkpoints see names.
 *
 *   value   | W 12 floats, 4 of padding | b 3, 13 | ...      offsets are multiples of 16
 *   grad    | the same layout                                padding is zero and stays so
 *
 * Tensors are declared first, when sizes are known but no memory is needed (the calculator stops
 * there), and then allocated at once. */
#include "params.h"
#include "../small.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define ALIGN_FLOATS 16 /* a cache line: no two tensors share one */

/* Appends a tensor: its name, shape, and whether weight decay applies (matrices yes, norms and
 * biases no). Sizes are checked as they are multiplied: a configuration from a file may be
 * absurd. */
int pl_params_add(struct pl_params *p, const char *name, int dims, const int64_t *shape, int decay)
{
    struct pl_param *t;
    assert(strlen(name) < PL_NAME_MAX && dims <= PL_DIMS_MAX && !p->value);
    if (pl_grow(&p->list, p->count, &p->capacity, 64)) return PL_ENOMEM;
    t = &p->list[p->count];
    memset(t, 0, sizeof *t);
    snprintf(t->name, sizeof t->name, "%s", name);
    t->dims = dims;
    t->n = 1;
    for (int i = 0; i < dims; i++) {
        assert(shape[i] >= 0);
        t->shape[i] = shape[i];
        if (pl_size_mul(&t->n, t->n, (size_t)shape[i])) return PL_ELIMIT;
    }
    /* offset of the next tensor: this one's end, rounded up to a cache line */
    /* `total` counts padding, `trainable` does not: the first is memory, the second the number that
     * papers state */
    t->decay = decay;
    t->offset = p->total;
    p->total += (t->n + ALIGN_FLOATS - 1) / ALIGN_FLOATS * ALIGN_FLOATS;
    p->trainable += t->n;
    p->count++;
    return PL_OK;
}

/* One buffer for all values, one for all gradients: optimizers and averaging pass over them
 * once. */
int pl_params_allocate(struct pl_params *p, const struct pl_backend *be, int with_grad)
{
    size_t bytes;
    if (pl_size_mul(&bytes, p->total, sizeof(float))) return PL_ELIMIT;
    p->be = be;
    /* A backend may keep a second copy of weights, in the form that its matrix products prefer. */
    p->value = be->alloc(bytes);
    if (!p->value || (be->weights && be->weights(p->value, p->total))) return PL_ENOMEM;
    if (!with_grad) return PL_OK;
    p->grad = be->alloc(bytes);
    return p->grad ? PL_OK : PL_ENOMEM;
}

void pl_params_clear(struct pl_params *p)
{
    if (p->be) {
        p->be->free(p->value);
        p->be->free(p->grad);
    }
    free(p->list);
    memset(p, 0, sizeof *p);
}

/* By name, as checkpoints know tensors; -1: none. */
long pl_params_find(const struct pl_params *p, const char *name)
{
    for (size_t i = 0; i < p->count; i++)
        if (!strcmp(p->list[i].name, name)) return (long)i;
    return -1;
}

/* Both are views into the one buffer: a step of the optimizer over the buffer is a step of all. */
float *pl_params_value(const struct pl_params *p, size_t index)
{
    return p->value + p->list[index].offset;
}

float *pl_params_grad(const struct pl_params *p, size_t index)
{
    return p->grad + p->list[index].offset;
}

/* Tensors of files are dense: padding is neither read nor written. */
int pl_params_put(const struct pl_params *p, size_t index, const float *host)
{
    return p->be->put(pl_params_value(p, index), host, p->list[index].n * sizeof *host);
}

int pl_params_get(const struct pl_params *p, size_t index, float *host)
{
    return p->be->get(host, pl_params_value(p, index), p->list[index].n * sizeof *host);
}

/* factor * next(rng) for each element, drawn on the host: a seed gives the same model on every
 * backend. */
static int draw(const struct pl_params *p, size_t index, double factor,
                double (*next)(struct pl_rng *), struct pl_rng *rng)
{
    size_t n = p->list[index].n;
    float *host = pl_alloc(n, sizeof *host);
    int rc;
    if (!host) return PL_ENOMEM;
    for (size_t i = 0; i < n; i++) host[i] = (float)(factor * next(rng));
    rc = pl_params_put(p, index, host);
    pl_free(host);
    return rc;
}

/* Uniform in -1..1, for layers whose bound follows from their fan-in (PyTorch's default). */
static double next_between(struct pl_rng *rng) { return 2 * pl_rng_uniform(rng) - 1; }

int pl_params_uniform(const struct pl_params *p, size_t index, float bound, struct pl_rng *rng)
{
    return draw(p, index, bound, next_between, rng);
}

int pl_params_normal(const struct pl_params *p, size_t index, double deviation, struct pl_rng *rng)
{
    return draw(p, index, deviation, pl_rng_normal, rng);
}

int pl_params_constant(const struct pl_params *p, size_t index, float value)
{
    return p->be->fill(pl_params_value(p, index), value, p->list[index].n);
}

/* Sizes from files are products of memory and indices later; out of range, they would overflow.
 * Names the first size that is out of range, for configurations from files. */
int pl_check_ranges(const char *what, const struct pl_range *range, size_t count,
                    struct pl_err *err)
{
    for (size_t i = 0; i < count; i++)
        if (range[i].value < range[i].least || range[i].value > range[i].most)
            return pl_fail(err, PL_EUSE, "%s: %s is %d, expected %d to %d", what, range[i].name,
                           range[i].value, range[i].least, range[i].most);
    return PL_OK;
}
