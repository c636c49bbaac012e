/* world.c - see world.h. Units: seconds, bytes. */
#include "world.h"
#include "links.h"
#include "queue.h"
#include "../../net/hivemind/matchmaking.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MATCHMAKING_TIME 15.0   /* the run's */
#define REQUEST_TIMEOUT 3.0
#define AVERAGING_TIMEOUT 180.0
#define ALLREDUCE_TIMEOUT 60.0
#define SENDER_TIMEOUT 15.0     /* a silent groupmate is noticed; the run: matchmaking_time */
#define DHT_CALL_LIMIT 3.0
#define REPLICAS 5
#define NEAREST 20              /* nodes that a look asks */
#define ENTRY_BYTES 60          /* a declaration as it travels: peer id, time, framing */
#define NEIGHBOURS_BYTES 1200   /* twenty ids and peer ids */
#define CALL_BYTES 300          /* a call's own frames, both ways */
#define SKEW 1.0                /* s, deviation of when peers see that the batch is full */
#define SILENT 0.3              /* of those who leave: without a word */
#define BITS_MAX 12
#define NEARLY_ALL 0.95         /* of the peers: the step is over when they are done */
#define KEY "run_grad_averager.0b"

/* A message in flight, shared by all whom it is sent to. */
struct blob {
    size_t users, n;
    uint8_t data[];
};

struct stream { /* an asker's question to a leader */
    size_t asker, leader;
    uint32_t asker_life, leader_life;
    int open;
    struct stream *next; /* all are kept to the end */
};

/* A group that was found, once for all of its members. */
struct meeting {
    uint8_t engine_id[DHT_ID_BYTES]; /* what the engines agreed on: not of the seed */
    size_t *member, count, seen;     /* sorted, so that nothing depends on the engine's shuffle */
    uint32_t *life;
    double *fraction, *bytes;        /* (count) of the reducing; what each sends */
    double ends;
    int failed, over;
    uint64_t number;
};

struct peer {
    struct world *w;
    struct matchmaking m;
    struct link link;
    struct stream *asked;
    struct meeting *meeting;
    size_t self;
    uint32_t life, wake;             /* generations: what belongs to older ones is void */
    double value;                    /* what is averaged: a number that stands for all */
    double ready, deadline, uplink_free;
    int round, attempts, done, silent, looking;
    double declared;                 /* 0: not */
    size_t place;                    /* in its key's list, when declared */
    char key[GROUP_KEY_MAX], bits[GROUP_BITS_MAX + 1];
};

/* One group key in the DHT. */
struct key {
    struct matchmaking_candidate *list; /* in order of coming */
    size_t *owner, count, room;
    double free[REPLICAS], uplink[REPLICAS];
    double given;                    /* bytes by each replica in this search */
};

enum {
    E_TICK,
    E_LOOKED,
    E_REQUEST,
    E_ANSWER,
    E_LEADER_GONE,
    E_ASKER_GONE,
    E_BEGIN,
    E_EXCHANGED,
    E_DIES
};

struct world {
    struct world_options o;
    struct pl_rng rng;
    struct queue queue;
    double now;
    struct peer *peer;
    struct key *keys;
    struct meeting **meetings;
    size_t meeting_count, meeting_room, undone;
    struct stream *streams;
    struct blob *last;               /* what was sent last: most are sent to many */
    size_t *elements, tensors;
    enum pl_compression *method;
    uint64_t rounds, rounds_failed, attempts, grouped, groups, looks, looks_lost;
    double moved, control, busiest, searching_since, mostly; /* mostly: when nearly all were done */
    int no_memory;
};

static void *need(struct world *w, void *p)
{
    if (!p) w->no_memory = 1;
    return p;
}

/* --- time ------------------------------------------------------------------------------------- */

static void at(struct world *w, double when, struct event e)
{
    e.at = fmax(when, w->now);
    if (queue_push(&w->queue, &e)) w->no_memory = 1;
}

/* After whatever has touched a peer's engine. */
static void settle(struct peer *p)
{
    double wake = matchmaking_wake(&p->m);
    p->wake++;
    if (isfinite(wake))
        at(p->w, fmax(wake, p->w->now),
           (struct event){ .kind = E_TICK, .peer = p->self, .life = p->life, .stamp = p->wake });
}

/* A message leaves behind all that its sender has sent before. */
static double sent(struct world *w, struct peer *from, const struct peer *to, size_t n)
{
    double bytes = (double)n + 100;
    from->uplink_free = fmax(from->uplink_free, w->now) + bytes / from->link.up;
    w->control += 2 * bytes; /* one sends, one receives */
    return from->uplink_free + from->link.delay + to->link.delay;
}

/* --- the DHT ---------------------------------------------------------------------------------- */

static struct key *key_of(struct world *w, const struct peer *p)
{
    return &w->keys[p->bits[0] ? strtoul(p->bits, NULL, 2) : 0];
}

static void forget_declaration(struct world *w, struct peer *p)
{
    struct key *k = key_of(w, p);
    if (!p->declared) return;
    k->count--;
    if (p->place != k->count) {
        k->list[p->place] = k->list[k->count];
        k->owner[p->place] = k->owner[k->count];
        w->peer[k->owner[p->place]].place = p->place;
    }
    p->declared = 0;
}

static void on_declare(void *context, double expiration, int active)
{
    struct peer *p = context;
    struct world *w = p->w;
    struct key *k = key_of(w, p);
    w->control += REPLICAS * (CALL_BYTES + ENTRY_BYTES);
    if (!active) {
        forget_declaration(w, p);
        return;
    }
    if (!p->declared && k->count == k->room) {
        size_t room = k->room ? 2 * k->room : 64;
        void *list = need(w, realloc(k->list, room * sizeof *k->list)), *owner;
        if (list) k->list = list;
        owner = need(w, realloc(k->owner, room * sizeof *k->owner));
        if (owner) k->owner = owner;
        if (!list || !owner) return;
        k->room = room;
    }
    if (!p->declared) {
        p->place = k->count++;
        k->owner[p->place] = p->self;
    }
    k->list[p->place] = (struct matchmaking_candidate){ p->m.o.self, expiration };
    p->declared = expiration;
}

/* All of the twenty nearest are asked; five have it, and give it to one asker after the other. */
static void on_look_up(void *context)
{
    struct peer *p = context;
    struct world *w = p->w;
    struct key *k = key_of(w, p);
    double bytes = CALL_BYTES + (double)k->count * ENTRY_BYTES, latest = 0;
    int answered = 0;
    for (int i = 0; i < REPLICAS; i++) {
        double wait;
        /* Who has waited longer than a call lasts has hung up: nothing is sent to it. */
        if (k->free[i] > w->now + DHT_CALL_LIMIT) {
            latest = DHT_CALL_LIMIT;
            continue;
        }
        k->free[i] = fmax(k->free[i], w->now) + bytes / k->uplink[i];
        wait = k->free[i] - w->now + 2 * p->link.delay + 2 * LINK_DELAY;
        answered += wait < DHT_CALL_LIMIT;
        latest = fmax(latest, fmin(wait, DHT_CALL_LIMIT));
        if (i == 0) k->given += bytes;
        w->control += 2 * bytes;
    }
    w->control += 2.0 * NEAREST * (CALL_BYTES + NEIGHBOURS_BYTES);
    w->looks++;
    w->looks_lost += !answered;
    p->looking = answered > 0;
    at(w, w->now + latest + (double)link_hops(w->o.peers) * 2 * LINK_DELAY,
       (struct event){ .kind = E_LOOKED, .peer = p->self, .life = p->life });
}

/* --- messages --------------------------------------------------------------------------------- */

static struct blob *blob(struct world *w, const uint8_t *data, size_t n)
{
    struct blob *b = w->last;
    if (!b || b->n != n || memcmp(b->data, data, n)) {
        if (b && !--b->users) free(b);
        w->last = b = need(w, malloc(sizeof *b + n + 1));
        if (!b) return NULL;
        *b = (struct blob){ .users = 1, .n = n };
        memcpy(b->data, data, n);
    }
    b->users++;
    return b;
}

static void drop_blob(struct blob *b)
{
    if (b && !--b->users) free(b);
}

static void on_ask(void *context, const struct peer_id *leader, const uint8_t *data, size_t n)
{
    struct peer *p = context;
    struct world *w = p->w;
    struct stream *s = need(w, calloc(1, sizeof *s));
    size_t to = link_peer_of(leader);
    struct peer *q = &w->peer[to];
    if (!s) return;
    *s = (struct stream){ .asker = p->self, .leader = to, .asker_life = p->life, .leader_life = q->life,
                          .open = 1, .next = w->streams };
    w->streams = s;
    p->asked = s;
    if (peer_id_equal(&q->m.o.self, leader)) /* and lets a silent one be silent */
        at(w, sent(w, p, q, n),
           (struct event){ .kind = E_REQUEST,
                           .peer = to,
                           .life = q->life,
                           .stream = s,
                           .blob = blob(w, data, n) });
    else { /* it has left: the connection fails */
        at(w, w->now + 4 * p->link.delay,
           (struct event){ .kind = E_LEADER_GONE, .peer = p->self, .life = p->life, .stream = s });
    }
}

static void on_leave(void *context)
{
    struct peer *p = context;
    struct stream *s = p->asked;
    if (!s) return;
    p->asked = NULL;
    if (!s->open) return;
    s->open = 0;
    at(p->w, sent(p->w, p, &p->w->peer[s->leader], 20),
       (struct event){
           .kind = E_ASKER_GONE, .peer = s->leader, .life = s->leader_life, .stream = s });
}

static void on_answer(void *context, void *stream, const uint8_t *data, size_t n, int last)
{
    struct peer *p = context;
    struct stream *s = stream;
    at(p->w, sent(p->w, p, &p->w->peer[s->asker], n),
       (struct event){ .kind = E_ANSWER,
                       .peer = s->asker,
                       .life = s->asker_life,
                       .stream = s,
                       .blob = blob(p->w, data, n),
                       .last = last });
}

/* --- a group's exchange ----------------------------------------------------------------------- */

static void free_meeting(struct meeting *g)
{
    free(g->member);
    free(g->life);
    free(g->fraction);
    free(g->bytes);
    free(g);
}

/* The engines' group as ours: the first member that hears of it makes it. */
static struct meeting *meeting_of(struct world *w, const struct group *found)
{
    struct meeting *g;
    for (size_t i = w->meeting_count; i-- > 0;)
        if (!memcmp(w->meetings[i]->engine_id, found->id, DHT_ID_BYTES)) return w->meetings[i];
    if (w->meeting_count == w->meeting_room) {
        size_t room = w->meeting_room ? 2 * w->meeting_room : 64;
        void *more = need(w, realloc(w->meetings, room * sizeof *w->meetings));
        if (!more) return NULL;
        w->meetings = more;
        w->meeting_room = room;
    }
    if (!(g = need(w, calloc(1, sizeof *g)))) return NULL;
    memcpy(g->engine_id, found->id, DHT_ID_BYTES);
    g->member = need(w, calloc(found->count, sizeof *g->member));
    g->life = need(w, calloc(found->count, sizeof *g->life));
    g->fraction = need(w, calloc(found->count, sizeof *g->fraction));
    g->bytes = need(w, calloc(found->count, sizeof *g->bytes));
    if (w->no_memory) {
        free_meeting(g);
        return NULL;
    }
    g->count = found->count;
    for (size_t i = 0; i < g->count; i++) g->member[i] = link_peer_of(&found->members[i].peer);
    link_sort(g->member, g->count);
    for (size_t i = 0; i < g->count; i++) g->life[i] = w->peer[g->member[i]].life;
    g->number = w->groups++;
    w->grouped += g->count;
    w->meetings[w->meeting_count++] = g;
    return g;
}

/* How long it takes, and what everybody sends: own copies to the reducers, answers to the others. */
static double exchange_time(struct world *w, struct meeting *g)
{
    struct pl_part *parts = NULL;
    size_t count = 0, n = g->count, *share = need(w, calloc(n, sizeof *share));
    double *bandwidth = need(w, calloc(n, sizeof *bandwidth)),
           *own = need(w, calloc(n, sizeof *own)), all = 0, longest = 0, delay = 0;
    int rc = w->no_memory;
    for (size_t i = 0; !rc && i < n; i++) {
        const struct link *l = &w->peer[g->member[i]].link;
        bandwidth[i] = l->client ? 0 : w->o.stated ? fmin(l->up, l->down) : PL_BANDWIDTH_UNKNOWN;
        delay = fmax(delay, l->delay);
    }
    if (!rc) rc = pl_balance(share, bandwidth, (int)n, w->o.values, 0, NULL);
    for (size_t i = 0; !rc && i < n; i++) g->fraction[i] = (double)share[i];
    if (!rc)
        rc = pl_partition(&parts, &count, w->elements, w->method, w->tensors, g->fraction, (int)n,
                          PL_PART_BYTES, NULL);
    for (size_t i = 0; !rc && i < count; i++) {
        double bytes = (double)parts[i].length *
                       (w->method[parts[i].tensor] == PL_COMPRESS_UNIFORM8 ? 1 : 2);
        own[parts[i].owner] += bytes;
        all += bytes;
    }
    for (size_t i = 0; !rc && i < n; i++) {
        const struct link *l = &w->peer[g->member[i]].link;
        g->bytes[i] = all - own[i] + own[i] * (double)(n - 1);
        longest = fmax(longest, fmax(g->bytes[i] / l->up, g->bytes[i] / l->down)); /* as much comes as goes */
        g->fraction[i] = own[i];
    }
    pl_free(parts);
    free(share);
    free(bandwidth);
    free(own);
    return rc ? INFINITY : longest + 4 * delay;
}

static void begin_exchange(struct world *w, struct meeting *g)
{
    double takes = exchange_time(w, g), began = w->now;
    for (size_t i = 0; i < g->count; i++) began = fmax(began, w->peer[g->member[i]].ready);
    g->failed = takes > ALLREDUCE_TIMEOUT;
    g->ends = began + fmin(takes, ALLREDUCE_TIMEOUT);
    at(w, g->ends, (struct event){ .kind = E_EXCHANGED, .stamp = (uint32_t)g->number });
    for (size_t i = 0; i < g->count; i++)
        w->moved += g->bytes[i] * (g->failed ? ALLREDUCE_TIMEOUT / fmax(takes, 1) : 1);
}

/* One of its members is gone before the end. Who only sends is missed by nobody but itself. */
static void lose_member(struct world *w, struct meeting *g, const struct peer *p, int silent)
{
    if (g->over || g->failed || g->ends <= w->now) return;
    for (size_t i = 0; i < g->count; i++)
        if (g->member[i] == p->self && g->life[i] == p->life && g->fraction[i] > 0) {
            g->failed = 1;
            at(w, w->now + (silent ? 2 * SENDER_TIMEOUT : 0.2),
               (struct event){ .kind = E_EXCHANGED, .stamp = (uint32_t)g->number });
        }
}

/* --- a peer's step ---------------------------------------------------------------------------- */

static void search(struct peer *p, double scheduled)
{
    struct world *w = p->w;
    p->attempts++;
    matchmaking_begin(&p->m, w->now, scheduled, p->deadline);
    if (w->o.expect) matchmaking_expect(&p->m, w->now, w->undone);
    settle(p);
}

static void one_less(struct world *w)
{
    if (--w->undone == (size_t)((1 - NEARLY_ALL) * (double)w->o.peers)) w->mostly = w->now;
}

static void finish(struct peer *p, int failed)
{
    struct world *w = p->w;
    w->rounds++;
    w->rounds_failed += (uint64_t)failed;
    if (!failed) w->attempts += (uint64_t)p->attempts;
    p->attempts = 0;
    if (++p->round < w->o.rounds) {
        p->deadline = w->now + AVERAGING_TIMEOUT;
        p->ready = w->now;
        search(p, w->now);
        return;
    }
    p->done = 1;
    one_less(w);
}

static void on_over(void *context, int status)
{
    struct peer *p = context;
    struct world *w = p->w;
    struct meeting *g = status ? NULL : meeting_of(w, &p->m.group);
    if (!g) {
        at(w, w->now,
           (struct event){ .kind = E_BEGIN, .peer = p->self, .life = p->life, .last = 1 });
        return;
    }
    group_clear(&p->m.group);
    p->meeting = g;
    if (!g->seen++) begin_exchange(w, g);
}

static const struct matchmaking_port port = { on_declare, on_look_up, on_ask, on_leave,
                                              on_answer,  NULL,       on_over };

/* Bits for the next round, from the engine's rule and an id that the seed decides. */
static void next_bits(struct world *w, const struct meeting *g, size_t place, struct peer *p)
{
    uint8_t id[DHT_ID_BYTES];
    struct pl_rng rng;
    char bits[GROUP_BITS_MAX + 1];
    if (!p->bits[0]) return;
    pl_rng_init(&rng, w->o.seed, 1000 + g->number);
    for (size_t i = 0; i < sizeof id; i++) id[i] = (uint8_t)pl_rng_below(&rng, 256);
    if (group_next_bits(bits, p->bits, id, g->count, place,
                        g->count > w->o.target ? 0 : w->o.target))
        return;
    memcpy(p->bits, bits, sizeof bits);
    snprintf(p->key, sizeof p->key, "%s%s", KEY, p->bits);
}

static struct meeting *meeting_numbered(struct world *w, uint32_t number, size_t *place)
{
    for (size_t i = 0; i < w->meeting_count; i++)
        if ((uint32_t)w->meetings[i]->number == number) {
            *place = i;
            return w->meetings[i];
        }
    return NULL;
}

static void exchanged(struct world *w, uint32_t number)
{
    size_t place, alive = 0;
    struct meeting *g = meeting_numbered(w, number, &place);
    double mean = 0;
    if (!g || g->over) return;
    g->over = 1;
    for (size_t i = 0; i < g->count; i++) {
        struct peer *p = &w->peer[g->member[i]];
        if (p->meeting == g) mean += p->value, alive++;
    }
    for (size_t i = 0; i < g->count; i++) {
        struct peer *p = &w->peer[g->member[i]];
        if (p->meeting != g) continue;
        p->meeting = NULL;
        if (!g->failed) {
            p->value = mean / (double)alive;
            next_bits(w, g, i, p);
            finish(p, 0);
        } else if (w->now + MATCHMAKING_TIME < p->deadline) search(p, w->now);
        else finish(p, 1);
    }
    w->meetings[place] = w->meetings[--w->meeting_count];
    free_meeting(g);
}

/* A newcomer under an old number. */
static void come(struct world *w, struct peer *p)
{
    static const uint8_t gather[] = { 0x93, 0xc0, 0x00, 0xc4, 0x01, 0xc0 };
    struct matchmaking_options o = { .key = p->key,
                                     .min_time = MATCHMAKING_TIME,
                                     .request_timeout = REQUEST_TIMEOUT,
                                     .target_size = w->o.target,
                                     .min_size = 2,
                                     .gather = gather,
                                     .gather_n = sizeof gather };
    link_draw(&p->link, &w->rng);
    link_name(&o.self, p->self, p->life);
    o.client_mode = p->link.client;
    for (int i = 0; i < w->o.bits; i++) p->bits[i] = pl_rng_below(&w->rng, 2) ? '1' : '0';
    p->bits[w->o.bits] = 0;
    snprintf(p->key, sizeof p->key, "%s%s", KEY, p->bits);
    p->value = pl_rng_normal(&w->rng);
    p->silent = 0;
    p->uplink_free = 0;
    matchmaking_init(&p->m, &o, &port, p);
    at(w, w->now - w->o.life_s * log(1 - pl_rng_uniform(&w->rng)),
       (struct event){ .kind = E_DIES, .peer = p->self, .life = p->life });
}

static void hang_up(struct world *w, struct stream *s)
{
    at(w, w->now + 0.1,
       (struct event){
           .kind = E_LEADER_GONE, .peer = s->asker, .life = s->asker_life, .stream = s });
}

static void die(struct world *w, struct peer *p)
{
    int silent = pl_rng_uniform(&w->rng) < SILENT;
    struct meeting *g = p->meeting;
    int was_busy = !p->done;
    p->meeting = NULL;
    if (g) lose_member(w, g, p, silent);
    /* Followers, whoever waits, and the leader see the connection end, or nothing at all. */
    for (size_t i = 0; !silent && i < p->m.followers.count; i++) hang_up(w, p->m.streams[i]);
    for (size_t i = 0; !silent && i < p->m.waiting_count; i++) hang_up(w, p->m.waiting[i].stream);
    if (!silent) on_leave(p);
    p->asked = NULL;
    forget_declaration(w, p); /* simpler than it is: it would lie there until its time */
    matchmaking_clear(&p->m);
    p->life++;
    p->wake++;
    come(w, p);
    p->done = 1; /* the newcomer takes part from the next step on */
    p->round = p->attempts = 0;
    if (was_busy) one_less(w);
}

/* --- the loop --------------------------------------------------------------------------------- */

static void happen(struct world *w, struct event *e)
{
    struct peer *p = &w->peer[e->peer];
    struct stream *s = e->stream;
    if (e->kind == E_EXCHANGED) {
        exchanged(w, e->stamp);
        return;
    }
    if (p->life != e->life || (e->kind == E_TICK && e->stamp != p->wake)) return;
    switch (e->kind) {
    case E_DIES: die(w, p); return;
    case E_BEGIN:
        if (p->done) return;
        if (e->last) finish(p, 1);
        else search(p, p->ready);
        return;
    case E_TICK: matchmaking_tick(&p->m, w->now); break;
    case E_LOOKED: {
        const struct key *k = key_of(w, p);
        matchmaking_found(&p->m, w->now, k->list, p->looking ? k->count : 0);
        break;
    }
    case E_REQUEST:
        if (e->blob)
            matchmaking_request(&p->m, w->now, s, &w->peer[s->asker].m.o.self, e->blob->data,
                                e->blob->n);
        break;
    case E_ASKER_GONE: matchmaking_asker_gone(&p->m, s); break;
    case E_ANSWER:
        if (!s->open || p->asked != s) break;
        if (e->last) s->open = 0;
        if (e->blob) matchmaking_message(&p->m, w->now, e->blob->data, e->blob->n);
        if (e->last && p->asked == s) matchmaking_leader_gone(&p->m, w->now);
        break;
    case E_LEADER_GONE:
        if (!s->open || p->asked != s) break;
        s->open = 0;
        matchmaking_leader_gone(&p->m, w->now);
        break;
    default: break;
    }
    settle(p);
}

static void new_search(struct world *w)
{
    size_t keys = (size_t)1 << w->o.bits;
    for (size_t i = 0; i < keys; i++) {
        w->busiest = fmax(w->busiest, w->keys[i].given / fmax(1, w->now - w->searching_since));
        w->keys[i].given = 0;
    }
    w->searching_since = w->now;
}

static double deviation(const struct world *w)
{
    double sum = 0, squares = 0, n = (double)w->o.peers;
    for (size_t i = 0; i < w->o.peers; i++) sum += w->peer[i].value;
    for (size_t i = 0; i < w->o.peers; i++) squares += pow(w->peer[i].value - sum / n, 2);
    return squares / n;
}

/* One epoch. Returns how long it took behind the last sample; *left: of the differences. */
static double one_step(struct world *w, double *left)
{
    double full = w->now + w->o.accumulate_s, before,
           until = full + 4 * AVERAGING_TIMEOUT * w->o.rounds;
    for (size_t i = 0; i < w->o.peers; i++) {
        struct peer *p = &w->peer[i];
        matchmaking_cancel(&p->m);
        p->meeting = NULL;
        p->value = pl_rng_normal(&w->rng);
        p->done = p->round = p->attempts = 0;
        p->ready = full + fabs(pl_rng_normal(&w->rng)) * SKEW;
        p->deadline = full + AVERAGING_TIMEOUT;
        at(w, p->ready - MATCHMAKING_TIME,
           (struct event){ .kind = E_BEGIN, .peer = i, .life = p->life });
    }
    w->undone = w->o.peers;
    w->mostly = INFINITY;
    before = deviation(w);
    w->searching_since = full - MATCHMAKING_TIME;
    while (w->undone && w->queue.count && !w->no_memory) {
        struct event e = queue_pop(&w->queue);
        w->now = e.at;
        if (w->now > until) break;
        happen(w, &e);
        drop_blob(e.blob);
    }
    new_search(w);
    *left = deviation(w) / before;
    return fmin(w->mostly, w->now) - full;
}

static int open_world(struct world *w, const struct world_options *o, struct pl_err *err)
{
    size_t keys;
    memset(w, 0, sizeof *w);
    w->o = *o;
    if (o->peers < 2 || o->bits < 0 || o->bits > BITS_MAX || o->rounds < 1 || o->steps < 1 ||
        (o->bits && o->target < 2))
        return pl_fail(err, PL_EUSE, "simulator: %zu peers, %d bits, groups of %zu", o->peers,
                       o->bits, o->target);
    keys = (size_t)1 << o->bits;
    pl_rng_init(&w->rng, o->seed, 0);
    w->peer = need(w, calloc(o->peers, sizeof *w->peer));
    w->keys = need(w, calloc(keys, sizeof *w->keys));
    link_tensors(&w->elements, &w->method, &w->tensors, o->values);
    if (w->no_memory || !w->elements || !w->method)
        return pl_fail(err, PL_ENOMEM, "simulator: no memory");
    for (size_t i = 0; i < keys; i++)
        for (int k = 0; k < REPLICAS; k++) {
            struct link l;
            do link_draw(&l, &w->rng); while (l.client); /* clients keep no records */
            w->keys[i].uplink[k] = l.up;
        }
    for (size_t i = 0; i < o->peers; i++) {
        w->peer[i].w = w;
        w->peer[i].self = i;
        come(w, &w->peer[i]);
    }
    return PL_OK;
}

static void close_world(struct world *w)
{
    for (size_t i = 0; w->peer && i < w->o.peers; i++)
        if (w->peer[i].w) matchmaking_clear(&w->peer[i].m);
    for (struct stream *s = w->streams, *next; s; s = next) {
        next = s->next;
        free(s);
    }
    while (w->queue.count) {
        struct event e = queue_pop(&w->queue);
        drop_blob(e.blob);
    }
    queue_clear(&w->queue);
    while (w->meeting_count) free_meeting(w->meetings[--w->meeting_count]);
    for (size_t i = 0; w->keys && i < (size_t)1 << w->o.bits; i++)
        free(w->keys[i].list), free(w->keys[i].owner);
    drop_blob(w->last);
    free(w->meetings);
    free(w->keys);
    free(w->peer);
    free(w->elements);
    free(w->method);
}

int world_run(struct world_result *r, const struct world_options *o, struct pl_err *err)
{
    struct world w;
    int rc = open_world(&w, o, err);
    double left, peers = (double)o->peers * o->steps;
    memset(r, 0, sizeof *r);
    for (int i = 0; !rc && i < o->steps; i++) {
        r->averaging_s += one_step(&w, &left) / o->steps;
        r->spread += left / o->steps;
        if (w.no_memory) rc = pl_fail(err, PL_ENOMEM, "simulator: no memory");
    }
    r->step_s = o->accumulate_s + r->averaging_s;
    r->failed = w.rounds ? (double)w.rounds_failed / (double)w.rounds : 0;
    r->tries = w.rounds > w.rounds_failed
                   ? (double)w.attempts / (double)(w.rounds - w.rounds_failed)
                   : 0;
    r->group = w.groups ? (double)w.grouped / (double)w.groups : 0;
    r->moved = w.moved / peers;
    r->control = w.control / peers;
    r->replica = w.busiest;
    r->looks_lost = w.looks ? (double)w.looks_lost / (double)w.looks : 0;
    r->events = w.queue.pushed;
    close_world(&w);
    return rc;
}
