/* train.c - see train.h. */
#include "train.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

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
    if (!rc && (rc = pl_trainer_keep(t))) pl_fail(err, rc, "training: out of memory");
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
    pl_optimizer_close(t->optimizer);
    free(t);
}

int pl_trainer_keep(struct pl_trainer *t)
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

static int forget_samples(struct pl_trainer *t)
{
    const struct pl_params *p = &t->model->params;
    t->samples = 0;
    memset(&t->sum, 0, sizeof t->sum);
    return p->be->fill(p->grad, 0, p->total);
}

static int roll_back(struct pl_trainer *t)
{
    const struct pl_params *p = &t->model->params;
    int rc = p->be->put(p->value, t->good_value, p->total * sizeof(float));
    for (size_t i = 0; !rc && i < pl_optimizer_state_count(t->optimizer); i++)
        rc = pl_optimizer_state_put(t->optimizer, i, t->good_state[i]);
    pl_optimizer_set_steps(t->optimizer, t->good_steps);
    t->step = t->good_step;
    return rc ? rc : forget_samples(t);
}

int pl_trainer_add(struct pl_trainer *t, const int32_t *text, const int32_t *codes, int B,
                   struct pl_err *err)
{
    struct pl_dalle_loss loss;
    int rc = pl_dalle_step(t->model, text, codes, B, B, &loss, err); /* a sum; the mean is taken once */
    if (rc) return rc;
    if (!isfinite(loss.total)) {
        uint64_t lost = t->samples + (uint64_t)B;
        rc = forget_samples(t);
        return rc ? rc
                  : pl_fail(err, PL_EFORMAT,
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
    return t->samples ? p->be->scale(p->grad, (float)(1.0 / (double)t->samples), p->total) : PL_OK;
}

int pl_trainer_step(struct pl_trainer *t, struct pl_train_report *report, struct pl_err *err)
{
    const struct pl_params *p = &t->model->params;
    struct pl_train_report r = { .samples = t->samples };
    uint64_t at = t->step;
    double norm, sum, n = t->samples ? (double)t->samples : 1;
    int rc;
    r.lr = pl_schedule_linear(t->options.peak, t->options.warmup, t->options.total, t->step);
    r.loss = (struct pl_dalle_loss){ t->sum.total / n, t->sum.text / n, t->sum.image / n };
    rc = pl_optimizer_grad_norm(t->optimizer, p->grad, &norm);
    r.grad_norm = norm;
    if (rc) return pl_fail(err, rc, "step %llu: %s", (unsigned long long)at, pl_status_name(rc));
    if (!isfinite(norm)) {
        rc = forget_samples(t);
        return rc ? rc
                  : pl_fail(err, PL_EFORMAT,
                            "step %llu: the gradient is not finite; %llu samples "
                            "dropped, parameters kept",
                            (unsigned long long)at, (unsigned long long)r.samples);
    }
    rc = pl_optimizer_step(t->optimizer, p->value, p->grad, r.lr);
    if (!rc) rc = p->be->sumsq(&sum, p->value, p->total);
    if (rc) return pl_fail(err, rc, "step %llu: %s", (unsigned long long)at, pl_status_name(rc));
    if (!isfinite(sum)) {
        rc = roll_back(t);
        return rc ? rc
                  : pl_fail(err, PL_EFORMAT,
                            "step %llu: a parameter is not finite; back at step %llu",
                            (unsigned long long)at, (unsigned long long)t->step);
    }
    t->step++;
    if (report) *report = r;
    return forget_samples(t);
}
