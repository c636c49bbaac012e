/* preflight_join.c - the checks before joining. The network is checked on a thread of its own,
 * while the caller checks memory and speed. Once a bootstrap peer has answered, the caller waits
 * PREFLIGHT_PATIENCE at most and then joins; remaining checks continue in the background. */
#include "preflight_internal.h"
#include "cmd/common/swarm_messages.h"
#include "cmd/common/json_event.h"

#include <errno.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define FINDINGS_MAX (DHT_INITIAL_MAX + 16)
#define WORD_AFTER 2 /* s of silence */

struct preflight_join {
    struct swarm *s;
    struct preflight_join_options o;
    struct preflight_plan plan;
    struct preflight network;
    struct probe_stop stop;
    pthread_t thread;
    int has_thread;
    double began;
    /* under the swarm's lock */
    double first_good;
    int parts;  /* of the check that are still running; the last one reports all findings */
    int asked;  /* the network checks have ended and are reported */
    int status; /* of that */
    struct finding found[FINDINGS_MAX];
    size_t count;
};

static void keep(void *context, const struct finding *f)
{
    struct preflight_join *c = context;
    pthread_mutex_lock(&c->s->lock);
    if (c->count < FINDINGS_MAX) c->found[c->count++] = *f;
    pthread_mutex_unlock(&c->s->lock);
}

/* --- output ----------------------------------------------------------------------------------- */

static void say_json(const struct preflight_join *c, enum finding_level worst)
{
    static const char *const levels[] = { "ok", "warning", "bad" };
    json_t *list = json_array();
    for (size_t i = 0; i < c->count; i++) {
        const struct finding *f = &c->found[i];
        json_array_append_new(list,
                              json_pack("{s:s,s:s,s:s,s:s}", "what", f->what, "level",
                                        levels[f->level], "text", f->text, "advice", f->advice));
    }
    json_event_print(json_pack("{s:s,s:s,s:f,s:o}", "event", "check", "level", levels[worst],
                               "seconds", pl_seconds() - c->began, "findings", list));
}

/* One write for each: training prints at the same time. */
static void say_wrong(const char *cmd, const struct finding *f)
{
    fprintf(stderr, "potluck %s: check: %s: %s%s%s\n", cmd, f->what, f->text,
            f->advice[0] ? "\n    -> " : "", f->advice);
}

static void say_well(const struct preflight_join *c)
{
    char line[FINDINGS_MAX * sizeof c->found[0].brief];
    size_t at = 0;
    for (size_t i = 0; i < c->count; i++) {
        const struct finding *f = &c->found[i];
        if (f->brief[0])
            at += (size_t)snprintf(line + at, sizeof line - at, "%s%s", at ? ", " : "", f->brief);
    }
    fprintf(stderr, "potluck %s: check: all good (%.2f s): %s\n", c->o.swarm->cmd,
            pl_seconds() - c->began, at ? line : "nothing was checked");
}

static void say(const struct preflight_join *c)
{
    enum finding_level worst = FINDING_GOOD;
    for (size_t i = 0; i < c->count; i++)
        if (c->found[i].level > worst) worst = c->found[i].level;
    if (c->o.json) say_json(c, worst);
    else if (worst == FINDING_GOOD) {
        if (!c->o.quiet && c->count) say_well(c);
    } else {
        for (size_t i = 0; i < c->count; i++)
            if (c->found[i].level != FINDING_GOOD) say_wrong(c->o.swarm->cmd, &c->found[i]);
    }
}

/* --- life ------------------------------------------------------------------------------------- */

/* A part is over. */
static void leave(struct preflight_join *c)
{
    int left;
    pthread_mutex_lock(&c->s->lock);
    left = --c->parts;
    pthread_mutex_unlock(&c->s->lock);
    if (!left && !probe_is_stopped(c->s, &c->stop)) say(c);
}

static void *run(void *context)
{
    struct preflight_join *c = context;
    c->status = preflight_peers(&c->network);
    leave(c);
    pthread_mutex_lock(&c->s->lock);
    c->asked = 1;
    pthread_cond_broadcast(&c->s->changed);
    pthread_mutex_unlock(&c->s->lock);
    return NULL;
}

/* Under the swarm's lock. */
static void say_waiting(const struct preflight_join *c)
{
    if (c->o.json) return; /* an event tells the end */
    fprintf(
        stderr,
        "potluck %s: check: no bootstrap peer has answered within %d s; waiting %.0f s at most\n",
        c->o.swarm->cmd, WORD_AFTER, PROBE_LIMIT);
}

/* Until all checks are done, or the rest may continue while we join. Returns 1 if all are. */
static int wait_for_network(struct preflight_join *c)
{
    struct timespec until;
    int asked;
    pthread_mutex_lock(&c->s->lock);
    clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_sec += WORD_AFTER;
    while (!c->asked && !c->first_good)
        if (pthread_cond_timedwait(&c->s->changed, &c->s->lock, &until) == ETIMEDOUT) break;
    if (!c->asked && !c->first_good) say_waiting(c);
    while (!c->asked && !c->first_good) pthread_cond_wait(&c->s->changed, &c->s->lock);
    clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_sec += (time_t)PREFLIGHT_PATIENCE;
    while (!c->asked && !pthread_cond_timedwait(&c->s->changed, &c->s->lock, &until)) {}
    asked = c->asked;
    pthread_mutex_unlock(&c->s->lock);
    return asked;
}

/* The error of a join that failed. */
static int give_up(const struct preflight_join *c, struct pl_err *err)
{
    const struct finding *bad = NULL;
    int differ = 0;
    for (size_t i = 0; i < c->count; i++) {
        const struct finding *f = &c->found[i];
        if (strcmp(f->what, "bootstrap") || f->level != FINDING_BAD) continue;
        differ |= bad && strcmp(bad->advice, f->advice);
        if (!bad) bad = f;
    }
    if (!bad) return pl_fail(err, PL_EIO, "no bootstrap peer accepts us");
    if (differ)
        return pl_fail(err, PL_EIO,
                       "none of the %zu bootstrap peers accepts us, for different reasons; see "
                       "above",
                       c->network.count);
    return pl_fail(err, PL_EIO, "%s: %.250s",
                   c->network.count == 1 ? "the bootstrap peer does not accept us"
                                         : "no bootstrap peer accepts us",
                   bad->advice[0] ? bad->advice : bad->text);
}

static struct preflight_join *make(struct swarm *s, const struct preflight_join_options *o)
{
    struct preflight_join *c = calloc(1, sizeof *c);
    if (!c) return NULL;
    c->s = s;
    c->o = *o;
    c->plan = (struct preflight_plan){ .load = o->off ? 0 : PREFLIGHT_LOAD_SHORT,
                                       .run = o->run,
                                       .target_batch = o->target_batch,
                                       .trains = o->memory != NULL };
    c->network = (struct preflight){ .s = s,
                                     .options = o->swarm,
                                     .plan = &c->plan,
                                     .stop = &c->stop,
                                     .report = keep,
                                     .context = c,
                                     .first_good = &c->first_good };
    c->began = pl_seconds();
    return c;
}

/* Joining has failed, and no checks were made before. */
static int explain(struct swarm *s, const struct preflight_join_options *o, struct pl_err *err)
{
    struct preflight_join *c = make(s, o);
    if (!c) return PL_EIO; /* err stays the node's */
    if (preflight_peers(&c->network)) give_up(c, err);
    say(c);
    free(c);
    return PL_EIO;
}

int preflight_explain(struct swarm *s, const struct swarm_options *how, struct pl_err *err)
{
    const struct preflight_join_options o = { .swarm = how, .off = 1 };
    return explain(s, &o, err);
}

int preflight_join(struct preflight_join **out, struct swarm *s,
                   const struct preflight_join_options *o, struct pl_err *err)
{
    struct preflight_join *c = NULL;
    int rc;
    *out = NULL;
    if (!o->off && (o->swarm->join_count || o->memory) && (c = make(s, o))) {
        int asks = o->swarm->join_count > 0;
        c->parts = 1 + asks;
        c->has_thread = asks && !pthread_create(&c->thread, NULL, run, c);
        if (!c->has_thread) c->parts = 1; /* otherwise the thread may count by now */
        if (o->memory) preflight_plan_fits(o->memory, o->be, keep, c);
        leave(c);
        if (c->has_thread && wait_for_network(c) && c->status) {
            *out = c;
            swarm_enter(s); /* for callers that keep trying */
            return give_up(c, err);
        }
    }
    *out = c;
    swarm_enter(s);
    rc = cmd_wait_joined(o->swarm->cmd, s, err);
    return rc && !c ? explain(s, o, err) : rc;
}

void preflight_join_end(struct preflight_join *c)
{
    if (!c) return;
    probe_stop(c->s, &c->stop);
    if (c->has_thread) pthread_join(c->thread, NULL);
    free(c);
}
