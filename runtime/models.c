/* models.c - every model's memory is the same: one flat buffer of parameters, one of gradients,
 * and a pool. */
#include "models.h"
#include "pool.h"

#include <string.h>

static int allocate(struct pl_params *params, struct pl_scratch **scratch,
                    const struct pl_backend *be, int with_grad)
{
    *scratch = pl_pool_open(be);
    return *scratch ? pl_params_allocate(params, be, with_grad) : PL_ENOMEM;
}

int pl_vqgan_init(struct pl_vqgan *m, const struct pl_vqgan_config *config,
                  const struct pl_backend *be, int with_grad)
{
    int rc = pl_vqgan_declare(m, config);
    if (rc) return rc;
    rc = allocate(&m->params, &m->scratch, be, with_grad);
    if (rc) pl_vqgan_clear(m);
    return rc;
}

void pl_vqgan_clear(struct pl_vqgan *m)
{
    pl_params_clear(&m->params);
    pl_pool_close(m->scratch);
    memset(m, 0, sizeof *m);
}

int pl_clip_init(struct pl_clip_model *m, const struct pl_clip_config *config,
                 const struct pl_backend *be)
{
    int rc = pl_clip_declare(m, config);
    if (!rc) rc = allocate(&m->params, &m->scratch, be, 0);
    m->vision.scratch = m->text.scratch = m->scratch;
    if (rc) pl_clip_clear(m);
    return rc;
}

void pl_clip_clear(struct pl_clip_model *m)
{
    pl_pool_close(m->scratch);
    m->scratch = NULL;
    pl_params_clear(&m->params);
}

int pl_gpt2_init(struct pl_gpt2 *m, const struct pl_gpt2_config *config,
                 const struct pl_backend *be, int with_grad)
{
    size_t bytes = (size_t)config->vocab * sizeof(float);
    int rc = pl_gpt2_declare(m, config);
    if (!rc) rc = allocate(&m->params, &m->scratch, be, with_grad);
    m->stack.scratch = m->scratch;
    if (!rc && (!(m->zeros = be->alloc(bytes)) || !(m->no_grad = be->alloc(bytes)))) rc = PL_ENOMEM;
    if (rc) pl_gpt2_clear(m);
    return rc;
}

void pl_gpt2_clear(struct pl_gpt2 *m)
{
    const struct pl_backend *be = m->params.be;
    if (be) {
        be->free(m->zeros);
        be->free(m->no_grad);
    }
    pl_prenorm_forget(&m->stack);
    pl_pool_close(m->scratch);
    pl_params_clear(&m->params);
    memset(m, 0, sizeof *m);
}
