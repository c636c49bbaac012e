/* golden_outer_swarm.c - peers in lock step, and the inner optimizers of the golden files. */
#include "golden_outer.h"
#include "ref/muon.h"

#include <math.h>
#include <string.h>

int outer_swarm_open(struct outer_swarm *s, struct golden *g, const char *algorithm,
                     const struct pl_outer_setup *setup, const float *init)
{
    const struct pl_outer_algorithm *a = pl_outer_find(algorithm);
    struct pl_err err = { "no such algorithm, or no memory" };
    int rc = a && setup->peers <= OUTER_PEERS_MAX ? PL_OK : PL_EUSE;
    memset(s, 0, sizeof *s);
    s->g = g;
    s->peers = setup->peers;
    for (int i = 0; i < setup->count; i++) s->n += setup->tensors[i].n;
    for (int k = 0; !rc && k < s->peers; k++) {
        struct pl_outer_setup own = *setup;
        own.rank = k;
        s->weight[k] = 1;
        s->x[k] = golden_up(g, init + (size_t)k * s->n, s->n);
        s->grad[k] = g->be->alloc(s->n * sizeof(float));
        rc = s->x[k] && s->grad[k] ? pl_outer_open(&s->o[k], a, &own, s->x[k], &err) : PL_ENOMEM;
    }
    if (rc) golden_fail(g, algorithm, "%s", err.text);
    return !rc;
}

void outer_swarm_close(struct outer_swarm *s)
{
    for (int k = 0; k < s->peers; k++) {
        pl_outer_close(s->o[k]);
        s->g->be->free(s->x[k]);
        s->g->be->free(s->grad[k]);
    }
    for (int q = 0; q < OUTER_QUEUE_MAX; q++)
        for (int k = 0; k < s->peers; k++) pl_free(s->queue[q][k].data);
}

int outer_swarm_step(struct outer_swarm *s, int k, const float *g, double lr,
                     int (*inner)(void *context, int k, float *x, const float *g), void *context)
{
    int next = s->g->be->put(s->grad[k], g, s->n * sizeof *g);
    if (!next) next = pl_outer_before_step(s->o[k], s->x[k], s->grad[k], lr);
    if (next == PL_OUTER_STEP) {
        next = inner(context, k, s->x[k], s->grad[k]);
        if (!next) next = pl_outer_after_step(s->o[k], s->x[k]);
    }
    s->next = next;
    return next;
}

static int send_all(struct outer_swarm *s)
{
    struct pl_outer_message *set = s->queue[s->tail % OUTER_QUEUE_MAX], m;
    int next = PL_OUTER_GRADIENT;
    for (int k = 0; k < s->peers && next >= 0; k++) {
        next = pl_outer_message(s->o[k], &m, s->x[k], s->grad[k]);
        pl_free(set[k].data);
        set[k] = m;
        set[k].weight = m.weight * s->weight[k];
        set[k].data = pl_alloc(m.bytes, 1);
        if (!set[k].data) return PL_ENOMEM;
        memcpy(set[k].data, m.data, m.bytes);
    }
    if (s->sent) s->sent(s->context, set);
    s->tail++;
    return next;
}

int outer_swarm_exchange(struct outer_swarm *s)
{
    while (s->next == PL_OUTER_SEND || s->next == PL_OUTER_RECEIVE) {
        if (s->next == PL_OUTER_SEND) {
            s->next = send_all(s);
        } else {
            struct pl_outer_message *set = s->queue[s->head++ % OUTER_QUEUE_MAX];
            int count = s->arrives && !s->arrives(s->context) ? 0 : s->peers;
            for (int k = 0; k < s->peers && s->next >= 0; k++)
                s->next = pl_outer_apply(s->o[k], s->x[k], s->grad[k], set, count);
        }
    }
    if (s->next < 0) golden_fail(s->g, "exchange", "%s", pl_status_name(s->next));
    return s->next;
}

/* ---- inner optimizers ---- */

static double member(const json_t *object, const char *key, double otherwise)
{
    const json_t *v = json_object_get(object, key);
    return json_is_number(v) ? json_number_value(v) : otherwise;
}

int outer_inner_open(struct outer_inner *in, const struct outer_file *r, const json_t *config,
                     int peers)
{
    const json_t *betas = json_object_get(config, "betas");
    const char *kind = json_string_value(json_object_get(config, "kind"));
    memset(in, 0, sizeof *in);
    in->be = r->g->be;
    in->r = r;
    in->kind = kind && !strcmp(kind, "sgd") ? INNER_SGD : INNER_ADAM;
    in->lr = member(config, "lr", 0);
    in->beta1 = json_number_value(json_array_get(betas, 0));
    in->beta2 = json_number_value(json_array_get(betas, 1));
    in->eps = member(config, "eps", 1e-8);
    in->decay = member(config, "wd", 0);
    in->clip = member(config, "clip", 0);
    for (int k = 0; k < peers; k++) {
        in->m[k] = in->be->alloc(r->n * sizeof(float));
        in->v[k] = in->be->alloc(r->n * sizeof(float));
        if (!in->m[k] || !in->v[k]) return 0;
    }
    return 1;
}

void outer_inner_close(struct outer_inner *in)
{
    for (int k = 0; k < OUTER_PEERS_MAX && in->be; k++) {
        in->be->free(in->m[k]);
        in->be->free(in->v[k]);
    }
}

static int adam(struct outer_inner *in, int k, float *x, const float *g, size_t n, size_t at,
                double clip)
{
    struct pl_moments m = { .value = { in->m[k] + at, in->v[k] + at } };
    struct pl_adam step = { .lr = in->lr,
                            .beta1 = in->beta1,
                            .beta2 = in->beta2,
                            .eps = in->eps,
                            .decay = in->decay,
                            .bias1 = 1 - pow(in->beta1, (double)in->t[k]),
                            .bias2 = 1 - pow(in->beta2, (double)in->t[k]),
                            .clip = (float)clip };
    return in->be->adam(x + at, g + at, &m, n, &step);
}

int outer_inner_step(void *context, int k, float *x, const float *g)
{
    struct outer_inner *in = context;
    const struct outer_file *r = in->r;
    double squares, clip = 1;
    int rc = in->be->sumsq(&squares, g, r->n);
    if (in->clip > 0) clip = fmin(1, in->clip / (sqrt(squares) + 1e-6)); /* torch's */
    in->t[k]++;
    if (in->kind == INNER_SGD) return rc ? rc : in->be->axpy(x, (float)(-in->lr * clip), g, r->n);
    for (int i = 0; !rc && i < r->count; i++) {
        const struct pl_outer_tensor *t = &r->tensors[i];
        int is_matrix = in->matrices < 0 ? t->axes > 1 : i < in->matrices;
        if (in->kind == INNER_MUON && is_matrix) {
            struct pl_muon step = { in->muon_lr, in->muon_momentum, in->muon_decay };
            rc = pl_muon_step(x + t->offset, in->m[k] + t->offset, g + t->offset, (int)t->shape[0],
                              (int)(t->n / (size_t)t->shape[0]), &step, in->be);
        } else rc = adam(in, k, x, g, t->n, t->offset, clip);
    }
    return rc;
}
