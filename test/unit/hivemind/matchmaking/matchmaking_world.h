/* matchmaking_world.h - a swarm of matchmaking engines on a virtual clock, for the tests of
 * matchmaking. Included by one file of each test program. */
#ifndef PL_TEST_MATCHMAKING_WORLD_H
#define PL_TEST_MATCHMAKING_WORLD_H

#include "net/hivemind/matchmaking/matchmaking.h"
#include "net/message.h"
#include "net/hivemind/messages/averaging.pb-c.h"
#include "test/unit/unit.h"

#include <math.h>

#define PEERS_MAX 24
#define LATENCY 0.01

struct event {
    enum { POLLED, REQUEST, ANSWER, LEADER_GONE, ASKER_GONE } kind;
    double at;
    size_t to;
    void *stream;
    struct peer_id from;
    uint8_t *data;
    size_t n;
};
struct stream {
    size_t asker, leader;
    int open;
};

struct peer {
    struct world *w;
    struct matchmaking m;
    size_t self;
    double declared;
    struct stream *asked;
    int over, status, polls, frozen, abandoned, disbanded;
    struct peer_id abandoned_by;
    int unreachable; /* only open ones reach it */
};

struct world {
    double now;
    size_t count;
    int banned;                    /* 1: all others refuse the first peer */
    int absent;                    /* 1: the first peer counts as absent */
    uint32_t paused_by;            /* for these peers, a bit each, the first is on back-off */
    uint32_t unproven, unexpected; /* these */
    struct peer peer[PEERS_MAX];
    struct event events[4096];
    size_t event_count;
    struct stream streams[4096];
    size_t stream_count;
};

static inline struct peer_id id_of(size_t i)
{
    return (struct peer_id){ .length = 34,
                             .bytes = { 0x12, 0x20, (uint8_t)(i * 37 + 5), (uint8_t)i } };
}

static inline void add(struct world *w, struct event e, const uint8_t *data, size_t n)
{
    assert_true(w->event_count < PL_COUNT(w->events));
    e.at = w->now + LATENCY; /* messages arrive in the order in which they were sent */
    e.n = n;
    assert_non_null(e.data = malloc(n + 1));
    if (n) memcpy(e.data, data, n);
    w->events[w->event_count++] = e;
}

static inline void on_declare(void *context, double expiration, int active)
{
    ((struct peer *)context)->declared = active ? expiration : 0;
}
static inline void on_poll(void *context)
{
    struct peer *p = context;
    p->polls++;
    add(p->w, (struct event){ .kind = POLLED, .to = p->self }, NULL, 0);
}
static inline void on_ask(void *context, const struct peer_id *leader, const uint8_t *data,
                          size_t n)
{
    struct peer *p = context;
    struct stream *s = &p->w->streams[p->w->stream_count++];
    assert_true(p->w->stream_count < PL_COUNT(p->w->streams));
    *s = (struct stream){ .asker = p->self, .open = 1 };
    while (memcmp(p->w->peer[s->leader].m.o.self.bytes, leader->bytes, leader->length)) s->leader++;
    p->asked = s;
    if (p->unreachable && p->w->peer[s->leader].unreachable)
        add(p->w, (struct event){ .kind = LEADER_GONE, .to = p->self, .stream = s }, NULL, 0);
    else
        add(p->w,
            (struct event){ .kind = REQUEST, .to = s->leader, .stream = s, .from = p->m.o.self },
            data, n);
}
static inline void on_leave(void *context)
{
    struct peer *p = context;
    if (!p->asked || !p->asked->open) return;
    p->asked->open = 0;
    add(p->w, (struct event){ .kind = ASKER_GONE, .to = p->asked->leader, .stream = p->asked },
        NULL, 0);
    p->asked = NULL;
}
static inline void on_answer(void *context, void *stream, const uint8_t *data, size_t n, int last)
{
    struct peer *p = context;
    struct stream *s = stream;
    add(p->w, (struct event){ .kind = ANSWER, .to = s->asker, .stream = s }, data, n);
    if (last)
        add(p->w, (struct event){ .kind = LEADER_GONE, .to = s->asker, .stream = s }, NULL, 0);
}
static inline void on_over(void *context, int status)
{
    struct peer *p = context;
    assert_false(p->over);
    p->over = 1;
    p->status = status;
}
static inline int refuses(void *context, const struct peer_id *peer)
{
    const struct peer *p = context;
    return p->w->banned && p->self && peer_id_equal(peer, &p->w->peer[0].m.o.self);
}
static inline int is_absent(void *context, const struct peer_id *peer)
{
    const struct peer *p = context;
    return p->w->absent && p->self && peer_id_equal(peer, &p->w->peer[0].m.o.self);
}
static inline int is_expected(void *context, const struct peer_id *peer)
{
    const struct peer *p = context;
    for (size_t i = 0; i < p->w->count; i++)
        if (peer_id_equal(peer, &p->w->peer[i].m.o.self)) return !(p->w->unexpected >> i & 1);
    return 0;
}
static inline int is_paused(void *context, const struct peer_id *peer)
{
    const struct peer *p = context;
    return (p->w->paused_by >> p->self & 1) && peer_id_equal(peer, &p->w->peer[0].m.o.self);
}
static inline int is_proven(void *context, const struct peer_id *peer)
{
    const struct peer *p = context;
    for (size_t i = 0; i < p->w->count; i++)
        if (peer_id_equal(peer, &p->w->peer[i].m.o.self)) return !(p->w->unproven >> i & 1);
    return 0;
}
static inline void on_abandoned(void *context, const struct peer_id *leader, int has_disbanded)
{
    struct peer *p = context;
    p->abandoned += !has_disbanded;
    p->disbanded += has_disbanded;
    p->abandoned_by = *leader;
}
static const struct matchmaking_callbacks port = { on_declare, on_poll,   on_ask,       on_leave,
                                                   on_answer,  refuses,   is_absent,    is_expected,
                                                   is_paused,  is_proven, on_abandoned, on_over };

static inline void make(struct world *w, size_t count, size_t clients, size_t target)
{
    static const uint8_t gather[] = { 0x93, 0xc0, 0x00, 0xc4, 0x01, 0xc0 };
    memset(w, 0, sizeof *w);
    w->now = 1000;
    w->count = count;
    for (size_t i = 0; i < count; i++) {
        struct matchmaking_options o = { .self = id_of(i),
                                         .key = "run_grad_averager.0b",
                                         .min_time = 5,
                                         .request_timeout = 3,
                                         .target_size = target,
                                         .min_size = 2,
                                         .client_mode = i < clients,
                                         .gather = gather,
                                         .gather_n = sizeof gather };
        w->peer[i].w = w;
        w->peer[i].self = i;
        matchmaking_init(&w->peer[i].m, &o, &port, &w->peer[i]);
    }
}

static inline void happen(struct world *w, struct event *e)
{
    struct peer *p = &w->peer[e->to];
    struct stream *s = e->stream;
    if (p->frozen) return;
    if (e->kind == POLLED) {
        struct matchmaking_candidate found[PEERS_MAX];
        size_t n = 0;
        for (size_t i = 0; i < w->count; i++)
            if (w->peer[i].declared > w->now)
                found[n++] = (struct matchmaking_candidate){ w->peer[i].m.o.self,
                                                             w->peer[i].declared, 0 };
        matchmaking_found(&p->m, w->now, found, n);
    } else if (e->kind == REQUEST) {
        matchmaking_request(&p->m, w->now, s, &e->from, e->data, e->n);
    } else if (e->kind == ASKER_GONE) {
        matchmaking_request_gone(&p->m, s);
    } else if (s->open && p->asked == s) {
        if (e->kind == ANSWER) matchmaking_message(&p->m, w->now, e->data, e->n);
        else s->open = 0, matchmaking_leader_gone(&p->m, w->now);
    }
}

static inline void run_until(struct world *w, double end)
{
    for (;;) {
        size_t best = SIZE_MAX;
        double at = end;
        for (size_t i = 0; i < w->event_count; i++)
            if (w->events[i].at < at) at = w->events[i].at, best = i;
        for (size_t i = 0; i < w->count; i++)
            if (!w->peer[i].frozen && fmax(matchmaking_wake(&w->peer[i].m), w->now) < at)
                at = fmax(matchmaking_wake(&w->peer[i].m), w->now), best = SIZE_MAX - 1 - i;
        if (best == SIZE_MAX) break;
        w->now = at;
        if (best > PL_COUNT(w->events)) {
            matchmaking_tick(&w->peer[SIZE_MAX - 1 - best].m, at);
        } else {
            struct event e = w->events[best];
            memmove(&w->events[best], &w->events[best + 1], (--w->event_count - best) * sizeof e);
            happen(w, &e);
            free(e.data);
        }
    }
    w->now = end;
}

static inline void clear(struct world *w)
{
    for (size_t i = 0; i < w->count; i++) {
        matchmaking_cancel(&w->peer[i].m);
        matchmaking_clear(&w->peer[i].m);
    }
    while (w->event_count) free(w->events[--w->event_count].data);
}

static inline void same_group(const struct world *w, size_t from, size_t to, size_t size)
{
    for (size_t i = from; i < to; i++) {
        const struct group *g = &w->peer[i].m.group;
        assert_int_equal(w->peer[i].over && !w->peer[i].status, 1);
        assert_int_equal(g->count, size);
        assert_true(peer_id_equal(&g->members[g->self].peer, &w->peer[i].m.o.self));
        assert_memory_equal(g->id, w->peer[from].m.group.id, sizeof g->id);
        for (size_t k = 0; k < size; k++)
            assert_true(peer_id_equal(&g->members[k].peer, &w->peer[from].m.group.members[k].peer));
    }
}

#endif
