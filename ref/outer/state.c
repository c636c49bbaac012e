/* state.c - what an algorithm remembers, and how it is saved and loaded. See outer.h.
 *
 *   state    head | buffer | buffer | ...      in the order in which open added the buffers
 *   head     name of the algorithm, parameters, bytes of all, counters
 *
 * Numbers lie as they do in memory. */
#include "outer.h"

#include <string.h>

#define COUNTER_MAX (UINT64_MAX / 4) /* so that sums of two do not wrap around */

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

/* A saved state: which algorithm, for how many parameters, how much of it; counters; buffers. */
struct head {
    char name[32];
    uint64_t n, bytes, counter[PL_OUTER_COUNTERS_MAX];
};

/* Fixed by the algorithm and the tensors, so a state of another size is another model's. */
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

/* Buffers of the device are copied to the host first. */
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
    pl_free(o->out); /* a message of the state before: nothing of it may be taken back */
    o->out = NULL;
    o->out_capacity = 0;
    return rc ? pl_fail(err, rc, "the device cannot take the state over") : PL_OK;
}
