/* digest.c - the sketch of digest.h, its record, and the majority of a group.
 *
 *   limit    = max(8 * median step, |x| / 40)                      medians over the records
 *   support  = #{k: |x_k - x_i| <= limit}                          of record i
 *   centre   = the record of most support; it needs more than half of the group
 *   diverged = every record with |x - x_centre| > 2 limit + alone
 *
 * Whatever a minority claims moves neither a median nor the centre out of what honest peers claim.
 * Peers without a digest, as hivemind's, count against a majority, so that a few false digests do
 * not become one. */
#include "digest.h"
#include "ref/byte_order.h"
#include "ref/small.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* --- the sketch ------------------------------------------------------------------------------- */

/* 32 signs for each block of 32 values: splitmix64 of the block's place. */
static uint32_t signs_of(uint64_t place)
{
    uint64_t x = place * 0x9e3779b97f4a7c15u;
    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
    x = (x ^ x >> 27) * 0x94d049bb133111ebu;
    return (uint32_t)(x >> 32);
}

void digest_take(struct digest *d, float *const *x, const size_t *elements, size_t tensors)
{
    static const float sign[] = { 1, -1 };
    double sum[DIGEST_SUMS] = { 0 }; /* float32 would add a rounding error of its own */
    uint64_t block = 0;
    /* Bit j of a block's signs is sigma of its value j. Signs of different values are independent,
     * so in E s_j^2 all products x_i x_k with i != k cancel and sum_i x_i^2 remains. Blocks are
     * counted over all tensors: every peer gives a value the same sign. */
    for (size_t t = 0; t < tensors; t++)
        for (size_t i = 0; i < elements[t]; i += DIGEST_SUMS) {
            const size_t n = elements[t] - i < DIGEST_SUMS ? elements[t] - i : DIGEST_SUMS;
            const uint32_t signs = signs_of(++block);
            for (size_t j = 0; j < n; j++) sum[j] += sign[signs >> j & 1] * x[t][i + j];
        }
    for (int j = 0; j < DIGEST_SUMS; j++) d->sum[j] = (float)sum[j];
}

/* The sketch is linear: the difference of two sketches is the sketch of x - y, whose norm it
 * shows. */
double digest_distance(const struct digest *x, const struct digest *y)
{
    double sum = 0, d;
    for (int j = 0; j < DIGEST_SUMS; j++) {
        d = (double)x->sum[j] - (y ? (double)y->sum[j] : 0);
        sum += d * d;
    }
    return isfinite(sum) ? sqrt(sum) : NAN;
}

/* --- the record ------------------------------------------------------------------------------- */

static const struct schema schema = { .suffix = "_digest",
                                      .more_allowed = 1,
                                      .count = 4,
                                      .fields = { { "peer_id", SCHEMA_BYTES },
                                                  { "epoch", SCHEMA_COUNT },
                                                  { "step", SCHEMA_RATE },
                                                  { "sums", SCHEMA_BYTES } } };

/* Each round has a new group ID, so a key holds the digests of one step alone. */
int digest_key(struct dht_id *key, const char *run, const uint8_t group[DHT_ID_BYTES])
{
    char text[256 + 2 * DHT_ID_BYTES];
    int n = snprintf(text, sizeof text, "%.200s%s.", run, schema.suffix);
    pl_hex(text + n, group, DHT_ID_BYTES);
    return dht_id_of_text(key, text);
}

int digest_write(struct bytes *out, const struct digest_record *r)
{
    float sums[DIGEST_SUMS];
    pl_copy_little(sums, r->x.sum, sizeof *sums, DIGEST_SUMS);
    return schema_write(out, &schema, r->peer.bytes, (size_t)r->peer.length, r->epoch, r->step,
                        sums, sizeof sums);
}

static int read_fields(struct digest_record *r, const struct mp_value *v, struct pl_err *err)
{
    /* The schema has checked the types; values are a stranger's. */
    const struct mp_value *peer = mp_get(v, "peer_id"), *sums = mp_get(v, "sums");
    r->epoch = mp_count(mp_get(v, "epoch"));
    r->step = mp_get(v, "step")->real;
    if (peer_id_parse(&r->peer, peer->bytes, peer->n) || r->epoch < 0 || !isfinite(r->step) ||
        sums->n != sizeof r->x.sum)
        return pl_fail(err, PL_EPROTO, "_digest: a peer ID, epoch, step or sums of a wrong form");
    pl_copy_little(r->x.sum, sums->bytes, sizeof *r->x.sum, DIGEST_SUMS);
    return PL_OK;
}

int digest_read(struct digest_record *r, const uint8_t *data, size_t n, struct pl_err *err)
{
    struct mp_value *v;
    int rc = schema_read(&v, &schema, data, n, err);
    memset(r, 0, sizeof *r);
    if (!rc) rc = read_fields(r, v, err);
    mp_free(v);
    return rc;
}

/* --- the majority ----------------------------------------------------------------------------- */

static int ascending(const void *a_, const void *b_)
{
    const double *a = a_, *b = b_;
    return (*a > *b) - (*a < *b);
}

/* Of an even number the lower one in the middle: false numbers that are too large have to be more
 * than half to move it beyond the honest ones. */
static double median(double *x, size_t n)
{
    qsort(x, n, sizeof *x, ascending);
    return x[(n - 1) / 2];
}

/* How far apart healthy peers may be: some steps, or what the wire rounds where steps are tiny.
 * Norms that are not finite count as the largest. */
static double limit_of(const struct digest_record *records, size_t count, double *space)
{
    double step, norm;
    for (size_t i = 0; i < count; i++) space[i] = records[i].step;
    step = median(space, count);
    for (size_t i = 0; i < count; i++) {
        space[i] = digest_distance(&records[i].x, NULL);
        if (isnan(space[i])) space[i] = INFINITY;
    }
    norm = median(space, count);
    return fmax(DIGEST_STEPS * step, DIGEST_SHARE * norm);
}

int digest_judge(struct digest_record *records, size_t count, size_t peers)
{
    double *space = malloc((count + 1) * sizeof *space), limit;
    size_t centre = 0, most = 0;
    if (!space) return PL_ENOMEM;
    limit = count ? limit_of(records, count, space) : 0;
    free(space);
    for (size_t i = 0; i < count; i++) {
        size_t support = 0;
        for (size_t k = 0; k < count; k++)
            support += digest_distance(&records[i].x, &records[k].x) <= limit;
        if (support > most) most = support, centre = i;
    }
    /* Of the whole group, not of the records: peers without a digest may agree with anything. */
    if (2 * most <= peers) return 0;
    /* Twice the limit, by the triangle inequality: a peer within the limit of one of the centre's
     * supporters is within two of the centre. */
    for (size_t i = 0; i < count; i++) /* true for NaN, too */
        records[i].has_diverged = !(digest_distance(&records[i].x, &records[centre].x) <=
                                    2 * limit + records[i].alone);
    return 1;
}
