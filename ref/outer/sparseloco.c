/* sparseloco.c - local steps, and of their changes only the largest entries in two bits.
 * [SparseLoCo: Sarfi et al. 2025, arXiv 2508.15706] [spec outer-steps 10]
 *
 *   1. Delta_r = phi - theta_r after H local steps;  e_r = beta e_r + Delta_r
 *   2. q_r = the k largest of each chunk of e_r, quantized;  e_r = e_r - q_r
 *   3. n_r = |q_r|,  f_r = min(1, median(n) / n_r):  nobody is louder than the middle
 *   4. G[i] = mean of f_r q_r[i] over the peers that sent i;  phi = phi - nu G,  theta_r = phi
 *
 * The error feedback e_r is also the momentum: what is not sent waits, decays by beta, and is sent
 * when it has grown. So the outer step is plain SGD. H times fewer bytes by the local steps, and
 * 146 times fewer by the chunks: 64 of 4096 entries, 14 bits each.
 *
 * What the others do not receive is not lost: e_r takes q_r back, and it is sent with what follows.
 *
 * "Mean over those who sent" is the published code's; the paper's text has a mean over all R
 * (mean_over_all). Tensors whose chunks would be single entries (sides are large primes) travel
 * whole, as plain means. */
#include "algorithms.h"
#include "sparse.h"

#include <math.h>
#include <string.h>

#define BINS 4
#define RANGE 6 /* standard deviations that the bins cover */

/* How one tensor is sent. */
struct part {
    struct pl_chunks chunks;
    size_t count; /* of chunks */
    int m, k;     /* entries of a chunk, and sent of it: even, for pairs of 12 bits */
    size_t at, bytes;
};

static struct part part_of(const struct pl_outer *o, int i)
{
    const struct pl_outer_tensor *t = &o->setup.tensors[i];
    struct part p = { .chunks = pl_chunks_of(t->shape, t->axes, (size_t)o->setup.chunk) };
    p.count = pl_chunks_count(&p.chunks);
    p.m = (int)pl_chunk_entries(&p.chunks);
    p.k = o->setup.topk < p.m ? o->setup.topk : p.m;
    p.k = p.k < 2 ? 2 : p.k - p.k % 2;
    p.bytes = p.m > 1 ? pl_sparse_bytes(p.count * (size_t)p.k) : t->n * sizeof(float);
    return p;
}

static size_t all_bytes(const struct pl_outer *o)
{
    size_t bytes = 0;
    for (int i = 0; i < o->setup.count; i++) bytes += part_of(o, i).bytes;
    return bytes;
}

static int open_sparse(struct pl_outer *o, const float *x, struct pl_err *err)
{
    float *phi;
    if (o->setup.chunk < 1 || o->setup.chunk > PL_CHUNK_SIDE_MAX || o->setup.topk < 1)
        return pl_fail(err, PL_EUSE,
                       "%d entries of chunks with sides of %d: at least 1, at most %d",
                       o->setup.topk, o->setup.chunk, PL_CHUNK_SIDE_MAX);
    o->setup.coding = PL_OUTER_FLOAT32; /* of tensors that travel whole */
    phi = pl_outer_add(o, "phi", o->n * sizeof *phi, 0);
    if (!phi || !pl_outer_add(o, "error", o->n * sizeof *phi, 0)) return PL_ENOMEM;
    return o->setup.be->copy(phi, x, o->n);
}

/* 2. for one tensor: e (n) is on the device; out is what is sent. */
static int send_part(const struct pl_outer *o, uint8_t *out, float *e, const struct part *p)
{
    const struct pl_backend *be = o->setup.be;
    size_t n = p->count * (size_t)p->m, kept = p->count * (size_t)p->k;
    float *cut = be->alloc(n * sizeof *cut), *values = be->alloc(kept * sizeof *values);
    int32_t *index = be->alloc(kept * sizeof *index), *at = pl_alloc(kept, sizeof *at);
    float *v = pl_alloc(kept, sizeof *v), *rest = pl_alloc(n, sizeof *rest), level[BINS];
    uint8_t *codes = pl_alloc(kept, 1);
    struct pl_sparse_levels levels;
    int rc = cut && values && index && at && v && rest && codes ? PL_OK : PL_ENOMEM;
    if (!rc) rc = be->chunk_cut(cut, e, &p->chunks, 0);
    if (!rc) rc = be->chunk_topk(index, values, cut, p->count, p->m, p->k);
    if (!rc) rc = be->get(at, index, kept * sizeof *at);
    if (!rc) rc = be->get(v, values, kept * sizeof *v);
    if (!rc) rc = be->get(rest, cut, n * sizeof *rest);
    if (!rc) rc = pl_sparse_quantize(codes, &levels, v, kept, BINS, RANGE);
    for (int c = 0; !rc && c < BINS; c++) level[c] = pl_sparse_level(&levels, c);
    if (!rc) rc = pl_sparse_write(out, level, at, codes, kept);
    /* What was sent leaves e: the levels, not the values. The quantization error stays. */
    for (size_t i = 0; !rc && i < kept; i++)
        rest[i / (size_t)p->k * (size_t)p->m + (size_t)at[i]] -= level[codes[i]];
    if (!rc) rc = be->put(cut, rest, n * sizeof *rest);
    if (!rc) rc = be->chunk_paste(e, cut, &p->chunks, 0);
    be->free(cut), be->free(values), be->free(index);
    pl_free(at), pl_free(v), pl_free(rest), pl_free(codes);
    return rc;
}

/* 1., 2. A peer with a NaN in theta_r, or without steps, sends nothing, and its e_r is zero. Steps
 * taken before a failed exchange count: theta_r or e_r still holds them. */
static int message(struct pl_outer *o, struct pl_outer_message *out, float *x, float *g)
{
    const struct pl_backend *be = o->setup.be;
    float *e = pl_outer_get(o, "error");
    size_t at = 0, all = all_bytes(o);
    double squares;
    int rc = pl_outer_reserve(o, all);
    (void)g;
    /* e = beta e + phi - theta */
    if (!rc) rc = be->scale(e, (float)o->setup.beta, o->n);
    if (!rc) rc = be->axpy(e, 1, pl_outer_get(o, "phi"), o->n);
    if (!rc) rc = be->axpy(e, -1, x, o->n);
    if (!rc) rc = be->sumsq(&squares, e, o->n);
    if (rc) return rc;
    out->bytes = all;
    out->weight = pl_outer_has_change(o);
    if (!isfinite(squares)) out->weight = 0;
    if (out->weight == 0 && (rc = be->fill(e, 0, o->n))) return rc;
    for (int i = 0; !rc && i < o->setup.count; i++) {
        const struct pl_outer_tensor *t = &o->setup.tensors[i];
        struct part p = part_of(o, i);
        if (p.m > 1) rc = send_part(o, o->out + at, e + t->offset, &p);
        else rc = be->get(o->out + at, e + t->offset, p.bytes);
        if (!rc && p.m == 1) rc = be->fill(e + t->offset, 0, t->n);
        at += p.bytes;
    }
    return rc ? rc : PL_OUTER_RECEIVE;
}

/* 3., 4. for one tensor: mean (n) on the host, in the chunks' order, of what the peers sent */
static int receive_part(float *mean, const struct pl_outer_message *in, int count, size_t at,
                        const struct part *p, int over)
{
    size_t n = p->count * (size_t)p->m, kept = p->count * (size_t)p->k;
    double *sum = pl_alloc(n, sizeof *sum), *norm = pl_alloc((size_t)count, sizeof *norm);
    double *factor = pl_alloc((size_t)count, sizeof *factor);
    uint16_t *senders = pl_alloc(n, sizeof *senders);
    int32_t *index = pl_alloc(kept, sizeof *index);
    float *value = pl_alloc(kept, sizeof *value);
    int rc = sum && norm && factor && senders && index && value ? PL_OK : PL_ENOMEM;
    for (int r = 0; !rc && r < count; r++) { /* n_r = |q_r| */
        rc = pl_sparse_read(index, value, in[r].data + at, kept, p->m, p->k);
        for (size_t i = 0; !rc && i < kept; i++) norm[r] += (double)value[i] * value[i];
        norm[r] = sqrt(norm[r]);
    }
    if (!rc) rc = pl_median_factors(factor, norm, count);
    for (int r = 0; !rc && r < count; r++) {
        rc = pl_sparse_read(index, value, in[r].data + at, kept, p->m, p->k);
        if (!rc) pl_sparse_add(sum, senders, index, value, factor[r], p->count, p->m, p->k);
    }
    if (!rc) pl_sparse_mean(mean, sum, senders, n, over);
    pl_free(sum), pl_free(norm), pl_free(factor), pl_free(senders), pl_free(index), pl_free(value);
    return rc;
}

/* One peer's broken message must not stop the others: it is left out, by everybody alike. */
static int is_readable(const struct pl_outer *o, const struct pl_outer_message *in)
{
    size_t at = 0;
    int good = in->bytes == all_bytes(o);
    for (int i = 0; good && i < o->setup.count; i++) {
        struct part p = part_of(o, i);
        size_t kept = p.count * (size_t)p.k;
        int32_t *index = pl_alloc(kept, sizeof *index);
        float *value = pl_alloc(kept, sizeof *value);
        good = index && value &&
               (p.m == 1 || !pl_sparse_read(index, value, in->data + at, kept, p.m, p.k));
        at += p.bytes;
        pl_free(index);
        pl_free(value);
    }
    return good;
}

/* All of G before anything of phi: an error leaves everything as it was. */
static int mean_of_all(struct pl_outer *o, float *G, const struct pl_outer_message *in, int count)
{
    const struct pl_backend *be = o->setup.be;
    int rc = PL_OK, over = o->setup.mean_over_all ? count : 0;
    size_t at = 0;
    for (int i = 0; !rc && i < o->setup.count; i++) {
        const struct pl_outer_tensor *t = &o->setup.tensors[i];
        struct part p = part_of(o, i);
        float *mean = pl_alloc(t->n, sizeof *mean), *cut = be->alloc(t->n * sizeof *cut);
        rc = mean && cut ? PL_OK : PL_ENOMEM;
        if (p.m == 1) {
            double total;
            if (!rc) rc = pl_outer_mean(o, G + t->offset, &total, in, count, in[0].bytes, at, t->n);
        } else {
            if (!rc) rc = receive_part(mean, in, count, at, &p, over);
            if (!rc) rc = be->put(cut, mean, t->n * sizeof *mean);
            if (!rc) rc = be->chunk_paste(G + t->offset, cut, &p.chunks, 0);
        }
        at += p.bytes;
        pl_free(mean);
        be->free(cut);
    }
    return rc;
}

/* The own message was not received: e = e + q, q being the mean of this message alone. If the whole
 * exchange has failed, phi is the same, and theta_r goes on: e = e - Delta_r, which the next message
 * adds again. The last message is o->out; after a load there is none. */
static int take_back(struct pl_outer *o, const float *x, float *q, int has_failed)
{
    const struct pl_backend *be = o->setup.be;
    const struct pl_outer_message own = { .data = o->out, .bytes = all_bytes(o), .weight = 1 };
    float *e = pl_outer_get(o, "error");
    int rc = PL_OK;
    if (o->out) rc = mean_of_all(o, q, &own, 1);
    if (!rc && o->out) rc = be->axpy(e, 1, q, o->n);
    if (!rc && has_failed) rc = be->axpy(e, -1, pl_outer_get(o, "phi"), o->n);
    if (!rc && has_failed) rc = be->axpy(e, 1, x, o->n);
    return rc;
}

static int apply(struct pl_outer *o, float *x, float *g, const struct pl_outer_message *in,
                 int count)
{
    const struct pl_backend *be = o->setup.be;
    float *phi = pl_outer_get(o, "phi"), *G;
    struct pl_outer_message *kept = pl_alloc((size_t)count, sizeof *kept);
    double squares = 0;
    int rc, n = 0, is_received = 0, loses_nothing;
    (void)g;
    G = be->alloc(o->n * sizeof *G);
    rc = kept && G ? be->sumsq(&squares, x, o->n) : PL_ENOMEM;
    for (int r = 0; !rc && r < count; r++)
        if (in[r].weight > 0 && is_readable(o, &in[r])) {
            is_received |= in[r].rank == o->setup.rank;
            kept[n++] = in[r];
        }
    /* Without a change e is zero, and with a NaN the change is dropped: nothing to take back. */
    loses_nothing = is_received || !isfinite(squares) || !pl_outer_has_change(o);
    if (!rc && !loses_nothing) rc = take_back(o, x, G, !n);
    if (!rc && n) rc = mean_of_all(o, G, kept, n);
    if (!rc && n) rc = be->axpy(phi, (float)-o->setup.nu, G, o->n); /* phi = phi - nu G */
    if (!rc && (n || loses_nothing)) rc = be->copy(x, phi, o->n);
    if (!rc && loses_nothing) pl_outer_restart(o);
    o->counter[PL_OUTER_ROUNDS] += !rc && n;
    pl_free(kept);
    be->free(G);
    return rc ? rc : PL_OUTER_GRADIENT;
}

static double bytes_per_step(const struct pl_outer *o) { return (double)all_bytes(o) / o->setup.H; }

const struct pl_outer_algorithm pl_outer_sparseloco = {
    .name = "sparseloco",
    .summary = "H local steps; of the change the largest entries in 14 bits",
    .bytes = "(14 / 8 of the entries sent, and 16 a tensor) / H",
    .exchange = PL_OUTER_GATHER,
    .open = open_sparse,
    .before_step = pl_outer_take_step,
    .after_step = pl_outer_send_every_H,
    .message = message,
    .apply = apply,
    .bytes_per_step = bytes_per_step,
};
