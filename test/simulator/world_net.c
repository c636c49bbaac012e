/* world_net.c - what is between the simulated peers: time, messages, and the DHT's five nodes
 * that hold a group key. */
#include "world_internal.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define DHT_CALL_LIMIT 3.0
#define NEAREST 20            /* nodes that a poll asks */
#define ENTRY_BYTES 60        /* a declaration as it travels: peer id, time, framing */
#define NEIGHBOURS_BYTES 1200 /* twenty ids and peer ids */
#define CALL_BYTES 300        /* a call's own frames, both ways */

void *world_need(struct world *w, void *p)
{
    if (!p) w->no_memory = 1;
    return p;
}

/* --- time ------------------------------------------------------------------------------------- */

void world_at(struct world *w, double when, struct event e)
{
    e.at = fmax(when, w->now);
    if (queue_push(&w->queue, &e)) w->no_memory = 1;
}

void world_settle(struct peer *p)
{
    double wake;
    world_expect(p);
    wake = matchmaking_wake(&p->m);
    p->wake++;
    if (isfinite(wake))
        world_at(p->w, fmax(wake, p->w->now),
                 (struct event){
                     .kind = E_TICK, .peer = p->self, .life = p->life, .stamp = p->wake });
}

/* A message leaves behind all that its sender has sent before. */
static double sent(struct world *w, struct peer *from, const struct peer *to, size_t n)
{
    double bytes = (double)n + 100;
    from->uplink_free = fmax(from->uplink_free, w->now) + bytes / from->link.up;
    w->n.control += 2 * bytes; /* one sends, one receives */
    return from->uplink_free + from->link.delay + to->link.delay;
}

/* --- the DHT ---------------------------------------------------------------------------------- */

struct key *world_key(struct world *w, const struct peer *p)
{
    /* A 1 in front: "01" and "1" are different keys. */
    return &w->keys[((size_t)1 << strlen(p->bits)) + (p->bits[0] ? strtoul(p->bits, NULL, 2) : 0)];
}

static void take_out(struct world *w, struct key *k, size_t place)
{
    if (place != --k->count) {
        k->list[place] = k->list[k->count];
        k->owner[place] = k->owner[k->count];
        if (k->owner[place] != ORPHAN) w->peer[k->owner[place]].place = place;
    }
}

void world_forget(struct world *w, struct peer *p)
{
    if (p->declared) take_out(w, world_key(w, p), p->place);
    p->declared = 0;
}

void world_orphan(struct world *w, struct peer *p)
{
    if (p->declared) world_key(w, p)->owner[p->place] = ORPHAN;
    p->declared = 0;
}

void world_expire(struct world *w, struct key *k)
{
    for (size_t i = k->count; i-- > 0;)
        if (k->owner[i] == ORPHAN && k->list[i].expiration <= w->now) take_out(w, k, i);
}

void world_on_declare(void *context, double expiration, int active)
{
    struct peer *p = context;
    struct world *w = p->w;
    struct key *k = world_key(w, p);
    w->n.control += REPLICAS * (CALL_BYTES + ENTRY_BYTES);
    if (!active) {
        world_forget(w, p);
        return;
    }
    if (!p->declared && k->count == k->capacity) {
        size_t capacity = k->capacity ? 2 * k->capacity : 64;
        void *list = world_need(w, realloc(k->list, capacity * sizeof *k->list)), *owner;
        if (list) k->list = list;
        owner = world_need(w, realloc(k->owner, capacity * sizeof *k->owner));
        if (owner) k->owner = owner;
        if (!list || !owner) return;
        k->capacity = capacity;
    }
    if (!p->declared) {
        p->place = k->count++;
        k->owner[p->place] = p->self;
    }
    k->list[p->place] = (struct matchmaking_candidate){ p->m.o.self, expiration, 0 };
    p->declared = expiration;
}

/* All of the twenty nearest are asked; five have it, and answer one requester after the other. */
void world_on_poll(void *context)
{
    struct peer *p = context;
    struct world *w = p->w;
    struct key *k = world_key(w, p);
    double bytes = CALL_BYTES + (double)k->count * ENTRY_BYTES, latest = 0;
    int answered = 0;
    for (int i = 0; i < REPLICAS; i++) {
        double wait;
        /* A requester that has waited longer than a call lasts has given up: nothing is sent to
         * it. */
        if (k->free[i] > w->now + DHT_CALL_LIMIT) {
            latest = DHT_CALL_LIMIT;
            continue;
        }
        k->free[i] = fmax(k->free[i], w->now) + bytes / k->uplink[i];
        wait = k->free[i] - w->now + 2 * p->link.delay + 2 * LINK_DELAY;
        answered += wait < DHT_CALL_LIMIT;
        latest = fmax(latest, fmin(wait, DHT_CALL_LIMIT));
        if (i == 0) k->given += bytes;
        w->n.control += 2 * bytes;
    }
    w->n.control += 2.0 * NEAREST * (CALL_BYTES + NEIGHBOURS_BYTES);
    w->n.polls++;
    w->n.polls_lost += !answered;
    p->is_searching = answered > 0;
    world_at(w, w->now + latest + (double)link_hops(w->o.peers) * 2 * LINK_DELAY,
             (struct event){ .kind = E_POLLED, .peer = p->self, .life = p->life });
}

/* --- messages --------------------------------------------------------------------------------- */

static struct blob *blob(struct world *w, const uint8_t *data, size_t n)
{
    struct blob *b = w->last;
    if (!b || b->n != n || memcmp(b->data, data, n)) {
        if (b && !--b->users) free(b);
        w->last = b = world_need(w, malloc(sizeof *b + n + 1));
        if (!b) return NULL;
        *b = (struct blob){ .users = 1, .n = n };
        memcpy(b->data, data, n);
    }
    b->users++;
    return b;
}

void world_drop_blob(struct blob *b)
{
    if (b && !--b->users) free(b);
}

void world_on_ask(void *context, const struct peer_id *leader, const uint8_t *data, size_t n)
{
    struct peer *p = context;
    struct world *w = p->w;
    struct stream *s = world_need(w, calloc(1, sizeof *s));
    size_t to = link_peer_of(leader);
    struct peer *q = &w->peer[to];
    if (!s) return;
    *s = (struct stream){ .asker = p->self,
                          .leader = to,
                          .asker_life = p->life,
                          .leader_life = q->life,
                          .open = 1,
                          .next = w->streams };
    w->streams = s;
    p->asked = s;
    if (peer_id_equal(&q->m.o.self, leader)) {
        world_at(w, sent(w, p, q, n),
                 (struct event){ .kind = E_REQUEST,
                                 .peer = to,
                                 .life = q->life,
                                 .stream = s,
                                 .blob = blob(w, data, n) });
    } else if (!q->left_silently) { /* the connection fails; else nothing comes back at all */
        world_at(w, w->now + 4 * p->link.delay,
                 (struct event){
                     .kind = E_LEADER_GONE, .peer = p->self, .life = p->life, .stream = s });
    }
}

void world_on_leave(void *context)
{
    struct peer *p = context;
    struct stream *s = p->asked;
    if (!s) return;
    p->asked = NULL;
    if (!s->open) return;
    s->open = 0;
    world_at(p->w, sent(p->w, p, &p->w->peer[s->leader], 20),
             (struct event){
                 .kind = E_ASKER_GONE, .peer = s->leader, .life = s->leader_life, .stream = s });
}

void world_on_answer(void *context, void *stream, const uint8_t *data, size_t n, int last)
{
    struct peer *p = context;
    struct stream *s = stream;
    world_at(p->w, sent(p->w, p, &p->w->peer[s->asker], n),
             (struct event){ .kind = E_ANSWER,
                             .peer = s->asker,
                             .life = s->asker_life,
                             .stream = s,
                             .blob = blob(p->w, data, n),
                             .last = last });
}
