/* optimizer_state_copy.c - parameters and gradients between the trainer's flat buffer, in its backend's memory, and one host
 * tensor for each parameter in the swarm's order, which is what rounds average. */
#include "optimizer_state.h"
#include "runtime/transfer.h"

#include <stdlib.h>

float **optimizer_state_host(const struct optimizer_state *s)
{
    float **host = calloc(s->count + 1, sizeof *host);
    for (size_t i = 0; host && i < s->count; i++) {
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

/* All copies are begun before the first is waited for: they follow each other without the host, and
 * what the device was told to compute meanwhile goes on. One direction's copies end in order, so
 * the last one's ticket is all of theirs. */
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
    ended = pl_copy_end(s->be, ticket);
    if (s->optimizer) pl_optimizer_written(s->optimizer, flat);
    return rc ? rc : ended;
}
