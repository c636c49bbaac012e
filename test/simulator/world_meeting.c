/* world_meeting.c - a group that was formed, and the time of its all-reduce. */
#include "world_internal.h"
#include "net/hivemind/averaging/reliability.h"
#include "net/hivemind/matchmaking/uplinks.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define TCP_LEAST 0.8 /* of an uplink: reached by a round's best window */

void world_free_meeting(struct meeting *g)
{
    free(g->member);
    free(g->life);
    free(g->fraction);
    free(g->bytes);
    free(g->upload);
    free(g);
}

/* The share that each member reduces, and what those without one send. */
static int deal(const struct world *w, struct meeting *g, const struct group *found)
{
    size_t *share = calloc(g->count, sizeof *share);
    int rc = share ? group_shares(share, found, w->o.values, NULL) : PL_ENOMEM;
    for (size_t i = 0; !rc && i < g->count; i++) {
        const struct peer *p = &w->peer[g->member[i]];
        g->fraction[i] = (double)share[i];
        g->upload[i] = share[i] ? 1
                                : uplinks_fraction(found, share, bandwidth_stated(&p->bandwidth),
                                                   w->slow);
    }
    free(share);
    return rc;
}

struct meeting *world_meeting(struct world *w, const struct group *found)
{
    struct meeting *g;
    for (size_t i = w->meeting_count; i-- > 0;)
        if (!memcmp(w->meetings[i]->id, found->id, DHT_ID_BYTES)) return w->meetings[i];
    if (w->meeting_count == w->meeting_capacity) {
        size_t capacity = w->meeting_capacity ? 2 * w->meeting_capacity : 64;
        void *more = world_need(w, realloc(w->meetings, capacity * sizeof *w->meetings));
        if (!more) return NULL;
        w->meetings = more;
        w->meeting_capacity = capacity;
    }
    if (!(g = world_need(w, calloc(1, sizeof *g)))) return NULL;
    memcpy(g->id, found->id, DHT_ID_BYTES);
    g->member = world_need(w, calloc(found->count, sizeof *g->member));
    g->life = world_need(w, calloc(found->count, sizeof *g->life));
    g->fraction = world_need(w, calloc(found->count, sizeof *g->fraction));
    g->bytes = world_need(w, calloc(found->count, sizeof *g->bytes));
    g->upload = world_need(w, calloc(found->count, sizeof *g->upload));
    if (w->no_memory) {
        world_free_meeting(g);
        return NULL;
    }
    g->count = found->count;
    for (size_t i = 0; i < g->count; i++) g->member[i] = link_peer_of(&found->members[i].peer);
    for (size_t i = 0; i < g->count; i++) g->life[i] = link_life_of(&found->members[i].peer);
    if (deal(w, g, found)) {
        w->no_memory = 1;
        world_free_meeting(g);
        return NULL;
    }
    g->number = ++w->meeting_number;
    g->is_known = uplinks_are_known(found);
    w->n.groups++;
    w->n.grouped += g->count;
    w->meetings[w->meeting_count++] = g;
    return g;
}

/* The duration, and each member's bytes: own copies to the reducers, answers to the others. */
static double allreduce_time(struct world *w, struct meeting *g)
{
    struct pl_part *parts = NULL;
    size_t count = 0, n = g->count, reducers = 0;
    double *own = world_need(w, calloc(n, sizeof *own)), all = 0, longest = 0, delay = 0, come;
    int rc = w->no_memory;
    for (size_t i = 0; i < n; i++) delay = fmax(delay, w->peer[g->member[i]].link.delay);
    if (!rc)
        rc = pl_partition(&parts, &count, w->elements, w->method, w->tensors, g->fraction, (int)n,
                          PL_PART_BYTES, NULL);
    for (size_t i = 0; !rc && i < count; i++) {
        double bytes = (double)parts[i].length *
                       (w->method[parts[i].tensor] == PL_COMPRESS_UNIFORM8 ? 1 : 2);
        own[parts[i].reducer] += bytes;
        all += bytes;
    }
    for (size_t i = 0; i < n; i++) reducers += g->fraction[i] > 0;
    for (size_t i = 0; !rc && i < n; i++) {
        const struct link *l = &w->peer[g->member[i]].link;
        come = all - own[i] + own[i] * (double)(n - 1); /* at most */
        g->bytes[i] = come - (1 - g->upload[i]) * all;
        longest = fmax(longest, fmax(g->bytes[i] / l->up, come / l->down));
        w->n.uploaded += g->upload[i];
        g->slowest = fmax(g->slowest, (double)(reducers * PL_PART_BYTES) / l->up);
        g->fraction[i] = own[i];
    }
    pl_free(parts);
    free(own);
    return rc ? INFINITY : longest + 4 * delay;
}

/* When the reducers give up a sender that is silent (allreduce_wait.c): each after three times what its
 * slowest sender took, and after a stranger's patience at least, but SENDER_TIMEOUT after its own
 * beginning at most. One whose batch ended early has waited for the others' batches, too. */
static double sender_given_up(const struct world *w, const struct meeting *g, size_t i)
{
    static const struct reliability strangers;
    const double patience = reliability_silence(&strangers, &w->peer[g->member[i]].m.o.self,
                                                SENDER_TIMEOUT);
    double until = 0;
    for (size_t k = 0; k < g->count; k++) {
        const double start = fmax(g->formed, w->peer[g->member[k]].ready),
                     slowest = fmax(g->slowest, g->began - start);
        if (g->fraction[k] > 0)
            until = fmax(until, fmin(start + SENDER_TIMEOUT,
                                     fmax(g->began, w->now) + fmax(patience, 3 * slowest)));
    }
    return until;
}

/* A lost reducer makes the round fail, once its silence has been noticed: after the longest patience
 * with a reducer (averager_round.c), which for each member begins with its own first part. The next
 * group waits for the last of them. For a lost peer that only sends the others wait, and then
 * continue. */
void world_lose_member(struct world *w, struct meeting *g, size_t i, int silent)
{
    if (g->over || g->failed || g->ends <= w->now) return;
    g->failed = g->fraction[i] > 0;
    if (g->failed)
        g->ends = silent ? fmax(g->began, w->now) + SENDER_TIMEOUT + RELIABILITY_SILENCE
                         : w->now + 0.2;
    else if (silent) g->ends = fmax(g->ends, sender_given_up(w, g, i));
    else return;
    if (g->ends > g->limit) {
        g->ends = g->limit;
        g->failed = 1;
    }
    world_at(w, g->ends, (struct event){ .kind = E_EXCHANGED, .stamp = (uint32_t)g->number });
}

void world_begin_exchange(struct world *w, struct meeting *g)
{
    double takes = allreduce_time(w, g), began = w->now;
    g->formed = w->now;
    for (size_t i = 0; i < g->count; i++) began = fmax(began, w->peer[g->member[i]].ready);
    g->began = began;
    const double limit = w->slow > 0 && !g->is_known ? UPLOAD_LIMIT : ALLREDUCE_TIMEOUT;
    g->failed = takes > limit;
    g->limit = began + limit;
    g->ends = fmin(began + takes, g->limit);
    world_at(w, g->ends, (struct event){ .kind = E_EXCHANGED, .stamp = (uint32_t)g->number });
    for (size_t i = 0; i < g->count; i++)
        w->n.moved += g->bytes[i] * (g->failed ? limit / fmax(takes, 1) : 1);
    /* A member that has died since it came to the leader. */
    for (size_t i = 0; i < g->count; i++) {
        const struct peer *p = &w->peer[g->member[i]];
        if (g->life[i] != p->life) world_lose_member(w, g, i, p->left_silently);
    }
}

/* A member's own bytes leave at the rate that TCP reaches on the uplink; later bytes wait for
 * others, and measure nothing. */
void world_measure(struct world *w, const struct meeting *g, size_t place)
{
    struct peer *p = &w->peer[g->member[place]];
    struct bandwidth_meter m = { 0 };
    const double up = p->link.up * (TCP_LEAST + (1 - TCP_LEAST) * pl_rng_uniform(&w->rng)),
                 bytes = fmin(g->bytes[place], up * fmax(0, w->now - g->began));
    bandwidth_sample(&m, 0, 0, 1);
    bandwidth_sample(&m, bytes / up, bytes, 0);
    bandwidth_end_round(&p->bandwidth, &m);
}
