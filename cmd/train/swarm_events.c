/* swarm_events.c - events of the collaborative optimizer, as lines. */
#include "swarm_events.h"
#include "cmd/common/json_event.h"
#include "ref/small.h"

#include <jansson.h>
#include <math.h>
#include <stdio.h>

void swarm_event_json(const struct pl_collaborative_event *e)
{
    static const char *const names[] = { "ready",     "loaded", "batch",   "epoch",
                                         "corrected", "behind", "trouble", "end" };
    char round[2 * sizeof e->round.group + 1];
    pl_hex(round, e->round.group, sizeof e->round.group);
    json_event_print(json_pack(
        "{s:s,s:I,s:I,s:I,s:I,s:I,s:b,s:f,s:f,s:f,s:s,s:i,s:I,s:i,s:f,s:f,s:s?,s:s?,s:s?}", "event",
        names[e->kind], "epoch", (json_int_t)e->status.epoch, "global_epoch",
        (json_int_t)e->status.global_epoch, "peers", (json_int_t)e->status.peers, "global_samples",
        (json_int_t)e->status.global_samples, "local_samples", (json_int_t)e->samples, "due",
        e->due, "loss", e->loss, "eta", isfinite(e->status.eta_s) ? e->status.eta_s : -1,
        "samples_per_second", e->status.samples_per_second, "round", round, "round_status",
        e->round.status, "round_peers", (json_int_t)e->round.peers, "round_verified",
        e->round.verified, "round_seconds", e->round.seconds, "seconds", e->seconds, "why",
        e->round.status ? e->round.why : NULL, "caught", e->round.banned ? e->round.caught : NULL,
        "text", e->text));
}

void swarm_event_text(const struct pl_collaborative_event *e, const char *cmd, int verify,
                      int64_t inner_steps)
{
    switch (e->kind) {
    case PL_COLLABORATIVE_LOADED:
        fprintf(stderr, "\npotluck %s: took over the swarm's state of step %lld\n", cmd,
                (long long)(e->status.epoch * inner_steps));
        if (e->text) fprintf(stderr, "potluck %s: warning: %s\n", cmd, e->text);
        break;
    case PL_COLLABORATIVE_BEHIND:
        fprintf(stderr, "\npotluck %s: the swarm is at step %lld, we are at %lld: catching up\n",
                cmd, (long long)(e->status.global_epoch * inner_steps),
                (long long)(e->status.epoch * inner_steps));
        break;
    case PL_COLLABORATIVE_WARNING: fprintf(stderr, "\npotluck %s: %s\n", cmd, e->text); break;
    case PL_COLLABORATIVE_EPOCH:
        if (e->round.banned) fprintf(stderr, "\npotluck %s: %s\n", cmd, e->round.caught);
        if (e->round.status && e->status.peers > 1)
            fprintf(stderr, "\npotluck %s: step %lld with our own gradient alone: %s\n", cmd,
                    (long long)e->status.epoch, e->round.why);
        else if (verify && !e->round.verified && e->round.peers > 1)
            fprintf(stderr,
                    "\npotluck %s: step %lld could not be verified: at least three publicly "
                    "reachable peers must ask for it with the same data; we reduced our parts by "
                    "centered-clip\n",
                    cmd, (long long)e->status.epoch);
        break;
    case PL_COLLABORATIVE_CORRECTED:
        if (e->round.status && e->status.peers > 1)
            fprintf(stderr, "\npotluck %s: parameters were not averaged: %s\n", cmd, e->round.why);
        break;
    case PL_COLLABORATIVE_READY:
    case PL_COLLABORATIVE_BATCH:
    case PL_COLLABORATIVE_END: break;
    }
}
