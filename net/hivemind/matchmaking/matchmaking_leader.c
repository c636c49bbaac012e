/* matchmaking_leader.c - which leader to ask. [spec hivemind-protocol 4.4]
 *
 *   leader of a group   the peer with the earliest expiration; ties go to the smaller peer ID
 *   candidates          declarations of peers earlier than ourselves, by the last poll
 *   order               peers not asked yet before peers that did not answer; within each, doubtful
 *                       peers last; then the earliest
 *
 * Without a candidate we are the earliest ourselves, and may lead (matchmaking_followers.c). */
#include "matchmaking_internal.h"
#include "ref/small.h"

#include <math.h>
#include <stdlib.h>

int matchmaking_doubtful_asks(const struct matchmaking *m)
{
    return m->attempts.distrust ? 1 : MATCHMAKING_DOUBTFUL_ASKS;
}

/* The rule that gives every group one leader, without a coordinator: the earliest expiration,
 * then the smaller peer ID. Peers that read the same declarations agree. */
static int earlier(const struct matchmaking_candidate *a, const struct matchmaking_candidate *b)
{
    if (a->expiration != b->expiration) return a->expiration < b->expiration;
    return peer_id_compare(&a->peer, &b->peer) < 0;
}

static struct matchmaking_attempt *attempt_at(const struct matchmaking *m,
                                              const struct matchmaking_candidate *c)
{
    for (size_t i = 0; i < m->attempts.count; i++)
        if (m->attempts.list[i].of.expiration == c->expiration &&
            peer_id_equal(&m->attempts.list[i].of.peer, &c->peer))
            return &m->attempts.list[i];
    return NULL;
}

/* Counts a request to c. Drops attempts whose declarations have expired. */
int matchmaking_note_asked(struct matchmaking *m, double now, const struct matchmaking_candidate *c)
{
    struct matchmaking_attempt *before = attempt_at(m, c);
    size_t kept = 0;
    if (before) {
        before->count++;
        before->again = INFINITY;
        return PL_OK;
    }
    for (size_t i = 0; i < m->attempts.count; i++)
        if (m->attempts.list[i].of.expiration > now) m->attempts.list[kept++] = m->attempts.list[i];
    m->attempts.count = kept;
    /* Each poll may report other peers with later expirations; four polls' worth is more than one
     * window can ask. */
    if (kept == m->attempts.capacity && kept >= 4 * MATCHMAKING_CANDIDATES_MAX) return PL_ELIMIT;
    if (pl_grow(&m->attempts.list, kept, &m->attempts.capacity, 16)) return PL_ENOMEM;
    m->attempts.list[m->attempts.count++] = (struct matchmaking_attempt){ *c, INFINITY, 1 };
    return PL_OK;
}

/* A leader that has not answered is asked again after a pause, if our own time does not come
 * first. */
static int may_ask(const struct matchmaking *m, double now,
                   const struct matchmaking_attempt *before)
{
    return !before || (now >= before->again && now + m->o.request_timeout < m->begin);
}

/* 0 is best: candidates not asked yet, then those asked before; of either, doubtful ones last. */
static int rank(const struct matchmaking_candidate *c, const struct matchmaking_attempt *before)
{
    return 2 * (before != NULL) + c->doubtful;
}

const struct matchmaking_candidate *matchmaking_choose_leader(const struct matchmaking *m,
                                                              double now)
{
    const struct matchmaking_candidate me = { m->o.self, m->begin, 0 }, *best = NULL;
    int best_rank = 0;
    for (size_t i = 0; i < m->polls.count; i++) {
        const struct matchmaking_candidate *c = &m->polls.candidates[i];
        const struct matchmaking_attempt *before = attempt_at(m, c);
        int its_rank = rank(c, before);
        /* A peer asks only those earlier than itself, so requests among peers that read the
         * same declarations form no circle. */
        if (c->expiration <= now || !earlier(c, &me) || !may_ask(m, now, before)) continue;
        if (c->doubtful && m->attempts.unanswered >= matchmaking_doubtful_asks(m)) continue;
        if (best && (its_rank > best_rank || (its_rank == best_rank && !earlier(c, best))))
            continue;
        best = c;
        best_rank = its_rank;
    }
    return best;
}
