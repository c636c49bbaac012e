/* optimizer_outer.c - the state of a peer with local steps between two outer steps: phi and the
 * outer momentum (in pl_outer), the number of inner steps made, and whether a round has failed to
 * deliver its change x - phi. [spec outer-steps 3, 4]
 *
 *   step number = epoch H + inner - lead     H: inner steps of a period
 *   lead        steps by which Streaming DiLoCo's first message precedes a whole period; else 0
 *
 * optimizer_local.c makes these steps; a state downloaded from the swarm replaces this one. */
#include "optimizer_internal.h"
#include "ref/outer/settings.h"

#include <string.h>

/* --- counters --------------------------------------------------------------------------------- */

/* Where gradients travel, a step is an epoch. */
int64_t local_step_number(const struct pl_collaborative *c)
{
    return c->outer.state
               ? c->epoch * c->o.inner_steps + c->outer.inner - pl_outer_lead(c->outer.state)
               : c->epoch;
}

/* The counters of the saved state are those of the run: a checkpoint knows its epoch by them. */
void local_count_steps(struct pl_collaborative *c)
{
    c->outer.state->counter[PL_OUTER_ROUNDS] = (uint64_t)c->epoch;
    c->outer.state->counter[PL_OUTER_STEPS] = (uint64_t)local_step_number(c);
}

/* A progress record counts samples. An inner step counts as one target batch, however many samples
 * it had, so the record says which part of the period is done. */
void local_report_steps(struct pl_collaborative *c)
{
    if (c->outer.inner) training_add(c->training, c->outer.inner * c->o.target_batch, 0);
}

/* The inner steps of the present period, by the state's counters; at most `most`. Counters of
 * another epoch are not this period's, which begins anew then. */
static int64_t inner_steps_of(const struct pl_collaborative *c, int64_t most)
{
    const struct pl_outer *o = c->outer.state;
    const int64_t lead = pl_outer_lead(o), steps = (int64_t)o->counter[PL_OUTER_STEPS];
    const int64_t inner = steps + lead - c->epoch * c->o.inner_steps;
    return o->counter[PL_OUTER_ROUNDS] == (uint64_t)c->epoch && inner >= 0 && inner <= most ? inner
                                                                                            : lead;
}

void local_drop(struct pl_collaborative *c)
{
    c->trainer.change(c->trainer.context, TRAINER_DROP, c->epoch);
    c->outer.samples = 0;
}

/* --- a state of the swarm --------------------------------------------------------------------- */

/* x - phi, if a round has failed to deliver it. local_loaded adds it to the state that replaces
 * ours, so that this period's inner steps are not lost. */
int local_keep_change(struct pl_collaborative *c, float **change)
{
    const struct pl_outer *o = c->outer.state;
    const struct pl_backend *be = o->setup.be;
    const float *phi = pl_outer_get(o, "phi");
    int rc;
    *change = NULL;
    if (!c->outer.is_undelivered || !phi) return PL_OK;
    if (!(*change = be->alloc(o->n * sizeof **change))) return PL_ENOMEM;
    rc = be->copy(*change, c->trainer.value, o->n);
    return rc ? rc : be->axpy(*change, -1, phi, o->n);
}

/* The state has phi, the momentum and the counters; x = phi, so that a period begins with it. */
int local_loaded(struct pl_collaborative *c, const float *change)
{
    /* Others have what our error feedback has taken back: it must not be sent twice. */
    int rc = c->outer.is_delivered ? pl_outer_join(c->outer.state) : PL_OK;
    if (rc) return rc;
    /* Overlapping exchanges: we join the period that the others are in. */
    c->outer.inner = c->outer.overlaps && c->outer.has_local_steps
                         ? inner_steps_of(c, c->o.inner_steps)
                         : 0;
    c->outer.overlap.is_due = c->outer.inner == c->o.inner_steps;
    c->outer.is_new = 1;
    c->outer.is_undelivered = c->outer.is_delivered = 0;
    c->outer.began = pl_seconds();
    local_count_steps(c);
    return change ? c->outer.state->setup.be->axpy(c->trainer.value, 1, change, c->outer.state->n)
                  : PL_OK;
}

/* --- open, close ------------------------------------------------------------------------------ */

/* A group is new in each round: the number of peers is not known before. */
int collaborative_outer_setup(struct pl_outer_setup *setup,
                              const struct pl_collaborative_options *o, struct pl_err *err)
{
    const struct pl_outer_algorithm *algorithm = collaborative_gathers(o);
    const int H = algorithm && algorithm->sends_gradients ? 1 : (int)o->inner_steps;
    int rc;
    pl_outer_defaults(setup);
    /* These three have options of their own. */
    setup->H = H;
    setup->nu = o->outer_lr;
    setup->mu = o->outer_momentum;
    /* Reducers clip what they average; gathered messages each peer clips by itself. */
    setup->clip = algorithm ? o->clip : 0;
    if (algorithm && algorithm->exchange == PL_OUTER_GROUP) setup->peers = setup->group;
    if (!o->algorithm_settings || !*o->algorithm_settings)
        return algorithm ? pl_outer_check_clip(algorithm, setup, err) : PL_OK;
    if (!algorithm)
        return pl_fail(err, PL_EUSE, "algorithm %.40s has no further settings", o->algorithm);
    if ((rc = pl_outer_set_all(setup, o->algorithm_settings, err))) return rc;
    if (setup->H != H || setup->nu != o->outer_lr || setup->mu != o->outer_momentum)
        return pl_fail(err, PL_EUSE, "settings H, nu, mu: they have options of their own");
    if (algorithm->exchange == PL_OUTER_GROUP) setup->peers = setup->group;
    return pl_outer_check_clip(algorithm, setup, err);
}

int local_open(struct pl_collaborative *c, struct pl_err *err)
{
    const struct pl_collaborative_options *o = &c->o;
    const struct pl_outer_algorithm *algorithm = pl_outer_find(o->algorithm);
    struct pl_outer_setup setup;
    int rc = PL_OK;
    if (collaborative_averages_gradients(o)) return PL_OK;
    c->outer.state = c->trainer.outer;
    c->outer.gathers = collaborative_gathers(o) != NULL;
    c->outer.overlaps = algorithm->under_way != NULL;
    c->outer.has_local_steps = !algorithm->sends_gradients;
    if (c->outer.gathers) c->o.average_state_every = INT64_MAX; /* phi is equal, or need not be */
    /* A trainer of ours brings the state; for a library user it is made here. */
    if (!c->outer.state) {
        if ((rc = collaborative_outer_setup(&setup, o, err))) return rc;
        rc = optimizer_state_open_outer(&c->outer.own, c->trainer.state, algorithm, &setup,
                                        c->trainer.value, err);
        c->outer.state = c->outer.own;
    }
    if (!rc && c->outer.gathers) optimizer_state_use_whole_outer(c->trainer.state, c->outer.state);
    else if (!rc && (rc = optimizer_state_use_outer(c->trainer.state, c->outer.state)))
        pl_fail(err, rc, "no memory");
    if (rc) return rc;
    /* A state that was saved between two outer steps has made some inner ones. */
    c->o.inner_steps = pl_outer_period(algorithm, &c->outer.state->setup);
    if (c->outer.has_local_steps) c->outer.inner = inner_steps_of(c, INT64_MAX);
    c->outer.overlap.is_due = c->outer.overlaps && c->outer.inner == c->o.inner_steps;
    local_count_steps(c);
    c->outer.began = pl_seconds();
    return PL_OK;
}

void local_close(struct pl_collaborative *c)
{
    pl_outer_close(c->outer.own);
    c->outer.own = c->outer.state = NULL;
}
