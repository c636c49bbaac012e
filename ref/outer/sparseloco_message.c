/* sparseloco_message.c - SparseLoCo's message for each tensor, and the mean of the peers' messages.
 * [SparseLoCo: Sarfi et al. 2025, arXiv 2508.15706] [spec outer-steps 10]
 *
 *   write    chunks of e -> the k largest of each -> two bits -> levels | indices | codes
 *   read     levels | indices | codes -> f_r q_r -> G[i], over the peers that sent i */
#include "../byte_order.h"
#include "sparseloco_message.h"

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

/* m = h w entries a chunk. k = min(topk, m), made even because indices travel in pairs. */
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

/* sum over the tensors: 14 bits for each of k entries a chunk, and 16 bytes; or 4 n as a whole */
size_t pl_sparseloco_bytes(const struct pl_outer *o)
{
    size_t bytes = 0;
    for (int i = 0; i < o->setup.count; i++) bytes += part_of(o, i).bytes;
    return bytes;
}

/* 2. for one tensor: chunks of e, the k largest of each (DeMo's cosine transform is not used),
 * their codes, and e = e - q at what was sent. e (n) is on the device; out is what is sent. */
static int send_part(const struct pl_outer *o, uint8_t *out, float *e, const struct part *p)
{
    const struct pl_backend *be = o->setup.be;
    size_t n = p->count * (size_t)p->m, kept = p->count * (size_t)p->k;
    float *cut = be->alloc(n * sizeof *cut), level[BINS];
    float *v = pl_alloc(kept, sizeof *v), *rest = pl_alloc(n, sizeof *rest);
    int32_t *at = pl_alloc(kept, sizeof *at);
    uint8_t *codes = pl_alloc(kept, 1);
    struct pl_sparse_levels levels;
    int rc = cut && at && v && rest && codes ? PL_OK : PL_ENOMEM;
    if (!rc) rc = pl_chunks_largest(be, at, v, rest, e, &p->chunks, p->k, 0);
    /* two bits a value: the bin of v among 4 equal ones over +-3 deviations, and the bin's mean is
     * its level */
    if (!rc) rc = pl_sparse_quantize(codes, &levels, v, kept, BINS, RANGE);
    for (int c = 0; !rc && c < BINS; c++) level[c] = pl_sparse_level(&levels, c);
    if (!rc) rc = pl_sparse_write(out, level, at, codes, kept);
    /* Subtracts the decoded levels from e, not the values, so that the quantization error stays. */
    for (size_t i = 0; !rc && i < kept; i++)
        rest[i / (size_t)p->k * (size_t)p->m + (size_t)at[i]] -= level[codes[i]];
    if (!rc) rc = be->put(cut, rest, n * sizeof *rest);
    if (!rc) rc = be->chunk_paste(e, cut, &p->chunks, 0);
    be->free(cut);
    pl_free(at), pl_free(v), pl_free(rest), pl_free(codes);
    return rc;
}

/* 2. for all tensors: writes the message to o->out and subtracts from e what it says. */
int pl_sparseloco_write(struct pl_outer *o, float *e)
{
    const struct pl_backend *be = o->setup.be;
    size_t at = 0;
    int rc = PL_OK;
    for (int i = 0; !rc && i < o->setup.count; i++) {
        const struct pl_outer_tensor *t = &o->setup.tensors[i];
        struct part p = part_of(o, i);
        /* chunks of one entry: nothing to select, so the whole tensor is sent and no error
         * remains */
        if (p.m > 1) rc = send_part(o, o->out + at, e + t->offset, &p);
        else rc = be->get(o->out + at, e + t->offset, p.bytes);
        if (!rc && p.m == 1) pl_little_endian(o->out + at, sizeof *e, t->n);
        if (!rc && p.m == 1) rc = be->fill(e + t->offset, 0, t->n);
        at += p.bytes;
    }
    return rc;
}

/* 3., 4. for one tensor, in two passes over the messages, as the median needs all norms first:
 *
 *   n_r = |q_r|,  f_r = min(1, median(n) / n_r)
 *   G[i] = sum_r f_r q_r[i] / (number of r that sent i), or / R if `over`
 *
 * mean (n) on the host, in the chunks' order, of what the peers sent */
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
    /* f_r: a peer whose message is longer than the median is scaled down to it, so one peer's large
     * values, by accident or on purpose, weigh no more than a typical peer's */
    if (!rc) rc = pl_median_factors(factor, norm, count);
    for (int r = 0; !rc && r < count; r++) {
        rc = pl_sparse_read(index, value, in[r].data + at, kept, p->m, p->k);
        if (!rc) pl_sparse_add(sum, senders, index, value, factor[r], p->count, p->m, p->k);
    }
    if (!rc) pl_sparse_mean(mean, sum, senders, n, over);
    pl_free(sum), pl_free(norm), pl_free(factor), pl_free(senders), pl_free(index), pl_free(value);
    return rc;
}

/* Length, indices and levels of all tensors, before anything is summed. */
int pl_sparseloco_is_readable(const struct pl_outer *o, const struct pl_outer_message *in)
{
    size_t at = 0;
    int good = in->bytes == pl_sparseloco_bytes(o), rc = PL_OK;
    for (int i = 0; good && !rc && i < o->setup.count; i++) {
        struct part p = part_of(o, i);
        size_t kept = p.count * (size_t)p.k;
        int32_t *index = pl_alloc(kept, sizeof *index);
        float *value = pl_alloc(kept, sizeof *value);
        rc = index && value ? PL_OK : PL_ENOMEM;
        if (!rc && p.m > 1) rc = pl_sparse_read(index, value, in->data + at, kept, p.m, p.k);
        at += p.bytes;
        pl_free(index);
        pl_free(value);
    }
    return rc == PL_ENOMEM ? rc : good && !rc;
}

/* All of G before anything of phi: an error leaves everything as it was. */
int pl_sparseloco_mean(struct pl_outer *o, float *G, const struct pl_outer_message *in, int count)
{
    const struct pl_backend *be = o->setup.be;
    int rc = PL_OK, over = o->setup.mean_over_all ? count : 0;
    size_t at = 0;
    for (int i = 0; !rc && i < o->setup.count; i++) {
        const struct pl_outer_tensor *t = &o->setup.tensors[i];
        struct part p = part_of(o, i);
        float *mean = pl_alloc(t->n, sizeof *mean), *cut = be->alloc(t->n * sizeof *cut);
        rc = mean && cut ? PL_OK : PL_ENOMEM;
        if (p.m == 1) { /* as a whole: G = mean of e_r */
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
