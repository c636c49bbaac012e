/* offload.c - three things at once: gradients of the next group come down, the host steps this
 * one, and new values of the last go up. Groups are whole tensors, because LAMB needs a tensor's
 * norm before it may change one element: small neighbours together, so that a copy is worth its
 * while. */
#include "offload.h"

#include "transfer.h"

#include <stdlib.h>

#define GROUP_FLOATS ((size_t)4 << 20) /* 16 MiB: 1 ms of the bus, hundreds of its latency */
#define GAP_MOST 16                    /* floats of padding, which params.h keeps zero */

struct group {
    size_t first, count; /* tensors */
    size_t offset, n;    /* floats, padding between them included */
    size_t master;       /* where they lie in the master */
};

struct pl_offload {
    const struct pl_backend *be;
    struct pl_optimizer_tensor *tensors;
    struct group *groups;
    size_t count;      /* groups */
    float *master;     /* page-locked, as the two below */
    float *grad[2];    /* one comes down while the other is used */
    uint64_t up;       /* the latest copy of new values */
    int stale, taking; /* the master is old; this step brings it down */
};

/* Neighbours with nothing but padding between them, up to a group's size or one tensor larger. */
static int divide(struct pl_offload *o, size_t count, size_t *total, size_t *largest)
{
    *total = *largest = 0;
    for (size_t i = 0; i < count; i++) {
        const struct pl_optimizer_tensor *t = &o->tensors[i];
        struct group *g = o->count ? &o->groups[o->count - 1] : NULL;
        size_t end = g ? g->offset + g->n : 0;
        if (t->offset < end) return PL_EUSE;
        if (g && t->offset - end < GAP_MOST && t->offset + t->n - g->offset <= GROUP_FLOATS) {
            g->n = t->offset + t->n - g->offset;
            g->count++;
        } else {
            o->groups[o->count++] = (struct group){
                .first = i, .count = 1, .offset = t->offset, .n = t->n
            };
        }
    }
    for (size_t k = 0; k < o->count; k++) {
        struct group *g = &o->groups[k];
        g->master = *total;
        *total += (g->n + GAP_MOST - 1) / GAP_MOST * GAP_MOST;
        if (g->n > *largest) *largest = g->n;
    }
    return PL_OK;
}

int pl_offload_open(struct pl_offload **out, const struct pl_backend *be,
                    const struct pl_optimizer_tensor *tensors, size_t count)
{
    struct pl_offload *o = calloc(1, sizeof *o);
    size_t total, largest, bytes;
    int rc;
    *out = NULL;
    if (!o) return PL_ENOMEM;
    o->be = be;
    o->stale = 1;
    o->tensors = calloc(count + 1, sizeof *o->tensors);
    o->groups = calloc(count + 1, sizeof *o->groups);
    rc = o->tensors && o->groups ? PL_OK : PL_ENOMEM;
    for (size_t i = 0; i < count && !rc; i++) o->tensors[i] = tensors[i];
    if (!rc) rc = divide(o, count, &total, &largest);
    if (!rc && pl_size_mul(&bytes, total, sizeof(float))) rc = PL_ENOMEM;
    if (!rc && !(o->master = pl_host_alloc(be, bytes))) rc = PL_ENOMEM;
    for (int k = 0; k < 2 && !rc; k++)
        if (!(o->grad[k] = pl_host_alloc(be, largest * sizeof(float)))) rc = PL_ENOMEM;
    if (rc) pl_offload_close(o);
    else *out = o;
    return rc;
}

void pl_offload_close(struct pl_offload *o)
{
    if (!o) return;
    if (o->master) pl_copy_end(o->be, o->up);
    pl_host_free(o->be, o->master);
    pl_host_free(o->be, o->grad[0]);
    pl_host_free(o->be, o->grad[1]);
    free(o->groups);
    free(o->tensors);
    free(o);
}

void pl_offload_stale(struct pl_offload *o) { o->stale = 1; }

/* A group's gradients, and its values where the master's are old, on their way down. Copies of one
 * direction follow each other, so the last one's ticket is all of theirs. */
static int fetch(struct pl_offload *o, size_t k, const float *value, const float *grad,
                 uint64_t *ticket)
{
    const struct group *g = &o->groups[k];
    int rc = o->taking ? pl_get_begin(o->be, ticket, o->master + g->master, value + g->offset,
                                      g->n * sizeof *value)
                       : PL_OK;
    return rc ? rc
              : pl_get_begin(o->be, ticket, o->grad[k % 2], grad + g->offset, g->n * sizeof *grad);
}

static int step_group(struct pl_offload *o, size_t k, pl_offload_step_fn *step, void *context)
{
    const struct group *g = &o->groups[k];
    int rc = PL_OK;
    for (size_t i = g->first; i < g->first + g->count && !rc; i++) {
        size_t at = o->tensors[i].offset - g->offset;
        if (o->tensors[i].n) rc = step(context, i, o->master + g->master + at, o->grad[k % 2] + at);
    }
    return rc;
}

int pl_offload_run(struct pl_offload *o, float *value, const float *grad, pl_offload_step_fn *step,
                   void *context)
{
    uint64_t down[2] = { 0, 0 };
    int rc, ended;
    o->taking = o->stale;
    o->stale = 0;
    rc = pl_copy_end(o->be, o->up); /* of the step before: the master is changed now */
    if (!rc && o->count) rc = fetch(o, 0, value, grad, &down[0]);
    for (size_t k = 0; k < o->count && !rc; k++) {
        const struct group *g = &o->groups[k];
        if (k + 1 < o->count) rc = fetch(o, k + 1, value, grad, &down[(k + 1) % 2]);
        if (!rc) rc = pl_copy_end(o->be, down[k % 2]);
        if (!rc) rc = step_group(o, k, step, context);
        if (!rc)
            rc = pl_put_begin(o->be, &o->up, value + g->offset, o->master + g->master,
                              g->n * sizeof *value);
    }
    if (rc) o->stale = 1;
    /* After an error the caller may free buffers that copies still use, so wait for all copies
     * first. */
    ended = rc ? o->be->sync() : pl_copy_join(o->be);
    return rc ? rc : ended;
}
