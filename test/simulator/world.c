/* world.c - simulated peers that train on one virtual clock: their steps, and the event loop. */
#include "world_internal.h"
#include "net/hivemind/training/training.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define REQUEST_TIMEOUT 3.0
#define AVERAGING_TIMEOUT 180.0
/* s of a local batch: at its end a peer reports, and sees whether to search or to step */
#define BATCH_MIN 1.0
#define BATCH_MAX 5.0
#define SILENT 0.3      /* of those who leave: without a word */
#define BITS_MAX 14     /* for 100,000 peers */
#define NEARLY_ALL 0.95 /* of the peers: the step is over when they are done */
#define KEY "run_grad_averager.0b"

/* --- a peer's step ---------------------------------------------------------------------------- */

/* The engines' random numbers: of the seed. */
static int draw(void *context, uint8_t *bytes, size_t n)
{
    struct world *w = context;
    for (size_t i = 0; i < n; i++) bytes[i] = (uint8_t)pl_rng_below(&w->lots, 256);
    return PL_OK;
}

/* Its gather message; its last round may have changed the bandwidth in it. */
static void write_gather(struct peer *p)
{
    static const uint8_t nil[] = { 0xc0 };
    const struct gather gather = { .bandwidth = p->w->o.measured ? bandwidth_stated(&p->bandwidth)
                                                                 : PL_BANDWIDTH_UNKNOWN,
                                   .mode = p->link.client ? GROUP_CLIENT : GROUP_FULL,
                                   .user = nil,
                                   .user_n = sizeof nil };
    struct bytes out = { .data = p->gather,
                         .capacity = sizeof p->gather,
                         .limit = sizeof p->gather };
    if (gather_write(&out, &gather)) p->w->no_memory = 1; /* it fits */
    p->m.o.gather_n = bytes_length(&out);
}

static const struct random_source *lots(struct world *w)
{
    w->source = (struct random_source){ draw, w };
    return &w->source;
}

static void fit_bits(struct peer *p, size_t count)
{
    struct world *w = p->w;
    grid_fit_bits(p->bits, count, lots(w));
    snprintf(p->key, sizeof p->key, "%s%s", KEY, p->bits);
}

/* As training's averagers before each search. */
static void fit_grid(struct peer *p)
{
    struct world *w = p->w;
    if (w->o.grid) fit_bits(p, grid_bits(grid_peers(&p->grid, world_reports_found(w)), w->epoch));
}

static void search(struct peer *p, double scheduled)
{
    struct world *w = p->w;
    p->attempts++;
    write_gather(p);
    matchmaking_begin(&p->m, w->now, scheduled, p->deadline);
    if (p->triggered) matchmaking_patience(&p->m, TRAINING_PATIENCE);
    world_settle(p);
}

static void one_less(struct world *w)
{
    if (--w->undone == (size_t)((1 - NEARLY_ALL) * (double)w->o.peers)) w->mostly = w->now;
}

/* g: the group it ended in; NULL: in none. */
static void finish(struct peer *p, const struct meeting *g, int failed)
{
    struct world *w = p->w;
    p->met = g ? g->number : MET_NOBODY;
    grid_round(&p->grid, g ? g->count : 0, strlen(p->bits));
    p->met_trigger = p->ready;
    w->n.rounds++;
    w->n.rounds_failed += (uint64_t)failed;
    if (!failed) w->n.attempts += (uint64_t)p->attempts;
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
    struct meeting *g = status ? NULL : world_meeting(w, &p->m.group);
    if (!g) {
        world_at(w, w->now,
                 (struct event){ .kind = E_BEGIN, .peer = p->self, .life = p->life, .last = 1 });
        return;
    }
    group_clear(&p->m.group);
    p->meeting = g;
    if (!g->seen++) world_begin_exchange(w, g);
}

/* On back-off: who was silent in the round that failed. */
static int is_paused(void *context, const struct peer_id *peer)
{
    const struct peer *p = context, *other = &p->w->peer[link_peer_of(peer)];
    return p->attempts > 1 && other->life != link_life_of(peer);
}

static const struct matchmaking_callbacks port = { .declare = world_on_declare,
                                                   .poll = world_on_poll,
                                                   .ask = world_on_ask,
                                                   .leave = world_on_leave,
                                                   .answer = world_on_answer,
                                                   .paused = is_paused,
                                                   .over = on_over };

static void next_bits(struct world *w, const struct meeting *g, size_t place, struct peer *p)
{
    char bits[GROUP_BITS_MAX + 1];
    if (!p->bits[0] || group_next_bits(bits, p->bits, g->id, g->count, place, w->o.target)) return;
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
    size_t place;
    struct meeting *g = meeting_numbered(w, number, &place);
    double mean = 0, weight = 0;
    size_t left = 0;
    if (!g || g->over || w->now < g->ends) return; /* it has been put off */
    g->over = 1;
    for (size_t i = 0; i < g->count; i++) {
        struct peer *p = &w->peer[g->member[i]];
        if (p->meeting == g) mean += g->upload[i] * p->value, weight += g->upload[i], left++;
    }
    for (size_t i = 0; i < g->count; i++) {
        struct peer *p = &w->peer[g->member[i]];
        if (p->meeting != g) continue;
        p->meeting = NULL;
        world_measure(w, g, i);
        if (!g->failed) {
            p->value = mean / weight;
            next_bits(w, g, i, p);
            finish(p, g, 0);
        } else if (w->now < p->deadline) {
            p->expects = left; /* as averager_expect_group_again */
            search(p, w->now);
        } else finish(p, g, 1);
    }
    w->meetings[place] = w->meetings[--w->meeting_count];
    world_free_meeting(g);
}

/* A newcomer under an old number. */
static void come(struct world *w, struct peer *p)
{
    struct matchmaking_options o = { .key = p->key,
                                     .min_time = MATCHMAKING_TIME,
                                     .request_timeout = REQUEST_TIMEOUT,
                                     .slow = w->slow,
                                     .target_size = w->o.target,
                                     .min_size = 2,
                                     .gather = p->gather,
                                     .random = { draw, w } };
    link_draw(&p->link, &w->rng);
    p->bandwidth = (struct bandwidth){ .has_come = w->now > 0 };
    link_name(&o.self, p->self, p->life);
    o.client_mode = p->link.client;
    p->grid = (struct grid){ 0 };
    /* Its state comes from a donor with this many bits. */
    if (w->o.grid && w->now > 0) grid_hint(&p->grid, strlen(w->peer[!p->self].bits));
    fit_bits(p, (size_t)w->o.bits);
    p->value = pl_rng_normal(&w->rng);
    p->uplink_free = 0;
    p->batch = BATCH_MIN * pow(BATCH_MAX / BATCH_MIN, pl_rng_uniform(&w->rng));
    p->phase = p->batch * pl_rng_uniform(&w->rng);
    p->met = MET_NONE;
    p->reports = 0;
    matchmaking_init(&p->m, &o, &port, p);
    world_at(w, w->now - w->o.life_s * log(1 - pl_rng_uniform(&w->rng)),
             (struct event){ .kind = E_DIES, .peer = p->self, .life = p->life });
}

static void hang_up(struct world *w, struct stream *s)
{
    world_at(w, w->now + 0.1,
             (struct event){
                 .kind = E_LEADER_GONE, .peer = s->asker, .life = s->asker_life, .stream = s });
}

static void die(struct world *w, struct peer *p)
{
    int silent = pl_rng_uniform(&w->rng) < SILENT;
    struct meeting *g = p->meeting;
    int was_busy = !p->done;
    p->meeting = NULL;
    for (size_t i = 0; g && i < g->count; i++)
        if (g->member[i] == p->self && g->life[i] == p->life) world_lose_member(w, g, i, silent);
    /* Followers, peers that wait for an answer, and the leader see the connection end, or nothing
     * at all. */
    for (size_t i = 0; !silent && i < p->m.followers.count; i++) hang_up(w, p->m.streams[i]);
    for (size_t i = 0; !silent && i < p->m.waiting.count; i++)
        hang_up(w, p->m.waiting.list[i].stream);
    if (!silent) world_on_leave(p);
    p->asked = NULL;
    if (silent) {
        world_leave_report(w, p);
        world_orphan(w, p);
    }
    world_forget(w, p);
    p->left_silently = silent;
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
        if (e->last) finish(p, NULL, 1);
        else search(p, w->now + MATCHMAKING_TIME);
        return;
    case E_TICK: matchmaking_tick(&p->m, w->now); break;
    case E_TRIGGER:
        p->triggered = 1;
        matchmaking_patience(&p->m, TRAINING_PATIENCE);
        break;
    case E_POLLED: {
        const struct key *k = world_key(w, p);
        matchmaking_found(&p->m, w->now, k->list, p->is_searching ? k->count : 0);
        break;
    }
    case E_REQUEST:
        if (e->blob)
            matchmaking_request(&p->m, w->now, s, &w->peer[s->asker].m.o.self, e->blob->data,
                                e->blob->n);
        break;
    case E_ASKER_GONE: matchmaking_request_gone(&p->m, s); break;
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
    world_settle(p);
}

static void new_search(struct world *w)
{
    for (size_t i = 0; i < w->key_count; i++) {
        w->n.busiest = fmax(w->n.busiest, w->keys[i].given / fmax(1, w->now - w->searching_since));
        w->keys[i].given = 0;
        world_expire(w, &w->keys[i]);
    }
    w->searching_since = w->now;
}

/* Of those who have taken part from the beginning. */
static double deviation(const struct world *w)
{
    double sum = 0, squares = 0, n = 0;
    for (size_t i = 0; i < w->o.peers; i++)
        if (w->peer[i].reports) sum += w->peer[i].value, n++;
    for (size_t i = 0; i < w->o.peers; i++)
        if (w->peer[i].reports) squares += pow(w->peer[i].value - sum / n, 2);
    return n > 0 ? squares / n : 0;
}

static double next_batch(const struct peer *p, double after)
{
    return after + p->batch - fmod(after + p->phase, p->batch);
}

/* One epoch. Returns how long it took behind the last sample; *left: of the differences. */
static double one_step(struct world *w, double *left)
{
    double full = w->now + w->o.accumulate_s, before,
           until = full + 4 * AVERAGING_TIMEOUT * w->o.rounds;
    w->epoch++;
    for (size_t i = 0; i < w->o.peers; i++) w->peer[i].reports = 1;
    for (size_t i = 0; i < w->o.peers; i++) {
        struct peer *p = &w->peer[i];
        double begin = next_batch(p, full - MATCHMAKING_TIME);
        matchmaking_cancel(&p->m);
        p->meeting = NULL;
        p->value = pl_rng_normal(&w->rng);
        p->done = p->round = p->attempts = p->triggered = 0;
        p->expects = 0;
        fit_grid(p);
        p->ready = next_batch(p, full);
        p->deadline = begin + AVERAGING_TIMEOUT;
        world_at(w, begin, (struct event){ .kind = E_BEGIN, .peer = i, .life = p->life });
        world_at(w, p->ready, (struct event){ .kind = E_TRIGGER, .peer = i, .life = p->life });
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
        world_drop_blob(e.blob);
    }
    new_search(w);
    *left = deviation(w) / before;
    return fmin(w->mostly, w->now) - full;
}

static int open_world(struct world *w, const struct world_options *o, struct pl_err *err)
{
    memset(w, 0, sizeof *w);
    w->o = *o;
    if (o->peers < 2 || o->bits < 0 || o->bits > BITS_MAX || o->rounds < 1 || o->steps < 1 ||
        (o->bits && o->target < 2))
        return pl_fail(err, PL_EUSE, "simulator: %zu peers, %d bits, groups of %zu", o->peers,
                       o->bits, o->target);
    w->key_count = (size_t)2 << (o->grid ? BITS_MAX : o->bits);
    pl_rng_init(&w->rng, o->seed, 0);
    pl_rng_init(&w->lots, o->seed, 1);
    w->peer = world_need(w, calloc(o->peers, sizeof *w->peer));
    w->keys = world_need(w, calloc(w->key_count, sizeof *w->keys));
    if (!o->tensors) link_tensors(&w->elements, &w->method, &w->tensors, o->values);
    else link_small_tensors(&w->elements, &w->method, o->tensor, w->tensors = o->tensors);
    if (w->no_memory || !w->elements || !w->method || world_open_reports(w))
        return pl_fail(err, PL_ENOMEM, "simulator: no memory");
    if (o->limited)
        w->slow = link_bytes(w->elements, w->method, w->tensors) / UPLOAD_LIMIT / BANDWIDTH_MBIT;
    for (size_t i = 0; i < w->key_count; i++)
        for (int k = 0; k < REPLICAS; k++) w->keys[i].uplink[k] = link_draw_public(&w->rng);
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
        world_drop_blob(e.blob);
    }
    queue_clear(&w->queue);
    while (w->meeting_count) world_free_meeting(w->meetings[--w->meeting_count]);
    for (size_t i = 0; w->keys && i < w->key_count; i++)
        free(w->keys[i].list), free(w->keys[i].owner);
    world_drop_blob(w->last);
    free(w->meetings);
    free(w->ghosts);
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
    if (!rc && o->warm) {
        r->first_s = one_step(&w, &left);
        w.n = (struct counts){ 0 };
    }
    for (int i = 0; !rc && i < o->steps; i++) {
        r->averaging_s += one_step(&w, &left) / o->steps;
        r->spread += left / o->steps;
        if (w.no_memory) rc = pl_fail(err, PL_ENOMEM, "simulator: no memory");
    }
    r->step_s = o->accumulate_s + r->averaging_s;
    r->failed = w.n.rounds ? (double)w.n.rounds_failed / (double)w.n.rounds : 0;
    r->tries = w.n.rounds > w.n.rounds_failed
                   ? (double)w.n.attempts / (double)(w.n.rounds - w.n.rounds_failed)
                   : 0;
    r->group = w.n.groups ? (double)w.n.grouped / (double)w.n.groups : 0;
    r->moved = w.n.moved / peers;
    r->withheld = w.n.grouped ? 1 - w.n.uploaded / (double)w.n.grouped : 0;
    r->control = w.n.control / peers;
    r->replica = w.n.busiest;
    r->polls_lost = w.n.polls ? (double)w.n.polls_lost / (double)w.n.polls : 0;
    r->events = w.queue.pushed;
    r->dead = w.n.expecting ? w.n.expected_dead / (double)w.n.expecting : 0;
    r->records_fit = w.records_fit;
    if (!rc && world_progress_load(&w, &r->progress, &r->unheard))
        rc = pl_fail(err, PL_ENOMEM, "simulator: no memory");
    close_world(&w);
    return rc;
}
