/* dgc_rounds.c - Deep Gradient Compression behind the interface of outer.h. The mathematics is
 * ref/dgc.c. [DGC: Lin et al. 2018, alg. 4] [spec numerics 14]
 *
 *   u_r, a_r += clipped g_r     entries not sent are accumulated, with their momentum
 *   sent: the largest entries of a_r, which leave a_r and u_r
 *   x = x - lr mean of the entries sent
 *
 * Each step is exchanged, but of 1000 entries one. An entry waits until it has grown, so nothing is
 * lost, only late. An index takes 32 bits, a value 32; the rounding error to float32 stays in
 * a_r. */
#include "../byte_order.h"
#include "../dgc.h"
#include "algorithms.h"

#include <math.h>
#include <string.h>

/* Entries of a message: ceil(n share), with the paper's sparsity 1 - share (0.999). */
static size_t count_of(const struct pl_outer *o) { return pl_dgc_count(o->n, 1 - o->setup.share); }

/* u_r, the momentum, and a_r, accumulated and not sent; in double as in ref/dgc.c, so that
 * thousands of small gradients add up without rounding them away. */
static int open_dgc(struct pl_outer *o, const float *x, struct pl_err *err)
{
    if (!(o->setup.share > 0) || o->setup.share > 1 || o->n > UINT32_MAX)
        return pl_fail(err, PL_EUSE, "a share of %g of %zu entries: above 0, at most 1, of 2^32",
                       o->setup.share, o->n);
    return pl_outer_add_own(o, "momentum", o->n * sizeof(double), 1) &&
                   pl_outer_add_own(o, "accumulated", o->n * sizeof(double), 1)
               ? PL_OK
               : PL_ENOMEM;
}

/* Each peer clips to its part of the limit: R independent gradients have sqrt(R) times the norm of
 * their mean. */
static int before_step(struct pl_outer *o, float *x, float *g, double lr)
{
    const struct pl_outer_setup *s = &o->setup;
    double *wide = pl_alloc(o->n, sizeof *wide);
    int rc = wide ? pl_outer_read(o, wide, g) : PL_ENOMEM;
    /* Momentum is accumulated before the choice (momentum correction): an entry that waits k steps
     * is sent with the velocity that k steps of dense momentum SGD would have given it. */
    /* g = g min(1, limit / (sqrt(R) |g|));  u = beta u + g;  a = a + u */
    if (!rc && !o->skipped)
        pl_dgc_accumulate(pl_outer_doubles(o, "momentum"), pl_outer_doubles(o, "accumulated"), wide,
                          o->n, s->beta, s->limit / sqrt(s->peers));
    pl_free(wide);
    return rc ? rc : PL_OUTER_SEND;
}

/* The `count` entries of a_r with the largest |a_r[i]|; a_r and u_r are then zero there. Indices,
 * ascending, then values. */
static int message(struct pl_outer *o, struct pl_outer_message *out, float *x, float *g)
{
    size_t count = count_of(o);
    uint32_t *index = pl_alloc(count, sizeof *index);
    double *value = pl_alloc(count, sizeof *value), *a = pl_outer_doubles(o, "accumulated");
    int rc = index && value ? PL_OK : PL_ENOMEM;
    out->bytes = count * 8;
    if (!rc) rc = pl_outer_reserve(o, out->bytes);
    if (!rc) memset(o->out, 0, out->bytes);
    if (!rc && !o->skipped) {
        rc = pl_dgc_take(index, value, a, pl_outer_doubles(o, "momentum"), o->n, count);
        for (size_t k = 0; !rc && k < count; k++) {
            float sent = (float)value[k]; /* the rest of the double waits in a */
            a[index[k]] = value[k] - sent;
            pl_copy_little(o->out + 4 * k, &index[k], 4, 1);
            pl_copy_little(o->out + 4 * (count + k), &sent, 4, 1);
        }
    }
    pl_free(index);
    pl_free(value);
    return rc ? rc : PL_OUTER_RECEIVE;
}

/* Reads a peer's entries. Ascending indices make each occur once, so no peer adds twice to an
 * entry. PL_EPROTO for an index out of bounds, indices that do not ascend, or a value not
 * finite. */
static int read_entries(uint32_t *index, double *value, const uint8_t *in, size_t count, size_t n)
{
    for (size_t k = 0; k < count; k++) {
        float v;
        pl_copy_little(&index[k], in + 4 * k, 4, 1);
        pl_copy_little(&v, in + 4 * (count + k), 4, 1);
        if (index[k] >= n || (k && index[k] <= index[k - 1]) || !isfinite(v)) return PL_EPROTO;
        value[k] = v;
    }
    return PL_OK;
}

/* update[i] = sum_r of entry i in peer r's message; 0 if no peer sent it. Divided by the number of
 * all peers, including those that did not send the entry. Returns that number, or PL_ENOMEM. */
static int sum_entries(const struct pl_outer *o, double *update, const struct pl_outer_message *in,
                       int count)
{
    size_t entries = count_of(o);
    uint32_t *index = pl_alloc(entries, sizeof *index);
    double *value = pl_alloc(entries, sizeof *value);
    int present = index && value ? 0 : PL_ENOMEM;
    for (int r = 0; present >= 0 && r < count; r++) {
        if (!(in[r].weight > 0) || in[r].bytes != entries * 8) continue;
        if (read_entries(index, value, in[r].data, entries, o->n)) continue;
        pl_dgc_add(update, index, value, entries, 1);
        present++;
    }
    pl_free(index);
    pl_free(value);
    return present;
}

/* A failed exchange returns the entries: a_r[i] += sent. u_r stays without them, since the momentum
 * of sent entries is dropped in any case (momentum factor masking). */
static int take_back(struct pl_outer *o)
{
    size_t entries = count_of(o);
    uint32_t *index;
    double *value;
    int rc;
    if (o->skipped || o->out_bytes != entries * 8) return PL_OUTER_GRADIENT;
    index = pl_alloc(entries, sizeof *index);
    value = pl_alloc(entries, sizeof *value);
    rc = index && value ? read_entries(index, value, o->out, entries, o->n) : PL_ENOMEM;
    if (!rc) pl_dgc_add(pl_outer_doubles(o, "accumulated"), index, value, entries, 1);
    pl_free(index);
    pl_free(value);
    /* a loaded state with an invalid message has no entries to return */
    return rc == PL_ENOMEM ? rc : PL_OUTER_GRADIENT;
}

/* x = x - lr / R sum_r of the entries sent, over the R peers with a valid message. The momentum is
 * in u_r, so the outer step is plain SGD. */
static int apply(struct pl_outer *o, float *x, float *g, const struct pl_outer_message *in,
                 int count)
{
    double *update = pl_alloc(o->n, sizeof *update);
    int present = update ? sum_entries(o, update, in, count) : PL_ENOMEM;
    int rc = present < 0 ? present : PL_OK;
    if (!rc && present) {
        for (size_t i = 0; i < o->n; i++) update[i] /= present;
        /* x = x - lr step, dense: entries that no peer sent have step 0 */
        rc = pl_outer_write(o, g, update);
        if (!rc) rc = o->setup.be->axpy(x, (float)-o->lr, g, o->n);
        o->counter[PL_OUTER_ROUNDS]++;
    }
    pl_free(update);
    if (rc) return rc;
    return present ? PL_OUTER_GRADIENT : take_back(o);
}

static double bytes_per_step(const struct pl_outer *o) { return 8.0 * (double)count_of(o); }

const struct pl_outer_algorithm pl_outer_dgc = {
    .name = "dgc",
    .summary = "the largest of many accumulated gradients, each step",
    .bytes = "8 n share",
    .exchange = PL_OUTER_GATHER,
    .sends_gradients = 1,
    .takes_back = 1,
    .open = open_dgc,
    .before_step = before_step,
    .after_step = pl_outer_next_gradient,
    .message = message,
    .apply = apply,
    .bytes_per_step = bytes_per_step,
};
