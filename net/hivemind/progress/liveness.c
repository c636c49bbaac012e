/* liveness.c - which of the reporting peers are really there? [spec hivemind-protocol 8, 12]
 *
 * A progress record lives for 60 s, a round takes a few: by the records alone a group would wait
 * for each dead peer for a minute, and its samples would trigger the step too early. A peer's
 * conduct in rounds decides instead:
 *
 *   came to the last round, or reported after it    counts
 *   missed it, and has reported nothing since       does not count until its next report
 *   missed 3 in a row, but reports                  absent: not waited for until it comes again
 *   never met, though due 3 times                   may come; its samples and speed count as 0
 *   never met, though we have met others            new: counts within the bound of progress.c
 *
 * Absent peers are waited for once in 16 rounds: two halves of a swarm that could not reach each
 * other for a while must find together again. */
#include "liveness.h"

#include <limits.h>
#include <math.h>
#include <stdlib.h>

static int by_peer(const void *a, const void *b)
{
    const struct participant *x = a, *y = b;
    return peer_id_compare(&x->peer, &y->peer);
}

static struct participant *find(const struct liveness *a, const struct peer_id *peer)
{
    const struct participant wanted = { .peer = *peer };
    return a->count ? bsearch(&wanted, a->list, a->count, sizeof *a->list, by_peer) : NULL;
}

static int is_absent(const struct participant *p)
{
    /* Every 16th missed round it is waited for once more. */
    return p->misses >= LIVENESS_MISSES && p->misses % LIVENESS_AGAIN;
}

int liveness_is_absent(const struct liveness *a, const struct peer_id *peer)
{
    const struct participant *p = find(a, peer);
    return p && is_absent(p);
}

int liveness_reports(const struct liveness *a, const struct peer_id *peer)
{
    const struct participant *p = find(a, peer);
    return p && !is_absent(p);
}

/* If samples of a peer that never comes counted, the swarm would step on gradients that do not
 * exist. */
static int has_shown_nothing(const struct participant *p)
{
    return !p->is_met && p->due >= LIVENESS_MISSES && fmod(floor(p->due), LIVENESS_AGAIN) != 0;
}

int liveness_update(struct liveness *a, struct progress_record *records, size_t count, double now,
                    size_t *counted)
{
    struct liveness next = *a;
    next.count = next.part_peers = 0;
    next.list = malloc((count + a->count + 1) * sizeof *next.list);
    /* Without memory all count: needless waiting only costs time. */
    *counted = count;
    if (!next.list) return PL_ENOMEM;
    *counted = 0;
    for (size_t i = 0; i < count; i++) {
        struct participant *before = find(a, &records[i].peer), *p;
        if (records[i].peers) {
            next.part_peers += records[i].peers;
            records[(*counted)++] = records[i];
            continue;
        }
        p = &next.list[next.count++];
        *p = (struct participant){ .peer = records[i].peer,
                                   .reported = records[i].time,
                                   .seen = now };
        if (before) {
            p->missed = before->missed;
            p->misses = before->misses;
            p->due = before->due;
            p->is_met = before->is_met;
            p->is_new = before->is_new;
            before->seen = -INFINITY; /* is in `next` now */
        } else p->is_new = a->has_met;
        /* No report since the round that it missed: dead or stopped, as far as we know. */
        if (p->reported <= p->missed || is_absent(p)) continue;
        records[*counted] = records[i];
        records[*counted].is_new = p->is_new;
        if (has_shown_nothing(p)) {
            records[*counted].samples = 0;
            records[*counted].samples_per_second = 0;
        }
        ++*counted;
    }
    for (size_t i = 0; i < a->count; i++)
        /* One poll may miss a record; a minute of polls does not. */
        if (a->list[i].seen + PROGRESS_LIFE > now) next.list[next.count++] = a->list[i];
    qsort(next.list, next.count, sizeof *next.list, by_peer);
    liveness_clear(a);
    *a = next;
    return PL_OK;
}

void liveness_round(struct liveness *a, const struct group *g, double trigger)
{
    for (size_t i = 0; i < a->count; i++) {
        struct participant *p = &a->list[i];
        if (g && group_find(g, &p->peer) >= 0) {
            p->misses = 0;
            continue;
        }
        /* A round without any group counts against no peer: our own connection may have failed. A
         * peer that has been silent since its last miss is not charged again: it is not trying. */
        if (g && p->reported > p->missed && p->misses < INT_MAX) p->misses++;
        p->missed = trigger;
    }
}

void liveness_note_group(struct liveness *a, const struct group *g)
{
    /* In a group of m others out of n, a peer was due with probability m / n. */
    const double all = (double)(a->count + a->part_peers), others = g ? (double)g->count - 1 : all;
    size_t new = 0;
    for (size_t i = 0; i < a->count; i++) {
        struct participant *p = &a->list[i];
        if (g && group_find(g, &p->peer) >= 0) {
            new += (size_t)p->is_new;
            p->is_met = 1;
            p->is_new = 0;
        } else p->due += fmin(1, others / all);
    }
    a->newcomers = g ? (double)new / ((double)g->count - (double)new) : 0;
    a->has_met |= g && g->count > 1;
    if (new) a->new_pause = 0;
    else if (a->has_waited) a->new_pause = LIVENESS_NEW_PAUSE;
    else if (a->new_pause) a->new_pause--;
    a->has_waited = 0;
}

double liveness_newcomers(const struct liveness *a, int local_steps)
{
    return local_steps ? !a->new_pause : fmax(1, a->newcomers);
}

void liveness_clear(struct liveness *a)
{
    free(a->list);
    *a = (struct liveness){ 0 };
}
