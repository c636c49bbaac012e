/* batch_shards.c - a small model's batch on several threads, each with a part of it all the way: see
 * pl_dalle_step. The first lane is the model itself; the others are twins that share its
 * parameters' values and tables, with gradients and a workspace of their own. */
#include "batch_shards.h"

#include <assert.h>
#include <stdlib.h>

void pl_dalle_release_shards(struct pl_dalle *m)
{
    for (int i = 0; i < m->lanes_made; i++) {
        m->be->free(m->lane[i].params.grad);
        pl_stack_release(&m->lane[i].stack);
        pl_dalle_release_ids(&m->lane[i]);
    }
    free(m->lane);
    m->lane = NULL;
    m->lanes_made = 0;
}

static int make_lanes(struct pl_dalle *m, int lanes)
{
    size_t bytes = m->params.total * sizeof(float);
    if (lanes - 1 <= m->lanes_made) return PL_OK;
    pl_dalle_release_shards(m);
    if (!(m->lane = calloc((size_t)lanes - 1, sizeof *m->lane))) return PL_ENOMEM;
    for (; m->lanes_made < lanes - 1; m->lanes_made++) {
        struct pl_dalle *l = &m->lane[m->lanes_made];
        l->be = m->be;
        if (!(l->params.grad = m->be->alloc(bytes))) return PL_ENOMEM;
    }
    return PL_OK;
}

/* All that is the model's own, as it is now. */
static void follow(struct pl_dalle *lane, const struct pl_dalle *m)
{
    float *grad = lane->params.grad;
    lane->config = m->config;
    lane->params = m->params;
    lane->params.grad = grad;
    lane->stack.blocks = m->stack.blocks;
    lane->stack.blocks.params = &lane->params;
    lane->gain = m->gain;
    lane->offset = m->offset;
    lane->table = m->table;
    lane->bias = m->bias;
    lane->text_table = m->text_table;
    lane->image_table = m->image_table;
    lane->activations = m->activations;
    lane->samples = m->samples;
}

struct lanes {
    struct pl_dalle *m;
    const int32_t *text, *codes;
    int B, count;
    double scale;
    struct pl_dalle_loss loss[PL_SHARDS_MAX];
};

static int run_lane(void *context, int i)
{
    struct lanes *l = context;
    const struct pl_dalle_config *c = &l->m->config;
    int from = l->B * i / l->count, count = l->B * (i + 1) / l->count - from, rc = PL_OK;
    struct pl_dalle *m = i ? &l->m->lane[i - 1] : l->m;
    if (i) {
        follow(m, l->m);
        rc = m->be->fill(m->params.grad, 0, m->params.total);
    }
    if (rc) return rc;
    return pl_dalle_step_part(m, l->text + (size_t)from * (size_t)c->T,
                              l->codes + (size_t)from * (size_t)(c->F * c->F), count,
                              (double)count / l->B, l->scale, &l->loss[i]);
}

int pl_dalle_step_sharded(struct pl_dalle *m, const int32_t *text, const int32_t *codes, int B,
                           int lanes, double scale, struct pl_dalle_loss *loss)
{
    struct lanes l = { .m = m, .text = text, .codes = codes, .B = B, .count = lanes, .scale = scale };
    const struct pl_params *p = &m->params;
    int rc = make_lanes(m, lanes);
    assert(lanes <= PL_SHARDS_MAX && lanes <= B);
    if (rc == PL_OK) rc = m->be->parallel_for(lanes, run_lane, &l);
    for (int i = 0; i < lanes && rc == PL_OK; i++) {
        if (i) rc = m->be->axpy(p->grad, 1, m->lane[i - 1].params.grad, p->total);
        loss->text += l.loss[i].text;
        loss->image += l.loss[i].image;
        loss->total += l.loss[i].total;
    }
    return rc;
}
