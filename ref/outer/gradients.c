/* gradients.c - one gradient a step, averaged before anybody steps: as if one machine had the whole
 * batch. The run of the paper does this, with the gradients of many batches summed. [TTT 2.1, 3.3]
 * [spec outer-steps 1]
 *
 *   gradients            x_{t+1} = step(x_t, mean of the peers' g_t)
 *   delayed_gradients    x_{t+1} = step(x_t, mean of the peers' g_{t-1})
 *
 * Delayed by one, an exchange may take as long as a gradient does, and costs no time: the step uses
 * gradients of the parameters before the last step. [ZeRO-Offload: Ren et al. 2021]
 *
 * The inner optimizer steps with the mean, so all peers' moments and parameters stay equal. */
#include "algorithms.h"

/* g_r, whole. */
static int message(struct pl_outer *o, struct pl_outer_message *out, float *x, float *g)
{
    int rc = pl_outer_encode(o, g, o->n);
    out->bytes = pl_outer_coded_bytes(o->setup.coding, o->n);
    return rc ? rc : PL_OUTER_RECEIVE;
}

/* The exchange of the first step has nothing before it to wait for. */
static int message_ahead(struct pl_outer *o, struct pl_outer_message *out, float *x, float *g)
{
    int rc = message(o, out, x, g);
    return rc == PL_OUTER_RECEIVE && o->counter[PL_OUTER_STEPS] == 1 ? PL_OUTER_GRADIENT : rc;
}

static int open_delayed(struct pl_outer *o, const float *x, struct pl_err *err)
{
    return pl_outer_add(o, "mean", o->n * sizeof(float), 0) ? PL_OK : PL_ENOMEM;
}

static size_t all_values(const struct pl_outer *o) { return o->n; }

/* Without the others' gradients no peer steps: one that did would leave the common parameters. */
static int apply(struct pl_outer *o, float *x, float *g, const struct pl_outer_message *in,
                 int count)
{
    double total = 0;
    size_t bytes = pl_outer_coded_bytes(o->setup.coding, o->n);
    int rc;
    /* g = sum_r w_r g_r / sum_r w_r, in place of the own one */
    rc = pl_outer_mean(o, g, &total, in, count, bytes, 0, o->n);
    if (rc || total == 0) return rc ? rc : PL_OUTER_GRADIENT;
    o->counter[PL_OUTER_ROUNDS]++;
    return PL_OUTER_STEP;
}

/* g = the mean of the step before */
static int apply_before(struct pl_outer *o, float *x, float *g, const struct pl_outer_message *in,
                        int count)
{
    int rc = pl_outer_arrived(o, in, count);
    if (rc <= 0) return rc ? rc : PL_OUTER_GRADIENT;
    o->counter[PL_OUTER_ROUNDS]++;
    rc = o->setup.be->copy(g, pl_outer_get(o, "mean"), o->n);
    return rc ? rc : PL_OUTER_STEP;
}

static double bytes_per_step(const struct pl_outer *o)
{
    return (double)pl_outer_coded_bytes(o->setup.coding, o->n);
}

/* Both are alike but for the message. No phi and no outer momentum: parameters stay equal as long
 * as all step with the same mean. */
#define MEAN_GRADIENT \
    .bytes = "4 n; n + 1024 in 8 bits", .exchange = PL_OUTER_MEAN, .sends_gradients = 1, \
    .takes_clip = 1, .before_step = pl_outer_send_gradient, .after_step = pl_outer_next_gradient, \
    .bytes_per_step = bytes_per_step

const struct pl_outer_algorithm pl_outer_gradients = {
    .name = "gradients",
    .summary = "the mean gradient of every step",
    .is_reduced = 1,
    .message = message,
    .apply = apply,
    MEAN_GRADIENT,
};

const struct pl_outer_algorithm pl_outer_delayed_gradients = {
    .name = "delayed_gradients",
    .summary = "the mean gradient of the step before",
    .open = open_delayed,
    .message = message_ahead,
    .apply = apply_before,
    .under_way = all_values,
    MEAN_GRADIENT,
};
