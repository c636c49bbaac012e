/* state.c - an algorithm's state, and how it is saved and loaded.
 *
 *   state    head | buffer | buffer | ... | message     buffers in the order of open
 *   head     name of the algorithm, parameters, bytes of all, counters, the step under way
 *   message  the latest, until it is applied, of algorithms that may take it back
 *
 * Numbers are stored in the machine's own format: only the same kind of machine can read a
 * state. What travels to another peer is state_shared.c's. */
#include "outer.h"

#include <math.h>
#include <string.h>

/* Everything that an algorithm remembers is a named buffer, or a counter; so saving, loading and
 * freeing are the same for all. */
void *pl_outer_add(struct pl_outer *o, const char *name, size_t bytes, int on_host)
{
    struct pl_outer_buffer *b = &o->buffer[o->buffers];
    if (o->buffers == PL_OUTER_BUFFERS_MAX) return NULL;
    *b = (struct pl_outer_buffer){ name, NULL, bytes, on_host, 0 };
    b->at = on_host ? pl_alloc(bytes, 1) : o->setup.be->alloc(bytes);
    if (b->at) o->buffers++;
    return b->at;
}

/* Of this peer alone, as error feedback is: newcomers do not get it. */
void *pl_outer_add_own(struct pl_outer *o, const char *name, size_t bytes, int on_host)
{
    void *at = pl_outer_add(o, name, bytes, on_host);
    if (at) o->buffer[o->buffers - 1].is_own = 1;
    return at;
}

/* By name: algorithms share steps (common.c), and a step finds its buffer whatever others there
 * are. */
float *pl_outer_get(const struct pl_outer *o, const char *name)
{
    for (int i = 0; i < o->buffers; i++)
        if (!strcmp(o->buffer[i].name, name)) return o->buffer[i].at;
    return NULL;
}

/* Which algorithm, for how many parameters, how much of it; counters; and of the step under way:
 * its rate, whether its gradient had a NaN, and the length of its message. */
struct head {
    char name[32];
    uint64_t n, bytes, counter[PL_OUTER_COUNTERS_MAX];
    double lr;
    uint64_t skipped, message;
};

/* Fixed by the algorithm and the tensors, so a state of another size is another model's. */
static size_t fixed_bytes(const struct pl_outer *o)
{
    size_t bytes = sizeof(struct head);
    for (int i = 0; i < o->buffers; i++) bytes += o->buffer[i].bytes;
    return bytes;
}

static size_t message_bytes(const struct pl_outer *o)
{
    return o->algorithm->takes_back ? o->out_bytes : 0;
}

size_t pl_outer_state_bytes(const struct pl_outer *o) { return fixed_bytes(o) + message_bytes(o); }

static struct head head_of(const struct pl_outer *o)
{
    struct head h = { .n = o->n,
                      .bytes = fixed_bytes(o),
                      .lr = o->lr,
                      .skipped = o->skipped != 0,
                      .message = message_bytes(o) };
    strncpy(h.name, o->algorithm->name, sizeof h.name - 1);
    memcpy(h.counter, o->counter, sizeof h.counter);
    return h;
}

/* head, then every buffer: with x, which the trainer saves, that is all that the next step reads,
 * so a resumed run computes the same bits. Buffers of the device are copied to the host. */
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
    if (!rc && message_bytes(o)) memcpy(out, o->out, message_bytes(o));
    return rc;
}

/* Checks a head against the states that this algorithm can have saved. */
static int check(const struct head *h, const struct head *own, size_t bytes, struct pl_err *err)
{
    if (memcmp(h->name, own->name, sizeof h->name) || h->n != own->n || h->bytes != own->bytes)
        return pl_fail(err, PL_EFORMAT, "state of another algorithm than %s, or of other tensors",
                       own->name);
    if (h->message != bytes - own->bytes)
        return pl_fail(err, PL_EFORMAT, "state of %zu bytes with a message of another length",
                       bytes);
    for (int i = 0; i < PL_OUTER_COUNTERS_MAX; i++)
        if (h->counter[i] > PL_OUTER_COUNTER_MAX)
            return pl_fail(err, PL_EFORMAT, "state with a counter that no run has reached");
    if (!isfinite(h->lr) || h->skipped > 1)
        return pl_fail(err, PL_EFORMAT, "state of a step that no run has taken");
    return PL_OK;
}

/* The head is compared before anything is written: a state of another model changes nothing. */
int pl_outer_load(struct pl_outer *o, const uint8_t *in, size_t bytes, struct pl_err *err)
{
    struct head h, own = head_of(o);
    int rc;
    /* The state may come from another peer: its size, name and counters are checked, its numbers
     * are the caller's to judge. */
    if (bytes < own.bytes || (bytes > own.bytes && !o->algorithm->takes_back))
        return pl_fail(err, PL_EFORMAT, "state of %zu bytes, where %s of these tensors has %zu",
                       bytes, own.name, (size_t)own.bytes);
    memcpy(&h, in, sizeof h);
    if ((rc = check(&h, &own, bytes, err))) return rc;
    if (h.message && (rc = pl_outer_reserve(o, h.message)))
        return pl_fail(err, rc, "no memory for a message of %zu bytes", (size_t)h.message);
    in += sizeof h;
    for (int i = 0; !rc && i < o->buffers; i++) {
        const struct pl_outer_buffer *b = &o->buffer[i];
        if (b->on_host) memcpy(b->at, in, b->bytes);
        else rc = o->setup.be->put(b->at, in, b->bytes);
        in += b->bytes;
    }
    o->out_bytes = 0; /* a message of the state before: nothing of it may be taken back */
    if (rc) return pl_fail(err, rc, "the device cannot take the state over");
    memcpy(o->counter, h.counter, sizeof h.counter);
    o->lr = h.lr;
    o->skipped = (int)h.skipped;
    if (h.message) memcpy(o->out, in, h.message);
    o->out_bytes = h.message;
    return PL_OK;
}
