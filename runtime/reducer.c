/* reducer.c - sums as late as possible: until a result is asked for, a sender is a pointer to its
 * message, and then one pass over memory adds all of them. */
#include "reducer.h"
#include "ref/byte_order.h"
#include "ref/small.h"
#include "transfer.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* With two senders the sum serves a single reply: it is made on the way and not stored. */
#define UNSUMMED_SENDERS 2

int pl_reducer_begin(struct pl_reducer *r, const struct pl_backend *be, size_t n)
{
    if (n > r->capacity || r->be != be) {
        pl_reducer_clear(r);
        r->be = be;
        r->capacity = n;
    }
    r->n = n;
    r->weight = 0;
    r->senders = r->added = 0;
    return PL_OK;
}

void pl_reducer_clear(struct pl_reducer *r)
{
    if (r->be) {
        pl_host_free(r->be, r->sum);
        pl_host_free(r->be, r->values);
        pl_host_free(r->be, r->delta);
    }
    free(r->pending);
    memset(r, 0, sizeof *r);
}

/* Allocates *scratch for the part unless it is there. Returns PL_OK or PL_ENOMEM. */
static int reserve_scratch(const struct pl_reducer *r, float **scratch)
{
    if (!*scratch) *scratch = pl_host_alloc(r->be, r->capacity * sizeof **scratch);
    return *scratch ? PL_OK : PL_ENOMEM;
}

static struct pl_wire_type flat(size_t n)
{
    return (struct pl_wire_type){ .dtype = PL_F32, .dims = 1, .size = { (int64_t)n } };
}

static struct pl_coded plain(const float *x)
{
    return (struct pl_coded){ .method = PL_COMPRESS_NONE, .data = x };
}

/* 1 where the operations read the values from the message itself: codes of a byte, and on a
 * little-endian machine numbers, too. */
static int is_coded(enum pl_compression method)
{
    if (PL_BIG_ENDIAN && (method == PL_COMPRESS_NONE || method == PL_COMPRESS_FLOAT16)) return 0;
    return method == PL_COMPRESS_NONE || method == PL_COMPRESS_FLOAT16 ||
           method == PL_COMPRESS_UNIFORM8 || method == PL_COMPRESS_QUANTILE8;
}

/* Checks a message; x points into it where the operations can read it, else into scratch (n), to
 * which it is decoded. */
static int decode_message(struct pl_coded *x, float *scratch, size_t n, const struct pl_backend *be,
                          enum pl_compression method, const uint8_t *buffer, size_t bytes,
                          struct pl_err *err)
{
    struct pl_wire_type type = flat(n);
    size_t elements;
    int rc = pl_wire_check(&elements, method, &type, buffer, bytes, err);
    if (rc) return rc;
    if (!is_coded(method)) {
        *x = plain(scratch);
        return pl_wire_decode(scratch, be, method, &type, buffer, bytes, err);
    }
    if (method == PL_COMPRESS_NONE || method == PL_COMPRESS_FLOAT16) {
        x->method = method;
        x->data = buffer;
        return PL_OK;
    }
    x->method = PL_COMPRESS_UNIFORM8;
    pl_copy_little(x->table, buffer + 8, sizeof *x->table, PL_CODES);
    x->data = buffer + 8 + sizeof x->table;
    return PL_OK;
}

/* The same with the reducer's scratch, allocated only for methods that need it. */
static int decode_sender(struct pl_reducer *r, struct pl_coded *x, enum pl_compression method,
                         const uint8_t *buffer, size_t bytes, struct pl_err *err)
{
    if (!is_coded(method) && reserve_scratch(r, &r->values))
        return pl_fail(err, PL_ENOMEM, "average: no memory");
    return decode_message(x, r->values, r->n, r->be, method, buffer, bytes, err);
}

/* Brings r->sum up to date with the pending senders. */
static int sum_pending(struct pl_reducer *r)
{
    int pending = r->senders - r->added, rc = reserve_scratch(r, &r->sum);
    if (rc || !pending) return rc;
    if (!r->added && !r->be->host_alloc) {
        rc = r->be->average_sum(r->sum, r->pending, pending, r->n);
        r->added = r->senders;
        return rc;
    }
    if (!r->added) memset(r->sum, 0, r->n * sizeof *r->sum);
    for (int i = 0; !rc && i < pending; i++)
        rc = r->be->average_add(r->sum, &r->pending[i].x, r->pending[i].weight, r->n);
    r->added = r->senders;
    return rc;
}

int pl_needs_scratch(enum pl_compression method) { return !is_coded(method); }

int pl_reducer_reserve(struct pl_reducer *r, const struct pl_backend *be, size_t n, size_t senders,
                       int decodes)
{
    int rc = pl_reducer_begin(r, be, n);
    if (!rc) rc = pl_grow_by(&r->pending, 0, senders, &r->pending_capacity, 4);
    /* Where nothing has to be decoded, one pass adds the messages as they are. */
    if (rc || (!decodes && !be->host_alloc)) return rc;
    rc = reserve_scratch(r, &r->sum);
    if (!rc) rc = reserve_scratch(r, &r->values);
    return rc ? rc : reserve_scratch(r, &r->delta);
}

static int add_sender(struct pl_reducer *r, const struct pl_coded *x, double weight)
{
    size_t k = (size_t)(r->senders - r->added);
    if (pl_grow(&r->pending, k, &r->pending_capacity, 4)) return PL_ENOMEM;
    r->pending[k] = (struct pl_sender){ .x = *x, .weight = (float)weight };
    r->weight += weight;
    r->senders++;
    return x->data == r->values ? sum_pending(r) : PL_OK; /* the next sender needs scratch */
}

static int check_weight(double weight, struct pl_err *err)
{
    if (weight >= 0 && isfinite(weight)) return PL_OK;
    return pl_fail(err, PL_EUSE, "average: a weight of %g, expected at least 0", weight);
}

int pl_reducer_add(struct pl_reducer *r, const float *x, double weight, struct pl_err *err)
{
    struct pl_coded coded = plain(x);
    int rc = check_weight(weight, err);
    return rc ? rc : add_sender(r, &coded, weight);
}

int pl_reducer_add_message(struct pl_reducer *r, enum pl_compression method, const uint8_t *buffer,
                           size_t bytes, double weight, struct pl_err *err)
{
    struct pl_coded x;
    int rc = check_weight(weight, err);
    if (!rc) rc = decode_sender(r, &x, method, buffer, bytes, err);
    return rc ? rc : add_sender(r, &x, weight);
}

float *pl_reducer_sum(struct pl_reducer *r) { return sum_pending(r) ? NULL : r->sum; }

int pl_reducer_delta(float *delta, struct pl_reducer *r, const float *x)
{
    struct pl_coded coded = plain(x);
    int rc = sum_pending(r);
    return rc ? rc : r->be->average_delta(delta, r->sum, (float)r->weight, &coded, r->n);
}

int pl_reducer_apply(float *x, struct pl_reducer *r)
{
    struct pl_coded change;
    int rc;
    if (!r->added && !r->be->host_alloc)
        return r->be->average_apply(x, r->pending, r->senders, (float)r->weight, r->n);
    if (!(rc = reserve_scratch(r, &r->delta))) rc = pl_reducer_delta(r->delta, r, x);
    change = plain(r->delta);
    return rc ? rc : r->be->average_add(x, &change, 1, r->n);
}

int pl_reducer_reply(uint8_t *reply, struct pl_reducer *r, enum pl_compression method,
                     const uint8_t *buffer, size_t bytes, struct pl_err *err)
{
    struct pl_wire_type type = flat(r->n);
    struct pl_coded x;
    float table[PL_CODES] = { 0 };
    int rc;
    if (!r->added && r->senders == UNSUMMED_SENDERS && method == PL_COMPRESS_UNIFORM8 &&
        !r->be->host_alloc) {
        if ((rc = decode_sender(r, &x, method, buffer, bytes, err))) return rc;
        rc = r->be->average_reduce8(reply + PL_WIRE_TABLE, table, r->pending, r->senders,
                                    (float)r->weight, &x, r->n);
        pl_wire_put_table(reply, table);
        return rc;
    }
    rc = sum_pending(r);
    if (!rc) rc = decode_sender(r, &x, method, buffer, bytes, err);
    if (!rc && method == PL_COMPRESS_UNIFORM8 && !r->be->host_alloc) {
        rc = r->be->average_delta8(reply + PL_WIRE_TABLE, table, r->sum, (float)r->weight, &x,
                                   r->n);
        pl_wire_put_table(reply, table);
        return rc;
    }
    if (!rc) rc = reserve_scratch(r, &r->delta);
    if (!rc) rc = r->be->average_delta(r->delta, r->sum, (float)r->weight, &x, r->n);
    return rc ? rc : pl_wire_encode(reply, r->be, method, &type, r->delta, err);
}

int pl_reducer_mean(uint8_t *reply, struct pl_reducer *r, enum pl_compression method,
                    struct pl_err *err)
{
    struct pl_wire_type type = flat(r->n);
    struct pl_coded nothing;
    int rc = sum_pending(r);
    if (!rc) rc = reserve_scratch(r, &r->values);
    if (!rc) rc = reserve_scratch(r, &r->delta);
    if (rc) return rc;
    memset(r->values, 0, r->n * sizeof *r->values);
    nothing = plain(r->values);
    rc = r->be->average_delta(r->delta, r->sum, (float)r->weight, &nothing, r->n);
    return rc ? rc : pl_wire_encode(reply, r->be, method, &type, r->delta, err);
}

int pl_apply_delta(float *x, size_t n, const struct pl_backend *be, enum pl_compression method,
                   const uint8_t *reply, size_t bytes, float *scratch, struct pl_err *err)
{
    struct pl_coded delta;
    int rc = decode_message(&delta, scratch, n, be, method, reply, bytes, err);
    return rc ? rc : be->average_add(x, &delta, 1, n);
}
