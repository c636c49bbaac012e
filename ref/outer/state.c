/* state.c - an algorithm's state, and how it is saved and loaded.
 *
 *   state    head | buffer | buffer | ... | message     buffers in the order of open
 *   head     name of the algorithm, parameters, bytes of all, counters, the step under way
 *   message  the latest, until it is applied, of algorithms that may take it back
 *
 * Numbers are stored in the machine's own format: only the same kind of machine can read a
 * state. */
#include "outer.h"

#include "../byte_order.h"

#include <math.h>
#include <string.h>

#define COUNTER_MAX (UINT64_MAX / 4) /* so that sums of two do not wrap around */

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
        if (h->counter[i] > COUNTER_MAX)
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

/* ---- what all peers share ---- */

size_t pl_outer_shared_bytes(const struct pl_outer *o)
{
    size_t bytes = 0;
    for (int i = 0; i < o->buffers; i++)
        if (!o->buffer[i].is_own) bytes += o->buffer[i].bytes;
    return bytes + sizeof o->counter;
}

/* The counters, then the buffers, little-endian as messages are: a newcomer's machine may have
 * another order. On the host they are doubles and counts, on the device float32. */
static size_t width(const struct pl_outer_buffer *b) { return b->on_host ? 8 : sizeof(float); }

int pl_outer_save_shared(const struct pl_outer *o, uint8_t *out)
{
    int rc = PL_OK;
    pl_copy_little(out, o->counter, sizeof *o->counter, PL_OUTER_COUNTERS_MAX);
    out += sizeof o->counter;
    for (int i = 0; !rc && i < o->buffers; i++) {
        const struct pl_outer_buffer *b = &o->buffer[i];
        if (b->is_own) continue;
        if (b->on_host) memcpy(out, b->at, b->bytes);
        else rc = o->setup.be->get(out, b->at, b->bytes);
        pl_little_endian(out, width(b), b->bytes / width(b));
        out += b->bytes;
    }
    return rc;
}

/* A count of steps, read as a double, is a tiny number: finite, as all that a run can reach. */
static int is_sound(const struct pl_outer_buffer *b, const uint8_t *in)
{
    double wide;
    float narrow;
    for (size_t i = 0; i < b->bytes / width(b); i++, in += width(b)) {
        if (b->on_host) memcpy(&wide, in, 8);
        else {
            memcpy(&narrow, in, sizeof narrow);
            wide = narrow;
        }
        /* "v": a mean of squares, of which the root is taken */
        if (!isfinite(wide) || (wide < 0 && !strcmp(b->name, "v"))) return 0;
    }
    return 1;
}

/* A device has no loop over its values for us, but a sum of squares: it is finite if all are. */
int pl_outer_check(const struct pl_outer *o)
{
    int rc = PL_OK;
    for (int i = 0; !rc && i < o->buffers; i++) {
        const struct pl_outer_buffer *b = &o->buffer[i];
        double squares = 0;
        if (b->on_host) rc = is_sound(b, b->at) ? PL_OK : PL_EFORMAT;
        else if (!(rc = o->setup.be->sumsq(&squares, b->at, b->bytes / sizeof(float))))
            rc = isfinite(squares) ? PL_OK : PL_EFORMAT;
    }
    return rc;
}

/* One buffer of another peer, in this machine's order; the caller frees it. */
static uint8_t *copy_buffer(const struct pl_outer_buffer *b, const uint8_t *in)
{
    uint8_t *copy = pl_alloc_unset(b->bytes, 1);
    if (copy) pl_copy_little(copy, in, width(b), b->bytes / width(b));
    return copy;
}

/* Nothing is written here. An infinity in another peer's state would be in our next message, and so
 * in everybody's parameters. */
int pl_outer_check_shared(const struct pl_outer *o, const uint8_t *in, struct pl_err *err)
{
    uint64_t counter[PL_OUTER_COUNTERS_MAX];
    pl_copy_little(counter, in, sizeof *counter, PL_OUTER_COUNTERS_MAX);
    in += sizeof counter;
    for (int i = 0; i < PL_OUTER_COUNTERS_MAX; i++)
        if (counter[i] > COUNTER_MAX)
            return pl_fail(err, PL_EFORMAT, "state with a counter that no run has reached");
    for (int i = 0; i < o->buffers; i++) {
        const struct pl_outer_buffer *b = &o->buffer[i];
        uint8_t *copy;
        int is_good;
        if (b->is_own) continue;
        if (!(copy = copy_buffer(b, in)))
            return pl_fail(err, PL_ENOMEM, "no memory for %s", b->name);
        is_good = is_sound(b, copy);
        pl_free(copy);
        if (!is_good)
            return pl_fail(err, PL_EFORMAT, "state: %s of %s is not finite", b->name,
                           o->algorithm->name);
        in += b->bytes;
    }
    return PL_OK;
}

/* What is this peer's own stays: the error feedback still has to be sent. */
int pl_outer_load_shared(struct pl_outer *o, const uint8_t *in, struct pl_err *err)
{
    int rc = pl_outer_check_shared(o, in, err);
    if (rc) return rc;
    pl_copy_little(o->counter, in, sizeof *o->counter, PL_OUTER_COUNTERS_MAX);
    in += sizeof o->counter;
    for (int i = 0; !rc && i < o->buffers; i++) {
        const struct pl_outer_buffer *b = &o->buffer[i];
        uint8_t *copy;
        if (b->is_own) continue;
        if (!(copy = copy_buffer(b, in)))
            return pl_fail(err, PL_ENOMEM, "no memory for %s", b->name);
        if (b->on_host) memcpy(b->at, copy, b->bytes);
        else if ((rc = o->setup.be->put(b->at, copy, b->bytes)))
            pl_fail(err, rc, "the device cannot take the state over");
        pl_free(copy);
        in += b->bytes;
    }
    o->out_bytes = 0;
    return rc;
}

/* This peer's own buffers begin at 0, as a newcomer's do. */
int pl_outer_join(struct pl_outer *o)
{
    int rc = PL_OK;
    for (int i = 0; !rc && i < o->buffers; i++) {
        struct pl_outer_buffer *b = &o->buffer[i];
        if (!b->is_own) continue;
        if (b->on_host) memset(b->at, 0, b->bytes);
        else rc = o->setup.be->fill(b->at, 0, b->bytes / sizeof(float));
    }
    o->out_bytes = 0;
    return rc;
}
