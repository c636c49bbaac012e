/* average.c - see average.h. */
#include "average.h"
#include "beside.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define PAIR 2 /* senders whose sum serves a single answer: it is made on the way and not kept */

/* --- one value -------------------------------------------------------------------------------- */

static float value(const struct pl_coded *x, size_t i)
{
    float f;
    uint16_t half;
    switch (x->method) {
    case PL_COMPRESS_UNIFORM8: return x->table[((const uint8_t *)x->data)[i]];
    case PL_COMPRESS_FLOAT16:
        memcpy(&half, (const char *)x->data + i * sizeof half, sizeof half);
        return pl_half_to_float(half);
    default:
        memcpy(&f, (const char *)x->data + i * sizeof f, sizeof f);
        return f;
    }
}

int ref_average_add(float *sum, const struct pl_coded *x, float weight, size_t n)
{
    for (size_t i = 0; i < n; i++) sum[i] = sum[i] + weight * value(x, i);
    return PL_OK;
}

int ref_average_delta(float *delta, const float *sum, float weight, const struct pl_coded *x,
                      size_t n)
{
    for (size_t i = 0; i < n; i++) delta[i] = weight != 0 ? sum[i] / weight - value(x, i) : 0;
    return PL_OK;
}

int ref_average_sum(float *sum, const struct pl_sender *from, int senders, size_t n)
{
    for (size_t i = 0; i < n; i++) sum[i] = 0;
    for (int k = 0; k < senders; k++) ref_average_add(sum, &from[k].x, from[k].weight, n);
    return PL_OK;
}

int ref_average_settle(float *x, const struct pl_sender *from, int senders, float weight, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        float sum = 0;
        for (int k = 0; k < senders; k++) sum = sum + from[k].weight * value(&from[k].x, i);
        x[i] = x[i] + (weight != 0 ? sum / weight - x[i] : 0);
    }
    return PL_OK;
}

int ref_average_answer(uint8_t *codes, float table[PL_CODES], const float *sum, float weight,
                       const struct pl_coded *x, size_t n)
{
    float *delta = pl_alloc(n, sizeof *delta);
    int rc = delta ? PL_OK : PL_ENOMEM;
    if (!rc) rc = ref_average_delta(delta, sum, weight, x, n);
    if (!rc) rc = ref_uniform8_encode(codes, table, delta, n);
    pl_free(delta);
    return rc;
}

int ref_average_reply(uint8_t *codes, float table[PL_CODES], const struct pl_sender *from,
                      int senders, float weight, const struct pl_coded *x, size_t n)
{
    float *sum = pl_alloc(n, sizeof *sum);
    int rc = sum ? ref_average_sum(sum, from, senders, n) : PL_ENOMEM;
    if (!rc) rc = ref_average_answer(codes, table, sum, weight, x, n);
    pl_free(sum);
    return rc;
}

/* --- one part --------------------------------------------------------------------------------- */

int pl_reducer_begin(struct pl_reducer *r, const struct pl_backend *be, size_t n)
{
    if (n > r->room || r->be != be) {
        pl_reducer_clear(r);
        r->be = be;
        r->room = n;
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

/* PL_OK: *scratch has room for the part. */
static int make_room(const struct pl_reducer *r, float **scratch)
{
    if (!*scratch) *scratch = pl_host_alloc(r->be, r->room * sizeof **scratch);
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

/* 1 where the operations take the values as they travel. */
static int is_coded(enum pl_compression method)
{
    return method == PL_COMPRESS_NONE || method == PL_COMPRESS_FLOAT16 ||
           method == PL_COMPRESS_UNIFORM8 || method == PL_COMPRESS_QUANTILE8;
}

/* A message seen as values where the operations can, else decoded into scratch (n). */
static int view(struct pl_coded *x, float *scratch, size_t n, const struct pl_backend *be,
                enum pl_compression method, const uint8_t *buffer, size_t bytes, struct pl_err *err)
{
    struct pl_wire_type type = flat(n);
    size_t elements;
    int rc = pl_wire_check(&elements, method, &type, buffer, bytes, err);
    if (rc) return rc;
    switch (method) {
    case PL_COMPRESS_NONE:
    case PL_COMPRESS_FLOAT16:
        x->method = method;
        x->data = buffer;
        return PL_OK;
    case PL_COMPRESS_UNIFORM8:
    case PL_COMPRESS_QUANTILE8:
        x->method = PL_COMPRESS_UNIFORM8;
        memcpy(x->table, buffer + 8, sizeof x->table);
        x->data = buffer + 8 + sizeof x->table;
        return PL_OK;
    default:
        *x = plain(scratch);
        return pl_wire_decode(scratch, be, method, &type, buffer, bytes, err);
    }
}

/* The same, with scratch where it takes some. */
static int view_for(struct pl_reducer *r, struct pl_coded *x, enum pl_compression method,
                    const uint8_t *buffer, size_t bytes, struct pl_err *err)
{
    if (!is_coded(method) && make_room(r, &r->values))
        return pl_fail(err, PL_ENOMEM, "average: no memory");
    return view(x, r->values, r->n, r->be, method, buffer, bytes, err);
}

static int add_up(struct pl_reducer *r)
{
    int waiting = r->senders - r->added, rc = make_room(r, &r->sum);
    if (rc || !waiting) return rc;
    if (!r->added && !r->be->host_alloc) {
        rc = r->be->average_sum(r->sum, r->pending, waiting, r->n);
        r->added = r->senders;
        return rc;
    }
    if (!r->added) memset(r->sum, 0, r->n * sizeof *r->sum);
    for (int i = 0; !rc && i < waiting; i++)
        rc = r->be->average_add(r->sum, &r->pending[i].x, r->pending[i].weight, r->n);
    r->added = r->senders;
    return rc;
}

static int add(struct pl_reducer *r, const struct pl_coded *x, double weight)
{
    int k = r->senders - r->added;
    if (k == r->pending_room) {
        int room = k ? 2 * k : 4;
        struct pl_sender *more = realloc(r->pending, (size_t)room * sizeof *more);
        if (!more) return PL_ENOMEM;
        r->pending = more;
        r->pending_room = room;
    }
    r->pending[k].x = *x;
    r->pending[k].weight = (float)weight;
    r->weight += weight;
    r->senders++;
    return x->data == r->values ? add_up(r) : PL_OK; /* scratch is wanted again */
}

static int usable(double weight, struct pl_err *err)
{
    if (weight >= 0 && isfinite(weight)) return PL_OK;
    return pl_fail(err, PL_EUSE, "average: a weight of %g, expected at least 0", weight);
}

int pl_reducer_add(struct pl_reducer *r, const float *x, double weight, struct pl_err *err)
{
    struct pl_coded coded = plain(x);
    int rc = usable(weight, err);
    return rc ? rc : add(r, &coded, weight);
}

int pl_reducer_add_message(struct pl_reducer *r, enum pl_compression method, const uint8_t *buffer,
                           size_t bytes, double weight, struct pl_err *err)
{
    struct pl_coded x;
    int rc = usable(weight, err);
    if (!rc) rc = view_for(r, &x, method, buffer, bytes, err);
    return rc ? rc : add(r, &x, weight);
}

float *pl_reducer_sum(struct pl_reducer *r)
{
    return add_up(r) ? NULL : r->sum;
}

int pl_reducer_delta(float *delta, struct pl_reducer *r, const float *x)
{
    struct pl_coded coded = plain(x);
    int rc = add_up(r);
    return rc ? rc : r->be->average_delta(delta, r->sum, (float)r->weight, &coded, r->n);
}

int pl_reducer_apply(float *x, struct pl_reducer *r)
{
    struct pl_coded change;
    int rc;
    if (!r->added && !r->be->host_alloc)
        return r->be->average_settle(x, r->pending, r->senders, (float)r->weight, r->n);
    if (!(rc = make_room(r, &r->delta))) rc = pl_reducer_delta(r->delta, r, x);
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
    if (!r->added && r->senders == PAIR && method == PL_COMPRESS_UNIFORM8 &&
        !r->be->host_alloc) {
        if ((rc = view_for(r, &x, method, buffer, bytes, err))) return rc;
        rc = r->be->average_reply(reply + PL_WIRE_TABLE, table, r->pending, r->senders,
                                  (float)r->weight, &x, r->n);
        pl_wire_put_table(reply, table);
        return rc;
    }
    rc = add_up(r);
    if (!rc) rc = view_for(r, &x, method, buffer, bytes, err);
    if (!rc && method == PL_COMPRESS_UNIFORM8 && !r->be->host_alloc) {
        rc = r->be->average_answer(reply + PL_WIRE_TABLE, table, r->sum, (float)r->weight, &x,
                                   r->n);
        pl_wire_put_table(reply, table);
        return rc;
    }
    if (!rc) rc = make_room(r, &r->delta);
    if (!rc) rc = r->be->average_delta(r->delta, r->sum, (float)r->weight, &x, r->n);
    return rc ? rc : pl_wire_encode(reply, r->be, method, &type, r->delta, err);
}

int pl_average_apply(float *x, size_t n, const struct pl_backend *be, enum pl_compression method,
                     const uint8_t *reply, size_t bytes, struct pl_err *err)
{
    float *scratch = is_coded(method) ? NULL : pl_alloc(n, sizeof *scratch);
    struct pl_coded delta;
    int rc = is_coded(method) || scratch ? view(&delta, scratch, n, be, method, reply, bytes, err)
                                 : PL_ENOMEM;
    if (!rc) rc = be->average_add(x, &delta, 1, n);
    pl_free(scratch);
    return rc;
}

/* --- a whole group ---------------------------------------------------------------------------- */

/* Buffers for one part after the other. */
struct exchange {
    struct pl_reducer reducer;
    uint8_t *messages; /* (members, bytes_max) */
    uint8_t *reply;    /* (bytes_max) */
    float *delta;      /* (values_max) */
    size_t bytes_max, values_max;
};

/* Empty parts travel uncompressed: the 8-bit methods know no empty tensor. */
static enum pl_compression method_of(const struct pl_group *g, const struct pl_part *part)
{
    return part->length ? g->method[part->tensor] : PL_COMPRESS_NONE;
}

static int exchange_open(struct exchange *x, const struct pl_group *g, const struct pl_part *parts,
                         size_t count, struct pl_err *err)
{
    for (size_t p = 0; p < count; p++) {
        struct pl_wire_type type = flat(parts[p].length);
        size_t bytes;
        int rc = pl_wire_bytes(&bytes, method_of(g, &parts[p]), &type, err);
        if (rc) return rc;
        if (bytes > x->bytes_max) x->bytes_max = bytes;
        if (parts[p].length > x->values_max) x->values_max = parts[p].length;
    }
    x->messages = pl_alloc((size_t)g->members, x->bytes_max);
    x->reply = pl_alloc(x->bytes_max, 1);
    x->delta = pl_alloc(x->values_max, sizeof *x->delta);
    return x->messages && x->reply && x->delta ? PL_OK
                                               : pl_fail(err, PL_ENOMEM, "average: no memory");
}

static void exchange_close(struct exchange *x)
{
    pl_reducer_clear(&x->reducer);
    pl_free(x->messages);
    pl_free(x->reply);
    pl_free(x->delta);
}

static int send(struct exchange *x, const struct pl_group *g, const struct pl_part *part, int who,
                size_t *bytes, struct pl_err *err)
{
    const float *values = g->member[who].tensor[part->tensor] + part->start;
    enum pl_compression method = method_of(g, part);
    struct pl_wire_type type = flat(part->length);
    uint8_t *message = x->messages + (size_t)who * x->bytes_max;
    int rc;
    if (who == part->owner) return pl_reducer_add(&x->reducer, values, g->member[who].weight, err);
    if ((rc = pl_wire_bytes(bytes, method, &type, err))) return rc;
    if ((rc = pl_wire_encode(message, x->reducer.be, method, &type, values, err))) return rc;
    return pl_reducer_add_message(&x->reducer, method, message, *bytes, g->member[who].weight, err);
}

static int answer(struct exchange *x, const struct pl_group *g, const struct pl_part *part, int who,
                  size_t bytes, struct pl_err *err)
{
    float *values = g->member[who].tensor[part->tensor] + part->start;
    const uint8_t *message = x->messages + (size_t)who * x->bytes_max;
    enum pl_compression method = method_of(g, part);
    const struct pl_backend *be = x->reducer.be;
    struct pl_coded delta = plain(x->delta);
    int rc;
    if (who == part->owner) {
        if ((rc = pl_reducer_delta(x->delta, &x->reducer, values))) return rc;
        return be->average_add(values, &delta, 1, part->length);
    }
    rc = pl_reducer_reply(x->reply, &x->reducer, method, message, bytes, err);
    return rc ? rc : pl_average_apply(values, part->length, be, method, x->reply, bytes, err);
}

static int exchange_part(struct exchange *x, const struct pl_group *g, const struct pl_backend *be,
                         const struct pl_part *part, struct pl_err *err)
{
    size_t bytes = 0;
    int rc = pl_reducer_begin(&x->reducer, be, part->length);
    for (int k = 0; !rc && k < g->members; k++) {
        int who = g->order ? g->order[k] : k;
        if (g->member[who].role != PL_AUXILIARY) rc = send(x, g, part, who, &bytes, err);
    }
    for (int who = 0; !rc && who < g->members; who++)
        if (g->member[who].role != PL_AUXILIARY) rc = answer(x, g, part, who, bytes, err);
    return rc;
}

int pl_average_group(const struct pl_group *g, const struct pl_backend *be, struct pl_err *err)
{
    struct exchange x = { 0 };
    struct pl_part *parts = NULL;
    size_t count = 0;
    double *fraction = pl_alloc((size_t)g->members, sizeof *fraction);
    int rc = fraction ? PL_OK : pl_fail(err, PL_ENOMEM, "average: no memory");
    for (int j = 0; !rc && j < g->members; j++) {
        fraction[j] = g->member[j].fraction;
        if (g->member[j].role == PL_CLIENT && fraction[j] != 0)
            rc = pl_fail(err, PL_EUSE, "average: member %d is a client and cannot reduce", j);
    }
    if (!rc)
        rc = pl_partition(&parts, &count, g->elements, g->method, g->tensors, fraction, g->members,
                          g->part_bytes, err);
    if (!rc) rc = exchange_open(&x, g, parts, count, err);
    for (size_t p = 0; !rc && p < count; p++) rc = exchange_part(&x, g, be, &parts[p], err);
    exchange_close(&x);
    pl_free(parts);
    pl_free(fraction);
    return rc;
}
