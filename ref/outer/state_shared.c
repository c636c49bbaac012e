/* state_shared.c - the part of a state that all peers share: what a newcomer takes over.
 *
 *   shared   counters | buffer | buffer | ...    without those of one peer alone (pl_outer_add_own)
 *
 * Between exchanges phi and the outer momentum are equal at all peers (NoLoCo's are near each
 * other), so a copy from any of them makes a newcomer one of them. An error feedback is not: it is
 * what one peer has not sent yet, and with a copy of it two peers would send the same.
 *
 * The state comes from another peer, and its numbers enter our next message. So all of them are
 * checked before one is taken over. */
#include "outer.h"

#include "../byte_order.h"

#include <math.h>
#include <string.h>

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

/* Length and layout follow from the algorithm and its settings, which both sides know. */
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
static int is_valid(const struct pl_outer_buffer *b, const uint8_t *in)
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
        if (b->on_host) rc = is_valid(b, b->at) ? PL_OK : PL_EFORMAT;
        else if (!(rc = o->setup.be->sumsq(&squares, b->at, b->bytes / sizeof(float))))
            rc = isfinite(squares) ? PL_OK : PL_EFORMAT;
    }
    return rc;
}

/* One buffer of another peer, in this machine's order and at an address for its numbers; the caller
 * frees it. */
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
    /* A false count near 2^64 would wrap around in a later sum. */
    for (int i = 0; i < PL_OUTER_COUNTERS_MAX; i++)
        if (counter[i] > PL_OUTER_COUNTER_MAX)
            return pl_fail(err, PL_EFORMAT, "state with a counter that no run has reached");
    for (int i = 0; i < o->buffers; i++) {
        const struct pl_outer_buffer *b = &o->buffer[i];
        uint8_t *copy;
        int is_good;
        if (b->is_own) continue;
        if (!(copy = copy_buffer(b, in)))
            return pl_fail(err, PL_ENOMEM, "no memory for %s", b->name);
        is_good = is_valid(b, copy);
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
    /* First all checks, then the copy: a refused state leaves this peer as it was. */
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
    /* The latest message was made from parameters that are gone: it cannot be taken back. None of
     * the steps so far is ours to send. */
    o->out_bytes = 0;
    pl_outer_restart(o);
    return rc;
}

/* This peer's own buffers begin at 0, as a newcomer's do: an error feedback e is added to the next
 * message, and without a past there is nothing to add. */
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
