/* average.c - butterfly all-reduce among the members of one group, in one process.
 * [TTT 2.1, communication; 3.3] [spec hivemind-protocol 5]
 *
 * The tensors are cut into parts. Each part has one reducer; members with more bandwidth reduce
 * more parts. For each part:
 *
 *   1. scatter   each sender k sends Q(x_k), its values compressed, to the part's reducer
 *   2. reduce    mean = sum_k w_k Q(x_k) / sum_k w_k
 *   3. gather    the reducer answers Q(mean - Q(x_k)): a difference, not the mean
 *   4. apply     x_k += Q(mean - Q(x_k))
 *
 * A member sends about two copies of its tensors and receives about two, however many members there
 * are; a parameter server would carry two copies per member. Why a difference: it is small, so its
 * quantization error is small too, and if a difference is lost, x_k keeps its value.
 *
 * The reducer's own values never travel, so for them Q is the identity. */
#include "average.h"

#include "backend.h"

#include <math.h>

/* Buffers for the longest part. */
struct buffers {
    float *sent;      /* (members, length) Q(x_k) */
    float *mean;      /* (length) the weighted sum, then the mean */
    float *delta;     /* (length) */
    uint8_t *message; /* one encoded part */
};

/* y (n) = Q(x): encodes x and decodes it again, as the other side of the wire does. y may be x. */
static int round_trip(float *y, const float *x, size_t n, enum pl_compression method,
                      const struct pl_backend *be, uint8_t *message, struct pl_err *err)
{
    struct pl_wire_type type = { .dtype = PL_F32, .dims = 1, .size = { (int64_t)n } };
    size_t bytes;
    int rc = pl_wire_bytes(&bytes, method, &type, err);
    if (!rc) rc = pl_wire_encode(message, be, method, &type, x, err);
    return rc ? rc : pl_wire_decode(y, be, method, &type, message, bytes, err);
}

/* The four steps of one part, for all members. The sum is kept in float32, like the networked
 * reducer's: each addition rounds. The weights are added in double, as hivemind does in Python, and
 * rounded to float32 once, for the division. */
static int average_part(const struct pl_group *g, const struct pl_part *part,
                        const struct buffers *b, const struct pl_backend *be, struct pl_err *err)
{
    size_t n = part->length;
    /* An empty tensor has no 8-bit encoding, so it is sent uncompressed, with no values. */
    enum pl_compression method = n ? g->method[part->tensor] : PL_COMPRESS_NONE;
    double weight_sum = 0;
    int rc;

    for (size_t i = 0; i < n; i++) b->mean[i] = 0;
    for (int arrival = 0; arrival < g->members; arrival++) {
        int k = g->order ? g->order[arrival] : arrival;
        const struct pl_member *member = &g->member[k];
        float *sent = b->sent + (size_t)k * n, w = (float)member->weight;
        const float *x;
        if (member->role == PL_AUXILIARY) continue;
        x = member->tensor[part->tensor] + part->start;
        /* 1. scatter; the reducer's own copy stays on its machine, so it is not encoded */
        for (size_t i = 0; i < n; i++) sent[i] = x[i];
        if (k != part->reducer && (rc = round_trip(sent, x, n, method, be, b->message, err)))
            return rc;
        /* 2. reduce: float32 sums depend on the order, which is that of arrival */
        for (size_t i = 0; i < n; i++) b->mean[i] += w * sent[i];
        weight_sum += member->weight;
    }
    if (weight_sum == 0) return PL_OK; /* nobody contributed: the tensors stay as they are */
    for (size_t i = 0; i < n; i++) b->mean[i] /= (float)weight_sum;

    for (int k = 0; k < g->members; k++) {
        const float *sent = b->sent + (size_t)k * n;
        float *x;
        if (g->member[k].role == PL_AUXILIARY) continue;
        x = g->member[k].tensor[part->tensor] + part->start;
        /* 3. gather */
        for (size_t i = 0; i < n; i++) b->delta[i] = b->mean[i] - sent[i];
        if (k != part->reducer &&
            (rc = round_trip(b->delta, b->delta, n, method, be, b->message, err)))
            return rc;
        /* 4. apply. Added to x_k, not to Q(x_k): so the sender keeps its own quantization error
         * x_k - Q(x_k). */
        for (size_t i = 0; i < n; i++) x[i] += b->delta[i];
    }
    return PL_OK;
}

static int check_members(const struct pl_group *g, struct pl_err *err)
{
    for (int k = 0; k < g->members; k++) {
        const struct pl_member *m = &g->member[k];
        if (m->role == PL_CLIENT && m->fraction != 0)
            return pl_fail(err, PL_EUSE, "average: member %d is a client and cannot reduce", k);
        if (m->role != PL_AUXILIARY && !(m->weight >= 0 && isfinite(m->weight)))
            return pl_fail(err, PL_EUSE, "average: a weight of %g, expected at least 0", m->weight);
    }
    return PL_OK;
}

int pl_average_group(const struct pl_group *g, const struct pl_backend *be, struct pl_err *err)
{
    struct buffers b = { 0 };
    struct pl_part *parts = NULL;
    size_t count = 0, longest = 0, message_bytes = 0, bytes;
    double *fraction = pl_alloc((size_t)g->members, sizeof *fraction);
    int rc = fraction ? check_members(g, err) : PL_ENOMEM;
    for (int k = 0; !rc && k < g->members; k++) fraction[k] = g->member[k].fraction;
    /* Every member computes the same parts and reducers from the group's fractions. */
    if (!rc)
        rc = pl_partition(&parts, &count, g->elements, g->method, g->tensors, fraction, g->members,
                          g->part_bytes, err);
    for (size_t p = 0; !rc && p < count; p++) {
        struct pl_wire_type type = { .dtype = PL_F32,
                                     .dims = 1,
                                     .size = { (int64_t)parts[p].length } };
        if (parts[p].length > longest) longest = parts[p].length;
        if (parts[p].length) rc = pl_wire_bytes(&bytes, g->method[parts[p].tensor], &type, err);
        if (!rc && parts[p].length && bytes > message_bytes) message_bytes = bytes;
    }
    if (!rc) {
        b.sent = pl_alloc((size_t)g->members * longest, sizeof *b.sent);
        b.mean = pl_alloc(longest, sizeof *b.mean);
        b.delta = pl_alloc(longest, sizeof *b.delta);
        b.message = pl_alloc(message_bytes, 1);
        if (!b.sent || !b.mean || !b.delta || !b.message) rc = PL_ENOMEM;
    }
    for (size_t p = 0; !rc && p < count; p++) rc = average_part(g, &parts[p], &b, be, err);
    if (rc == PL_ENOMEM) pl_fail(err, rc, "average: no memory");
    pl_free(b.sent);
    pl_free(b.mean);
    pl_free(b.delta);
    pl_free(b.message);
    pl_free(parts);
    pl_free(fraction);
    return rc;
}
