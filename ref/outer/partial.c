/* partial.c - after every local step, average a small part of the entries, the next time the next
 * part. [SPARTA: EXO Gym 2025; node0: Pluralis 2025] [spec outer-steps 12]
 *
 *   x_r[i] = sum_r w_r x_r[i]     for the entries i of part t mod parts, t counts the exchanges
 *
 * Peers' parameters differ a little, and each exchange pulls a part of them together; so they never
 * move far apart, though most entries of a message-less step differ. There is no outer optimizer,
 * no copy of the parameters, and nothing to remember but the part's number.
 *
 * SPARTA draws the entries anew each time, by a mask that one peer sends. Here, as in node0, a
 * permutation deals them into parts once, so each entry has its turn and no mask travels. */
#include "partial.h"

#include "../byte_order.h"
#include "algorithms.h"
#include "../rng.h"

#include <math.h>
#include <stdlib.h>

/* ceil(1 / share) parts, at most one for each entry: after that many rounds all entries have been
 * averaged once. */
size_t pl_partial_parts(size_t n, double share)
{
    double parts = ceil(1 / share - 1e-9); /* so that 1 / 0.05 is 20, whatever it rounds to */
    return parts < (double)n ? (size_t)parts : n;
}

/* The first n mod parts parts have one entry more. */
void pl_partial_range(size_t *begin, size_t *end, size_t n, size_t parts, size_t p)
{
    size_t each = n / parts, more = n % parts;
    *begin = p * each + (p < more ? p : more);
    *end = *begin + each + (p < more);
}

static int ascending(const void *p, const void *q)
{
    uint32_t a = *(const uint32_t *)p, b = *(const uint32_t *)q;
    return (a > b) - (a < b);
}

/* A random permutation of 0..n-1 that every peer draws alike; part p is its p'th range, sorted. */
void pl_partial_assign(uint32_t *index, size_t n, size_t parts, uint64_t seed, uint64_t tensor)
{
    struct pl_rng rng;
    pl_rng_init(&rng, seed, tensor);
    for (size_t i = 0; i < n; i++) index[i] = (uint32_t)i;
    for (size_t i = n; i-- > 1;) { /* Fisher and Yates */
        size_t j = (size_t)pl_rng_below(&rng, i + 1);
        uint32_t kept = index[i];
        index[i] = index[j];
        index[j] = kept;
    }
    for (size_t p = 0; p < parts; p++) { /* in memory's order, which is faster to read */
        size_t begin, end;
        pl_partial_range(&begin, &end, n, parts, p);
        qsort(index + begin, end - begin, sizeof *index, ascending);
    }
}

/* Gather and scatter: a part's entries are spread over the whole tensor, so that each round touches
 * every layer. */
void pl_partial_take(float *values, const float *x, const uint32_t *index, size_t count)
{
    for (size_t i = 0; i < count; i++) values[i] = x[index[i]];
}

void pl_partial_put(float *x, const float *values, const uint32_t *index, size_t count)
{
    for (size_t i = 0; i < count; i++) x[index[i]] = values[i];
}

/* ---- the algorithm ---- */

static int open_partial(struct pl_outer *o, const float *x, struct pl_err *err)
{
    uint32_t *index;
    size_t n = 0;
    if (!(o->setup.share > 0) || o->setup.share > 1)
        return pl_fail(err, PL_EUSE, "a share of %g at a time: above 0, at most 1", o->setup.share);
    for (int i = 0; i < o->setup.count; i++) {
        if (o->setup.tensors[i].n > UINT32_MAX)
            return pl_fail(err, PL_EUSE, "tensor %d: more entries than 32 bits can number", i);
        n += o->setup.tensors[i].n;
    }
    o->setup.coding = PL_OUTER_FLOAT32; /* parameters, not small differences */
    /* Not state: the seed draws it again. A stranger's checkpoint must not say where to write. */
    if (!(o->work = index = pl_alloc(n, sizeof *index))) return PL_ENOMEM;
    for (int i = 0; i < o->setup.count; i++) {
        size_t count = o->setup.tensors[i].n;
        pl_partial_assign(index, count, pl_partial_parts(count, o->setup.share), o->setup.seed,
                          (uint64_t)i);
        index += count;
    }
    return PL_OK;
}

/* Only the permutation; there are no buffers. */
static void close_partial(struct pl_outer *o) { pl_free(o->work); }

/* The i'th tensor's entries whose turn it is in this round. */
static size_t turn_of(const struct pl_outer *o, const uint32_t **index, int i, uint64_t round)
{
    const struct pl_outer_tensor *t = o->setup.tensors;
    const uint32_t *all = o->work;
    size_t parts = pl_partial_parts(t[i].n, o->setup.share), begin, end;
    for (int k = 0; k < i; k++)
        all += t[k].n; /* o->work holds the tensors' permutations in a row */
    pl_partial_range(&begin, &end, t[i].n, parts, (size_t)(round % parts));
    *index = all + begin;
    return end - begin;
}

/* n of a message: each tensor sends its own part t mod parts, since small ones have fewer parts. */
static size_t values_in_turn(const struct pl_outer *o)
{
    const uint32_t *index;
    size_t n = 0;
    for (int i = 0; i < o->setup.count; i++)
        n += turn_of(o, &index, i, o->counter[PL_OUTER_ROUNDS]);
    return n;
}

/* The turn's entries between x, on the device, and a packed buffer on the host. */
static int move(struct pl_outer *o, float *x, float *packed, int take)
{
    const struct pl_backend *be = o->setup.be;
    int rc = PL_OK;
    for (int i = 0; !rc && i < o->setup.count; i++) {
        const struct pl_outer_tensor *t = &o->setup.tensors[i];
        float *host = pl_alloc(t->n, sizeof *host);
        const uint32_t *index;
        size_t count = turn_of(o, &index, i, o->counter[PL_OUTER_ROUNDS]);
        /* the tensor is copied whole, since entries of a part are anywhere in it */
        rc = host ? be->get(host, x + t->offset, t->n * sizeof *host) : PL_ENOMEM;
        if (!rc && take) pl_partial_take(packed, host, index, count);
        if (!rc && !take) {
            pl_partial_put(host, packed, index, count);
            rc = be->put(x + t->offset, host, t->n * sizeof *host);
        }
        packed += count;
        pl_free(host);
    }
    return rc;
}

/* The turn's entries of all tensors, packed. */
static int message(struct pl_outer *o, struct pl_outer_message *out, float *x, float *g)
{
    size_t n = values_in_turn(o);
    float *packed = pl_alloc(n, sizeof *packed);
    int rc = packed ? pl_outer_reserve(o, n * sizeof *packed) : PL_ENOMEM;
    if (!rc) rc = move(o, x, packed, 1);
    if (!rc) pl_copy_little(o->out, packed, sizeof *packed, n);
    pl_free(packed);
    out->bytes = n * sizeof(float);
    out->weight = 1; /* parameters count without a step, too */
    return rc ? rc : PL_OUTER_RECEIVE;
}

/* x_r[i] = mean over the peers, for these entries; all others stay as they are. */
static int apply(struct pl_outer *o, float *x, float *g, const struct pl_outer_message *in,
                 int count)
{
    const struct pl_backend *be = o->setup.be;
    size_t n = values_in_turn(o), bytes = n * sizeof(float);
    float *mean = be->alloc(bytes), *packed = pl_alloc(n, sizeof *packed);
    double total = 0;
    int rc = mean && packed ? PL_OK : PL_ENOMEM;
    if (!rc) rc = pl_outer_mean(o, mean, &total, in, count, bytes, 0, n);
    /* total = 0: no message was good, and x stays */
    if (!rc && total > 0) rc = be->get(packed, mean, bytes);
    if (!rc && total > 0) rc = move(o, x, packed, 0);
    if (!rc) o->counter[PL_OUTER_ROUNDS]++; /* after a failed exchange, too: all stay in step */
    be->free(mean);
    pl_free(packed);
    return rc ? rc : PL_OUTER_GRADIENT;
}

/* A tensor of n entries sends n / parts float32 a round, so bytes = sum 4 n / parts, every H steps:
 * with a share of 5 % a twentieth of the bytes of averaging all parameters. */
static double bytes_per_step(const struct pl_outer *o)
{
    double bytes = 0;
    for (int i = 0; i < o->setup.count; i++) {
        size_t n = o->setup.tensors[i].n;
        bytes += 4.0 * (double)n / (double)pl_partial_parts(n, o->setup.share);
    }
    return bytes / o->setup.H;
}

const struct pl_outer_algorithm pl_outer_partial = {
    .name = "partial",
    .summary = "local steps, and the mean of a part of the parameters after each H",
    .bytes = "4 n share / H",
    .exchange = PL_OUTER_MEAN,
    .takes_clip = 1,
    .open = open_partial,
    .close = close_partial,
    .before_step = pl_outer_take_step,
    .after_step = pl_outer_send_every_H,
    .message = message,
    .apply = apply,
    .bytes_per_step = bytes_per_step,
};
