/* coding.c - vectors as they travel: in float32, in 8 bits as hivemind's Uniform8Bit, or in E3M0;
 * and their weighted mean. [spec outer-steps 6]
 *
 *   every peer    message = Q(x_r)
 *   reducer       mean = sum_r w_r Q(x_r) / sum_r w_r, in float32
 *   all peers     use Q(mean), as decoded from the response, the reducer too
 *
 * Peers that used different roundings of the same mean would drift apart by them at each step.
 * Where some peers may be Byzantine, CenteredClip takes the mean's place (`clip`). */
#include "outer.h"

#include "../byte_order.h"
#include "../partition.h"
#include "e3m0.h"

#include <math.h>
#include <string.h>

/* The message's buffer. It only grows, so messages of one size are allocated once. */
int pl_outer_reserve(struct pl_outer *o, size_t bytes)
{
    if (bytes <= o->out_capacity) return PL_OK;
    pl_free(o->out);
    o->out = pl_alloc(bytes, 1);
    o->out_capacity = o->out ? bytes : 0;
    return o->out ? PL_OK : PL_ENOMEM;
}

/* FLOAT32 4 n;  UNIFORM8 n + 1024, a table of 256 means;  E3M0 n / 2 + 4 for each block. */
size_t pl_outer_coded_bytes(enum pl_outer_coding coding, size_t n)
{
    switch (coding) {
    case PL_OUTER_UNIFORM8: return n + PL_CODES * sizeof(float);
    case PL_OUTER_E3M0: return pl_e3m0_bytes(n, PL_E3M0_BLOCK);
    case PL_OUTER_FLOAT32: break;
    }
    return n * sizeof(float);
}

/* out = Q(x), n values from the device to the message's bytes. */
static int encode(const struct pl_outer *o, uint8_t *out, const float *x, size_t n)
{
    const struct pl_backend *be = o->setup.be;
    size_t bytes = pl_outer_coded_bytes(o->setup.coding, n);
    float table[PL_CODES], *host = NULL;
    uint8_t *codes = NULL;
    int rc = PL_ENOMEM;
    switch (o->setup.coding) {
    case PL_OUTER_FLOAT32:
        rc = be->get(out, x, bytes);
        pl_little_endian(out, sizeof *x, n);
        return rc;
    case PL_OUTER_UNIFORM8: /* a table of the bins' means, then the codes */
        host = pl_alloc_unset(n, sizeof *host);
        if (host) rc = be->get(host, x, n * sizeof *host);
        if (!rc) rc = be->uniform8_encode(out + sizeof table, table, host, n);
        if (!rc) pl_copy_little(out, table, sizeof *table, PL_CODES);
        pl_free(host);
        return rc;
    case PL_OUTER_E3M0: /* for each block its scale, then a sign and three bits of exponent a
                         * value */
        codes = be->alloc(bytes);
        if (codes) rc = be->e3m0_encode(codes, x, n, PL_E3M0_BLOCK);
        if (!rc) rc = be->get(out, codes, bytes);
        be->free(codes);
        return rc;
    }
    return PL_EUSE;
}

/* x = the values that the bytes stand for, back on the device. decode(encode(x)) is Q(x) on every
 * backend, bit for bit: parameters that are computed from it stay equal. */
static int decode(const struct pl_outer *o, float *x, const uint8_t *in, size_t n)
{
    const struct pl_backend *be = o->setup.be;
    size_t bytes = pl_outer_coded_bytes(o->setup.coding, n);
    float table[PL_CODES], *host = NULL;
    uint8_t *codes = NULL;
    int rc = PL_ENOMEM;
    switch (o->setup.coding) {
    case PL_OUTER_FLOAT32:
        if (!PL_BIG_ENDIAN) return be->put(x, in, bytes);
        host = pl_alloc_unset(n, sizeof *host);
        if (host) pl_copy_little(host, in, sizeof *host, n);
        if (host) rc = be->put(x, host, bytes);
        pl_free(host);
        return rc;
    case PL_OUTER_UNIFORM8:
        host = pl_alloc_unset(n, sizeof *host);
        pl_copy_little(table, in, sizeof *table, PL_CODES);
        if (host) rc = be->table8_decode(host, in + sizeof table, table, n);
        if (!rc) rc = be->put(x, host, n * sizeof *host);
        pl_free(host);
        return rc;
    case PL_OUTER_E3M0:
        codes = be->alloc(bytes);
        if (codes) rc = be->put(codes, in, bytes);
        if (!rc) rc = be->e3m0_decode(x, codes, n, PL_E3M0_BLOCK);
        be->free(codes);
        return rc;
    }
    return PL_EUSE;
}

/* The message is Q(x). */
int pl_outer_encode(struct pl_outer *o, const float *x, size_t n)
{
    int rc = pl_outer_reserve(o, pl_outer_coded_bytes(o->setup.coding, n));
    return rc ? rc : encode(o, o->out, x, n);
}

/* n values of a message from the first'th on, in the form that average_add takes; PL_EPROTO if one
 * of them is not a number. values (n) and device (n) are scratch on the host and on the device, for
 * a coding that average_add does not know. first: a multiple of E3M0's blocks. */
static int read_coded(const struct pl_outer *o, struct pl_coded *x, float *values, float *device,
                      const uint8_t *in, size_t first, size_t n)
{
    double sum = 0;
    int rc = PL_OK;
    if (o->setup.coding == PL_OUTER_UNIFORM8) {
        *x = (struct pl_coded){ .method = PL_COMPRESS_UNIFORM8 };
        pl_copy_little(x->table, in, sizeof *x->table, PL_CODES);
        x->data = in + sizeof x->table + first;
        /* values are entries of the table: if those are finite, all are */
        for (int i = 0; i < PL_CODES; i++) sum += fabs((double)x->table[i]);
        return isfinite(sum) ? PL_OK : PL_EPROTO;
    }
    in += pl_outer_coded_bytes(o->setup.coding, first);
    *x = (struct pl_coded){ .method = PL_COMPRESS_NONE, .data = in };
    if (o->setup.coding == PL_OUTER_FLOAT32) {
        pl_copy_little(values, in, sizeof *values, n);
        if (PL_BIG_ENDIAN) x->data = values;
    } else {
        rc = decode(o, device, in, n);
        if (!rc) rc = o->setup.be->get(values, device, n * sizeof *values);
        x->data = values;
    }
    for (size_t i = 0; !rc && i < n; i++) sum += fabs((double)values[i]);
    return rc ? rc : isfinite(sum) ? PL_OK : PL_EPROTO;
}

#define PART (PL_PART_BYTES / sizeof(float))
_Static_assert(PART % PL_E3M0_BLOCK == 0, "a part begins with a block");

/* mean (n, on the host) = CenteredClip of the messages, in parts as an all-reduce cuts them: each
 * has a radius of its own, and memory for all peers' values of one part is enough. weight (count):
 * 0 leaves a message out. Every backend has the same median, but sums distances in an order of its
 * own: the reference's bits are those of all peers. */
static int clipped_mean(const struct pl_outer *o, float *mean, double *total, float *device,
                        const struct pl_outer_message *in, const double *weight, int count,
                        size_t at, size_t n)
{
    const struct pl_backend *be = o->setup.be;
    const size_t most = n < PART ? n : PART;
    float *x = pl_alloc_unset((size_t)count * most, sizeof *x);
    double *v = pl_alloc(most, sizeof *v), *claim = pl_alloc((size_t)count, sizeof *claim);
    int rc = x && v && claim ? PL_OK : PL_ENOMEM;
    for (size_t first = 0; !rc && first < n; first += PART) {
        const size_t d = n - first < PART ? n - first : PART;
        struct pl_coded coded;
        int rows = 0;
        for (int k = 0; !rc && k < count; k++) {
            float *row = x + (size_t)rows * d;
            if (weight[k] == 0) continue;
            rc = read_coded(o, &coded, row, device, in[k].data + at, first, d);
            if (!rc && coded.method == PL_COMPRESS_UNIFORM8)
                rc = be->table8_decode(row, coded.data, coded.table, d);
            claim[rows++] = weight[k];
        }
        if (!rc && rows)
            rc = pl_clipped_mean(v, claim, x, rows, d, o->setup.clip, ref_centered_clip,
                                 be->median);
        *total = 0;
        for (int k = 0; k < rows; k++) *total += claim[k];
        for (size_t i = 0; i < d; i++) mean[first + i] = (float)v[i];
    }
    pl_free(x);
    pl_free(v);
    pl_free(claim);
    return rc;
}

/* mean = sum_k w_k x_k / sum_k w_k: average_add for each message, then average_delta from x = 0,
 * which divides. average_add and average_delta give the same bits on every backend, so peers with
 * different hardware that have the same messages have the same mean. */
int pl_outer_mean(struct pl_outer *o, float *mean, double *total, const struct pl_outer_message *in,
                  int count, size_t bytes, size_t at, size_t n)
{
    const struct pl_backend *be = o->setup.be;
    float *sum = pl_alloc(3 * n, sizeof *sum), *values = sum + n, *zero = values + n;
    double *weight = pl_alloc((size_t)count, sizeof *weight);
    const struct pl_coded none = { .method = PL_COMPRESS_NONE, .data = zero };
    struct pl_coded x;
    int rc = sum && weight ? PL_OK : PL_ENOMEM;
    *total = 0;
    for (int k = 0; !rc && k < count; k++) {
        /* A message of another length, or with a weight that would spoil the sum, is left out: the
         * mean is then over the other peers. */
        if (!(in[k].weight > 0) || !isfinite(in[k].weight) || in[k].bytes != bytes) continue;
        rc = read_coded(o, &x, values, mean, in[k].data + at, 0, n);
        if (rc == PL_EPROTO) rc = PL_OK; /* a NaN would be everybody's: left out */
        else if (!rc) {
            if (o->setup.clip == 0) rc = be->average_add(sum, &x, (float)in[k].weight, n);
            weight[k] = in[k].weight;
            *total += in[k].weight;
        }
    }
    if (!rc && *total > 0) {
        if (o->setup.clip != 0) rc = clipped_mean(o, values, total, mean, in, weight, count, at, n);
        else {
            /* average_delta computes sum / total - x; with x = 0 that is the mean itself */
            memset(zero, 0, n * sizeof *zero);
            rc = be->average_delta(values, sum, (float)*total, &none, n);
        }
        if (!rc) rc = be->put(mean, values, n * sizeof *values);
        /* Q(mean). The answer travels in few bits too: the reducer itself uses the decoded values,
         * otherwise the peers' parameters would drift apart by its rounding. */
        if (!rc && o->setup.coding != PL_OUTER_FLOAT32 && count > 1) {
            uint8_t *again = pl_alloc(pl_outer_coded_bytes(o->setup.coding, n), 1);
            rc = again ? encode(o, again, mean, n) : PL_ENOMEM;
            if (!rc) rc = decode(o, mean, again, n);
            pl_free(again);
        }
    }
    pl_free(sum);
    pl_free(weight);
    return rc;
}
