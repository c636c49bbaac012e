/* optimizer_state_copy.c - parameters and gradients on their way between device and host.
 *
 * The trainer holds one flat buffer in its backend's memory. A round averages one host tensor
 * for each parameter, in the swarm's order. So each copy also reorders: tensor i of the swarm is
 * tensor order[i] of the optimizer. */
#include "optimizer_state.h"
#include "runtime/transfer.h"

#include <stdlib.h>

float **optimizer_state_host(const struct optimizer_state *s)
{
    float **host = calloc(s->count + 1, sizeof *host);
    for (size_t i = 0; host && i < s->count; i++) {
        /* Pinned memory on a GPU: copies to it need no staging buffer, and can overlap with
         * computing. */
        host[i] = pl_host_alloc(s->be, s->tensors[s->order[i]].n * sizeof **host);
        if (host[i]) continue;
        optimizer_state_host_free(s, host);
        host = NULL;
    }
    return host;
}

void optimizer_state_host_free(const struct optimizer_state *s, float **host)
{
    for (size_t i = 0; host && i < s->count; i++) pl_host_free(s->be, host[i]);
    free(host);
}

/* Begins all copies before waiting for the first, so they follow each other without the host,
 * and kernels on the device go on meanwhile. Copies of one direction end in order: the last
 * ticket stands for all. */
int optimizer_state_get_begin(const struct optimizer_state *s, float *const *host,
                              const float *flat, uint64_t *ticket)
{
    int rc = PL_OK;
    *ticket = 0;
    for (size_t i = 0; !rc && i < s->count; i++) {
        const struct pl_optimizer_tensor *t = &s->tensors[s->order[i]];
        rc = pl_get_begin(s->be, ticket, host[i], flat + t->offset, t->n * sizeof(float));
    }
    return rc;
}

int optimizer_state_get(const struct optimizer_state *s, float *const *host, const float *flat)
{
    uint64_t ticket;
    int rc = optimizer_state_get_begin(s, host, flat, &ticket);
    int ended = pl_copy_end(s->be, ticket);
    return rc ? rc : ended;
}

int optimizer_state_put(const struct optimizer_state *s, float *flat, const float *const *host)
{
    uint64_t ticket = 0;
    int rc = PL_OK, ended;
    for (size_t i = 0; !rc && i < s->count; i++) {
        const struct pl_optimizer_tensor *t = &s->tensors[s->order[i]];
        rc = pl_put_begin(s->be, &ticket, flat + t->offset, host[i], t->n * sizeof(float));
    }
    /* Also after an error: no copy may be under way when its buffers are used or freed. */
    ended = pl_copy_end(s->be, ticket);
    if (s->optimizer) pl_optimizer_written(s->optimizer, flat);
    return rc ? rc : ended;
}
