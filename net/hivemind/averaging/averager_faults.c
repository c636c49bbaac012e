/* averager_faults.c - what an averager remembers of peers that have failed it: bans with a proof,
 * and donors that gave no state.
 *
 *   ban      proof that it is dishonest: no call, group or state is shared with it for BANS_TIME
 *   doubt    it may just have been busy or gone: others are asked first, for 15 s, 30 s, 60 s...
 *
 * Back-off after rounds is a third memory (reliability.h). */
#include "averager_internal.h"

#include <math.h>

/* --- bans ------------------------------------------------------------------------------------- */

void averager_ban(struct averager *a, const struct peer_id *peer, const char *why)
{
    char name[PEER_ID_TEXT_MAX];
    /* A ban ends by itself: a peer that was restarted with repaired software may come back. */
    a->call.result.banned += bans_add(&a->bans, loop_now(a->loop), peer);
    peer_id_text(name, peer);
    pl_fail(&a->call.caught, PL_EPROTO, "%s is banned for %.0f s: %.300s", name, BANS_TIME, why);
}

/* --- donors that failed: the others are asked first for a while ------------------------------- */

/* A memory of 64 failures. It only changes the order of asking: a donor in it is still asked
 * if nobody else is left. */
static struct donor_failure *find_failure(struct averager *a, const struct peer_id *peer)
{
    for (size_t i = 0; i < a->load.failure_count; i++)
        if (peer_id_equal(&a->load.failures[i].peer, peer)) return &a->load.failures[i];
    return NULL;
}

void averager_doubt(struct averager *a, const struct peer_id *peer)
{
    struct donor_failure *f = find_failure(a, peer);
    if (!f) {
        /* A full memory drops the failure that would be over first. */
        f = &a->load.failures[0];
        if (a->load.failure_count < DONOR_FAILURES_MAX)
            f = &a->load.failures[a->load.failure_count++];
        else
            for (size_t i = 1; i < a->load.failure_count; i++)
                if (a->load.failures[i].until < f->until) f = &a->load.failures[i];
        *f = (struct donor_failure){ .peer = *peer };
    }
    /* 15 s, 30 s, 60 s, ... up to 10 minutes. */
    f->until = loop_now(a->loop) +
               fmin(DONOR_BACKOFF_LONGEST, DONOR_BACKOFF_FIRST * ldexp(1, f->failures));
    /* 2^30 * 15 s is beyond any limit; the number itself must not overflow. */
    if (f->failures < 30) f->failures++;
}

int averager_is_doubted(struct averager *a, const struct peer_id *donor)
{
    const struct donor_failure *f = find_failure(a, donor);
    return f && loop_now(a->loop) < f->until;
}

void averager_trust(struct averager *a, const struct peer_id *peer)
{
    struct donor_failure *f = find_failure(a, peer);
    if (f) *f = a->load.failures[--a->load.failure_count];
}
