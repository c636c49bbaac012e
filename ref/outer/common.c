/* common.c - steps that several algorithms share, and which peer's change has a weight. See
 * outer.h.
 *
 *   each step    take it; or send its gradient          (before the step)
 *                next gradient; or a message every H    (after the step)
 *   opening      phi = x,  b = 0                        local SGD and its kin */
#include "outer.h"
#include "chunks.h"

/* The state's buffers in double: sums over thousands of steps, of algorithms that compute on the
 * host. */
double *pl_outer_doubles(const struct pl_outer *o, const char *name)
{
    return (double *)(void *)pl_outer_get(o, name);
}

/* x is the backend's float32, perhaps on a device; the reference computes in double on the host. */
int pl_outer_read(const struct pl_outer *o, double *out, const float *x)
{
    float *host = pl_alloc(o->n, sizeof *host);
    int rc = host ? o->setup.be->get(host, x, o->n * sizeof *host) : PL_ENOMEM;
    for (size_t i = 0; !rc && i < o->n; i++) out[i] = host[i];
    pl_free(host);
    return rc;
}

/* Back again, rounded once. */
int pl_outer_write(const struct pl_outer *o, float *x, const double *in)
{
    float *host = pl_alloc(o->n, sizeof *host);
    int rc = host ? PL_OK : PL_ENOMEM;
    for (size_t i = 0; !rc && i < o->n; i++) host[i] = (float)in[i];
    if (!rc) rc = o->setup.be->put(x, host, o->n * sizeof *host);
    pl_free(host);
    return rc;
}

/* Local steps: the inner optimizer steps with this peer's own gradient. */
int pl_outer_take_step(struct pl_outer *o, float *x, float *g, double lr) { return PL_OUTER_STEP; }

/* Gradients travel: the step comes after the exchange, with their mean. */
int pl_outer_send_gradient(struct pl_outer *o, float *x, float *g, double lr)
{
    return PL_OUTER_SEND;
}

int pl_outer_next_gradient(struct pl_outer *o, float *x) { return PL_OUTER_GRADIENT; }

/* Steps that were skipped count, too: all peers send after the same number of their own steps. */
int pl_outer_send_every_H(struct pl_outer *o, float *x)
{
    return o->counter[PL_OUTER_STEPS] % (uint64_t)o->setup.H ? PL_OUTER_GRADIENT : PL_OUTER_SEND;
}

/* By the values before a tensor. A large tensor leaves no fragment without one: the next tensor is
 * in the next fragment at the latest, and each fragment still to come has a tensor. */
void pl_outer_cut(struct pl_outer_tensor *tensors, int count, int fragments)
{
    size_t total = 0, before = 0;
    int last = -1;
    for (int i = 0; i < count; i++) total += tensors[i].n;
    for (int i = 0; i < count; before += tensors[i++].n) {
        int f = (int)(before * (size_t)fragments / total);
        if (f < fragments - (count - i)) f = fragments - (count - i);
        tensors[i].fragment = last = f > last + 1 ? last + 1 : f;
    }
}

/* 1: apply has a mean to work with, which an overlapped exchange has brought before, or which these
 * messages bring now. */
int pl_outer_arrived(struct pl_outer *o, const struct pl_outer_message *in, int count)
{
    return o->counter[PL_OUTER_ARRIVED] ? 1 : pl_outer_arrive(o, in, count);
}

/* An entry's number within its chunk travels in 12 bits, so 64 x 64 is the largest chunk. */
int pl_outer_check_chunks(const struct pl_outer *o, struct pl_err *err)
{
    if (o->setup.chunk >= 1 && o->setup.chunk <= PL_CHUNK_SIDE_MAX && o->setup.topk >= 1)
        return PL_OK;
    return pl_fail(err, PL_EUSE, "%d entries of chunks with sides of %d: at least 1, at most %d",
                   o->setup.topk, o->setup.chunk, PL_CHUNK_SIDE_MAX);
}

/* n coded values every H steps: H = 500 sends 500 times less than a gradient in each step */
double pl_outer_vector_per_round(const struct pl_outer *o)
{
    return (double)pl_outer_coded_bytes(o->setup.coding, o->n) / o->setup.H;
}

/* Delta_r = phi - theta_r begins anew at theta_r = phi. */
void pl_outer_restart(struct pl_outer *o)
{
    o->counter[PL_OUTER_DELIVERED] = o->counter[PL_OUTER_TAKEN];
}

/* Only peers with at least one good step since the last round count in the mean. */
int pl_outer_has_change(const struct pl_outer *o)
{
    return o->counter[PL_OUTER_TAKEN] > o->counter[PL_OUTER_DELIVERED];
}

/* Every peer opens with the same x, so phi is equal on all of them without an exchange. b = 0. */
int pl_outer_open_phi(struct pl_outer *o, const float *x)
{
    float *phi = pl_outer_add(o, "phi", o->n * sizeof *phi, 0);
    float *b = pl_outer_add(o, "momentum", o->n * sizeof *b, 0);
    return phi && b ? o->setup.be->copy(phi, x, o->n) : PL_ENOMEM;
}

/* Delta_r = from - x, coded: the change by the local steps so far. */
int pl_outer_send_change(struct pl_outer *o, struct pl_outer_message *out, const float *from,
                         const float *x)
{
    const struct pl_backend *be = o->setup.be;
    float *delta = be->alloc(o->n * sizeof *delta);
    int rc = delta ? be->copy(delta, from, o->n) : PL_ENOMEM;
    /* minus the direction of travel, so that it acts as a gradient: phi = phi - eta
     * mean(Delta_r) */
    if (!rc) rc = be->axpy(delta, -1, x, o->n);
    if (!rc) rc = pl_outer_encode(o, delta, o->n);
    be->free(delta);
    out->bytes = pl_outer_coded_bytes(o->setup.coding, o->n);
    out->weight = pl_outer_has_change(o);
    return rc ? rc : PL_OUTER_RECEIVE;
}
