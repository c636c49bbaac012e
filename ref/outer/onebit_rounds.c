/* onebit_rounds.c - 1-bit Adam behind the interface of outer.h. The mathematics is ref/onebit.c.
 * [1-bit Adam: Tang et al. 2021, alg. 1] [spec numerics 13]
 *
 *   the first warm_up steps   mean of the gradients in float32, Adam
 *   then, twice a step        1. every peer sends the signs of its momentum, and one scale
 *                             2. peer k, server of slice k, sends the signs of that slice's mean
 *                             x = x - lr m / (sqrt(v) + eps), v as the warm-up left it
 *
 * Adam is not linear in the gradient, so signs of gradients would not work; with v frozen it is
 * momentum SGD, which is linear. Both roundings have error feedback.
 *
 * A value whose gradient was zero throughout the warm-up, such as the embedding of a token that did
 * not occur, has v = 0, and the sign of its momentum divided by eps would be a step of 10^8 rates.
 * Such values stay as they are (DeepSpeed leaves them to its option exp_avg_mask). */
#include "../byte_order.h"
#include "../onebit.h"
#include "algorithms.h"

#include <string.h>

enum { PHASE = PL_OUTER_OWN }; /* 0: signs of all, 1: signs of the own slice */

/* n is padded, so that R slices of the same size begin at whole bytes of signs. */
static size_t padded_of(const struct pl_outer *o) { return pl_onebit_padded(o->n, o->setup.peers); }
static size_t slice_of(const struct pl_outer *o) { return padded_of(o) / (size_t)o->setup.peers; }

/* m and v as in Adam, and e of each rounding: the worker's of all values, the server's of a
 * slice. */
static int open_onebit(struct pl_outer *o, const float *x, struct pl_err *err)
{
    size_t n = padded_of(o) * sizeof(double);
    if (o->setup.warm_up < 1)
        return pl_fail(err, PL_EUSE, "%d steps of warm-up: at least one, which v is learnt from",
                       o->setup.warm_up);
    o->setup.coding = PL_OUTER_FLOAT32; /* of the warm-up */
    return pl_outer_add(o, "m", n, 1) && pl_outer_add(o, "v", n, 1) &&
                   pl_outer_add_own(o, "worker error", n, 1) &&
                   pl_outer_add_own(o, "server error", slice_of(o) * sizeof(double), 1) &&
                   pl_outer_add(o, "mean", slice_of(o) * sizeof(double), 1)
               ? PL_OK
               : PL_ENOMEM;
}

/* Until then v is learnt; then it is frozen, and sqrt(v) + eps is a fixed scale for each value:
 * Adam is then momentum SGD with such scales, which commutes with the mean over peers. */
static int is_warm(const struct pl_outer *o)
{
    return o->counter[PL_OUTER_STEPS] > (uint64_t)o->setup.warm_up;
}

/* Nothing here: g travels in the warm-up, and afterwards m_r is made when the message is. */
static int before_step(struct pl_outer *o, float *x, float *g, double lr)
{
    o->counter[PHASE] = 0;
    return PL_OUTER_SEND;
}

/* one bit a value, and the scale as float64: exactly the values from which the error was
 * computed */
static size_t sign_bytes(size_t n) { return n / 8 + sizeof(double); }

/* warm-up   g_r in float32
 * phase 0   m_r = beta1 m + (1 - beta1) g_r, of whose sum with the error the signs are sent
 * phase 1   the mean of the slice that this peer serves, in signs again, with its own error */
static int message(struct pl_outer *o, struct pl_outer_message *out, float *x, float *g)
{
    size_t padded = padded_of(o), slice = slice_of(o);
    double *gradient, scale;
    int rc;
    if (!is_warm(o)) {
        rc = pl_outer_encode(o, g, o->n);
        out->bytes = o->n * sizeof(float);
        return rc ? rc : PL_OUTER_RECEIVE;
    }
    out->bytes = sign_bytes(o->counter[PHASE] ? slice : padded);
    if ((rc = pl_outer_reserve(o, out->bytes))) return rc;
    memset(o->out, 0, out->bytes);
    if (o->counter[PHASE]) {
        pl_onebit_compress(o->out + 8, &scale, pl_outer_doubles(o, "server error"),
                           pl_outer_doubles(o, "mean"), slice);
        out->weight = 1; /* the slice's mean is the others' */
    } else {
        if (o->skipped) return PL_OUTER_RECEIVE;
        gradient = pl_alloc(o->n, sizeof *gradient);
        rc = gradient ? pl_outer_read(o, gradient, g) : PL_ENOMEM;
        if (!rc)
            rc = pl_onebit_worker(o->out + 8, &scale, pl_outer_doubles(o, "worker error"),
                                  pl_outer_doubles(o, "m"), gradient, o->n, padded,
                                  o->setup.adam.beta1);
        pl_free(gradient);
    }
    if (!rc) pl_copy_little(o->out, &scale, sizeof scale, 1);
    return rc ? rc : PL_OUTER_RECEIVE;
}

/* A message's scale, or -1 if it is to be left out. */
static double scale_of(const struct pl_outer_message *in, size_t n)
{
    double scale;
    if (!(in->weight > 0) || in->bytes != sign_bytes(n)) return -1;
    pl_copy_little(&scale, in->data, sizeof scale, 1);
    return scale >= 0 && scale <= 1e300 ? scale : -1;
}

/* A message that no other peer has used gives its gradients back to the error. It was compressed
 * from beta1 m + (1 - beta1) g + e, but m itself is not lost: every peer still has it, and the next
 * message holds it again. So only the rest returns:  e = e + scale sign - beta1 m.
 * m (n_m, the values without padding) and error begin at the same value. */
static int take_back(struct pl_outer *o, double *error, const double *m, size_t n_m, size_t n)
{
    const struct pl_outer_message own = { o->out, o->out_bytes, 1, o->setup.rank };
    double scale = scale_of(&own, n), *sent;
    if (scale < 0) return PL_OK; /* a newcomer has no message yet */
    if (!(sent = pl_alloc(n, sizeof *sent))) return PL_ENOMEM;
    pl_onebit_expand(sent, o->out + sizeof scale, scale, n);
    for (size_t i = 0; i < n; i++) error[i] += sent[i] - (i < n_m ? o->setup.adam.beta1 * m[i] : 0);
    pl_free(sent);
    return PL_OK;
}

/* 1. mean = sum_r scale_r sign_r / R over the own slice, of the messages that are good. */
static int take_signs(struct pl_outer *o, const struct pl_outer_message *in, int count)
{
    size_t padded = padded_of(o), slice = slice_of(o), first = (size_t)o->setup.rank * slice;
    double *mean = pl_outer_doubles(o, "mean"), *one = pl_alloc(padded, sizeof *one), scale;
    int present = 0, is_lost = !o->skipped, rc = one ? PL_OK : PL_ENOMEM;
    memset(mean, 0, slice * sizeof *mean);
    for (int k = 0; !rc && k < count; k++) {
        if ((scale = scale_of(&in[k], padded)) < 0) continue;
        pl_onebit_expand(one, in[k].data + 8 + first / 8, scale, slice);
        for (size_t i = 0; i < slice; i++) mean[i] += one[i];
        if (in[k].rank == o->setup.rank) is_lost = 0;
        present++;
    }
    /* the mean over the peers that were heard: a missing one changes the divisor, not the scale */
    for (size_t i = 0; present && i < slice; i++) mean[i] /= present;
    pl_free(one);
    if (!rc && is_lost)
        rc = take_back(o, pl_outer_doubles(o, "worker error"), pl_outer_doubles(o, "m"), o->n,
                       padded);
    o->counter[PHASE] = 1;
    return rc ? rc : present ? PL_OUTER_SEND : PL_OUTER_GRADIENT;
}

/* 2. Slices whose server is missing keep their momentum. */
static int take_slices(struct pl_outer *o, float *x, const struct pl_outer_message *in, int count,
                       const struct pl_onebit *adam)
{
    size_t slice = slice_of(o), first = (size_t)o->setup.rank * slice;
    double *m = pl_outer_doubles(o, "m"), *p = pl_alloc(o->n, sizeof *p), scale;
    const double *v = pl_outer_doubles(o, "v");
    int rc = p ? pl_outer_read(o, p, x) : PL_ENOMEM, present = 0, has_own = 0;
    for (int k = 0; !rc && k < count; k++)
        has_own |= in[k].rank == o->setup.rank && scale_of(&in[k], slice) >= 0;
    /* our slice has not arrived: in it is what all peers sent of it; before m is replaced */
    if (!rc && !has_own)
        rc = take_back(o, pl_outer_doubles(o, "server error"), m + first,
                       first < o->n ? o->n - first : 0, slice);
    for (int k = 0; !rc && k < count; k++) {
        if (in[k].rank < 0 || in[k].rank >= o->setup.peers) continue;
        if ((scale = scale_of(&in[k], slice)) < 0) continue;
        /* m, slice by slice, as the servers sent it: the same on every peer */
        pl_onebit_expand(m + (size_t)in[k].rank * slice, in[k].data + 8, scale, slice);
        present++;
    }
    for (size_t i = 0; !rc && i < o->n; i++)
        if (!(v[i] > 0)) m[i] = 0;
    /* x = x - lr m / (sqrt(v) + eps), equal on all peers, as m and v are */
    if (!rc && present) pl_onebit_step(p, m, v, o->n, adam);
    if (!rc && present) rc = pl_outer_write(o, x, p);
    pl_free(p);
    o->counter[PL_OUTER_ROUNDS] += present > 0;
    return rc ? rc : PL_OUTER_GRADIENT;
}

/* Warm-up: Adam with the mean gradient, m and v both learnt. Afterwards phase 0, then phase 1. */
static int apply(struct pl_outer *o, float *x, float *g, const struct pl_outer_message *in,
                 int count)
{
    const struct pl_adam *a = &o->setup.adam;
    const struct pl_onebit adam = { o->lr, a->beta1, a->beta2, a->eps };
    double total = 0, *both;
    int rc;
    if (is_warm(o) && !o->counter[PHASE]) return take_signs(o, in, count);
    if (is_warm(o)) return take_slices(o, x, in, count, &adam);
    /* g = mean_r g_r;  m = beta1 m + (1 - beta1) g;  v = beta2 v + (1 - beta2) g^2;  Adam's step */
    rc = pl_outer_mean(o, g, &total, in, count, o->n * sizeof(float), 0, o->n);
    if (rc || total == 0) return rc ? rc : PL_OUTER_GRADIENT;
    both = pl_alloc(2 * o->n, sizeof *both);
    rc = both ? pl_outer_read(o, both, x) : PL_ENOMEM;
    if (!rc) rc = pl_outer_read(o, both + o->n, g);
    if (!rc)
        pl_onebit_warm_up(both, pl_outer_doubles(o, "m"), pl_outer_doubles(o, "v"), both + o->n,
                          o->n, &adam);
    if (!rc) rc = pl_outer_write(o, x, both);
    pl_free(both);
    return rc ? rc : PL_OUTER_GRADIENT;
}

/* Of a step after the warm-up. */
static double bytes_per_step(const struct pl_outer *o)
{
    return (double)(sign_bytes(padded_of(o)) + sign_bytes(slice_of(o)));
}

const struct pl_outer_algorithm pl_outer_onebit_adam = {
    .name = "onebit_adam",
    .summary = "Adam's momentum in signs, its second moment frozen",
    .bytes = "n / 8 + n / (8 R) + 16 after the warm-up, n padded to whole bytes a slice",
    .exchange = PL_OUTER_GATHER,
    .sends_gradients = 1,
    .takes_back = 1,
    .open = open_onebit,
    .before_step = before_step,
    .after_step = pl_outer_next_gradient,
    .message = message,
    .apply = apply,
    .bytes_per_step = bytes_per_step,
};
