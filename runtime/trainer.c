/* trainer.c - the gradient of a large batch is a sum over small ones: accumulate, take the mean,
 * step once. A step may be delayed: it then overlaps with the next samples, on a copy. And a loss
 * or a parameter that is not finite leads back to the last good state. [TTT 3.3] */
#include "trainer.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define STEP_SAMPLES_MAX (1 << 20) /* streams of noise that a step may use */

int pl_trainer_open(struct pl_trainer **out, struct pl_dalle *model,
                    const struct pl_train_options *options, struct pl_err *err)
{
    struct pl_trainer *t = calloc(1, sizeof *t);
    int rc;
    *out = NULL;
    if (!t) return pl_fail(err, PL_ENOMEM, "training: out of memory");
    t->model = model;
    t->options = *options;
    rc = pl_optimizer_open_params(&t->optimizer, &model->params, &options->optimizer, err);
    if (!rc && options->devices > 1)
        rc = pl_replicas_open(&t->replicas, model, options->devices, err);
    if (!rc && (rc = pl_trainer_snapshot(t))) pl_fail(err, rc, "training: out of memory");
    if (rc) {
        pl_trainer_close(t);
        return rc;
    }
    *out = t;
    return PL_OK;
}

static size_t state_bytes(const struct pl_trainer *t, size_t i)
{
    struct pl_optimizer_state s = pl_optimizer_state_at(t->optimizer, i);
    return s.n * s.element_size;
}

void pl_trainer_close(struct pl_trainer *t)
{
    if (!t) return;
    if (t->good_state)
        for (size_t i = 0; i < pl_optimizer_state_count(t->optimizer); i++)
            pl_free(t->good_state[i]);
    free(t->good_state);
    pl_free(t->good_value);
    if (t->delayed_value) t->model->params.be->free(t->delayed_value);
    if (t->delayed_grad) t->model->params.be->free(t->delayed_grad);
    pl_replicas_close(t->replicas);
    pl_optimizer_close(t->optimizer);
    free(t);
}

int pl_trainer_snapshot(struct pl_trainer *t)
{
    const struct pl_params *p = &t->model->params;
    size_t states = pl_optimizer_state_count(t->optimizer);
    int rc;
    if (!t->good_value && !(t->good_value = pl_alloc(p->total, sizeof(float)))) return PL_ENOMEM;
    if (!t->good_state && !(t->good_state = calloc(states + 1, sizeof *t->good_state)))
        return PL_ENOMEM;
    rc = p->be->get(t->good_value, p->value, p->total * sizeof(float));
    for (size_t i = 0; !rc && i < states; i++) {
        if (!t->good_state[i] && !(t->good_state[i] = pl_alloc(state_bytes(t, i), 1)))
            return PL_ENOMEM;
        rc = pl_optimizer_state_get(t->optimizer, i, t->good_state[i]);
    }
    t->good_step = t->step;
    t->good_steps = pl_optimizer_steps(t->optimizer);
    return rc;
}

int pl_trainer_drop(struct pl_trainer *t)
{
    const struct pl_params *p = &t->model->params;
    int rc = t->replicas ? pl_replicas_drop(t->replicas) : PL_OK;
    t->samples = 0;
    memset(&t->sum, 0, sizeof t->sum);
    return rc ? rc : p->be->fill(p->grad, 0, p->total);
}

static int roll_back(struct pl_trainer *t)
{
    const struct pl_params *p = &t->model->params;
    int rc = p->be->put(p->value, t->good_value, p->total * sizeof(float));
    pl_optimizer_written(t->optimizer, p->value);
    for (size_t i = 0; !rc && i < pl_optimizer_state_count(t->optimizer); i++)
        rc = pl_optimizer_state_put(t->optimizer, i, t->good_state[i]);
    pl_optimizer_set_steps(t->optimizer, t->good_steps);
    t->step = t->good_step;
    return rc ? rc : pl_trainer_drop(t);
}

int pl_trainer_add(struct pl_trainer *t, const int32_t *text, const int32_t *codes, int B,
                   struct pl_err *err)
{
    const struct pl_train_options *o = &t->options;
    struct pl_dalle_loss loss;
    if (o->noise > 0)
        t->model->noise = (struct pl_token_noise){
            .share = pl_schedule_linear(o->noise, o->warmup, o->total, t->step),
            .seed = o->noise_seed,
            .first = t->step * STEP_SAMPLES_MAX + t->samples
        };
    /* a sum; the mean is taken once */
    int rc = t->replicas ? pl_replicas_step(t->replicas, text, codes, B, B, &loss, err)
                         : pl_dalle_step(t->model, text, codes, B, B, &loss, err);
    if (rc) return rc;
    if (!isfinite(loss.total)) {
        uint64_t lost = t->samples + (uint64_t)B;
        rc = pl_trainer_drop(t);
        return rc ? rc
                  : pl_fail(
                        err, PL_EFORMAT,
                        "step %llu: the loss is not finite; %llu samples dropped, parameters kept",
                        (unsigned long long)t->step, (unsigned long long)lost);
    }
    t->samples += (uint64_t)B;
    t->sum.total += B * loss.total;
    t->sum.text += B * loss.text;
    t->sum.image += B * loss.image;
    return PL_OK;
}

int pl_trainer_mean(struct pl_trainer *t)
{
    const struct pl_params *p = &t->model->params;
    int rc = t->replicas ? pl_replicas_sum(t->replicas) : PL_OK;
    if (rc) return rc;
    return t->samples ? p->be->scale(p->grad, (float)(1.0 / (double)t->samples), p->total) : PL_OK;
}

/* A step of `value` with `grad`. *ruined: the moments are not finite either. */
static int step_with(struct pl_trainer *t, float *value, float *grad, uint64_t samples,
                     const struct pl_dalle_loss *losses, struct pl_train_report *report,
                     int *ruined, struct pl_err *err)
{
    const struct pl_params *p = &t->model->params;
    unsigned long long at = (unsigned long long)t->step;
    double norm, sum, n = samples ? (double)samples : 1;
    int rc = pl_optimizer_grad_norm(t->optimizer, grad, &norm);
    *ruined = 0;
    *report = (struct pl_train_report){
        .lr = pl_schedule_linear(t->options.peak, t->options.warmup, t->options.total, t->step),
        .grad_norm = norm,
        .samples = samples,
        .loss = { losses->total / n, losses->text / n, losses->image / n }
    };
    if (rc) return pl_fail(err, rc, "step %llu: %s", at, pl_status_name(rc));
    if (!isfinite(norm))
        return pl_fail(
            err, PL_EFORMAT,
            "step %llu: the gradient is not finite; %llu samples dropped, parameters kept", at,
            (unsigned long long)samples);
    rc = pl_optimizer_step_normed(t->optimizer, value, grad, norm, report->lr);
    if (!rc) rc = p->be->sumsq(&sum, value, p->total);
    if (rc) return pl_fail(err, rc, "step %llu: %s", at, pl_status_name(rc));
    if (isfinite(sum)) return PL_OK;
    *ruined = 1;
    return pl_fail(err, PL_EFORMAT, "step %llu: a parameter is not finite; back at step %llu", at,
                   (unsigned long long)t->good_step);
}

int pl_trainer_step(struct pl_trainer *t, struct pl_train_report *report, struct pl_err *err)
{
    const struct pl_params *p = &t->model->params;
    struct pl_train_report r;
    int ruined, back, rc;
    rc = step_with(t, p->value, p->grad, t->samples, &t->sum, &r, &ruined, err);
    if (rc && rc != PL_EFORMAT) return rc;
    if (!rc) {
        t->step++;
        if (report) *report = r;
    }
    back = ruined ? roll_back(t) : pl_trainer_drop(t);
    return back ? back : rc;
}

/* --- delayed parameter updates ---------------------------------------------------------------- */

float *pl_trainer_delayed_grad(struct pl_trainer *t) { return t->delayed_grad; }

int pl_trainer_begin_delayed(struct pl_trainer *t)
{
    const struct pl_params *p = &t->model->params;
    size_t bytes;
    int rc;
    if (pl_size_mul(&bytes, p->total, sizeof(float))) return PL_ENOMEM;
    if (!t->delayed_grad && !(t->delayed_grad = p->be->alloc(bytes))) return PL_ENOMEM;
    if (!t->delayed_value && !(t->delayed_value = p->be->alloc(bytes))) return PL_ENOMEM;
    if ((rc = p->be->copy(t->delayed_grad, p->grad, p->total))) return rc;
    t->delayed_samples = t->samples;
    t->delayed_sum = t->sum;
    t->delayed_lost = t->delayed_ruined = 0;
    return pl_trainer_drop(t);
}

int pl_trainer_step_delayed(struct pl_trainer *t, struct pl_train_report *report,
                            struct pl_err *err)
{
    const struct pl_params *p = &t->model->params;
    int rc = p->be->copy(t->delayed_value, p->value, p->total);
    if (rc) pl_fail(err, rc, "step: %s", pl_status_name(rc));
    else
        rc = step_with(t, t->delayed_value, t->delayed_grad, t->delayed_samples, &t->delayed_sum,
                       report, &t->delayed_ruined, err);
    t->delayed_lost = rc != PL_OK;
    return rc;
}

int pl_trainer_apply_delayed(struct pl_trainer *t)
{
    const struct pl_params *p = &t->model->params;
    if (t->delayed_ruined) return roll_back(t);
    if (t->delayed_lost) return PL_OK;
    t->step++;
    return p->be->copy(p->value, t->delayed_value, p->total);
}
