/* checks.c - the invariants. Each is checked at the event that could break it; what takes time to
 * come about is checked every second. */
#include "plan.h"
#include "threads.h"

#include "net/hivemind/moderation/bans.h"
#include "net/hivemind/progress/liveness.h"
#include "net/hivemind/training/training.h"
#include "net/loop/loop.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* bytes of one peer: records (DHT_STORE_MAX), its cache (DHT_CACHE_MAX), and 16 MiB for all else. A
 * quiet one has two. */
#define MEMORY_MAX (96u << 20)
#define CLIPPED 3e4 /* float16 ends at 65504: values that its encoder clips cannot agree */
/* Steps with our own gradient in a row, once faults have ended: a peer that has missed three rounds is
 * waited for again in every 16th (liveness.h). */
#define ALONE_MAX (LIVENESS_AGAIN + 1)
/* s that a connected peer is two epochs or more behind most others. Two parts of equal size need
 * longest. */
#define BEHIND_MAX 150.0
/* A round of the parameters may end this many times farther off than its farthest member began:
 * what compression rounds, and steps that another has made meanwhile. Of 8 bits for six standard
 * deviations each value is off by a hundredth more, however near the optimum is. */
#define CORRECTION_NOISE 1.05
#define CORRECTION_UNIFORM8 0.01
#define JOIN_MAX 90.0   /* s after which every peer can join again */
#define BEEN_MAX 8192   /* states that are remembered */
#define GROUPS_MAX 4096 /* all-reduces of a run, each as seen by one peer */

static int is_calm(double for_s) { return (double)sim_now() * 1e-9 > plan.calm_at + for_s; }

/* Failed allocations excuse an end by PL_ENOMEM, nothing else. */
static int lacked_memory(const struct trainer *t)
{
    return t->peer->malloc_failures > t->failures_at_boot;
}

/* --- no honest process ends or bans an honest one --------------------------------------------- */

void checks_error(struct trainer *t, int status, const char *why)
{
    sim_log("peer %d ends: %d %s", t->peer->index, status, why);
    if (lacked_memory(t) || is_byzantine(t)) return;
    /* An initial peer that cannot be reached is the one error that others may cause. */
    if (status == PL_EIO && !t->has_joined && !is_calm(JOIN_MAX)) return;
    sim_fail("peer %d has ended: %d, %s", t->peer->index, status, why);
}

int __real_bans_add(struct bans *b, double now, const struct peer_id *peer);
int __wrap_bans_add(struct bans *b, double now, const struct peer_id *peer);
int __wrap_bans_add(struct bans *b, double now, const struct peer_id *peer)
{
    struct sim_peer *p = sim_peer_here();
    for (int i = 0; i < plan.honest; i++)
        if (p && p->index < plan.honest && peer_id_equal(peer, &trainers[i].id))
            sim_fail("peer %d bans peer %d, which is honest", p->index, i);
    if (p) sim_log("peer %d bans a Byzantine peer", p->index);
    return __real_bans_add(b, now, peer);
}

/* --- epochs ----------------------------------------------------------------------------------- */

void checks_boot(struct trainer *t, int64_t epoch)
{
    t->has_joined = 0;
    t->epoch = epoch;
    t->was = t->distance;
    t->set_back = fmax(t->set_back, 1);
    if (epoch >= 0 && epoch < t->saved)
        sim_fail("peer %d boots with the checkpoint of epoch %lld, and had one of %lld",
                 t->peer->index, (long long)epoch, (long long)t->saved);
}

void checks_crash(struct trainer *t) { t->taking = NULL; }

static void check_epoch(struct trainer *t, const struct pl_collaborative_event *e)
{
    int64_t epoch = e->status.epoch;
    if (epoch < t->epoch)
        sim_fail("peer %d goes back from epoch %lld to %lld", t->peer->index, (long long)t->epoch,
                 (long long)epoch);
    if (e->kind == PL_COLLABORATIVE_EPOCH && epoch != t->epoch + 1)
        sim_fail("peer %d steps from epoch %lld to %lld", t->peer->index, (long long)t->epoch,
                 (long long)epoch);
    /* No peer has trained an epoch beyond the furthest peer's next one. */
    if (epoch > plan.furthest + 1)
        sim_fail("peer %d is at epoch %lld, which nobody has trained: the furthest is %lld",
                 t->peer->index, (long long)epoch, (long long)plan.furthest);
    t->epoch = epoch;
    if (epoch > plan.furthest) plan.furthest = epoch;
}

/* Where peers have been: a state that is loaded is one of these. */
static struct been {
    int64_t epoch;
    double distance;
} been[BEEN_MAX];
static size_t been_count;

static void note_state(const struct trainer *t, int64_t epoch)
{
    been[been_count++ % BEEN_MAX] = (struct been){ epoch, t->distance };
}

/* An epoch comes with a step or with a state of that epoch, nothing else moves it. */
static void check_state(const struct trainer *t, const struct pl_collaborative_event *e)
{
    int moves = e->kind == PL_COLLABORATIVE_EPOCH || e->kind == PL_COLLABORATIVE_LOADED ||
                e->kind == PL_COLLABORATIVE_CORRECTED;
    if (!moves && e->status.epoch != t->epoch)
        sim_fail("peer %d has moved from epoch %lld to %lld without a step or a state",
                 t->peer->index, (long long)t->epoch, (long long)e->status.epoch);
    if (!moves && t->distance != t->was)
        sim_fail("peer %d has other parameters without a step, a state or a round: %.6f, not %.6f",
                 t->peer->index, t->distance, t->was);
    if (e->kind != PL_COLLABORATIVE_LOADED) return;
    for (size_t i = 0; i < been_count && i < BEEN_MAX; i++)
        if (been[i].epoch == e->status.epoch &&
            fabs(been[i].distance - t->distance) <= 1e-2 * (1 + t->distance))
            return;
    sim_fail("peer %d has loaded a state of epoch %lld that nobody had", t->peer->index,
             (long long)e->status.epoch);
}

/* Another peer is at hand to average with, and does not download a state just now: a part of the swarm that is ahead goes on alone until
 * the larger one has come up to it (paper/security.md, "Open"). */
static int has_company(const struct trainer *t)
{
    for (int i = 0; i < plan.honest; i++)
        if (&trainers[i] != t && trainers[i].is_running && trainers[i].has_joined &&
            !trainers[i].is_behind && trainers[i].epoch >= t->epoch - 1 &&
            trainers[i].epoch <= t->epoch + 1)
            return 1;
    return 0;
}

static void check_averaging(struct trainer *t, const struct pl_collaborative_event *e)
{
    if (e->kind != PL_COLLABORATIVE_EPOCH) return;
    /* Its phi would be another one than that of the others. */
    if (plan_has_outer_steps() && e->round.status && strncmp(e->round.why, "alone", 5))
        sim_fail("peer %d has made an outer step without a mean: %s", t->peer->index, e->round.why);
    if (!e->round.status && e->round.peers > 1) t->alone = 0;
    else if (is_calm(0) && has_company(t) && ++t->alone > ALONE_MAX)
        sim_fail("peer %d has made %d steps alone since faults have ended", t->peer->index,
                 t->alone);
}

/* --- learning --------------------------------------------------------------------------------- */

/* 1: a Byzantine peer of this kind takes part. */
static int has_kind(enum byzantine kind)
{
    for (int i = plan.honest; i < plan.honest + plan.byzantine; i++)
        if (plan.kinds[i] == kind) return 1;
    return 0;
}

/* A mean without CenteredClip or BTARD follows whatever one member gives. */
static int is_poisoned(void)
{
    return has_kind(BYZANTINE_GRADIENT) || has_kind(BYZANTINE_WEIGHT) ||
           has_kind(BYZANTINE_FALSE_SUM);
}

/* A round of the parameters leaves its members at their mean, which is no farther from the optimum
 * than the farthest of what they gave. Where parts of a swarm were apart, it brings them together,
 * and CenteredClip takes the place of the larger part: members of the nearer part are set back, and
 * need as many epochs more. */
static void check_correction(struct trainer *t)
{
    double farthest = t->was, rounding = 0;
    for (int i = 0; i < PLAN_TENSORS; i++) rounding += (double)(plan.rows[i] * plan.columns[i]);
    rounding = strcmp(plan.compression, "uniform8") ? 0 : CORRECTION_UNIFORM8 * sqrt(rounding);
    for (int i = 0; i < plan.honest; i++)
        for (int k = 0; k < PLAN_GIVEN; k++) farthest = fmax(farthest, trainers[i].given[k]);
    if (!plan.byzantine && t->distance > CORRECTION_NOISE * hypot(farthest, rounding))
        sim_fail(
            "peer %d is put at %.3f by a round of the parameters, and nobody gave more than %.3f",
            t->peer->index, t->distance, farthest);
    if (t->distance > CORRECTION_NOISE * t->was) t->set_back *= t->distance / t->was;
}

static void note_given(struct trainer *t)
{
    memmove(t->given + 1, t->given, sizeof t->given - sizeof *t->given);
    t->given[0] = t->distance;
}

/* A loss of one peer's progress is that of all peers which load its state. */
static double set_back_most(void)
{
    double most = 1;
    for (int i = 0; i < plan.honest; i++) most = fmax(most, trainers[i].set_back);
    return most;
}

/* The distance is halved, except for the part that was set back. */
static void check_learnt(const struct trainer *t)
{
    if (t->distance > plan.first_distance / 2 * set_back_most() && !is_poisoned())
        sim_fail("peer %d has not learned: %.3f of %.3f, set back %.2f times", t->peer->index,
                 t->distance, plan.first_distance, set_back_most());
}

/* Of a peer with more, nothing counts in a verified round (training_gradients.c): one round that takes
 * long must not be the reason for the next one to fail. */
static void check_samples(const struct trainer *t, const struct pl_collaborative_event *e)
{
    if (plan.verify && e->due && !is_byzantine(t) &&
        e->samples > TRAINING_WEIGHT_MAX * plan.target_batch)
        sim_fail("peer %d brings %lld samples to a verified round", t->peer->index,
                 (long long)e->samples);
}

void checks_event(struct trainer *t, const struct pl_collaborative_event *e)
{
    static const char *const names[] = { "ready",     "loaded", "batch",   "epoch",
                                         "corrected", "behind", "warning", "end" };
    if (e->kind == PL_COLLABORATIVE_READY) t->has_joined = 1;
    if (e->kind == PL_COLLABORATIVE_BATCH) {
        check_samples(t, e);
        return;
    }
    t->is_behind = e->kind == PL_COLLABORATIVE_BEHIND;
    sim_log("peer %d %s: epoch %lld of %lld, %zu peers; round %d of %zu in %.1f s%s%s%s%s; at %.3f",
            t->peer->index, names[e->kind], (long long)e->status.epoch,
            (long long)e->status.global_epoch, e->status.peers, e->round.status, e->round.peers,
            e->round.seconds, e->round.status ? ", " : "", e->round.status ? e->round.why : "",
            e->text ? ", " : "", e->text ? e->text : "", t->distance);
    if (e->kind != PL_COLLABORATIVE_LOADED) note_state(t, e->status.epoch);
    if (is_byzantine(t)) {
        /* An epoch that it has trained exists, whatever it reports. */
        if (e->status.epoch > plan.furthest) plan.furthest = e->status.epoch;
        return;
    }
    check_state(t, e);
    check_epoch(t, e);
    check_averaging(t, e);
    if (!isfinite(t->distance))
        sim_fail("peer %d has parameters that are not finite", t->peer->index);
    divergence_event(t, e);
    if (e->kind == PL_COLLABORATIVE_EPOCH) note_given(t);
    if (e->kind == PL_COLLABORATIVE_CORRECTED) check_correction(t);
    t->was = t->distance;
}

/* --- all-reduce: wholly or not at all, and all that apply agree ------------------------------- */

struct applied {
    uint8_t group[DHT_ID_BYTES];
    int peer;
    float *value;  /* the mean as this peer has it */
    double change; /* length of the change that it has added */
};
static struct applied applied[GROUPS_MAX];
static size_t applied_count;

static size_t copy_values(float *to, float *const *from)
{
    size_t n = 0;
    for (int i = 0; i < PLAN_TENSORS; i++) {
        /* the swarm's order is that of the tensors: all have weight decay */
        size_t some = (size_t)(plan.rows[i] * plan.columns[i]);
        memcpy(to + n, from[i], some * sizeof *to);
        n += some;
    }
    return n;
}

/* b NULL: of a from zero. */
static double distance_of(const float *a, const float *b, size_t n)
{
    double sum = 0;
    for (size_t i = 0; i < n; i++) {
        double d = (double)a[i] - (b ? (double)b[i] : 0);
        sum += d * d;
    }
    return sqrt(sum);
}

/* Member k has x_k + Q(mean - Q(x_k)): the mean and the rounding of what it has sent and been
 * answered, 2^-11 of both as float16. 8 bits have 256 steps for six standard deviations; what lies
 * beyond is cut off, so of every ten values one may be anywhere. `change` is the length of the
 * larger delta. */
static int are_equal(const float *a, const float *b, size_t n, double change)
{
    int is_uniform8 = !strcmp(plan.compression, "uniform8");
    double delta = change / sqrt((double)n), size = distance_of(a, NULL, n) / sqrt((double)n);
    double rounding = strcmp(plan.compression, "none") ? 4e-3 : 1e-5;
    size_t apart = 0;
    for (size_t i = 0; i < n; i++) {
        double limit = is_uniform8 ? 0.05 * size + 0.2 * delta
                                   : rounding * (1 + fabs((double)a[i]) + 4 * delta);
        if (!(fabs((double)a[i] - b[i]) <= limit)) apart++;
    }
    return apart <= (is_uniform8 ? n / 10 : 0);
}

static void check_applied(struct trainer *t, const float *before, float *const *after_,
                          const struct training_round *r)
{
    static const uint8_t none[DHT_ID_BYTES];
    static float after[PLAN_VALUES];
    size_t n = copy_values(after, after_);
    struct applied *a;
    double change;
    if (r->status || r->peers < 2 || !memcmp(r->group, none, sizeof none)) {
        /* A change of the parameters is copied to its round, and the copy is not used if that has
         * failed; check_state sees the parameters. */
        if (!plan_has_outer_steps() && memcmp(before, after, n * sizeof *after))
            sim_fail("peer %d: a round failed and has changed values", t->peer->index);
        return;
    }
    /* Only verification finds a reducer that gives everybody another mean. */
    if (has_kind(BYZANTINE_FALSE_SUM)) return;
    /* Each member makes its own copy of the mean factor orthogonal, so what float16 has rounded grows
     * where a false gradient outweighs all others (seed 8829). */
    if (!strncmp(plan.algorithm, "powersgd", 8) && is_poisoned()) return;
    for (size_t i = 0; i < n; i++)
        if (fabs((double)after[i]) > CLIPPED || fabs((double)before[i]) > CLIPPED) return;
    change = distance_of(after, before, n);
    for (size_t k = 0; k < applied_count; k++)
        if (!memcmp(applied[k].group, r->group, sizeof r->group) &&
            !are_equal(after, applied[k].value, n, fmax(change, applied[k].change)))
            sim_fail("peers %d and %d have applied different means in one group: they differ by %g "
                     "of %g, after changes of %g and %g",
                     t->peer->index, applied[k].peer, distance_of(after, applied[k].value, n),
                     distance_of(after, NULL, n), change, applied[k].change);
    if (applied_count == GROUPS_MAX) sim_fail("more than %d rounds", GROUPS_MAX);
    a = &applied[applied_count++];
    memcpy(a->group, r->group, sizeof a->group);
    a->peer = t->peer->index;
    a->change = change;
    a->value = __real_malloc(n * sizeof *a->value);
    memcpy(a->value, after, n * sizeof *a->value);
}

void __real_training_average(struct training *c, float *const *gradient, struct training_round *r);
void __wrap_training_average(struct training *c, float *const *gradient, struct training_round *r);
void __wrap_training_average(struct training *c, float *const *gradient, struct training_round *r)
{
    struct trainer *t = trainer_here();
    if (t) copy_values(t->before, gradient);
    __real_training_average(c, gradient, r);
    if (t) check_applied(t, t->before, gradient, r);
}

void __real_training_begin_average(struct training *c, float *const *gradient);
void __wrap_training_begin_average(struct training *c, float *const *gradient);
void __wrap_training_begin_average(struct training *c, float *const *gradient)
{
    struct trainer *t = trainer_here();
    if (t) {
        t->taking = gradient;
        copy_values(t->before, gradient);
    }
    __real_training_begin_average(c, gradient);
}

int __real_training_end_average(struct training *c, struct training_round *r, int wait);
int __wrap_training_end_average(struct training *c, struct training_round *r, int wait);
int __wrap_training_end_average(struct training *c, struct training_round *r, int wait)
{
    struct trainer *t = trainer_here();
    int has = __real_training_end_average(c, r, wait);
    if (has && t && t->taking) {
        check_applied(t, t->before, t->taking, r);
        t->taking = NULL;
    }
    return has;
}

/* --- timers are never early ------------------------------------------------------------------- */

/* A timer's function and deadline, by the timer's address: it lies in its owner's struct, and may
 * be gone once it has fired. */
static struct deadline {
    const struct timer *timer;
    struct loop *loop;
    loop_fn *fn;
    void *context;
    double at;
} * *deadlines;                                  /* open addressing */
static size_t deadline_count, deadline_capacity; /* a power of two */

static struct deadline **find_deadline(const struct timer *t)
{
    size_t i = (size_t)((uintptr_t)t / sizeof(void *) * 0x9e3779b97f4a7c15u >> 20);
    while (deadlines[i % deadline_capacity] && deadlines[i % deadline_capacity]->timer != t) i++;
    return &deadlines[i % deadline_capacity];
}

static void grow_deadlines(void)
{
    struct deadline **old = deadlines;
    size_t n = deadline_capacity;
    deadline_capacity = n ? 2 * n : 4096;
    deadlines = __real_calloc(deadline_capacity, sizeof *deadlines);
    for (size_t i = 0; i < n; i++)
        if (old[i]) *find_deadline(old[i]->timer) = old[i];
    __real_free(old);
}

/* The loop's clock counts whole milliseconds, and sums of seconds round. */
static void check_deadline(void *context)
{
    const struct deadline *d = context;
    if (loop_now(d->loop) < d->at - 1e-9)
        sim_fail("a timer fires %.3f ms early", (d->at - loop_now(d->loop)) * 1e3);
    d->fn(d->context);
}

void __real_timer_start(struct loop *l, struct timer *t, double in_s, loop_fn *fn, void *context);
void __wrap_timer_start(struct loop *l, struct timer *t, double in_s, loop_fn *fn, void *context);
void __wrap_timer_start(struct loop *l, struct timer *t, double in_s, loop_fn *fn, void *context)
{
    struct deadline **place, *d;
    if (2 * deadline_count >= deadline_capacity) grow_deadlines();
    place = find_deadline(t);
    if (!*place) {
        *place = __real_calloc(1, sizeof **place);
        deadline_count++;
    }
    d = *place;
    *d = (struct deadline){ t, l, fn, context, loop_now(l) + in_s };
    __real_timer_start(l, t, in_s, check_deadline, d);
}

/* --- every second ----------------------------------------------------------------------------- */

static double behind_longest; /* s */

/* Joined, running, and cut off from nobody. */
static int is_connected(const struct trainer *t)
{
    const int i = t->peer->index;
    if (!t->is_running || !t->has_joined || t->peer->stopped_until > sim_now()) return 0;
    for (int k = 0; k < sim_peer_count; k++)
        if (sim_cut[i][k] || sim_cut[k][i]) return 0;
    return 1;
}

/* Do more than half of the other connected peers lead peer i by two epochs or more? Then it has a
 * lead to follow. A smaller part that is ahead goes on alone (paper/security.md). */
static int is_behind(int i)
{
    int others = 0, ahead = 0;
    for (int k = 0; k < plan.honest; k++) {
        if (k == i || !is_connected(&trainers[k])) continue;
        others++;
        ahead += trainers[k].epoch > trainers[i].epoch + 1;
    }
    return 2 * ahead > others;
}

/* A peer that has been connected all the while follows, but for the time that downloads take. */
static void check_behind(void)
{
    static double since[SIM_PEERS_MAX];
    double now = (double)sim_now() * 1e-9;
    for (int i = 0; i < plan.honest; i++) {
        if (!is_connected(&trainers[i]) || !is_behind(i)) since[i] = now;
        if (now - since[i] > behind_longest) behind_longest = now - since[i];
        /* A client cannot show its epoch by a state, so others need not follow it. */
        if (now - since[i] > BEHIND_MAX && !plan.clients)
            sim_fail("peer %d has been behind most others for %.0f s, at epoch %lld", i, BEHIND_MAX,
                     (long long)trainers[i].epoch);
    }
}

static void check_now(void *context, uint64_t argument)
{
    (void)context, (void)argument;
    for (int i = 0; i < plan.honest; i++)
        if (sim_peers[i].bytes_peak > MEMORY_MAX)
            sim_fail("peer %d has held %zu bytes", i, sim_peers[i].bytes_peak);
    check_behind();
    sim_after(SIM_S, check_now, NULL, 0);
}

void checks_begin(void) { check_now(NULL, 0); }

void checks_end(void)
{
    sim_log("a peer was behind most others for %.0f s at most", behind_longest);
    for (int i = 0; i < plan.honest; i++) {
        const struct trainer *t = &trainers[i];
        if (!t->is_done) sim_fail("peer %d is not done: epoch %lld", i, (long long)t->epoch);
        check_learnt(t);
    }
}
