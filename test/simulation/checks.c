#include "plan.h"
void checks_event(struct trainer *t, const struct pl_collaborative_event *e)
{
    static const char *const names[] = { "ready",     "loaded", "batch",   "epoch",
                                         "corrected", "behind", "warning", "end" };
    if (e->kind == PL_COLLABORATIVE_BATCH) return;
    t->epoch = e->status.epoch;
    sim_log("%.1f peer %d %s epoch %lld peers %zu round %d of %zu in %.1f s %s distance %.3f %s",
            (double)sim_now() * 1e-9, t->peer->index, names[e->kind], (long long)e->status.epoch,
            e->status.peers, e->round.status, e->round.peers, e->round.seconds,
            e->round.why ? e->round.why : "", t->distance, e->text ? e->text : "");
}
void checks_boot(struct trainer *t, int64_t epoch)
{
    (void)t;
    (void)epoch;
}
void checks_error(struct trainer *t, int status, const char *why)
{
    sim_fail("peer %d: %d %s", t->peer->index, status, why);
}
void checks_begin(void) {}
void checks_end(void) {}
