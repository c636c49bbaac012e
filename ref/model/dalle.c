/* dalle.c - see dalle.h. */
#include "../../runtime/batch_shards.h"

#include <assert.h>
#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define POSITIONS_MAX (1 << 24) /* in one workspace; keeps every product of sizes far from 2^63 */
#define ROWS_ENOUGH 2560        /* positions in one product; more gain nothing */

static size_t floats(int rows, int columns)
{
    return (size_t)rows * (size_t)columns;
}

/* --- open, close, initial values -------------------------------------------------------------- */

static int declare_ends(struct pl_dalle *m)
{
    const struct pl_dalle_config *c = &m->config;
    int64_t D[1] = { c->D }, table[2] = { pl_dalle_rows(c), c->D };
    int64_t text[2] = { pl_dalle_text_rows(c), c->D }, image[2] = { c->Vi, c->D };
    int rc;
    m->gain = m->params.count;
    if ((rc = pl_params_add(&m->params, "model.to_logits.0.weight", 1, D, 1))) return rc;
    m->offset = m->params.count;
    if ((rc = pl_params_add(&m->params, "model.to_logits.0.bias", 1, D, 0))) return rc;
    m->table = m->params.count;
    if ((rc = pl_params_add(&m->params, "model.to_logits.1.weight", 2, table, 1))) return rc;
    m->bias = m->params.count;
    if ((rc = pl_params_add(&m->params, "model.to_logits.1.bias", 1, table, 0))) return rc;
    if (!c->separate_embedding) return PL_OK;
    m->text_table = m->params.count;
    if ((rc = pl_params_add(&m->params, "model.text_emb.weight", 2, text, 1))) return rc;
    m->image_table = m->params.count;
    return pl_params_add(&m->params, "model.image_emb.weight", 2, image, 1);
}

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
    if ((rc = pl_blocks_declare(&m->stack.blocks, &m->config, &m->params, "model.transformer.")) ||
        (rc = declare_ends(m)) ||
        (be && ((rc = pl_params_allocate(&m->params, be, with_grad)) ||
                (rc = pl_blocks_prepare(&m->stack.blocks, be))))) {
        pl_fail(err, rc, "a model of %zu parameters: %s", m->params.trainable, pl_status_name(rc));
        pl_dalle_close(m);
        return rc;
    }
    *out = m;
    return PL_OK;
}

void pl_dalle_release_ids(struct pl_dalle *m)
{
    pl_free(m->ids);
    pl_free(m->labels);
    m->be->free(m->ids_be);
    m->be->free(m->labels_be);
    m->ids = m->labels = m->ids_be = m->labels_be = NULL;
    m->room = 0;
}

void pl_dalle_close(struct pl_dalle *m)
{
    if (!m) return;
    if (m->be) {
        pl_dalle_release_shards(m);
        pl_dalle_release_ids(m);
    }
    pl_stack_clear(&m->stack);
    pl_params_clear(&m->params);
    free(m);
}

/* The package's separate tables are plain embeddings: standard normal. */
static int draw_normal(const struct pl_params *p, size_t index, struct pl_rng *rng)
{
    size_t n = p->list[index].n;
    float *host = pl_alloc(n, sizeof *host);
    int rc;
    if (!host) return PL_ENOMEM;
    for (size_t i = 0; i < n; i++) host[i] = (float)pl_rng_normal(rng);
    rc = pl_params_put(p, index, host);
    pl_free(host);
    return rc;
}

int pl_dalle_init(struct pl_dalle *m, uint64_t seed)
{
    float bound = 1 / sqrtf((float)m->config.D); /* as an output layer, also where it embeds */
    struct pl_rng rng;
    int rc;
    pl_rng_init(&rng, seed, 0);
    if ((rc = pl_blocks_init(&m->stack.blocks, &rng)) ||
        (rc = pl_params_constant(&m->params, m->gain, 1)) ||
        (rc = pl_params_constant(&m->params, m->offset, 0)) ||
        (rc = pl_params_uniform(&m->params, m->table, bound, &rng)) ||
        (rc = pl_params_uniform(&m->params, m->bias, bound, &rng)))
        return rc;
    if (!m->config.separate_embedding) return PL_OK;
    rc = draw_normal(&m->params, m->text_table, &rng);
    return rc ? rc : draw_normal(&m->params, m->image_table, &rng);
}

/* --- tokens ----------------------------------------------------------------------------------- */

/* A text id of 0 is the position's own padding id. */
static int32_t text_id(const struct pl_dalle_config *c, int32_t id, int position)
{
    return id ? id : c->V + position;
}

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

/* The start token, the text, the codes: rows of the table [spec dalle 2]. */
static void place_ids(const struct pl_dalle_config *c, int32_t *ids, const int32_t *text,
                      const int32_t *codes, int count)
{
    int I = c->F * c->F, used = count < I ? count : I - 1; /* the last code is a label only */
    int image = c->separate_embedding ? 0 : pl_dalle_text_rows(c);
    *ids++ = 0;
    for (int j = 0; j < c->T; j++) *ids++ = text_id(c, text[j], j);
    for (int i = 0; i < used; i++) *ids++ = image + codes[i];
}

void pl_dalle_labels(const struct pl_dalle_config *c, int32_t *labels, const int32_t *text,
                     const int32_t *codes)
{
    for (int j = 0; j < c->T; j++) labels[j] = text_id(c, text[j], j);
    for (int i = 0; i < c->F * c->F; i++) labels[c->T + i] = pl_dalle_text_rows(c) + codes[i];
}

/* The table of image codes alone. */
static size_t image_rows(const struct pl_dalle *m)
{
    if (m->config.separate_embedding) return m->params.list[m->image_table].offset;
    return m->params.list[m->table].offset + floats(pl_dalle_text_rows(&m->config), m->config.D);
}

int pl_dalle_embed_codes(const struct pl_dalle *m, float *x, const int32_t *codes, int M)
{
    return m->be->embed(x, m->params.value + image_rows(m), codes, M, m->config.D, m->config.Vi);
}

/* x (B,n,D) from ids (B,n). */
static int embed(const struct pl_dalle *m, float *x, const int32_t *ids, int B, int n)
{
    const struct pl_dalle_config *c = &m->config;
    int P = c->T + 1, D = c->D, rc = PL_OK;
    if (!c->separate_embedding)
        return m->be->embed(x, pl_params_value(&m->params, m->table), ids, B * n, D,
                            pl_dalle_rows(c));
    for (int b = 0; b < B && rc == PL_OK; b++, x += floats(n, D), ids += n) {
        rc = m->be->embed(x, pl_params_value(&m->params, m->text_table), ids, P, D,
                          pl_dalle_text_rows(c));
        if (rc == PL_OK && n > P)
            rc = pl_dalle_embed_codes(m, x + floats(P, D), ids + P, n - P);
    }
    return rc;
}

static int embed_backward(struct pl_dalle *m, const float *dx, const int32_t *ids, int B)
{
    const struct pl_dalle_config *c = &m->config;
    int P = c->T + 1, S = pl_dalle_positions(c), D = c->D, rc = PL_OK;
    if (!c->separate_embedding)
        return m->be->embed_backward(pl_params_grad(&m->params, m->table), dx, ids, B * S, D,
                                     pl_dalle_rows(c));
    for (int b = 0; b < B && rc == PL_OK; b++, dx += floats(S, D), ids += S) {
        rc = m->be->embed_backward(pl_params_grad(&m->params, m->text_table), dx, ids, P, D,
                                   pl_dalle_text_rows(c));
        if (rc == PL_OK && S > P)
            rc = m->be->embed_backward(m->params.grad + image_rows(m), dx + floats(P, D), ids + P,
                                       S - P, D, c->Vi);
    }
    return rc;
}

/* --- workspace -------------------------------------------------------------------------------- */

/* Positions of a sequence with `count` codes. */
static int length(const struct pl_dalle_config *c, int count)
{
    int S = pl_dalle_positions(c);
    return c->T + 1 + count < S ? c->T + 1 + count : S;
}

/* Sequences to take at a time. */
static int at_a_time(const struct pl_dalle *m, int B)
{
    int S = pl_dalle_positions(&m->config);
    int samples = m->samples > 0 ? m->samples : (ROWS_ENOUGH + S - 1) / S;
    if (samples > POSITIONS_MAX / S) samples = POSITIONS_MAX / S;
    return samples < B ? samples : B;
}

static int reserve(struct pl_dalle *m, int B)
{
    int S = pl_dalle_positions(&m->config);
    size_t bytes = floats(B, S) * sizeof(int32_t);
    int rc = pl_stack_reserve(&m->stack, B * S, m->activations, m->params.grad != NULL);
    if (rc || B <= m->room) return rc;
    pl_dalle_release_ids(m);
    m->ids = pl_alloc(bytes, 1);
    m->labels = pl_alloc(bytes, 1);
    m->ids_be = m->be->alloc(bytes);
    m->labels_be = m->be->alloc(bytes);
    if (!m->ids || !m->labels || !m->ids_be || !m->labels_be) return PL_ENOMEM;
    m->room = B;
    return PL_OK;
}

int pl_dalle_enter(struct pl_dalle *m, const int32_t *text, const int32_t *codes, int count, int B)
{
    const struct pl_dalle_config *c = &m->config;
    int n = length(c, count), rc = reserve(m, B);
    if (rc) return rc;
    for (int b = 0; b < B; b++)
        place_ids(c, m->ids + floats(b, n), text + floats(b, c->T),
                  count ? codes + floats(b, count) : NULL, count);
    rc = m->be->put(m->ids_be, m->ids, floats(B, n) * sizeof *m->ids);
    return rc ? rc : embed(m, pl_stack_input(&m->stack), m->ids_be, B, n);
}

/* The final norm of M rows. */
static int final_norm(const struct pl_dalle *m, float *h, const float *y, int M)
{
    return m->be->layer_norm(h, y, pl_params_value(&m->params, m->gain),
                             pl_params_value(&m->params, m->offset), M, m->config.D, PL_NORM_EPS);
}

/* --- losses and gradients --------------------------------------------------------------------- */

/* Text positions choose among the text rows, image positions among the codes [spec dalle 8]. */
static void segments(const struct pl_dalle_config *c, struct pl_loss_segment segment[2],
                     double scale)
{
    double text = 1 / (1 + c->image_weight), image = c->image_weight / (1 + c->image_weight);
    int S = pl_dalle_positions(c), Vx = pl_dalle_text_rows(c), Vt = pl_dalle_rows(c);
    segment[0] = (struct pl_loss_segment){ 0, c->T, 0, Vx, (float)(scale * text) };
    segment[1] = (struct pl_loss_segment){ c->T, S, Vx, Vt, (float)(scale * image) };
}

/* Embedding, stack, output layer and loss of B sequences; with `backward` the gradient of the
 * output layer too, and s->da is the one of the stack's output. mean: text and image. */
static int pass(struct pl_dalle *m, const int32_t *text, const int32_t *codes, int B, int backward,
                double scale, double mean[2], float *logp)
{
    const struct pl_dalle_config *c = &m->config;
    const struct pl_params *p = &m->params;
    const struct pl_backend *be = m->be;
    int S = pl_dalle_positions(c), M = B * S, D = c->D, rc;
    float *y, *h, *dy;
    struct pl_loss_segment segment[2];
    segments(c, segment, scale);
    if ((rc = pl_dalle_enter(m, text, codes, c->F * c->F, B))) return rc;
    y = pl_stack_output(&m->stack);
    h = pl_stack_spare(&m->stack);
    dy = m->stack.da;
    for (int b = 0; b < B; b++)
        pl_dalle_labels(c, m->labels + floats(b, S), text + floats(b, c->T),
                        codes + floats(b, c->F * c->F));
    if ((rc = be->put(m->labels_be, m->labels, floats(B, S) * sizeof *m->labels)) ||
        (rc = pl_stack_forward(&m->stack, B, S, backward)) || (rc = final_norm(m, h, y, M)) ||
        (rc = be->loss(mean, logp, backward ? dy : NULL,
                       backward ? pl_params_grad(p, m->table) : NULL,
                       backward ? pl_params_grad(p, m->bias) : NULL, h,
                       pl_params_value(p, m->table), pl_params_value(p, m->bias), m->labels_be,
                       segment, 2, B, S, D, pl_dalle_rows(c))))
        return rc;
    if (!backward) return PL_OK;
    return be->layer_norm_backward(dy, pl_params_grad(p, m->gain), pl_params_grad(p, m->offset), dy,
                                   y, pl_params_value(p, m->gain), M, D, PL_NORM_EPS, 0);
}

/* Gives a failure of the machine a sentence; others have theirs. */
static int explain(const struct pl_dalle *m, int rc, struct pl_err *err)
{
    if (rc == PL_ENOMEM || rc == PL_EDEVICE)
        pl_fail(err, rc, "model %s: %s%s", m->config.name, pl_status_name(rc),
                rc == PL_ENOMEM ? " for the activations of a batch" : "");
    return rc;
}

static void add_loss(struct pl_dalle_loss *loss, const struct pl_dalle_config *c,
                     const double mean[2], double share)
{
    loss->text += share * mean[0];
    loss->image += share * mean[1];
    loss->total = (loss->text + c->image_weight * loss->image) / (1 + c->image_weight);
}

int pl_dalle_step_part(struct pl_dalle *m, const int32_t *text, const int32_t *codes, int B,
                       double share, double scale, struct pl_dalle_loss *loss)
{
    const struct pl_dalle_config *c = &m->config;
    int S = pl_dalle_positions(c), I = c->F * c->F, each = at_a_time(m, B), rc = PL_OK;
    for (int b = 0, now; b < B && rc == PL_OK; b += now) {
        double mean[2], part;
        now = B - b < each ? B - b : each;
        part = share * now / B;
        if ((rc = pass(m, text + floats(b, c->T), codes + floats(b, I), now, 1, scale * part, mean,
                       NULL)) ||
            (rc = pl_stack_backward(&m->stack, now, S)) ||
            (rc = embed_backward(m, m->stack.da, m->ids_be, now)))
            break;
        add_loss(loss, c, mean, part);
    }
    return rc;
}

int pl_dalle_step(struct pl_dalle *m, const int32_t *text, const int32_t *codes, int B,
                  double scale, struct pl_dalle_loss *loss, struct pl_err *err)
{
    int lanes = m->lanes ? m->lanes : pl_batch_shards(m->params.trainable, B);
    int rc = pl_dalle_check_ids(&m->config, text, codes, m->config.F * m->config.F, B, err);
    assert(B >= 1 && m->params.grad);
    *loss = (struct pl_dalle_loss){ 0 };
    if (rc == PL_OK)
        rc = lanes > 1 && m->be->parallel_for
                 ? pl_dalle_step_sharded(m, text, codes, B, lanes < B ? lanes : B, scale, loss)
                 : pl_dalle_step_part(m, text, codes, B, 1, scale, loss);
    return explain(m, rc, err);
}

int pl_dalle_evaluate(struct pl_dalle *m, const int32_t *text, const int32_t *codes, int B,
                      struct pl_dalle_loss *loss, float *logp, struct pl_err *err)
{
    const struct pl_dalle_config *c = &m->config;
    int S = pl_dalle_positions(c), I = c->F * c->F, each = at_a_time(m, B);
    int rc = pl_dalle_check_ids(c, text, codes, I, B, err);
    float *logp_be = logp ? m->be->alloc(floats(each, S) * sizeof *logp) : NULL;
    assert(B >= 1);
    *loss = (struct pl_dalle_loss){ 0 };
    if (rc == PL_OK && logp && !logp_be) rc = PL_ENOMEM;
    for (int b = 0, now; b < B && rc == PL_OK; b += now) {
        double mean[2];
        now = B - b < each ? B - b : each;
        rc = pass(m, text + floats(b, c->T), codes + floats(b, I), now, 0, 1, mean, logp_be);
        if (rc == PL_OK && logp)
            rc = m->be->get(logp + floats(b, S), logp_be, floats(now, S) * sizeof *logp);
        if (rc == PL_OK) add_loss(loss, c, mean, (double)now / B);
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
    rc = m->be->linear(z, h + floats(row0, D), pl_params_value(p, m->table) + floats(col0, D),
                       pl_params_value(p, m->bias) + col0, rows, D, columns);
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
    int n = length(c, count), Vx = pl_dalle_text_rows(c), Vt = pl_dalle_rows(c);
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
        if ((rc = final_norm(m, h, pl_stack_output(&m->stack), n)) ||
            (rc = part_of_logits(m, out, host, z, h, 0, c->T, 0, Vx)))
            break;
        rc = part_of_logits(m, out, host, z, h, c->T, n - c->T, Vx, c->Vi);
    }
    m->be->free(z);
    pl_free(host);
    return explain(m, rc, err);
}

int pl_dalle_image_logits(const struct pl_dalle *m, float *logits, float *h, const float *y, int B)
{
    const struct pl_params *p = &m->params;
    int D = m->config.D, Vx = pl_dalle_text_rows(&m->config), rc = final_norm(m, h, y, B);
    if (rc) return rc;
    return m->be->linear(logits, h, pl_params_value(p, m->table) + floats(Vx, D),
                         pl_params_value(p, m->bias) + Vx, B, D, m->config.Vi);
}

int pl_dalle_next(struct pl_dalle *m, float *logits, const int32_t *text, const int32_t *codes,
                  int count, int B, struct pl_err *err)
{
    const struct pl_dalle_config *c = &m->config;
    int n = length(c, count), each = at_a_time(m, B);
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
