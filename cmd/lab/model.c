/* model.c - gradients of the transformer for every peer of a swarm: one model, whose parameters are
 * exchanged for those of the peer at work; an inner optimizer for each. */
#include "model.h"

#include "cmd/train/train_data.h"
#include "cmd/train/train_job.h"
#include "data/models/dalle_config.h"
#include "ref/rng.h"

#include <limits.h>
#include <math.h>
#include <string.h>

#define RNG_SAMPLES 4 /* stream of the seed */

/* --- the swarm's callbacks -------------------------------------------------------------------- */

/* Samples belong to (seed, peer, step): no stream has to be remembered. */
static void draw_batch(struct lab_trained *t, int peer, uint64_t step)
{
    size_t T = (size_t)t->dalle->config.T, I = (size_t)(t->dalle->config.F * t->dalle->config.F);
    struct pl_rng rng;
    pl_rng_init(&rng, t->seed + step * 0x9e3779b97f4a7c15u, ((uint64_t)peer << 8) | RNG_SAMPLES);
    for (size_t b = 0; b < (size_t)t->batch; b++) {
        size_t i = (size_t)pl_rng_below(&rng, t->pairs);
        memcpy(t->batch_text + b * T, t->text + i * T, T * sizeof *t->text);
        memcpy(t->batch_codes + b * I, t->codes + i * I, I * sizeof *t->codes);
    }
}

static int gradient(void *context, float *g, double *loss, const float *x, int peer, uint64_t step,
                    struct pl_err *err)
{
    struct lab_trained *t = context;
    const struct pl_params *p = &t->dalle->params;
    struct pl_dalle_loss l;
    int rc;
    if (t->is_timing) {
        *loss = NAN;
        return p->be->fill(g, 0, p->total);
    }
    rc = p->be->copy(p->value, x, p->total);
    draw_batch(t, peer, step);
    if (!rc) rc = p->be->fill(p->grad, 0, p->total);
    if (rc) return pl_fail(err, rc, "gradient: %s", pl_status_name(rc));
    rc = pl_dalle_step(t->dalle, t->batch_text, t->batch_codes, t->batch, 1, &l, err);
    if (rc) return rc;
    *loss = l.total;
    rc = p->be->copy(g, p->grad, p->total);
    return rc ? pl_fail(err, rc, "gradient: %s", pl_status_name(rc)) : PL_OK;
}

static int step(void *context, int peer, float *x, float *g, double lr)
{
    struct lab_trained *t = context;
    return t->is_timing ? PL_OK : pl_optimizer_step(t->inner[peer], x, g, lr);
}

static int held_out(void *context, double *loss, const float *x, struct pl_err *err)
{
    struct lab_trained *t = context;
    const struct pl_params *p = &t->dalle->params;
    struct pl_dalle_loss l = { 0 };
    int rc;
    *loss = NAN;
    if (t->is_timing) return PL_OK;
    rc = p->be->copy(p->value, x, p->total);
    if (rc) return pl_fail(err, rc, "held-out loss: %s", pl_status_name(rc));
    rc = pl_dalle_evaluate(t->dalle, t->held_text, t->held_codes, t->held_out, &l, NULL, err);
    *loss = l.total;
    return rc;
}

/* The count of steps, then every array of the optimizer. */
static size_t state_bytes(void *context, int peer)
{
    struct lab_trained *t = context;
    size_t bytes = sizeof(uint64_t);
    for (size_t i = 0; i < pl_optimizer_state_count(t->inner[peer]); i++) {
        struct pl_optimizer_state s = pl_optimizer_state_at(t->inner[peer], i);
        bytes += s.n * s.element_size;
    }
    return bytes;
}

static int save(void *context, int peer, uint8_t *out)
{
    struct lab_trained *t = context;
    uint64_t steps = pl_optimizer_steps(t->inner[peer]);
    int rc = PL_OK;
    memcpy(out, &steps, sizeof steps);
    out += sizeof steps;
    for (size_t i = 0; i < pl_optimizer_state_count(t->inner[peer]) && !rc; i++) {
        struct pl_optimizer_state s = pl_optimizer_state_at(t->inner[peer], i);
        rc = pl_optimizer_state_get(t->inner[peer], i, out);
        out += s.n * s.element_size;
    }
    return rc;
}

static int load(void *context, int peer, const uint8_t *in)
{
    struct lab_trained *t = context;
    uint64_t steps;
    int rc = PL_OK;
    memcpy(&steps, in, sizeof steps);
    in += sizeof steps;
    for (size_t i = 0; i < pl_optimizer_state_count(t->inner[peer]) && !rc; i++) {
        struct pl_optimizer_state s = pl_optimizer_state_at(t->inner[peer], i);
        rc = pl_optimizer_state_put(t->inner[peer], i, in);
        in += s.n * s.element_size;
    }
    pl_optimizer_set_steps(t->inner[peer], steps);
    return rc;
}

/* --- open ------------------------------------------------------------------------------------- */

/* One epoch of the demo's pairs, or the first of it. */
static int read_pairs(struct lab_trained *t, struct train_data *d, size_t most, struct pl_err *err)
{
    size_t T = (size_t)t->dalle->config.T, I = (size_t)(t->dalle->config.F * t->dalle->config.F);
    struct stream_batch one;
    int rc = PL_OK;
    t->text = pl_alloc(most * T, sizeof *t->text);
    t->codes = pl_alloc(most * I, sizeof *t->codes);
    if (!t->text || !t->codes) return pl_fail(err, PL_ENOMEM, "no memory for %zu pairs", most);
    while (t->pairs < most && !(rc = pl_batch_stream_next(d->stream, &one, err))) {
        if (one.epoch && one.given > t->pairs && t->pairs) break;
        memcpy(t->text + t->pairs * T, one.tokens, T * sizeof *t->text);
        memcpy(t->codes + t->pairs * I, one.codes, I * sizeof *t->codes);
        t->pairs++;
    }
    return rc;
}

static int open_data(struct lab_trained *t, const struct lab_run *run, struct pl_err *err)
{
    struct train_data d = { 0 };
    struct train_source source;
    char path[PATH_MAX + 64];
    const struct pl_dalle_config *c = &t->dalle->config;
    int rc = train_data_add(&d, train_data_demo(path, sizeof path, "."), err);
    if (!rc) rc = train_data_without(&d, train_data_demo(path, sizeof path, "holdout.txt"), err);
    if (!rc) rc = train_data_tokenizer(&d, train_data_demo(path, sizeof path, "t5_2k.model"), err);
    if (!rc) rc = train_data_open(&d, c, 1, run->setup.seed, 0, &source, err);
    if (!rc) rc = read_pairs(t, &d, (size_t)run->pairs, err);
    if (!rc)
        rc = train_data_held_out(&d, c, (int)run->held_out, &t->held_text, &t->held_codes,
                                 &t->held_out, err);
    train_data_close(&d);
    if (rc) return rc;
    t->batch_text = pl_alloc((size_t)t->batch * (size_t)c->T, sizeof *t->batch_text);
    t->batch_codes = pl_alloc((size_t)t->batch * (size_t)(c->F * c->F), sizeof *t->batch_codes);
    return t->batch_text && t->batch_codes ? PL_OK : pl_fail(err, PL_ENOMEM, "no memory");
}

static int describe_tensors(struct lab_trained *t, int fragments)
{
    const struct pl_params *p = &t->dalle->params;
    if (!(t->tensors = pl_alloc(p->count, sizeof *t->tensors))) return PL_ENOMEM;
    for (size_t i = 0; i < p->count; i++) {
        const struct pl_param *from = &p->list[i];
        struct pl_outer_tensor *to = &t->tensors[i];
        *to = (struct pl_outer_tensor){ .offset = from->offset, .n = from->n, .axes = from->dims };
        memcpy(to->shape, from->shape, (size_t)from->dims * sizeof to->shape[0]);
    }
    pl_outer_cut(t->tensors, (int)p->count, fragments);
    return PL_OK;
}

int lab_trained_open(struct lab_trained *t, const struct lab_run *run, const struct pl_backend *be,
                     int is_timing, struct pl_err *err)
{
    struct pl_optimizer_options inner = run->inner == PL_LAMB   ? pl_lamb_options()
                                        : run->inner == PL_MUON ? pl_muon_options(run->decay)
                                                                : pl_adam_options(run->decay, 32);
    struct pl_dalle_config config;
    int rc = pl_dalle_config_find(&config, run->model, err);
    *t = (struct lab_trained){ .peers = run->setup.peers,
                               .batch = (int)run->batch,
                               .seed = run->setup.seed,
                               .is_timing = is_timing };
    inner.decay = run->decay;
    if (!rc) rc = pl_dalle_open(&t->dalle, &config, be, 1, err);
    if (!rc && (rc = pl_dalle_init(t->dalle, run->setup.seed)))
        pl_fail(err, rc, "initial values: %s", pl_status_name(rc));
    if (!rc && *run->start) rc = train_job_load(t->dalle, NULL, NULL, NULL, NULL, run->start, err);
    if (!rc) t->dalle->activations = PL_STORED; /* a small model: memory is no matter */
    if (!rc && (rc = describe_tensors(t, run->setup.outer.fragments)))
        pl_fail(err, rc, "no memory for the model's shapes");
    if (!rc) rc = open_data(t, run, err);
    for (int k = 0; k < t->peers && !rc; k++)
        rc = pl_optimizer_open_params(&t->inner[k], &t->dalle->params, &inner, err);
    if (rc) {
        lab_trained_close(t);
        return rc;
    }
    t->model = (struct lab_model){ .context = t,
                                   .be = be,
                                   .tensors = t->tensors,
                                   .count = (int)t->dalle->params.count,
                                   .n = t->dalle->params.total,
                                   .samples = t->batch,
                                   .gradient = gradient,
                                   .step = step,
                                   .held_out = held_out,
                                   .state_bytes = state_bytes,
                                   .save = save,
                                   .load = load };
    return PL_OK;
}

int lab_trained_save(struct lab_trained *t, const float *x, uint64_t steps, const char *folder,
                     struct pl_err *err)
{
    const struct pl_params *p = &t->dalle->params;
    int rc = p->be->copy(p->value, x, p->total);
    if (rc) return pl_fail(err, rc, "%s: %s", folder, pl_status_name(rc));
    return train_job_save(t->dalle, t->inner[0], NULL, NULL, steps, NULL, NULL, folder, 1, NULL,
                          err);
}

const float *lab_trained_start(const struct lab_trained *t) { return t->dalle->params.value; }

void lab_trained_close(struct lab_trained *t)
{
    for (int k = 0; k < t->peers; k++) pl_optimizer_close(t->inner[k]);
    pl_dalle_close(t->dalle);
    pl_free(t->tensors);
    pl_free(t->text);
    pl_free(t->codes);
    pl_free(t->held_text);
    pl_free(t->held_codes);
    pl_free(t->batch_text);
    pl_free(t->batch_codes);
    *t = (struct lab_trained){ 0 };
}
