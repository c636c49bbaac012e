/* demo.c - DeMo, decoupled momentum: only the fast part of each peer's momentum is exchanged, the
 * slow part stays and grows. [DeMo: Peng et al. 2024, arXiv 2411.19870] [spec outer-steps 8]
 *
 *   1. x = (1 - eta lambda) x;  m_r = beta m_r + eta g_r
 *   2. q_r = the k largest entries of the cosine transform of each chunk of m_r;  m_r = m_r - q_r
 *   3. Q[i] = mean of q_r[i] over the peers that sent i
 *   4. x = x - eta sign(inverse transform of Q)
 *
 * Every step is exchanged, but of 4096 entries 32: what a few coefficients describe is what the
 * gradients of neighbouring weights have in common. m_r is different on each peer, and is never
 * synchronized. The sign makes eta the size of every entry's step, as in Adam; eta is in m too.
 *
 * A prime side gives chunks of one row or column, down to single entries: then everything is sent.
 * The published code sends 96 bits an entry; here an index takes 12 and a value 32. */
#include "../byte_order.h"
#include "algorithms.h"
#include "sparse.h"

#include <math.h>
#include <string.h>

struct part {
    struct pl_chunks chunks;
    size_t count, kept; /* chunks; entries sent */
    int m, k;
    size_t bytes; /* indices, the last one paired with a 0 if their number is odd; then values */
};

/* How tensor i is sent: its sides are cut into chunks of m = h w entries, of which k travel. Both
 * follow from the shape and the settings, so nothing of this is in the message. */
static struct part part_of(const struct pl_outer *o, int i)
{
    const struct pl_outer_tensor *t = &o->setup.tensors[i];
    struct part p = { .chunks = pl_chunks_of(t->shape, t->axes, (size_t)o->setup.chunk) };
    p.count = pl_chunks_count(&p.chunks);
    p.m = (int)pl_chunk_entries(&p.chunks);
    p.k = o->setup.topk < p.m ? o->setup.topk : p.m;
    p.kept = p.count * (size_t)p.k;
    p.bytes = (p.kept + 1) / 2 * 3 + p.kept * sizeof(float);
    return p;
}

static size_t all_bytes(const struct pl_outer *o)
{
    size_t bytes = 0;
    for (int i = 0; i < o->setup.count; i++) bytes += part_of(o, i).bytes;
    return bytes;
}

/* m_r = 0. The momentum is all that a peer remembers: x is equal on all, so there is no phi. */
static int open_demo(struct pl_outer *o, const float *x, struct pl_err *err)
{
    int rc = pl_outer_check_chunks(o, err);
    if (!rc && !pl_outer_add_own(o, "momentum", o->n * sizeof(float), 0)) rc = PL_ENOMEM;
    return rc;
}

/* 1. A gradient with a NaN leaves the momentum as it is. */
static int before_step(struct pl_outer *o, float *x, float *g, double lr)
{
    const struct pl_backend *be = o->setup.be;
    float *m = pl_outer_get(o, "momentum");
    int rc = PL_OK;
    /* x = (1 - eta lambda) x, apart from the gradient as in AdamW */
    if (o->setup.weight_decay != 0)
        rc = be->scale(x, (float)(1 - lr * o->setup.weight_decay), o->n);
    /* m = beta m + eta g */
    if (!rc && !o->skipped) rc = be->scale(m, (float)o->setup.beta, o->n);
    if (!rc && !o->skipped) rc = be->axpy(m, (float)lr, g, o->n);
    return rc ? rc : PL_OUTER_SEND;
}

/* 2. for one tensor, m (n) on the device. Its transform is taken, the entries to send are set to
 * zero there, and the rest is transformed back: m - q_r at once. */
static int send_part(const struct pl_outer *o, uint8_t *out, float *m, const struct part *p)
{
    const struct pl_backend *be = o->setup.be;
    size_t n = p->count * (size_t)p->m, kept = p->kept;
    float *coef = be->alloc(n * sizeof *coef), *values = be->alloc(kept * sizeof *values);
    int32_t *index = be->alloc(kept * sizeof *index), *at = pl_alloc(kept + 1, sizeof *at);
    float *rest = pl_alloc(n, sizeof *rest);
    int rc = coef && values && index && at && rest ? PL_OK : PL_ENOMEM;
    /* coef = F_h^T m F_w for each chunk; the transform is orthonormal, so the largest coefficients
     * carry the largest share of |m|^2 */
    if (!rc) rc = be->chunk_cut(coef, m, &p->chunks, 1);
    if (!rc) rc = be->chunk_topk(index, values, coef, p->count, p->m, p->k);
    if (!rc) rc = be->get(at, index, kept * sizeof *at);
    /* 12 bits an index: two indices in three bytes, the last one paired with a 0 */
    if (!rc) rc = pl_pack12(out, at, (kept + 1) / 2 * 2);
    if (!rc) rc = be->get(out + (kept + 1) / 2 * 3, values, kept * sizeof *values);
    if (!rc) pl_little_endian(out + (kept + 1) / 2 * 3, sizeof *values, kept);
    if (!rc) rc = be->get(rest, coef, n * sizeof *rest);
    for (size_t i = 0; !rc && i < kept; i++)
        rest[i / (size_t)p->k * (size_t)p->m + (size_t)at[i]] = 0;
    if (!rc) rc = be->put(coef, rest, n * sizeof *rest);
    if (!rc) rc = be->chunk_paste(m, coef, &p->chunks, 1);
    be->free(coef), be->free(values), be->free(index);
    pl_free(at), pl_free(rest);
    return rc;
}

/* 2. The tensors one after the other. A gradient with a NaN leaves m_r alone: zeros travel. */
static int message(struct pl_outer *o, struct pl_outer_message *out, float *x, float *g)
{
    float *m = pl_outer_get(o, "momentum");
    size_t at = 0, all = all_bytes(o);
    int rc = pl_outer_reserve(o, all);
    if (!rc && out->weight == 0) memset(o->out, 0, all);
    for (int i = 0; !rc && out->weight > 0 && i < o->setup.count; i++) {
        struct part p = part_of(o, i);
        rc = send_part(o, o->out + at, m + o->setup.tensors[i].offset, &p);
        at += p.bytes;
    }
    out->bytes = all;
    return rc ? rc : PL_OUTER_RECEIVE;
}

/* The reverse of send_part's last steps. PL_EPROTO for an index beyond the chunk, one twice, or a
 * value that is not a number. */
static int read_part(int32_t *index, float *value, const uint8_t *in, const struct part *p)
{
    double sum = 0;
    pl_unpack12(index, in, (p->kept + 1) / 2 * 2);
    pl_copy_little(value, in + (p->kept + 1) / 2 * 3, sizeof *value, p->kept);
    for (size_t i = 0; i < p->kept; i++) {
        if (index[i] >= p->m || (i % (size_t)p->k && index[i] <= index[i - 1])) return PL_EPROTO;
        sum += fabs((double)value[i]);
    }
    return isfinite(sum) ? PL_OK : PL_EPROTO;
}

/* One peer's broken message must not stop the others: all peers alike leave it out. 1, 0, or
 * PL_ENOMEM: it could not be seen. */
static int is_readable(const struct pl_outer *o, const struct pl_outer_message *in)
{
    size_t at = 0;
    int good = in->weight > 0 && in->bytes == all_bytes(o), rc = PL_OK;
    for (int i = 0; good && !rc && i < o->setup.count; i++) {
        struct part p = part_of(o, i);
        int32_t *index = pl_alloc(p.kept + 1, sizeof *index);
        float *value = pl_alloc(p.kept, sizeof *value);
        rc = index && value ? read_part(index, value, in->data + at, &p) : PL_ENOMEM;
        at += p.bytes;
        pl_free(index);
        pl_free(value);
    }
    return rc == PL_ENOMEM ? rc : good && !rc;
}

/* 3. for one tensor: Q's inverse transform in u (n), on the device. Peers in the order of ranks. */
static int receive_part(const struct pl_outer *o, float *u, const struct pl_outer_message *in,
                        int count, size_t at, const struct part *p)
{
    const struct pl_backend *be = o->setup.be;
    size_t n = p->count * (size_t)p->m;
    double *sum = pl_alloc(n, sizeof *sum);
    uint16_t *senders = pl_alloc(n, sizeof *senders);
    int32_t *index = pl_alloc(p->kept + 1, sizeof *index);
    float *value = pl_alloc(p->kept, sizeof *value), *Q = pl_alloc(n, sizeof *Q);
    float *coef = be->alloc(n * sizeof *coef);
    int rc = sum && senders && index && value && Q && coef ? PL_OK : PL_ENOMEM;
    /* Q[i] = sum_r q_r[i] / (number of r that sent i), then u = F_h Q F_w^T for each chunk */
    for (int r = 0; !rc && r < count; r++) {
        rc = read_part(index, value, in[r].data + at, p);
        if (!rc) pl_sparse_add(sum, senders, index, value, 1, p->count, p->m, p->k);
    }
    if (!rc) pl_sparse_mean(Q, sum, senders, n, 0);
    if (!rc) rc = be->put(coef, Q, n * sizeof *Q);
    if (!rc) rc = be->chunk_paste(u, coef, &p->chunks, 1);
    be->free(coef);
    pl_free(sum), pl_free(senders), pl_free(index), pl_free(value), pl_free(Q);
    return rc;
}

/* 3., 4. A failed exchange changes nothing; this peer's message is lost, like the gradient of one
 * step. */
static int apply(struct pl_outer *o, float *x, float *g, const struct pl_outer_message *in,
                 int count)
{
    const struct pl_backend *be = o->setup.be;
    struct pl_outer_message *kept = pl_alloc((size_t)count, sizeof *kept);
    size_t at = 0;
    int n = 0, rc = kept ? be->fill(g, 0, o->n) : PL_ENOMEM;
    for (int r = 0; !rc && r < count; r++) {
        int readable = is_readable(o, &in[r]);
        if (readable > 0) kept[n++] = in[r];
        rc = readable < 0 ? readable : PL_OK;
    }
    for (int i = 0; !rc && i < o->setup.count; i++) {
        struct part p = part_of(o, i);
        rc = receive_part(o, g + o->setup.tensors[i].offset, kept, n, at, &p);
        at += p.bytes;
    }
    pl_free(kept);
    /* x = x - eta sign(u), with sign(0) = 0: entries that no peer sent do not change */
    if (!rc) rc = be->sign_step(x, g, o->n, (float)o->lr);
    o->counter[PL_OUTER_ROUNDS]++;
    return rc ? rc : PL_OUTER_GRADIENT;
}

/* All tensors in each step. */
static double bytes_per_step(const struct pl_outer *o) { return (double)all_bytes(o); }

const struct pl_outer_algorithm pl_outer_demo = {
    .name = "demo",
    .summary = "the largest cosine coefficients of each peer's momentum, each step",
    .bytes = "(12 + 32) / 8 of the coefficients sent",
    .exchange = PL_OUTER_GATHER,
    .sends_gradients = 1,
    .open = open_demo,
    .before_step = before_step,
    .after_step = pl_outer_next_gradient,
    .message = message,
    .apply = apply,
    .bytes_per_step = bytes_per_step,
};
