/* dalle_run.c - a batch of any size goes through ref/model/dalle.c a few sequences at a time: as
 * many as make matrix products efficient, in buffers that the next batch uses again. */
#include "batch_shards.h"
#include "dalle_run_internal.h"
#include "workspace.h"

#include <assert.h>
#include <float.h>
#include <stdlib.h>
#include <string.h>

static size_t floats(int rows, int columns) { return (size_t)rows * (size_t)columns; }

/* --- open, close ------------------------------------------------------------------------------ */

int pl_dalle_open(struct pl_dalle **out, const struct pl_dalle_config *config,
                  const struct pl_backend *be, int with_grad, struct pl_err *err)
{
    struct pl_dalle *m;
    int rc;
    *out = NULL;
    if ((rc = pl_dalle_config_check(config, err))) return rc;
    m = calloc(1, sizeof *m);
    if (!m) return pl_fail(err, PL_ENOMEM, "out of memory");
    m->config = *config;
    m->be = be;
    m->buffers = calloc(1, sizeof *m->buffers);
    if ((rc = m->buffers ? PL_OK : PL_ENOMEM) || (rc = pl_dalle_declare(m)) ||
        (be && ((rc = pl_params_allocate(&m->params, be, with_grad)) ||
                (rc = pl_blocks_prepare(&m->stack.blocks, be))))) {
        pl_fail(err, rc, "a model of %zu parameters: %s", m->params.trainable, pl_status_name(rc));
        pl_dalle_close(m);
        return rc;
    }
    *out = m;
    return PL_OK;
}

void pl_dalle_close(struct pl_dalle *m)
{
    if (!m) return;
    if (m->be && m->buffers) {
        dalle_release_shards(m);
        dalle_release_buffers(m);
    }
    free(m->buffers);
    pl_stack_clear(&m->stack);
    pl_params_clear(&m->params);
    free(m);
}

/* --- batches ---------------------------------------------------------------------------------- */

int pl_dalle_check_ids(const struct pl_dalle_config *c, const int32_t *text, const int32_t *codes,
                       int count, int B, struct pl_err *err)
{
    for (size_t i = 0; i < floats(B, c->T); i++)
        if (text[i] < 0 || text[i] >= c->V)
            return pl_fail(err, PL_EUSE, "sequence %zu, text position %zu: id %d, expected 0 to %d",
                           i / (size_t)c->T, i % (size_t)c->T, (int)text[i], c->V - 1);
    for (size_t i = 0; i < floats(B, count); i++)
        if (codes[i] < 0 || codes[i] >= c->Vi)
            return pl_fail(err, PL_EUSE,
                           "sequence %zu, image position %zu: code %d, expected 0 to %d",
                           i / (size_t)count, i % (size_t)count, (int)codes[i], c->Vi - 1);
    return PL_OK;
}

/* --- losses and gradients --------------------------------------------------------------------- */

/* Gives a failure of the machine a sentence; others have theirs. */
static int explain(const struct pl_dalle *m, int rc, struct pl_err *err)
{
    if (rc == PL_ENOMEM || rc == PL_EDEVICE)
        pl_fail(err, rc, "model %s: %s%s", m->config.name, pl_status_name(rc),
                rc == PL_ENOMEM ? " for the activations of a batch" : "");
    return rc;
}

int pl_dalle_step(struct pl_dalle *m, const int32_t *text, const int32_t *codes, int B,
                  double scale, struct pl_dalle_loss *loss, struct pl_err *err)
{
    int shards = m->shards ? m->shards : pl_batch_shards(m->params.trainable, B);
    int rc = pl_dalle_check_ids(&m->config, text, codes, m->config.F * m->config.F, B, err);
    assert(B >= 1 && m->params.grad);
    *loss = (struct pl_dalle_loss){ 0 };
    if (rc == PL_OK)
        rc = shards > 1 && m->be->parallel_for
                 ? dalle_step_sharded(m, text, codes, B, shards < B ? shards : B, scale, loss)
                 : dalle_step_part(m, text, codes, B, 1, scale, loss);
    return explain(m, rc, err);
}

int pl_dalle_evaluate(struct pl_dalle *m, const int32_t *text, const int32_t *codes, int B,
                      struct pl_dalle_loss *loss, float *logp, struct pl_err *err)
{
    const struct pl_dalle_config *c = &m->config;
    int S = pl_dalle_positions(c), I = c->F * c->F, each = dalle_at_a_time(m, B);
    int rc = pl_dalle_check_ids(c, text, codes, I, B, err);
    float *logp_be = logp ? m->be->alloc(floats(each, S) * sizeof *logp) : NULL;
    assert(B >= 1);
    *loss = (struct pl_dalle_loss){ 0 };
    if (rc == PL_OK && logp && !logp_be) rc = PL_ENOMEM;
    for (int b = 0, now; b < B && rc == PL_OK; b += now) {
        double mean[2];
        now = B - b < each ? B - b : each;
        rc = dalle_forward_loss(m, text + floats(b, c->T), codes + floats(b, I), now, 0, 0, 1, mean,
                                logp_be);
        if (rc == PL_OK && logp)
            rc = m->be->get(logp + floats(b, S), logp_be, floats(now, S) * sizeof *logp);
        if (rc == PL_OK) dalle_add_loss(loss, c, mean, (double)now / B);
    }
    m->be->free(logp_be);
    return explain(m, rc, err);
}

/* --- logits ----------------------------------------------------------------------------------- */

/* `rows` positions from row0 of the normed h choose among columns col0..col0+columns-1 of the
 * host's logits (.., Vt), through `z` in backend memory. */
static int part_of_logits(const struct pl_dalle *m, float *logits, float *host, float *z,
                          const float *h, int row0, int rows, int col0, int columns)
{
    const struct pl_params *p = &m->params;
    int D = m->config.D, Vt = pl_dalle_rows(&m->config), rc;
    rc = m->be->linear(z, h + floats(row0, D), pl_params_value(p, m->embedding) + floats(col0, D),
                       pl_params_value(p, m->output_bias) + col0, rows, D, columns);
    if (rc == PL_OK) rc = m->be->get(host, z, floats(rows, columns) * sizeof *host);
    for (int r = 0; r < rows && rc == PL_OK; r++)
        memcpy(logits + floats(row0 + r, Vt) + col0, host + floats(r, columns),
               (size_t)columns * sizeof *host);
    return rc;
}

int pl_dalle_logits(struct pl_dalle *m, float *logits, const int32_t *text, const int32_t *codes,
                    int count, int B, struct pl_err *err)
{
    const struct pl_dalle_config *c = &m->config;
    int n = dalle_length(c, count), Vx = pl_dalle_text_rows(c), Vt = pl_dalle_rows(c);
    int widest = Vx > c->Vi ? Vx : c->Vi, rc = pl_dalle_check_ids(c, text, codes, count, B, err);
    float *z = m->be->alloc(floats(n, widest) * sizeof *z),
          *host = pl_alloc(floats(n, widest), sizeof *host);
    if (rc == PL_OK && (!z || !host)) rc = PL_ENOMEM;
    for (size_t i = 0; i < (size_t)B * floats(n, Vt); i++) logits[i] = -FLT_MAX;
    for (int b = 0; b < B && rc == PL_OK; b++) {
        float *out = logits + (size_t)b * floats(n, Vt), *h;
        const int32_t *given = count ? codes + floats(b, count) : NULL;
        if ((rc = pl_dalle_enter(m, text + floats(b, c->T), given, count, 1)) ||
            (rc = pl_stack_forward(&m->stack, 1, n, 0)))
            break;
        h = pl_stack_spare(&m->stack);
        if ((rc = pl_dalle_final_norm(m, h, pl_stack_output(&m->stack), n)) ||
            (rc = part_of_logits(m, out, host, z, h, 0, c->T, 0, Vx)))
            break;
        rc = part_of_logits(m, out, host, z, h, c->T, n - c->T, Vx, c->Vi);
    }
    m->be->free(z);
    pl_free(host);
    return explain(m, rc, err);
}

int pl_dalle_next(struct pl_dalle *m, float *logits, const int32_t *text, const int32_t *codes,
                  int count, int B, struct pl_err *err)
{
    const struct pl_dalle_config *c = &m->config;
    int n = dalle_length(c, count), each = dalle_at_a_time(m, B);
    int rc = pl_dalle_check_ids(c, text, codes, count, B, err);
    size_t row = (size_t)c->Vi * sizeof(float);
    float *z = m->be->alloc(row);
    assert(0 <= count && count < c->F * c->F);
    if (rc == PL_OK && !z) rc = PL_ENOMEM;
    for (int b = 0, now; b < B && rc == PL_OK; b += now) {
        const int32_t *given = count ? codes + floats(b, count) : NULL;
        now = B - b < each ? B - b : each;
        rc = pl_dalle_enter(m, text + floats(b, c->T), given, count, now);
        if (rc == PL_OK) rc = pl_stack_forward(&m->stack, now, n, 0);
        for (int i = 0; i < now && rc == PL_OK; i++) {
            const float *last = pl_stack_output(&m->stack) + floats(i * n + n - 1, c->D);
            rc = pl_dalle_image_logits(m, z, pl_stack_spare(&m->stack), last, 1);
            if (rc == PL_OK) rc = m->be->get(logits + floats(b + i, c->Vi), z, row);
        }
    }
    m->be->free(z);
    return explain(m, rc, err);
}
