/* matchmaking.c - swarms of searching averagers on a virtual clock: everybody finds the same
 * group. */
#include "net/hivemind/averaging/matchmaking.h"
#include "net/hivemind/messages/message.h"
#include "net/hivemind/messages/averaging.pb-c.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#define PEERS_MAX 24
#define LATENCY 0.01

struct event {
    enum { LOOKED, REQUEST, ANSWER, LEADER_GONE, ASKER_GONE } kind;
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
    int over, status, looks, frozen, abandoned;
    struct peer_id abandoned_by;
    int unreachable; /* only open ones reach it */
};

struct world {
    double now;
    size_t count;
    int banned;                    /* 1: nobody wants the first */
    int absent;                    /* 1: nobody waits for the first */
    uint32_t paused_by;            /* for these peers, a bit each, the first is on back-off */
    uint32_t unproven, unexpected; /* these */
    struct peer peer[PEERS_MAX];
    struct event events[4096];
    size_t event_count;
    struct stream streams[4096];
    size_t stream_count;
};

static struct peer_id id_of(size_t i)
{
    return (struct peer_id){ .length = 34,
                             .bytes = { 0x12, 0x20, (uint8_t)(i * 37 + 5), (uint8_t)i } };
}

static void add(struct world *w, struct event e, const uint8_t *data, size_t n)
{
    assert_true(w->event_count < PL_COUNT(w->events));
    e.at = w->now + LATENCY; /* what is sent first arrives first */
    e.n = n;
    assert_non_null(e.data = malloc(n + 1));
    if (n) memcpy(e.data, data, n);
    w->events[w->event_count++] = e;
}

static void on_declare(void *context, double expiration, int active)
{
    ((struct peer *)context)->declared = active ? expiration : 0;
}
static void on_look_up(void *context)
{
    struct peer *p = context;
    p->looks++;
    add(p->w, (struct event){ .kind = LOOKED, .to = p->self }, NULL, 0);
}
static void on_ask(void *context, const struct peer_id *leader, const uint8_t *data, size_t n)
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
static void on_leave(void *context)
{
    struct peer *p = context;
    if (!p->asked || !p->asked->open) return;
    p->asked->open = 0;
    add(p->w, (struct event){ .kind = ASKER_GONE, .to = p->asked->leader, .stream = p->asked },
        NULL, 0);
    p->asked = NULL;
}
static void on_answer(void *context, void *stream, const uint8_t *data, size_t n, int last)
{
    struct peer *p = context;
    struct stream *s = stream;
    add(p->w, (struct event){ .kind = ANSWER, .to = s->asker, .stream = s }, data, n);
    if (last)
        add(p->w, (struct event){ .kind = LEADER_GONE, .to = s->asker, .stream = s }, NULL, 0);
}
static void on_over(void *context, int status)
{
    struct peer *p = context;
    assert_false(p->over);
    p->over = 1;
    p->status = status;
}
static int refuses(void *context, const struct peer_id *peer)
{
    const struct peer *p = context;
    return p->w->banned && p->self && peer_id_equal(peer, &p->w->peer[0].m.o.self);
}
static int is_absent(void *context, const struct peer_id *peer)
{
    const struct peer *p = context;
    return p->w->absent && p->self && peer_id_equal(peer, &p->w->peer[0].m.o.self);
}
static int is_expected(void *context, const struct peer_id *peer)
{
    const struct peer *p = context;
    for (size_t i = 0; i < p->w->count; i++)
        if (peer_id_equal(peer, &p->w->peer[i].m.o.self)) return !(p->w->unexpected >> i & 1);
    return 0;
}
static int is_paused(void *context, const struct peer_id *peer)
{
    const struct peer *p = context;
    return (p->w->paused_by >> p->self & 1) && peer_id_equal(peer, &p->w->peer[0].m.o.self);
}
static int is_proven(void *context, const struct peer_id *peer)
{
    const struct peer *p = context;
    for (size_t i = 0; i < p->w->count; i++)
        if (peer_id_equal(peer, &p->w->peer[i].m.o.self)) return !(p->w->unproven >> i & 1);
    return 0;
}
static void on_abandoned(void *context, const struct peer_id *leader)
{
    struct peer *p = context;
    p->abandoned++;
    p->abandoned_by = *leader;
}
static const struct matchmaking_port port = { on_declare, on_look_up, on_ask,       on_leave,
                                              on_answer,  refuses,    is_absent,    is_expected,
                                              is_paused,  is_proven,  on_abandoned, on_over };

static void make(struct world *w, size_t count, size_t clients, size_t target)
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

static void happen(struct world *w, struct event *e)
{
    struct peer *p = &w->peer[e->to];
    struct stream *s = e->stream;
    if (p->frozen) return;
    if (e->kind == LOOKED) {
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
        matchmaking_asker_gone(&p->m, s);
    } else if (s->open && p->asked == s) {
        if (e->kind == ANSWER) matchmaking_message(&p->m, w->now, e->data, e->n);
        else s->open = 0, matchmaking_leader_gone(&p->m, w->now);
    }
}

static void run_until(struct world *w, double end)
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

static void clear(struct world *w)
{
    for (size_t i = 0; i < w->count; i++) {
        matchmaking_cancel(&w->peer[i].m);
        matchmaking_clear(&w->peer[i].m);
    }
    while (w->event_count) free(w->events[--w->event_count].data);
}

static void same_group(const struct world *w, size_t from, size_t to, size_t size)
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

static struct world w;

static void all_together(void **state)
{
    (void)state;
    for (size_t n = 2; n <= PEERS_MAX; n += 11) {
        make(&w, n, n / 4, 0);
        for (size_t i = 0; i < n; i++) {
            run_until(&w, 1000 + 0.2 * (double)i);
            matchmaking_begin(&w.peer[i].m, w.now, 0, 1100);
        }
        run_until(&w, 1030);
        same_group(&w, 0, n, n);
        for (size_t i = 0; i < n; i++)
            assert_true(w.peer[i].looks < 40); /* three a second, not 540 */
        clear(&w);
    }
}

static void target_size_begins_at_once(void **state)
{
    (void)state;
    make(&w, 3, 0, 3);
    for (size_t i = 0; i < 3; i++) matchmaking_begin(&w.peer[i].m, w.now, 0, 1100);
    run_until(&w, 1001.5);
    same_group(&w, 0, 3, 3);
    clear(&w);
}

/* When everybody is there who was to be expected, the leader does not wait for its time. */
static void expected_are_here(void **state)
{
    (void)state;
    make(&w, 4, 0, 0);
    for (size_t i = 0; i < 4; i++) {
        matchmaking_begin(&w.peer[i].m, w.now, 0, 1100);
        matchmaking_expect(&w.peer[i].m, w.now,
                           3); /* a newcomer that nobody knows of is waited for too */
    }
    run_until(&w, 1002);
    same_group(&w, 0, 4, 4);
    clear(&w);
}

/* Those who are not expected are no reason to begin without those who are. */
static void others_do_not_count(void **state)
{
    (void)state;
    make(&w, 4, 0, 0);
    w.unexpected = 6;
    for (size_t i = 0; i < 3; i++) {
        matchmaking_begin(&w.peer[i].m, w.now, 0, 1100);
        matchmaking_expect(&w.peer[i].m, w.now, 2);
    }
    run_until(&w, 1002);
    for (size_t i = 0; i < 3; i++) assert_false(w.peer[i].over);
    matchmaking_begin(&w.peer[3].m, w.now, 0, 1100);
    run_until(&w, 1004);
    same_group(&w, 0, 4, 4);
    clear(&w);
}

/* An auxiliary peer and one other are no group, whoever leads; with a second one they are, as soon
 * as those two are there. */
static void helpers_make_no_group(void **state)
{
    static const uint8_t auxiliary[] = { 0x93, 0xc0, 0x02, 0xc4, 0x01, 0xc0 };
    (void)state;
    make(&w, 3, 0, 0);
    w.peer[1].m.o.gather = auxiliary;
    for (size_t i = 0; i < 3; i++) {
        if (i == 2) run_until(&w, 1015);
        assert_false(w.peer[0].over || w.peer[1].over);
        matchmaking_begin(&w.peer[i].m, w.now, 0, 1100);
        matchmaking_expect(&w.peer[i].m, w.now, 2);
    }
    run_until(&w, 1030);
    same_group(&w, 0, 3, 3);
    clear(&w);
}

static void alone_until_the_deadline(void **state)
{
    (void)state;
    make(&w, 1, 0, 0);
    matchmaking_begin(&w.peer[0].m, w.now, 0, 1012);
    run_until(&w, 1011);
    assert_false(w.peer[0].over);
    assert_true(w.peer[0].declared > 1011);
    run_until(&w, 1013);
    assert_int_equal(w.peer[0].over && w.peer[0].status == PL_EAGAIN, 1);
    assert_true(w.peer[0].declared == 0);
    clear(&w);
}

/* Both hear that the other one averages other tensors. */
static void misfits(void **state)
{
    (void)state;
    make(&w, 3, 0, 0);
    w.peer[1].m.o.schema_hash[0] ^= 1;
    for (size_t i = 0; i < 2; i++) matchmaking_begin(&w.peer[i].m, w.now, 0, 1012);
    run_until(&w, 1013);
    for (size_t i = 0; i < 2; i++) {
        assert_int_equal(w.peer[i].status, PL_EAGAIN);
        assert_true(w.peer[i].m.met && w.peer[i].m.met_misfits);
    }
    matchmaking_begin(&w.peer[2].m, w.now, 0, w.now + 12);
    run_until(&w, w.now + 13);
    assert_false(w.peer[2].m.met || w.peer[2].m.met_misfits);
    clear(&w);
}

/* Its followers notice a frozen leader when its time has passed, and form a group without it. */
static void frozen_leader(void **state)
{
    (void)state;
    make(&w, 4, 0, 0);
    for (size_t i = 0; i < 4; i++) {
        run_until(&w, 1000 + 0.3 * (double)i);
        matchmaking_begin(&w.peer[i].m, w.now, 0, 1100);
    }
    run_until(&w, 1003);
    assert_int_equal(w.peer[0].m.followers.count, 3);
    w.peer[0].frozen = 1;
    w.peer[0].declared = 0;
    run_until(&w, 1025);
    same_group(&w, 1, 4, 3);
    w.peer[0].frozen = 0;
    clear(&w);
}

/* A leader whose machine pauses when it is asked is asked again: nobody waits for its next window,
 * which is a minute away. The first peer is a client, who can only ask. */
static void leader_pauses(void **state)
{
    (void)state;
    make(&w, 3, 1, 3);
    for (size_t i = 0; i < 3; i++) w.peer[i].m.o.min_time = 60;
    matchmaking_begin(&w.peer[2].m, w.now, 0, 1300);
    run_until(&w, 1000.5);
    w.peer[2].frozen = 1;
    for (size_t i = 0; i < 2; i++) matchmaking_begin(&w.peer[i].m, w.now, 0, 1300);
    run_until(&w, 1004.5);
    assert_int_equal(w.peer[2].m.followers.count, 0);
    w.peer[2].frozen = 0;
    run_until(&w, 1012);
    same_group(&w, 0, 3, 3);
    clear(&w);
}

/* An earlier leader turns up: the later one goes there, and sends its followers after it. */
static void followers_are_sent_on(void **state)
{
    (void)state;
    make(&w, 3, 0, 0);
    matchmaking_begin(&w.peer[1].m, w.now, 1010, 1100);
    matchmaking_begin(&w.peer[2].m, w.now, 1010, 1100);
    run_until(&w, 1002);
    assert_int_equal(w.peer[1].m.followers.count + w.peer[2].m.followers.count, 1);
    matchmaking_begin(&w.peer[0].m, w.now, 0, 1100);
    run_until(&w, 1009);
    same_group(&w, 0, 3, 3);
    clear(&w);
}

/* Two whom nobody can call, but over connections that they have made, and an open one, which comes
 * when one of them has looked for a while: it leads both, though its time is later. The second knows
 * from the beginning how it stands, the first finds out in the search. */
static void hidden_ones_follow(void **state)
{
    (void)state;
    for (int late = 0; late <= 1; late++) {
        make(&w, 3, 0, 0);
        for (size_t i = 0; i < 2; i++) w.peer[i].unreachable = 1;
        matchmaking_hide(&w.peer[0].m, w.now, !late);
        matchmaking_hide(&w.peer[1].m, w.now, 1);
        matchmaking_begin(&w.peer[0].m, w.now, 1006, 1100);
        run_until(&w, 1000.5);
        matchmaking_hide(&w.peer[0].m, w.now, 1);
        assert_true(w.peer[0].declared == 0);
        run_until(&w, 1001);
        matchmaking_begin(&w.peer[2].m, w.now, 1007, 1100);
        matchmaking_expect(&w.peer[2].m, w.now, 3);
        run_until(&w, 1002);
        matchmaking_begin(&w.peer[1].m, w.now, 0, 1100);
        run_until(&w, 1008);
        same_group(&w, 0, 3, 3);
        clear(&w);
    }
}

/* Where nobody is to be followed they meet each other, a window later: one router may be before all. */
static void only_hidden_ones(void **state)
{
    (void)state;
    make(&w, 3, 0, 0);
    for (size_t i = 0; i < 3; i++) {
        matchmaking_hide(&w.peer[i].m, w.now, 1);
        matchmaking_begin(&w.peer[i].m, w.now, 0, 1100);
    }
    run_until(&w, 1004);
    for (size_t i = 0; i < 3; i++) assert_true(w.peer[i].declared == 0);
    run_until(&w, 1011);
    same_group(&w, 0, 3, 3);
    matchmaking_begin(&w.peer[0].m, w.now, 0, 1100); /* as callable again */
    matchmaking_hide(&w.peer[0].m, w.now, 0);
    assert_true(w.peer[0].declared > 1011);
    clear(&w);
}

/* Nobody follows it, nobody lets it follow; and nobody waits for it, though it has declared. */
static void banned(void **state)
{
    (void)state;
    make(&w, 6, 0, 0);
    w.banned = 1;
    for (size_t i = 0; i < w.count; i++) matchmaking_begin(&w.peer[i].m, w.now, 0, w.now + 60);
    for (size_t i = 1; i < w.count; i++) matchmaking_expect(&w.peer[i].m, w.now, 5);
    run_until(&w, w.now + 3); /* less than the time that is given to newcomers */
    same_group(&w, 1, 6, 5);
    assert_false(w.peer[0].over);
    clear(&w);
    make(&w, 2, 0, 0); /* with nobody else it asks, and its user is told */
    w.banned = 1;
    matchmaking_begin(&w.peer[1].m, w.now, 0, w.now + 60);
    run_until(&w, w.now + 2);
    matchmaking_begin(&w.peer[0].m, w.now, 0, w.now + 60);
    run_until(&w, w.now + 40);
    assert_true(w.peer[0].m.met_refusals);
    assert_false(w.peer[1].m.met_refusals);
    clear(&w);
}

/* It has declared first, and answers nobody: nobody asks it, nobody waits for it. Should it ask in
 * time, it is welcome. */
static void absent(void **state)
{
    (void)state;
    for (int comes = 0; comes <= 1; comes++) {
        make(&w, 4, 0, 0);
        w.absent = 1;
        w.peer[0].frozen = !comes;
        if (!comes) w.peer[0].declared = 1004;
        for (size_t i = 1; i < 4; i++) matchmaking_begin(&w.peer[i].m, w.now, 0, 1100);
        if (comes) run_until(&w, 1000.1);
        if (comes) matchmaking_begin(&w.peer[0].m, w.now, 0, 1100);
        for (size_t i = 1; i < 4; i++) matchmaking_expect(&w.peer[i].m, w.now, 3 + (size_t)comes);
        run_until(&w, 1002);
        same_group(&w, comes ? 0 : 1, 4, comes ? 4 : 3);
        w.peer[0].frozen = 0;
        clear(&w);
    }
    make(&w, 2, 0, 0); /* the only other one: better than nobody */
    w.absent = 1;
    for (size_t i = 0; i < 2; i++) matchmaking_begin(&w.peer[i].m, w.now, 0, 1100);
    run_until(&w, 1006);
    same_group(&w, 0, 2, 2);
    clear(&w);
}

static int has(const struct group *g, size_t peer)
{
    const struct peer_id id = id_of(peer);
    return group_find(g, &id) >= 0;
}

/* On back-off at all of the others it comes into no group of theirs: it is not asked though it has
 * declared first, not waited for, and refused when it asks. */
static void paused(void **state)
{
    (void)state;
    for (int asks = 0; asks <= 1; asks++) {
        make(&w, 4, 0, 0);
        w.paused_by = 14;
        if (!asks) matchmaking_begin(&w.peer[0].m, w.now, 0, 1060);
        run_until(&w, 1000.5);
        for (size_t i = 1; i < 4; i++) matchmaking_begin(&w.peer[i].m, w.now, 0, 1060);
        if (asks) run_until(&w, 1000.6);
        if (asks) matchmaking_begin(&w.peer[0].m, w.now, 0, 1060);
        for (size_t i = 1; i < 4; i++) matchmaking_expect(&w.peer[i].m, w.now, 3);
        run_until(&w, 1003);
        same_group(&w, 1, 4, 3);
        assert_false(w.peer[0].over || w.peer[0].m.met_refusals);
        clear(&w);
    }
}

/* The views differ: a leader that has seen no fault in it takes it, and those who have go on with the
 * group. If they left it, it is they whom the leader would find silent. */
static void paused_by_some(void **state)
{
    (void)state;
    make(&w, 4, 0, 0);
    w.paused_by = 12; /* not the second, which leads */
    matchmaking_begin(&w.peer[1].m, w.now, 0, 1060);
    run_until(&w, 1000.3);
    for (size_t i = 0; i < 4; i++)
        if (i != 1) matchmaking_begin(&w.peer[i].m, w.now, 0, 1060);
    run_until(&w, 1006);
    same_group(&w, 0, 4, 4);
    clear(&w);
}

/* It accepts, and is silent from then on. */
static void abandoned(void **state)
{
    (void)state;
    make(&w, 3, 0, 0);
    matchmaking_begin(&w.peer[0].m, w.now, 0, 1060);
    run_until(&w, 1000.3);
    for (size_t i = 1; i < 3; i++) matchmaking_begin(&w.peer[i].m, w.now, 0, 1060);
    run_until(&w, 1001);
    assert_int_equal(w.peer[0].m.followers.count, 2);
    w.peer[0].frozen = 1;
    run_until(&w, 1030);
    same_group(&w, 1, 3, 2);
    for (size_t i = 1; i < 3; i++) {
        assert_int_equal(w.peer[i].abandoned, 1);
        assert_true(peer_id_equal(&w.peer[i].abandoned_by, &w.peer[0].m.o.self));
    }
    w.peer[0].frozen = 0;
    clear(&w);
}

/* Who has not delivered yet reduces nothing, as all of the group agree: but not where too few would be
 * left to reduce, nor where all have to. */
static void unproven_reduce_nothing(void **state)
{
    static const struct {
        size_t peers, verify;
        uint32_t unproven;
        int demoted;
    } cases[] = {
        { 3, 0, 4, 1 }, { 3, 0, 0, 0 },    { 3, 0, 7, 0 },     { 2, 0, 2, 0 },
        { 3, 1, 4, 0 }, { 8, 0, 0xfc, 1 }, { 9, 0, 0x1fc, 0 },
    };
    (void)state;
    for (size_t c = 0; c < PL_COUNT(cases); c++) {
        size_t share[PEERS_MAX], n = cases[c].peers;
        make(&w, n, 0, n);
        w.unproven = cases[c].unproven;
        for (size_t i = 0; i < n; i++) {
            w.peer[i].m.o.verify = (int)cases[c].verify;
            matchmaking_begin(&w.peer[i].m, w.now, 0, 1060);
            run_until(&w, w.now + 0.5);
        }
        run_until(&w, 1010);
        same_group(&w, 0, n, n);
        for (size_t i = 0; i < n; i++) {
            const struct group *g = &w.peer[i].m.group;
            assert_int_equal(group_shares(share, g, 1000 * n, NULL), PL_OK);
            for (size_t k = 0; k < n; k++) {
                struct peer_id id = id_of(k);
                int none = cases[c].demoted && w.unproven >> k & 1;
                assert_true(has(g, k));
                assert_int_equal(share[group_find(g, &id)] == 0, none);
            }
        }
        clear(&w);
    }
}

static void cancelled(void **state)
{
    (void)state;
    make(&w, 3, 1, 0);
    for (size_t i = 0; i < 3; i++) matchmaking_begin(&w.peer[i].m, w.now, 0, 1100);
    run_until(&w, 1001);
    matchmaking_cancel(&w.peer[1].m);
    assert_true(w.peer[1].declared == 0);
    run_until(&w, 1020);
    assert_false(w.peer[1].over);
    same_group(&w, 2, 3, 2);
    same_group(&w, 0, 1, 2);
    clear(&w);
}

/* Whoever had a group of its own writes a zero, too: bin(0) has a digit. */
static void bits_after_a_group_of_one(void **state)
{
    const uint8_t id[DHT_ID_BYTES] = { 7 };
    char bits[GROUP_BITS_MAX + 1];
    (void)state;
    for (size_t target = 0; target < 2; target++) {
        assert_int_equal(group_next_bits(bits, "0111", id, 1, 0, target), PL_OK);
        assert_string_equal(bits, "1110");
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(all_together),
        cmocka_unit_test(target_size_begins_at_once),
        cmocka_unit_test(expected_are_here),
        cmocka_unit_test(helpers_make_no_group),
        cmocka_unit_test(alone_until_the_deadline),
        cmocka_unit_test(misfits),
        cmocka_unit_test(frozen_leader),
        cmocka_unit_test(leader_pauses),
        cmocka_unit_test(followers_are_sent_on),
        cmocka_unit_test(hidden_ones_follow),
        cmocka_unit_test(only_hidden_ones),
        cmocka_unit_test(bits_after_a_group_of_one),
        cmocka_unit_test(banned),
        cmocka_unit_test(absent),
        cmocka_unit_test(others_do_not_count),
        cmocka_unit_test(paused),
        cmocka_unit_test(paused_by_some),
        cmocka_unit_test(abandoned),
        cmocka_unit_test(unproven_reduce_nothing),
        cmocka_unit_test(cancelled),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
