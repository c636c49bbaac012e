/* replicas.c - data parallelism in one process: a thread for each device, since an operation may
 * wait for its own; gradients are summed by slices, each device summing one (reduce-scatter), and
 * then gathered by the first. */
#include "replicas.h"

#include "transfer.h"

#include <pthread.h>
#include <stdlib.h>

#define SLICE_ALIGN 16 /* floats: slices begin on cache lines */

struct part {
    struct pl_replicas *all;
    int index;
    struct pl_dalle *model; /* the first's is borrowed */
    pthread_t thread;
    int started, rc;
    struct pl_dalle_loss loss;
    struct pl_err err;
};

typedef int work_fn(struct part *p);

struct pl_replicas {
    int count;
    struct part *parts;
    work_fn *work;
    /* of the step under way */
    const int32_t *text, *codes;
    int B;
    double scale;
};

static void *run(void *part)
{
    struct part *p = part;
    p->rc = pl_use_device(p->all->parts[0].model->be, p->index);
    if (!p->rc) p->rc = p->all->work(p);
    if (!p->rc) p->rc = p->model->be->sync(); /* other devices may read its results now */
    return NULL;
}

/* The same work on every device at once, the first's on this thread. All have ended when it
 * returns; the status is that of the first device that failed. */
static int everywhere(struct pl_replicas *r, work_fn *work)
{
    int rc = PL_OK;
    r->work = work;
    for (int i = 1; i < r->count; i++) {
        struct part *p = &r->parts[i];
        p->started = !pthread_create(&p->thread, NULL, run, p);
        if (!p->started) p->rc = PL_ENOMEM;
    }
    run(&r->parts[0]);
    for (int i = 1; i < r->count; i++)
        if (r->parts[i].started) pthread_join(r->parts[i].thread, NULL);
    for (int i = r->count - 1; i >= 0; i--)
        if (r->parts[i].rc) rc = r->parts[i].rc;
    return rc;
}

static int make(struct part *p)
{
    const struct pl_dalle *first = p->all->parts[0].model;
    if (p->index) return pl_dalle_open(&p->model, &first->config, first->be, 1, &p->err);
    return PL_OK;
}

int pl_replicas_open(struct pl_replicas **out, struct pl_dalle *first, int count,
                     struct pl_err *err)
{
    struct pl_replicas *r = calloc(1, sizeof *r);
    int rc;
    *out = NULL;
    if (r && !(r->parts = calloc((size_t)count, sizeof *r->parts))) {
        free(r);
        r = NULL;
    }
    if (!r) return pl_fail(err, PL_ENOMEM, "several devices: out of memory");
    r->count = count;
    for (int i = 0; i < count; i++) r->parts[i] = (struct part){ .all = r, .index = i };
    r->parts[0].model = first;
    rc = everywhere(r, make);
    for (int i = 0; i < count && rc; i++)
        if (r->parts[i].rc) {
            pl_fail(err, rc, "device number %d of %d: %.300s", i + 1, count,
                    r->parts[i].err.text[0] ? r->parts[i].err.text : pl_status_name(rc));
            break;
        }
    if (rc) pl_replicas_close(r);
    else *out = r;
    return rc;
}

static int unmake(struct part *p)
{
    if (p->index) pl_dalle_close(p->model);
    p->model = p->all->parts[0].model; /* for the sync */
    return PL_OK;
}

void pl_replicas_close(struct pl_replicas *r)
{
    if (!r) return;
    everywhere(r, unmake);
    free(r->parts);
    free(r);
}

/* --- a step ----------------------------------------------------------------------------------- */

static int share_begin(const struct pl_replicas *r, int index)
{
    return (int)((int64_t)r->B * index / r->count);
}

static int step(struct part *p)
{
    const struct pl_replicas *r = p->all;
    struct pl_dalle *m = p->model, *first = r->parts[0].model;
    int at = share_begin(r, p->index), n = share_begin(r, p->index + 1) - at, rc = PL_OK;
    const struct pl_dalle_config *c = &m->config;
    p->loss = (struct pl_dalle_loss){ 0, 0, 0 };
    if (!n) return PL_OK;
    if (p->index) {
        m->activations = first->activations;
        m->samples = first->samples;
        m->shards = first->shards;
        m->noise = first->noise;
        m->noise.first += (uint64_t)at;
        /* Always: a flag for changed values could be forgotten, and over a device's link the copy
         * is a small share of what follows. */
        rc = pl_peer_copy(m->be, m->params.value, first->params.value, 0, m->params.total, 0);
    }
    return rc ? rc
              : pl_dalle_step(m, r->text + (size_t)at * (size_t)c->T,
                              r->codes + (size_t)at * (size_t)(c->F * c->F), n, r->scale * n / r->B,
                              &p->loss, &p->err);
}

int pl_replicas_step(struct pl_replicas *r, const int32_t *text, const int32_t *codes, int B,
                     double scale, struct pl_dalle_loss *loss, struct pl_err *err)
{
    struct pl_dalle *first = r->parts[0].model;
    const struct pl_dalle_config *c = &first->config;
    int rc = pl_dalle_check_ids(c, text, codes, c->F * c->F, B, err); /* before anybody's share */
    if (!rc && (rc = first->be->sync())) /* the others read its parameters */
        return pl_fail(err, rc, "first device: %s", pl_status_name(rc));
    if (rc) return rc;
    r->text = text;
    r->codes = codes;
    r->B = B;
    r->scale = scale;
    for (int i = 0; i < r->count; i++) r->parts[i].err.text[0] = 0;
    rc = everywhere(r, step);
    *loss = (struct pl_dalle_loss){ 0, 0, 0 };
    for (int i = 0; i < r->count; i++) {
        const struct part *p = &r->parts[i];
        double w = (double)(share_begin(r, i + 1) - share_begin(r, i)) / B;
        if (rc && p->rc == rc)
            return pl_fail(err, rc, "device number %d of %d: %.300s", i + 1, r->count,
                           p->err.text[0] ? p->err.text : pl_status_name(rc));
        loss->total += w * p->loss.total;
        loss->text += w * p->loss.text;
        loss->image += w * p->loss.image;
    }
    return rc;
}

/* --- the sum ---------------------------------------------------------------------------------- */

static size_t slice_begin(const struct pl_replicas *r, int index)
{
    size_t total = r->parts[0].model->params.total, lines = total / SLICE_ALIGN;
    if (index == r->count) return total;
    return lines * (size_t)index / (size_t)r->count * SLICE_ALIGN;
}

static int sum_slice(struct part *p)
{
    const struct pl_replicas *r = p->all;
    size_t at = slice_begin(r, p->index), n = slice_begin(r, p->index + 1) - at;
    int rc = PL_OK;
    for (int i = 1; i < r->count && n && !rc; i++) { /* each begins with its neighbour: no queue */
        int from = (p->index + i) % r->count;
        rc = pl_peer_copy(p->model->be, p->model->params.grad + at,
                          r->parts[from].model->params.grad + at, from, n, 1);
    }
    return rc;
}

static int gather(struct part *p)
{
    const struct pl_replicas *r = p->all;
    int rc = PL_OK;
    for (int i = 1; i < r->count && p->index == 0 && !rc; i++) {
        size_t at = slice_begin(r, i), n = slice_begin(r, i + 1) - at;
        if (n)
            rc = pl_peer_copy(p->model->be, p->model->params.grad + at,
                              r->parts[i].model->params.grad + at, i, n, 0);
    }
    return rc;
}

static int drop(struct part *p)
{
    struct pl_params *params = &p->model->params;
    return p->index ? params->be->fill(params->grad, 0, params->total) : PL_OK;
}

int pl_replicas_drop(struct pl_replicas *r) { return everywhere(r, drop); }

int pl_replicas_sum(struct pl_replicas *r)
{
    int rc = everywhere(r, sum_slice);
    if (!rc) rc = everywhere(r, gather);
    return rc ? rc : pl_replicas_drop(r);
}
