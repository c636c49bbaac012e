/* averager_powersgd.c - rounds of PowerSGD, as hivemind's PowerSGDGradientAverager makes them.
 * [spec wire-extensions A]
 *
 *     helper thread          network                  helper thread      network          helper
 *   a group: P = W Q -> all-reduce ID + "PHASE_P" -> Q' = W^T P -> ID + "PHASE_Q" -> G = P Q'^T
 *
 * Both phases have the group's shares, which follow from the full gradients. A faster groupmate
 * opens its stream of phase Q while we are still in phase P: that stream is parked, like a stream
 * that comes before our trigger (averager_parts.c).
 *
 * hivemind's peers keep their own values for parts that they lose in a phase, and go on. P then
 * differs between peers, and the Q of different P are averaged. Here a phase that has lost a
 * reducer fails, and with it the round: this peer leaves the group, nothing has changed, and
 * another group is searched. */
#include "averager_internal.h"
#include "net/hivemind/messages/msgpack.h"

#include <stdlib.h>
#include <string.h>

/* s for the states of RANK_VOTES_MAX peers: each is a few percent of the model. */
#define RANK_LIMIT 30.0

/* --- the state for newcomers: Q --------------------------------------------------------------- */

/* {group_bits: ""}, then each Q: copies, since they are served by pieces while the next rounds
 * change Q. [spec wire-extensions A.1] */
static struct state_snapshot *snapshot(const struct factors *f)
{
    struct state_snapshot *s = state_snapshot_new(f->count);
    struct bytes metadata = { 0 };
    int failed = !s;
    mp_map(&metadata, 1);
    mp_text(&metadata, "group_bits");
    mp_text(&metadata, "");
    for (size_t i = 0; !failed && i < f->count; i++) {
        const struct factors_matrix *m = &f->matrix[i];
        const struct pl_wire_type type = { .dtype = PL_F32, .dims = 2, .size = { m->b, f->rank } };
        float *copy = state_snapshot_add(s, &type);
        if (copy) memcpy(copy, m->Q, (size_t)m->b * (size_t)f->rank * sizeof *copy);
        failed = !copy;
    }
    if (failed || state_snapshot_describe(s, &metadata)) {
        state_snapshot_free(s);
        s = NULL;
    }
    bytes_clear(&metadata);
    return s;
}

/* Without memory newcomers still get the older state: its shapes are the same. */
static void share(struct averager *a, double priority)
{
    struct state_snapshot *s = snapshot(a->powersgd.factors);
    if (s) state_share_set(&a->share, s, priority);
}

/* --- the rank --------------------------------------------------------------------------------- */

int averager_compress(struct averager *a, int rank, struct pl_err *err)
{
    const struct factors_options o = { .be = a->o.be,
                                       .tensors = a->o.tensors,
                                       .schema = a->tensors.schema,
                                       .method = a->tensors.method,
                                       .small = a->o.factor_method[0],
                                       .large = a->o.factor_method[1],
                                       .rank = rank,
                                       .feedback = a->o.feedback,
                                       .random = a->o.random };
    const float *Q;
    struct factors *f;
    size_t n;
    int rc;
    /* Another rank has other shapes, so a round cannot change to it. */
    if (a->call.phase != AVERAGER_IDLE)
        return pl_fail(err, PL_EUSE, "PowerSGD: a round is under way");
    if ((rc = factors_open(&f, &o, err))) return rc;
    factors_close(a->powersgd.factors);
    a->powersgd.factors = f;
    if ((Q = rank_votes_factors(&a->powersgd.votes, rank, &n))) factors_begin_with(f, Q, n);
    rank_votes_clear(&a->powersgd.votes);
    share(a, 0); /* newcomers learn the rank from it before the first round */
    return PL_OK;
}

/* For a checkpoint: Q and the error M, which are this peer's own. They change while a helper thread
 * computes. */
int averager_save_factors(const struct averager *a, struct bytes *out)
{
    const struct factors *f = a->powersgd.factors;
    uint8_t *to;
    if (!f) return PL_EUSE;
    if (a->call.phase == AVERAGER_COMPUTING) return PL_EAGAIN;
    if (!(to = bytes_reserve(out, factors_state_bytes(f)))) return PL_ENOMEM;
    factors_save(f, to);
    out->end += factors_state_bytes(f);
    return PL_OK;
}

int averager_load_factors(struct averager *a, const uint8_t *data, size_t n, int64_t behind,
                          struct pl_err *err)
{
    int rc;
    if (!a->powersgd.factors || a->call.phase != AVERAGER_IDLE)
        return pl_fail(err, PL_EUSE, "PowerSGD: a round is under way");
    rc = factors_load(a->powersgd.factors, data, n, behind, err);
    share(a, 0);
    return rc;
}

/* Also called at the time limit: the votes that have come by then decide. */
static void answer_rank(void *context)
{
    struct averager *a = context;
    averager_rank *answered = a->powersgd.answered;
    size_t votes;
    const int rank = rank_votes_most(&a->powersgd.votes, &votes);
    if (!answered) return;
    timer_stop(&a->powersgd.limit);
    a->powersgd.answered = NULL;
    state_download_clear(&a->download);
    state_download_init(&a->download, &a->state);
    answered(a->powersgd.context, rank, votes);
}

/* Each state is a vote. This function refuses it as a state to load, so that the next peer is
 * asked. */
static int on_rank_state(void *context, const struct state_load *state, struct pl_err *err)
{
    struct averager *a = context;
    float *Q = NULL;
    size_t n = 0;
    int rank, rc = rank_of_state(&rank, state, a->tensors.schema, a->o.tensors, err);
    if (!rc && rank) rc = factors_of_state(&Q, &n, state, a->o.be, err);
    if (rc) return rc;
    rank_votes_add(&a->powersgd.votes, rank, Q, n);
    if (rank_votes_decided(&a->powersgd.votes)) return PL_OK;
    return pl_fail(err, PL_EPROTO, "PowerSGD: other peers are asked for the rank, too");
}

static void on_rank_loaded(void *context, int status, const struct peer_id *donor,
                           struct state_load *state, const struct pl_err *err)
{
    struct averager *a = context;
    /* From the loop: the download is still in its callback. */
    timer_start(a->loop, &a->powersgd.limit, 0, answer_rank, a);
}

/* The factors' shapes follow from the rank, and a group forms only among peers with equal shapes.
 * So a newcomer without a rank asks the run's peers before its first round. */
int averager_ask_rank(struct averager *a, averager_rank *answered, void *context)
{
    int rc;
    if (a->end.closed || a->powersgd.answered) return PL_EUSE;
    rank_votes_clear(&a->powersgd.votes);
    if ((rc = state_download_begin(&a->download, on_rank_state, on_rank_loaded, a))) return rc;
    a->powersgd.answered = answered;
    a->powersgd.context = context;
    timer_start(a->loop, &a->powersgd.limit, RANK_LIMIT, answer_rank, a);
    return PL_OK;
}

void averager_powersgd_close(struct averager *a)
{
    timer_stop(&a->powersgd.limit);
    rank_votes_clear(&a->powersgd.votes);
    factors_close(a->powersgd.factors);
    a->powersgd.factors = NULL;
}

/* --- computing -------------------------------------------------------------------------------- */

/* On the helper thread: the products of a large model take seconds, in which the loop goes on
 * answering others. The gradient is borrowed until the round ends, so nobody else changes it. */
static void run(void *context)
{
    struct averager *a = context;
    struct averager_powersgd *p = &a->powersgd;
    float *const *gradient = a->call.step.tensor;
    if (p->stage == POWERSGD_BEGIN) p->status = factors_begin(p->factors, gradient);
    else if (p->stage == POWERSGD_PROJECT) p->status = factors_project(p->factors, gradient);
    else p->status = factors_finish(p->factors, gradient);
}

static void on_run(void *context)
{
    struct averager *a = context;
    a->call.phase = AVERAGER_COMPUTED;
    averager_turn(a);
}

static void compute(struct averager *a, enum powersgd_stage stage)
{
    a->powersgd.stage = stage;
    a->call.phase = AVERAGER_COMPUTING;
    /* Without memory for a helper's job, here, a little late. */
    if (!loop_work(a->loop, run, on_run, a)) return;
    run(a);
    on_run(a);
}

/* --- phases ----------------------------------------------------------------------------------- */

/* A phase is an all-reduce of its own, under the group's ID and the phase's name. `later` names the
 * streams to be parked; `spent` has been used of the round's time limit. */
static void begin_phase(struct averager *a, enum powersgd_stage stage)
{
    static const char *const names[] = { [POWERSGD_P] = "PHASE_P", [POWERSGD_Q] = "PHASE_Q" };
    const int is_p = stage == POWERSGD_P;
    a->powersgd.stage = stage;
    a->round.phase = (struct round_phase){
        .what = &a->powersgd.factors->phase[is_p ? FACTORS_P : FACTORS_Q],
        .name = names[stage],
        .later = is_p ? names[POWERSGD_Q] : NULL,
        .spent = loop_now(a->loop) - a->powersgd.began
    };
    averager_round_begin(a);
}

/* The first products count towards the round's time limit: groupmates wait for them, too. */
void averager_powersgd_begin(struct averager *a)
{
    memset(&a->powersgd.report, 0, sizeof a->powersgd.report);
    a->powersgd.began = loop_now(a->loop);
    compute(a, POWERSGD_BEGIN);
}

/* Both phases, as one round. */
static void add_report(struct allreduce_report *to, const struct allreduce_report *p)
{
    to->values += p->values;
    to->received += p->received;
    to->bytes_out += p->bytes_out;
    to->bytes_in += p->bytes_in;
    to->values_out += p->values_out;
    /* A sender lost in both phases counts once; the weight is that of the poorer phase. */
    if (p->senders_lost > to->senders_lost) to->senders_lost = p->senders_lost;
    if (p->values && p->weight < to->weight) to->weight = p->weight;
}

/* A phase has ended, and its tensors hold the mean. After P: the orthonormal P, and Q' = W^T P.
 * After Q: G = P Q'^T, and the error of this round. */
int averager_powersgd_reduced(struct averager *a)
{
    struct allreduce_report *report = &a->call.result.report;
    if (!a->powersgd.factors) return 0;
    if (a->powersgd.stage == POWERSGD_P) {
        a->powersgd.report = *report;
        compute(a, POWERSGD_PROJECT);
    } else {
        add_report(report, &a->powersgd.report);
        compute(a, POWERSGD_FINISH);
    }
    return 1;
}

int averager_powersgd_computed(struct averager *a)
{
    struct averager_powersgd *p = &a->powersgd;
    const int is_cancelled = a->call.ending == ENDING_NOW;
    a->call.result.seconds = loop_now(a->loop) - p->began;
    /* The tensors hold the mean: even a cancelled round has ended well. */
    if (p->stage == POWERSGD_FINISH) {
        if (p->status) pl_fail(&a->call.why, p->status, "PowerSGD: no memory");
        else share(a, (double)a->call.step.claim.epoch);
        if (p->factors->note) pl_fail(&a->call.left_out, PL_OK, "%s", p->factors->note);
        return 0;
    }
    /* Before the last stage nothing has changed: M and Q change in factors_finish only, so the next
     * group may begin again with the same gradient. */
    if (!p->status && is_cancelled)
        p->status = pl_fail(&a->call.why, PL_EAGAIN, "averaging: cancelled");
    else if (p->status)
        pl_fail(&a->call.why, p->status, "PowerSGD: %s",
                p->status == PL_EFORMAT ? "the gradient is too large to be sent" : "no memory");
    if (p->status) return 0;
    /* P first, then Q, which also carries the tensors that are not compressed. */
    if (p->stage == POWERSGD_PROJECT) begin_phase(a, POWERSGD_Q);
    else if (p->factors->count) begin_phase(a, POWERSGD_P);
    else compute(a, POWERSGD_PROJECT); /* an empty phase P ends at once */
    return 1;
}
