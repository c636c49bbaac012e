/* outer.c - what all algorithms share: the list of them, their state and how it is saved, and the
 * mean of what peers have sent. See outer.h. */
#include "outer.h"

#include "algorithms.h"
#include "e3m0.h"

#include <math.h>
#include <string.h>

static const struct pl_outer_algorithm *const algorithms[] = {
#define ENTRY(name) &pl_outer_##name,
    PL_OUTER_ALGORITHMS(ENTRY)
#undef ENTRY
};

const struct pl_outer_algorithm *pl_outer_at(int index)
{
    return 0 <= index && index < (int)PL_COUNT(algorithms) ? algorithms[index] : NULL;
}

const struct pl_outer_algorithm *pl_outer_find(const char *name)
{
    for (size_t i = 0; i < PL_COUNT(algorithms); i++)
        if (!strcmp(algorithms[i]->name, name)) return algorithms[i];
    return NULL;
}

/* DiLoCo's [arXiv 2311.08105], NoLoCo's gamma = nu, DeMo's k, and so on: paper/algorithms.md. */
void pl_outer_defaults(struct pl_outer_setup *s)
{
    *s = (struct pl_outer_setup){
        .peers = 1,
        .H = 50,
        .mu = 0.9,
        .nu = 0.7,
        .gamma = 0.7,
        .group = 2,
        .N = 1,
        .fragments = 1,
        .alpha = 0.5,
        .topk = 32,
        .chunk = 64,
        .beta = 0.95,
        .share = 0.01,
        .rank_r = 4,
        .refill = 1,
        .limit = 1,
        .adam = { .lr = 1e-3, .beta1 = 0.9, .beta2 = 0.999, .eps = 1e-8 },
    };
}

/* ---- state ---- */

void *pl_outer_add(struct pl_outer *o, const char *name, size_t bytes, int on_host)
{
    struct pl_outer_buffer *b = &o->buffer[o->buffers];
    if (o->buffers == PL_OUTER_BUFFERS_MAX) return NULL;
    *b = (struct pl_outer_buffer){ name, NULL, bytes, on_host };
    b->at = on_host ? pl_alloc(bytes, 1) : o->setup.be->alloc(bytes);
    if (b->at) o->buffers++;
    return b->at;
}

float *pl_outer_get(const struct pl_outer *o, const char *name)
{
    for (int i = 0; i < o->buffers; i++)
        if (!strcmp(o->buffer[i].name, name)) return o->buffer[i].at;
    return NULL;
}

static int check(const struct pl_outer_setup *s, struct pl_err *err)
{
    if (s->count < 1 || !s->tensors) return pl_fail(err, PL_EUSE, "no tensors to train");
    if (s->peers < 1 || s->peers > PL_OUTER_PEERS_MAX || s->rank < 0 || s->rank >= s->peers)
        return pl_fail(err, PL_EUSE, "peer %d of %d: there is no such peer", s->rank, s->peers);
    if (s->H < 1) return pl_fail(err, PL_EUSE, "%d inner steps: at least one", s->H);
    for (int i = 0; i < s->count; i++)
        if (s->tensors[i].n < 1 || s->tensors[i].axes < 0 || s->tensors[i].axes > PL_OUTER_AXES_MAX)
            return pl_fail(err, PL_EUSE, "tensor %d: 1 to 2^63 entries in 0 to %d axes", i,
                           PL_OUTER_AXES_MAX);
    return PL_OK;
}

int pl_outer_open(struct pl_outer **out, const struct pl_outer_algorithm *algorithm,
                  const struct pl_outer_setup *setup, const float *x, struct pl_err *err)
{
    struct pl_outer_tensor *tensors = NULL;
    struct pl_outer *o;
    int rc = check(setup, err);
    *out = NULL;
    if (rc) return rc;
    o = pl_alloc(1, sizeof *o);
    tensors = pl_alloc((size_t)setup->count, sizeof *tensors);
    if (!o || !tensors) {
        pl_free(o);
        pl_free(tensors);
        return pl_fail(err, PL_ENOMEM, "no memory for %d tensors' shapes", setup->count);
    }
    memcpy(tensors, setup->tensors, (size_t)setup->count * sizeof *tensors);
    o->algorithm = algorithm;
    o->setup = *setup;
    o->setup.tensors = tensors;
    for (int i = 0; i < setup->count; i++)
        if (tensors[i].offset + tensors[i].n > o->n) o->n = tensors[i].offset + tensors[i].n;
    rc = algorithm->open(o, x, err);
    if (rc == PL_ENOMEM) pl_fail(err, rc, "no memory for the state of %s", algorithm->name);
    if (rc) pl_outer_close(o);
    else *out = o;
    return rc;
}

void pl_outer_close(struct pl_outer *o)
{
    if (!o) return;
    if (o->algorithm->close) o->algorithm->close(o);
    for (int i = 0; i < o->buffers; i++)
        if (o->buffer[i].on_host) pl_free(o->buffer[i].at);
        else o->setup.be->free(o->buffer[i].at);
    pl_free((void *)(uintptr_t)o->setup.tensors);
    pl_free(o->out);
    pl_free(o);
}

/* A saved state: which algorithm, for how many parameters, how much of it; counters; buffers. */
struct head {
    char name[32];
    uint64_t n, bytes, counter[PL_OUTER_COUNTERS_MAX];
};

size_t pl_outer_state_bytes(const struct pl_outer *o)
{
    size_t bytes = sizeof(struct head);
    for (int i = 0; i < o->buffers; i++) bytes += o->buffer[i].bytes;
    return bytes;
}

static struct head head_of(const struct pl_outer *o)
{
    struct head h = { .n = o->n, .bytes = pl_outer_state_bytes(o) };
    strncpy(h.name, o->algorithm->name, sizeof h.name - 1);
    memcpy(h.counter, o->counter, sizeof h.counter);
    return h;
}

int pl_outer_save(const struct pl_outer *o, uint8_t *out)
{
    struct head h = head_of(o);
    int rc = PL_OK;
    memcpy(out, &h, sizeof h);
    out += sizeof h;
    for (int i = 0; !rc && i < o->buffers; i++) {
        const struct pl_outer_buffer *b = &o->buffer[i];
        if (b->on_host) memcpy(out, b->at, b->bytes);
        else rc = o->setup.be->get(out, b->at, b->bytes);
        out += b->bytes;
    }
    return rc;
}

int pl_outer_load(struct pl_outer *o, const uint8_t *in, size_t bytes, struct pl_err *err)
{
    struct head h, own = head_of(o);
    int rc = PL_OK;
    if (bytes != own.bytes)
        return pl_fail(err, PL_EFORMAT, "state of %zu bytes, where %s of these tensors has %zu",
                       bytes, own.name, (size_t)own.bytes);
    memcpy(&h, in, sizeof h);
    if (memcmp(h.name, own.name, sizeof h.name) || h.n != own.n || h.bytes != own.bytes)
        return pl_fail(err, PL_EFORMAT, "state of another algorithm than %s, or of other tensors",
                       own.name);
    in += sizeof h;
    for (int i = 0; !rc && i < o->buffers; i++) {
        const struct pl_outer_buffer *b = &o->buffer[i];
        if (b->on_host) memcpy(b->at, in, b->bytes);
        else rc = o->setup.be->put(b->at, in, b->bytes);
        in += b->bytes;
    }
    if (!rc) memcpy(o->counter, h.counter, sizeof h.counter);
    return rc ? pl_fail(err, rc, "the device cannot take the state over") : PL_OK;
}

/* ---- the loop's calls ---- */

int pl_outer_before_step(struct pl_outer *o, float *x, float *g, double lr)
{
    double squares;
    int rc = o->setup.be->sumsq(&squares, g, o->n);
    if (rc) return rc;
    o->lr = lr;
    o->counter[PL_OUTER_STEPS]++;
    o->skipped = !isfinite(squares);
    if (!o->skipped) o->counter[PL_OUTER_TAKEN]++;
    /* One NaN in AdamW's moments would stay there for good; a step left out costs one step. Where
     * gradients travel, the others' mean is still to be applied. */
    else if (!o->algorithm->sends_gradients) return o->algorithm->after_step(o, x);
    else if ((rc = o->setup.be->fill(g, 0, o->n))) return rc;
    return o->algorithm->before_step(o, x, g, lr);
}

int pl_outer_after_step(struct pl_outer *o, float *x) { return o->algorithm->after_step(o, x); }

int pl_outer_message(struct pl_outer *o, struct pl_outer_message *message, float *x, float *g)
{
    int next;
    *message = (struct pl_outer_message){ .rank = o->setup.rank,
                                          .weight = o->algorithm->sends_gradients
                                                        ? !o->skipped
                                                        : o->counter[PL_OUTER_TAKEN] >
                                                              o->counter[PL_OUTER_SENT] };
    next = o->algorithm->message(o, message, x, g);
    o->counter[PL_OUTER_SENT] = o->counter[PL_OUTER_TAKEN];
    message->data = o->out;
    return next;
}

int pl_outer_apply(struct pl_outer *o, float *x, float *g, const struct pl_outer_message *in,
                   int count)
{
    return o->algorithm->apply(o, x, g, in, count);
}

double pl_outer_bytes_per_step(const struct pl_outer *o) { return o->algorithm->bytes_per_step(o); }

/* ---- values as they travel ---- */

int pl_outer_reserve(struct pl_outer *o, size_t bytes)
{
    if (bytes <= o->out_capacity) return PL_OK;
    pl_free(o->out);
    o->out = pl_alloc(bytes, 1);
    o->out_capacity = o->out ? bytes : 0;
    return o->out ? PL_OK : PL_ENOMEM;
}

size_t pl_outer_coded_bytes(enum pl_outer_coding coding, size_t n)
{
    switch (coding) {
    case PL_OUTER_UNIFORM8: return n + PL_CODES * sizeof(float);
    case PL_OUTER_E3M0: return pl_e3m0_bytes(n, PL_E3M0_BLOCK);
    case PL_OUTER_FLOAT32: break;
    }
    return n * sizeof(float);
}

/* out = x (n), coded. */
static int encode(const struct pl_outer *o, uint8_t *out, const float *x, size_t n)
{
    const struct pl_backend *be = o->setup.be;
    size_t bytes = pl_outer_coded_bytes(o->setup.coding, n);
    float table[PL_CODES], *host = NULL;
    uint8_t *codes = NULL;
    int rc = PL_ENOMEM;
    switch (o->setup.coding) {
    case PL_OUTER_FLOAT32: return be->get(out, x, bytes);
    case PL_OUTER_UNIFORM8: /* a table of the bins' means, then the codes */
        host = pl_alloc_unset(n, sizeof *host);
        if (host) rc = be->get(host, x, n * sizeof *host);
        if (!rc) rc = be->uniform8_encode(out + sizeof table, table, host, n);
        if (!rc) memcpy(out, table, sizeof table);
        pl_free(host);
        return rc;
    case PL_OUTER_E3M0:
        codes = be->alloc(bytes);
        if (codes) rc = be->e3m0_encode(codes, x, n, PL_E3M0_BLOCK);
        if (!rc) rc = be->get(out, codes, bytes);
        be->free(codes);
        return rc;
    }
    return PL_EUSE;
}

/* x (n) = the values of `in`. */
static int decode(const struct pl_outer *o, float *x, const uint8_t *in, size_t n)
{
    const struct pl_backend *be = o->setup.be;
    size_t bytes = pl_outer_coded_bytes(o->setup.coding, n);
    float table[PL_CODES], *host = NULL;
    uint8_t *codes = NULL;
    int rc = PL_ENOMEM;
    switch (o->setup.coding) {
    case PL_OUTER_FLOAT32: return be->put(x, in, bytes);
    case PL_OUTER_UNIFORM8:
        host = pl_alloc_unset(n, sizeof *host);
        memcpy(table, in, sizeof table);
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

int pl_outer_encode(struct pl_outer *o, size_t at, const float *x, size_t n)
{
    int rc = pl_outer_reserve(o, at + pl_outer_coded_bytes(o->setup.coding, n));
    return rc ? rc : encode(o, o->out + at, x, n);
}

/* What a message's values are for average_add; PL_EPROTO if one of them is no number. values (n) and device (n)
 * are scratch on the host and on the device, for a coding that average_add does not
 * know. */
static int read_coded(const struct pl_outer *o, struct pl_coded *x, float *values, float *device,
                      const uint8_t *in, size_t n)
{
    double sum = 0;
    int rc = PL_OK;
    *x = (struct pl_coded){ .method = PL_COMPRESS_NONE, .data = in };
    if (o->setup.coding == PL_OUTER_UNIFORM8) {
        x->method = PL_COMPRESS_UNIFORM8;
        memcpy(x->table, in, sizeof x->table);
        x->data = in + sizeof x->table;
        for (int i = 0; i < PL_CODES; i++) sum += fabs((double)x->table[i]);
        return isfinite(sum) ? PL_OK : PL_EPROTO;
    }
    if (o->setup.coding == PL_OUTER_FLOAT32) memcpy(values, in, n * sizeof *values);
    else {
        rc = decode(o, device, in, n);
        if (!rc) rc = o->setup.be->get(values, device, n * sizeof *values);
        x->data = values;
    }
    for (size_t i = 0; !rc && i < n; i++) sum += fabs((double)values[i]);
    return rc ? rc : isfinite(sum) ? PL_OK : PL_EPROTO;
}

/* average_add and average_delta give the same bits on every backend, so peers with different
 * hardware that have the same messages have the same mean. */
int pl_outer_mean(struct pl_outer *o, float *mean, double *total, const struct pl_outer_message *in,
                  int count, size_t bytes, size_t at, size_t n)
{
    const struct pl_backend *be = o->setup.be;
    float *sum = pl_alloc(3 * n, sizeof *sum), *values = sum + n, *zero = values + n;
    const struct pl_coded none = { .method = PL_COMPRESS_NONE, .data = zero };
    struct pl_coded x;
    int rc = sum ? PL_OK : PL_ENOMEM;
    *total = 0;
    for (int k = 0; !rc && k < count; k++) {
        if (!(in[k].weight > 0) || !isfinite(in[k].weight) || in[k].bytes != bytes) continue;
        rc = read_coded(o, &x, values, mean, in[k].data + at, n);
        if (rc == PL_EPROTO) rc = PL_OK; /* a NaN would be everybody's: left out */
        else if (!rc) {
            rc = be->average_add(sum, &x, (float)in[k].weight, n);
            *total += in[k].weight;
        }
    }
    if (!rc && *total > 0) {
        memset(zero, 0, n * sizeof *zero);
        rc = be->average_delta(values, sum, (float)*total, &none, n);
        if (!rc) rc = be->put(mean, values, n * sizeof *values);
        /* The answer travels in few bits too: the reducer itself uses what the others decode, or
         * the peers' parameters would drift apart by its rounding. */
        if (!rc && o->setup.coding != PL_OUTER_FLOAT32 && count > 1) {
            uint8_t *again = pl_alloc(pl_outer_coded_bytes(o->setup.coding, n), 1);
            rc = again ? encode(o, again, mean, n) : PL_ENOMEM;
            if (!rc) rc = decode(o, mean, again, n);
            pl_free(again);
        }
    }
    pl_free(sum);
    return rc;
}
