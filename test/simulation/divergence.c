/* divergence.c - an invariant about the digests of parameters (net/hivemind/progress/digest.h): no
 * healthy peer says that it has diverged, or names another honest one. Nothing in the simulation
 * changes a peer's parameters by mistake, and rounds that fail are no reason. Where a Byzantine
 * peer may have changed them, they must really be others. */
#include "plan.h"

#include "net/hivemind/progress/digest.h"

#include <math.h>
#include <string.h>

#define HISTORY 4 /* epochs: a digest is judged some seconds after its step */

static struct past {
    int64_t epoch;
    float x[PLAN_VALUES];
} past[SIM_PEERS_MAX][HISTORY];

static void note(const struct trainer *t)
{
    struct past *p = &past[t->peer->index][t->epoch % HISTORY];
    p->epoch = t->epoch;
    memcpy(p->x, t->shared, sizeof p->x);
}

static int are_apart(const float *x, const float *y)
{
    double distance = 0, norm = 0;
    for (int i = 0; i < PLAN_VALUES; i++) {
        distance += ((double)x[i] - y[i]) * ((double)x[i] - y[i]);
        norm += (double)y[i] * y[i];
    }
    return !(distance <= DIGEST_SHARE * DIGEST_SHARE * norm);
}

/* At one of its last epochs it had other parameters than most of the honest peers. */
static int has_diverged(int peer)
{
    for (int k = 0; k < HISTORY; k++) {
        const struct past *p = &past[peer][k];
        int others = 0, apart = 0;
        for (int i = 0; i < plan.honest; i++) {
            const struct past *q = &past[i][k];
            if (i == peer || q->epoch != p->epoch) continue;
            others++;
            apart += are_apart(p->x, q->x);
        }
        if (2 * apart > others) return 1;
    }
    return 0;
}

static void check_warning(const struct trainer *t, const char *text)
{
    const int is_own = !strncmp(text, "our parameters have diverged", 28);
    if (!is_own && !strstr(text, "have diverged from those of its group")) return;
    for (int i = 0; i < plan.honest; i++) {
        const struct trainer *named = &trainers[i];
        if (is_own ? named != t : !strstr(text, strrchr(named->address, '/') + 1)) continue;
        if (!plan.byzantine || !has_diverged(i))
            sim_fail("peer %d says that peer %d has diverged", t->peer->index, i);
    }
}

void divergence_event(const struct trainer *t, const struct pl_collaborative_event *e)
{
    if (e->kind == PL_COLLABORATIVE_EPOCH) note(t);
    if (e->kind == PL_COLLABORATIVE_WARNING) check_warning(t, e->text);
}
