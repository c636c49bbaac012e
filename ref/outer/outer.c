/* outer.c - what all algorithms share: the list of them, their state and how it is saved, and the
 * calls of a trainer's loop. See outer.h. */
#include "outer.h"

#include "algorithms.h"

#include <math.h>
#include <string.h>

#define COUNTER_MAX (UINT64_MAX / 4) /* so that sums of two do not wrap around */

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

/* DiLoCo's mu and nu, NoLoCo's H, group and gamma = nu, DeMo's topk and chunk, SparseLoCo's beta;
 * paper/spec/outer-steps.md has all that the papers give. */
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
        .powersgd_rank = 4,
        .refill = 1,
        .limit = 1,
        .adam = { .lr = 1e-3, .beta1 = 0.9, .beta2 = 0.999, .eps = 1e-8 },
    };
}

/* ---- state ---- */

/* Everything that an algorithm remembers is a named buffer, or a counter; so saving, loading and
 * freeing are the same for all. */
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

/* What no algorithm can work with. */
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

/* Shapes are copied, so that the caller's table may go. */
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

/* The head is compared before anything is written: a state of another model changes nothing. */
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
    for (int i = 0; i < PL_OUTER_COUNTERS_MAX; i++)
        if (h.counter[i] > COUNTER_MAX)
            return pl_fail(err, PL_EFORMAT, "state with a counter that no run has reached");
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

/* A peer without a step since its last message has nothing to say: weight 0, not a vote for "no
 * change". */
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

/* ---- what several algorithms do ---- */

int pl_outer_take_step(struct pl_outer *o, float *x, float *g, double lr)
{
    (void)o, (void)x, (void)g, (void)lr;
    return PL_OUTER_STEP;
}

int pl_outer_send_gradient(struct pl_outer *o, float *x, float *g, double lr)
{
    (void)o, (void)x, (void)g, (void)lr;
    return PL_OUTER_SEND;
}

int pl_outer_next_gradient(struct pl_outer *o, float *x)
{
    (void)o, (void)x;
    return PL_OUTER_GRADIENT;
}

int pl_outer_send_every_H(struct pl_outer *o, float *x)
{
    (void)x;
    return o->counter[PL_OUTER_STEPS] % (uint64_t)o->setup.H ? PL_OUTER_GRADIENT : PL_OUTER_SEND;
}

double pl_outer_vector_per_round(const struct pl_outer *o)
{
    return (double)pl_outer_coded_bytes(o->setup.coding, o->n) / o->setup.H;
}

void pl_outer_restart(struct pl_outer *o)
{
    o->counter[PL_OUTER_DELIVERED] = o->counter[PL_OUTER_TAKEN];
}

int pl_outer_has_change(const struct pl_outer *o)
{
    return o->counter[PL_OUTER_TAKEN] > o->counter[PL_OUTER_DELIVERED];
}

int pl_outer_open_phi(struct pl_outer *o, const float *x)
{
    float *phi = pl_outer_add(o, "phi", o->n * sizeof *phi, 0);
    float *b = pl_outer_add(o, "momentum", o->n * sizeof *b, 0);
    return phi && b ? o->setup.be->copy(phi, x, o->n) : PL_ENOMEM;
}
