/* dalle_batch.c - one piece of a batch goes through ref/model/dalle.c, in buffers that the next
 * piece uses again: as many sequences at a time as make matrix products efficient. */
#include "dalle_run_internal.h"
#include "workspace.h"

#define POSITIONS_MAX (1 << 24) /* in one workspace; keeps every product of sizes far from 2^63 */
#define ROWS_ENOUGH 2560        /* positions in one matrix product; more of them gain nothing */

static size_t floats(int rows, int columns) { return (size_t)rows * (size_t)columns; }

void dalle_release_buffers(struct pl_dalle *m)
{
    struct pl_dalle_buffers *b = m->buffers;
    pl_free(b->ids);
    pl_free(b->labels);
    m->be->free(b->ids_be);
    m->be->free(b->labels_be);
    b->ids = b->labels = b->ids_be = b->labels_be = NULL;
    b->capacity = 0;
}

/* Positions of a sequence with `count` codes. */
int dalle_length(const struct pl_dalle_config *c, int count)
{
    int S = pl_dalle_positions(c);
    return c->T + 1 + count < S ? c->T + 1 + count : S;
}

/* Sequences to take at a time. */
int dalle_at_a_time(const struct pl_dalle *m, int B)
{
    int S = pl_dalle_positions(&m->config);
    int samples = m->samples > 0 ? m->samples : (ROWS_ENOUGH + S - 1) / S;
    if (samples > POSITIONS_MAX / S) samples = POSITIONS_MAX / S;
    return samples < B ? samples : B;
}

static int reserve(struct pl_dalle *m, int B)
{
    struct pl_dalle_buffers *b = m->buffers;
    int S = pl_dalle_positions(&m->config);
    size_t bytes = floats(B, S) * sizeof(int32_t);
    int rc = pl_stack_reserve(&m->stack, B * S, m->activations, m->params.grad != NULL);
    if (rc || B <= b->capacity) return rc;
    dalle_release_buffers(m);
    b->ids = pl_alloc(bytes, 1);
    b->labels = pl_alloc(bytes, 1);
    b->ids_be = m->be->alloc(bytes);
    b->labels_be = m->be->alloc(bytes);
    if (!b->ids || !b->labels || !b->ids_be || !b->labels_be) return PL_ENOMEM;
    b->capacity = B;
    return PL_OK;
}

/* A model that sees some wrong tokens cannot rely on the ones before: it learns to return to the
 * caption after a wrong token of its own, and memorizes less. */
static void replace_tokens(const struct pl_dalle_config *c, int32_t *ids, int n,
                           const struct pl_token_noise *noise, int b)
{
    const int first = c->separate_embedding ? 0 : pl_dalle_text_rows(c);
    struct pl_rng rng;
    pl_rng_init(&rng, noise->seed, noise->first + (uint64_t)b);
    for (int i = c->T + 1; i < n; i++)
        if (pl_rng_uniform(&rng) < noise->share)
            ids[i] = first + (int32_t)pl_rng_below(&rng, (uint64_t)c->Vi);
}

/* Reserves buffers and puts the ids of B sequences into the backend's. noise: or NULL. */
static int put_ids(struct pl_dalle *m, const int32_t *text, const int32_t *codes, int count, int B,
                   const struct pl_token_noise *noise, int before)
{
    const struct pl_dalle_config *c = &m->config;
    const struct pl_dalle_buffers *own = m->buffers;
    int n = dalle_length(c, count), rc = reserve(m, B);
    if (rc) return rc;
    for (int b = 0; b < B; b++) {
        pl_dalle_ids(c, own->ids + floats(b, n), text + floats(b, c->T),
                     count ? codes + floats(b, count) : NULL, count);
        if (noise && noise->share > 0)
            replace_tokens(c, own->ids + floats(b, n), n, noise, before + b);
    }
    return m->be->put(own->ids_be, own->ids, floats(B, n) * sizeof *own->ids);
}

int pl_dalle_enter(struct pl_dalle *m, const int32_t *text, const int32_t *codes, int count, int B)
{
    int n = dalle_length(&m->config, count), rc = put_ids(m, text, codes, count, B, NULL, 0);
    return rc ? rc : pl_dalle_embed(m, pl_stack_input(&m->stack), m->buffers->ids_be, B, n);
}

/* Forward pass and loss of B sequences, which have been checked; with `backward` the output layer's
 * gradients too, and with the model's noise; `before` of the batch's sequences came first. */
int dalle_forward_loss(struct pl_dalle *m, const int32_t *text, const int32_t *codes, int B,
                       int backward, int before, double scale, double mean[2], float *logp)
{
    const struct pl_dalle_config *c = &m->config;
    const struct pl_dalle_buffers *own = m->buffers;
    int S = pl_dalle_positions(c), I = c->F * c->F;
    int rc = put_ids(m, text, codes, I, B, backward ? &m->noise : NULL, before);
    if (rc) return rc;
    for (int b = 0; b < B; b++)
        pl_dalle_labels(c, own->labels + floats(b, S), text + floats(b, c->T),
                        codes + floats(b, I));
    if ((rc = m->be->put(own->labels_be, own->labels, floats(B, S) * sizeof *own->labels)) ||
        (rc = pl_dalle_forward(m, own->ids_be, B, S, backward)))
        return rc;
    return pl_dalle_output_loss(m, mean, logp, own->labels_be, B, scale, backward);
}

void dalle_add_loss(struct pl_dalle_loss *loss, const struct pl_dalle_config *c,
                    const double mean[2], double share)
{
    loss->text += share * mean[0];
    loss->image += share * mean[1];
    loss->total = (loss->text + c->image_weight * loss->image) / (1 + c->image_weight);
}

int dalle_step_part(struct pl_dalle *m, const int32_t *text, const int32_t *codes, int B,
                    double share, double scale, struct pl_dalle_loss *loss)
{
    const struct pl_dalle_config *c = &m->config;
    int I = c->F * c->F, each = dalle_at_a_time(m, B), rc = PL_OK;
    for (int b = 0, now; b < B && rc == PL_OK; b += now) {
        double mean[2], part;
        now = B - b < each ? B - b : each;
        part = share * now / B;
        rc = dalle_forward_loss(m, text + floats(b, c->T), codes + floats(b, I), now, 1, b,
                                scale * part, mean, NULL);
        if (rc == PL_OK) rc = pl_dalle_backward(m, m->buffers->ids_be, now);
        if (rc == PL_OK) dalle_add_loss(loss, c, mean, part);
    }
    return rc;
}
