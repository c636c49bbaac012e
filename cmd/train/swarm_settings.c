/* swarm_settings.c - what --algorithm and its settings mean for a training: the steps between two
 * exchanges, and the state that the algorithm keeps over the parameters, which goes into each
 * checkpoint. */
#include "swarm_settings.h"
/* An inner header: the state is opened before the optimizer is, since a checkpoint is read into
 * it. */
#include "net/hivemind/optimizer/optimizer_trainer.h"

static int set_up(struct pl_outer_setup *setup, const struct train_swarm *w, struct pl_err *err)
{
    const struct pl_collaborative_options o = { .algorithm = w->algorithm,
                                                .algorithm_settings = w->algorithm_settings,
                                                .inner_steps = w->inner_steps,
                                                .outer_lr = w->outer_lr,
                                                .outer_momentum = w->outer_momentum };
    return collaborative_outer_setup(setup, &o, err);
}

int64_t train_period(const struct train_swarm *w)
{
    struct pl_outer_setup setup;
    return !train_outer(w) || set_up(&setup, w, NULL) ? 1 : pl_outer_period(train_outer(w), &setup);
}

int train_settings(const struct train_swarm *w, struct pl_err *err)
{
    struct pl_outer_setup setup;
    return set_up(&setup, w, err);
}

int train_share_clip(struct train_swarm *w, struct averaging_options *a, struct pl_err *err)
{
    const char *given = w->algorithm_settings ? w->algorithm_settings : "";
    struct pl_outer_setup setup;
    int rc, n;
    if (!train_gathers(w) || a->clip == 0) return PL_OK;
    if ((rc = set_up(&setup, w, err))) return rc;
    if (setup.clip != a->clip) {
        n = snprintf(w->settings, sizeof w->settings, "%s%sclip=%.9g", given, *given ? "," : "",
                     a->clip);
        if (n >= (int)sizeof w->settings)
            return pl_fail(err, PL_EUSE, "--algorithm-settings: at most %zu characters",
                           sizeof w->settings - 1);
        w->algorithm_settings = w->settings;
    }
    a->clip = 0;
    return PL_OK;
}

int train_swarm_open_outer(struct pl_outer **outer, const struct train_swarm *w,
                           struct pl_trainer *trainer, struct pl_err *err)
{
    const struct pl_outer_algorithm *algorithm = train_outer(w);
    const struct pl_params *p = &trainer->model->params;
    struct optimizer_state state;
    struct pl_outer_setup setup;
    int rc;
    *outer = NULL;
    if (!algorithm) return PL_OK;
    if ((rc = set_up(&setup, w, err))) return rc;
    rc = optimizer_state_open_params(&state, NULL, &trainer->options.optimizer, p, err);
    if (rc) return rc;
    rc = optimizer_state_open_outer(outer, &state, algorithm, &setup, p->value, err);
    optimizer_state_close(&state);
    return rc;
}
