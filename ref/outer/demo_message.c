/* demo_message.c - DeMo's message for each tensor, and the mean of the peers' messages.
 * [DeMo: Peng et al. 2024, arXiv 2411.19870] [spec outer-steps 8]
 *
 *   write    chunks of m_r -> cosine transform -> the k largest of each -> indices | values
 *   read     indices | values -> Q[i], the mean over the peers that sent i -> inverse transform
 *
 * A prime side gives chunks of one row or column, down to single entries: then everything is sent.
 * The published code sends 96 bits an entry; here an index takes 12 and a value 32. */
#include "../byte_order.h"
#include "demo_message.h"
#include "sparse.h"

#include <math.h>

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

/* A peer without a gradient sends as many bytes, of zeros: its message has the length that
 * all expect. */
size_t pl_demo_bytes(const struct pl_outer *o)
{
    size_t bytes = 0;
    for (int i = 0; i < o->setup.count; i++) bytes += part_of(o, i).bytes;
    return bytes;
}

/* 2. for one tensor, m (n) on the device. Its transform is taken, the entries to send are set to
 * zero there, and the rest is transformed back: m - q_r at once. */
static int send_part(const struct pl_outer *o, uint8_t *out, float *m, const struct part *p)
{
    const struct pl_backend *be = o->setup.be;
    size_t n = p->count * (size_t)p->m, kept = p->kept;
    float *coef = be->alloc(n * sizeof *coef), *rest = pl_alloc(n, sizeof *rest);
    float *values = pl_alloc(kept, sizeof *values);
    int32_t *at = pl_alloc(kept + 1, sizeof *at);
    int rc = coef && values && at && rest ? PL_OK : PL_ENOMEM;
    /* coef = F_h^T m F_w for each chunk; the transform is orthonormal, so the largest coefficients
     * carry the largest share of |m|^2 */
    if (!rc) rc = pl_chunks_largest(be, at, values, rest, m, &p->chunks, p->k, 1);
    /* 12 bits an index: two indices in three bytes, the last one paired with a 0 */
    if (!rc) rc = pl_pack12(out, at, (kept + 1) / 2 * 2);
    if (!rc) pl_copy_little(out + (kept + 1) / 2 * 3, values, sizeof *values, kept);
    for (size_t i = 0; !rc && i < kept; i++)
        rest[i / (size_t)p->k * (size_t)p->m + (size_t)at[i]] = 0;
    if (!rc) rc = be->put(coef, rest, n * sizeof *rest);
    if (!rc) rc = be->chunk_paste(m, coef, &p->chunks, 1);
    be->free(coef);
    pl_free(at), pl_free(rest), pl_free(values);
    return rc;
}

/* The tensors one after the other. */
int pl_demo_write(struct pl_outer *o, float *m)
{
    uint8_t *out = o->out;
    int rc = PL_OK;
    for (int i = 0; !rc && i < o->setup.count; i++) {
        struct part p = part_of(o, i);
        rc = send_part(o, out, m + o->setup.tensors[i].offset, &p);
        out += p.bytes;
    }
    return rc;
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

int pl_demo_is_readable(const struct pl_outer *o, const struct pl_outer_message *in)
{
    size_t at = 0;
    int good = in->weight > 0 && in->bytes == pl_demo_bytes(o), rc = PL_OK;
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

int pl_demo_mean(const struct pl_outer *o, float *u, const struct pl_outer_message *in, int count)
{
    size_t at = 0;
    int rc = PL_OK;
    for (int i = 0; !rc && i < o->setup.count; i++) {
        struct part p = part_of(o, i);
        rc = receive_part(o, u + o->setup.tensors[i].offset, in, count, at, &p);
        at += p.bytes;
    }
    return rc;
}
