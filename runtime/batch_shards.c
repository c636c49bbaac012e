/* batch_shards.c - the first shard is computed by the model itself; the others by models that share
 * its parameters' values and tables, with gradients and a workspace of their own. */
#include "batch_shards.h"
#include "dalle_run_internal.h"
#include "workspace.h"

#include <assert.h>
#include <stdlib.h>

int pl_batch_shards(size_t parameters, int B)
{
    int shards = 1;
    if (parameters >= PL_SHARD_PARAMETERS) return 1;
    while (shards < PL_SHARDS_MAX && B >= 2 * shards * PL_SHARD_SAMPLES) shards *= 2;
    return shards;
}

void dalle_release_shards(struct pl_dalle *m)
{
    struct pl_dalle_buffers *own = m->buffers;
    for (int i = 0; i < own->shards; i++) {
        struct pl_dalle *shard = &own->shard[i];
        m->be->free(shard->params.grad);
        pl_stack_release(&shard->stack);
        if (shard->buffers) dalle_release_buffers(shard);
        free(shard->buffers);
    }
    free(own->shard);
    own->shard = NULL;
    own->shards = 0;
}

static int reserve_shards(struct pl_dalle *m, int shards)
{
    struct pl_dalle_buffers *own = m->buffers;
    size_t bytes = m->params.total * sizeof(float);
    if (shards - 1 <= own->shards) return PL_OK;
    dalle_release_shards(m);
    if (!(own->shard = calloc((size_t)shards - 1, sizeof *own->shard))) return PL_ENOMEM;
    while (own->shards < shards - 1) {
        struct pl_dalle *shard = &own->shard[own->shards++];
        shard->be = m->be;
        shard->buffers = calloc(1, sizeof *shard->buffers);
        shard->params.grad = m->be->alloc(bytes);
        if (!shard->buffers || !shard->params.grad) return PL_ENOMEM;
    }
    return PL_OK;
}

/* Everything but gradients and buffers is the model's, as it is now: settings and angles may have
 * changed since the last step. */
static void follow_model(struct pl_dalle *shard, const struct pl_dalle *m)
{
    struct pl_dalle own = *shard;
    *shard = *m;
    shard->buffers = own.buffers;
    shard->params.grad = own.params.grad;
    shard->stack = own.stack;
    shard->stack.blocks = m->stack.blocks;
    shard->stack.blocks.params = &shard->params;
}

struct sharded {
    struct pl_dalle *m;
    const int32_t *text, *codes;
    int B, count;
    double scale;
    struct pl_dalle_loss loss[PL_SHARDS_MAX];
};

static int run_shard(void *context, int i)
{
    struct sharded *s = context;
    const struct pl_dalle_config *c = &s->m->config;
    int from = s->B * i / s->count, count = s->B * (i + 1) / s->count - from, rc = PL_OK;
    struct pl_dalle *m = i ? &s->m->buffers->shard[i - 1] : s->m;
    if (i) {
        follow_model(m, s->m);
        m->noise.first += (uint64_t)from;
        rc = m->be->fill(m->params.grad, 0, m->params.total);
    }
    if (rc) return rc;
    return dalle_step_part(m, s->text + (size_t)from * (size_t)c->T,
                           s->codes + (size_t)from * (size_t)(c->F * c->F), count,
                           (double)count / s->B, s->scale, &s->loss[i]);
}

int dalle_step_sharded(struct pl_dalle *m, const int32_t *text, const int32_t *codes, int B,
                       int shards, double scale, struct pl_dalle_loss *loss)
{
    struct sharded s = {
        .m = m, .text = text, .codes = codes, .B = B, .count = shards, .scale = scale
    };
    const struct pl_params *p = &m->params;
    int rc = reserve_shards(m, shards);
    assert(shards <= PL_SHARDS_MAX && shards <= B);
    if (rc == PL_OK) rc = m->be->parallel_for(shards, run_shard, &s);
    for (int i = 0; i < shards && rc == PL_OK; i++) {
        if (i) rc = m->be->axpy(p->grad, 1, m->buffers->shard[i - 1].params.grad, p->total);
        loss->text += s.loss[i].text;
        loss->image += s.loss[i].image;
        loss->total += s.loss[i].total;
    }
    return rc;
}
