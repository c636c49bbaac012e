/* dht_join.c - a node's way into a DHT and its maintenance [spec hivemind-protocol 1.6, 12].
 * Joining means to ping the initial peers, to learn from their answers whether our clock is right
 * and whether others can call us, and to search for our own id: the search fills the routing table
 * with our neighbours, and they learn of us.
 *
 *   initial peer: IDLE --dial--> TRYING --ping with validate--> GOOD or BAD
 *
 *   node: HELD --dht_join_enter--> ENTERING --one is GOOD, the rest had time--> search --> JOINED
 *                                     |  ^
 *                           all BAD:  v  | retry after RETRY_FIRST, 2 RETRY_FIRST, ... RETRY_EVERY
 *                                  the error is reported
 *
 * Maintenance never ends: silent nodes are pinged, buckets and our own neighbourhood are searched
 * again, initial peers are reconnected, expired records are dropped. */
#include "dht_join.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MAINTENANCE_EVERY 10.0 /* s; all of maintenance is slower than that */
/* s between tries to reach initial peers that are not connected, doubled each time: two halves of a
 * swarm that lost each other, or began apart because one's bootstrap peer was not up yet, meet
 * through them. */
#define RETRY_FIRST 1.0
#define RETRY_EVERY 30.0
#define SILENT_LIMIT 120.0 /* s; a node that has been silent for this long is pinged */
#define SILENT_AT_ONCE \
    4 /* pings per maintenance: 48 in SILENT_LIMIT, a table of some hundred in 5 min */
/* s after which an unchanged bucket is searched [Kademlia 2.3: an hour]; hivemind does it only
 * on request */
#define REFRESH_EVERY 900.0
/* s between searches for our own id: records near our id depend on our neighbours, which come and
 * go, so they are searched more often than other buckets. */
#define SELF_EVERY 300.0

/* --- the clock -------------------------------------------------------------------------------- */

/* Among the first `count` initial peers. Two addresses may lead to one peer. */
static int is_initial(const struct dht_core *n, const struct peer_id *peer, size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (peer_id_equal(&n->initials[i].peer, peer)) return 1;
    return 0;
}

/* hivemind refuses to join when clocks differ by 3 s, and a wrong clock makes every expiration
 * wrong. So a node whose clock is wrong corrects its DHT time by the median difference from the
 * others, as far as they agree (dht_clock.c). Each difference is measured against the machine's
 * clock: corrections do not add up. */
static void set_clock(struct dht_join *j)
{
    const struct dht_core *n = j->core;
    double errors[DHT_INITIAL_MAX + DHT_CLOCK_PEERS];
    size_t count = 0;
    for (size_t i = 0; i < n->initial_count; i++)
        if (n->initials[i].state == INITIAL_GOOD && isfinite(n->initials[i].clock_error) &&
            !is_initial(n, &n->initials[i].peer, i)) /* one peer, one sample */
            errors[count++] = n->initials[i].clock_error;
    for (size_t i = 0; i < j->sample_count; i++) errors[count++] = j->samples[i];
    if (count) j->core->clock_offset = dht_clock_correction(&j->clock_error, errors, count);
}

/* The difference of a peer's clock to the machine's. The peer read its clock about half-way
 * between request and answer. */
static double clock_error(const struct dht_core *n, const struct dht_reply *r)
{
    if (r->pong->dht_time == 0) return NAN; /* it did not say */
    return r->pong->dht_time - (dht_core_time(n) - n->clock_offset - r->seconds / 2);
}

static void on_walked(void *context, struct dht_walk *w);

/* Nodes that do not answer are no samples; when the last has answered or failed, the clock is set
 * and joining goes on. */
static void on_sample(void *context, const struct dht_contact *who, const struct dht_reply *r)
{
    struct dht_join *j = context;
    double error = r->status ? NAN : clock_error(j->core, r);
    if (isfinite(error) && j->sample_count < DHT_CLOCK_PEERS) j->samples[j->sample_count++] = error;
    if (--j->samples_awaited) return;
    set_clock(j);
    on_walked(j, NULL);
}

/* One initial peer must not move our clock alone, so nodes that were found through it are asked
 * as well: those nearest to our random id, which an attacker cannot have chosen in advance. A plain
 * ping: their view of our reachability is of no interest. */
static void ask_clocks(struct dht_join *j)
{
    struct dht_core *n = j->core;
    struct dht_contact near[DHT_CLOCK_PEERS];
    size_t count = dht_routing_nearest(&n->state.routing, near, DHT_CLOCK_PEERS, &n->state.self,
                                       NULL);
    j->clock = CLOCK_CHECKED;
    j->sample_count = 0;
    for (size_t i = 0; i < count; i++)
        if (!is_initial(n, &near[i].peer, n->initial_count) &&
            !dht_ask_ping(j->calls, &near[i].peer, 0, on_sample, j))
            j->samples_awaited++;
}

/* A peer that has joined with too few samples still differs from the others, by more than what
 * those were allowed to correct: the second peer of a swarm, which has one peer to ask. Its records
 * then end too soon, or never begin, and no group finds it. So it asks again until a majority is
 * there. */
static int is_clock_open(const struct dht_join *j)
{
    return j->phase == JOIN_JOINED && !j->samples_awaited &&
           fabs(j->clock_error - j->core->clock_offset) > DHT_CLOCK_TOLERANCE;
}

/* --- initial peers ---------------------------------------------------------------------------- */

/* "none of 2 initial peers: ADDRESS: why; ADDRESS: why" */
static void describe(const struct dht_core *n, struct pl_err *err)
{
    size_t at = (size_t)snprintf(err->text, sizeof err->text,
                                 "none of %zu initial peer%s let us join", n->initial_count,
                                 n->initial_count == 1 ? "" : "s");
    for (size_t i = 0; i < n->initial_count && at < sizeof err->text - 1; i++) {
        const char *why = n->initials[i].state == INITIAL_BAD ? n->initials[i].why
                                                              : "no answer yet";
        char text[MULTIADDR_TEXT_MAX];
        size_t length;
        int more;
        multiaddr_text(text, &n->initials[i].address);
        length = strlen(text);
        while (!strncmp(why, text, length) && !strncmp(why + length, ": ", 2)) why += length + 2;
        more = snprintf(err->text + at, sizeof err->text - at, "%s %.160s: %s", i ? ";" : ":", text,
                        why);
        at += more > 0 ? (size_t)more : 0;
    }
}

/* Enough initial peers have answered, or none will. The search for our own id goes through nodes
 * that are nearer and nearer to us, each of which learns our id and hands over the records that
 * now belong here [Kademlia 2.3, spec hivemind-protocol 1.4]. */
static void enter(struct dht_join *j)
{
    struct dht_core *n = j->core;
    struct dht_walk *w;
    int good = 0, available = 0;
    timer_stop(&j->join_timer);
    n->asks_initials = 0;
    for (size_t i = 0; i < n->initial_count; i++) {
        good += n->initials[i].state == INITIAL_GOOD;
        available += n->initials[i].state == INITIAL_GOOD && n->initials[i].available;
    }
    if (good) j->clock = CLOCK_UNCHECKED;
    if (!j->samples_awaited) set_clock(j);
    if (good && !n->wants_client_mode) {
        /* Records on a node that others cannot call are lost, so without a callback we are a
         * client. hivemind ends with an error instead. */
        j->reachability->called_back = available > 0;
        dht_reachability_check(j->reachability);
    }
    if (!good && n->initial_count) {
        struct pl_err err;
        describe(n, &err); /* and on_retry goes on trying */
        if (j->phase != JOIN_JOINED && j->joined) j->joined(j->context, PL_EIO, &err);
        return;
    }
    j->refreshed = loop_now(n->loop);
    w = dht_walk_start(j->walks, &n->state.self, INFINITY, on_walked, j);
    /* INFINITY: no record ends it, all of the beam is asked. Nodes that are late get into the table
     * when they answer: joining does not wait for them. */
    if (w) {
        w->search.nodes_only = w->search.first_answer_ends = 1;
    } else if (j->phase != JOIN_JOINED && j->joined) {
        struct pl_err err;
        j->joined(j->context, pl_fail(&err, PL_ENOMEM, "no memory to search for our place"), &err);
    }
}

/* The others are too late: those that have answered are enough. */
static void on_join_timer(void *context) { enter(context); }

/* The search for ourselves has ended, or the clocks have come that were asked for after it. */
static void on_walked(void *context, struct dht_walk *w)
{
    struct dht_join *j = context;
    if (j->samples_awaited) return;
    /* Another round of questions only if the initial peers disagree with our clock: then it matters
     * whether it is they or we that are wrong. */
    if (j->clock == CLOCK_UNCHECKED && fabs(j->clock_error) > DHT_CLOCK_TOLERANCE) ask_clocks(j);
    if (j->samples_awaited || j->phase == JOIN_JOINED) return;
    j->phase = JOIN_JOINED;
    if (j->joined) j->joined(j->context, PL_OK, NULL);
}

/* After the first answer the other initial peers get as long again, plus the usual patience. */
static double time_for_others(const struct dht_join *j)
{
    return fmin(DHT_JOIN_LIMIT, DHT_SEARCH_PATIENCE + loop_now(j->core->loop) - j->began);
}

/* The outcome for one initial peer; why: NULL for success. */
static void finish_initial(struct dht_initial *it, const char *why)
{
    struct dht_join *j = it->join;
    struct dht_core *n = j->core;
    int trying = 0, good = 0;
    it->state = why ? INITIAL_BAD : INITIAL_GOOD;
    /* The host keeps connections to initial peers when it has to close some: they are the way back
     * into the swarm. */
    if (!why && !it->is_protected) it->is_protected = !host_protect(n->host, &it->peer);
    if (why) snprintf(it->why, sizeof it->why, "%s", why);
    for (size_t i = 0; i < n->initial_count; i++) {
        trying += n->initials[i].state == INITIAL_TRYING;
        good += n->initials[i].state == INITIAL_GOOD;
    }
    if (!trying && n->asks_initials) enter(j);
    else if (good && n->asks_initials && !j->join_timer.is_running)
        timer_start(n->loop, &j->join_timer, time_for_others(j), on_join_timer, j);
}

/* The answer to our ping with `validate`: its clock, and whether it could call us. In a moderated
 * swarm a call that ends without a valid answer nearly always means that our token is missing. */
static void on_pong(void *context, const struct dht_contact *who, const struct dht_reply *r)
{
    struct dht_initial *it = context;
    if (r->status == PL_EPROTO && it->join->core->auth) {
        char why[128];
        snprintf(why, sizeof why, "refused us (access token?): %.80s", r->error);
        finish_initial(it, why);
    } else if (r->status) {
        finish_initial(it, r->error);
    } else if (!r->pong->has_id) {
        finish_initial(it, "it is a client, not a node of the DHT");
    } else {
        it->available = r->pong->available;
        it->id = r->pong->id;
        it->clock_error = clock_error(it->join->core, r);
        finish_initial(it, NULL);
    }
}

/* The connection is open. The identity of the peer comes from the handshake, not from the address,
 * unless that names a peer. */
static void on_dialled(void *context, int status, const struct peer_id *peer,
                       const struct pl_err *err)
{
    struct dht_initial *it = context;
    struct host *host = it->join->core->host;
    it->dialling = NULL;
    if (status) {
        finish_initial(it, err->text);
        return;
    }
    /* A peer cannot join itself: its address may be in a list that all peers of a run share. */
    if (it->is_protected)
        host_unprotect(host, &it->peer); /* another peer may answer at this address now */
    it->is_protected = 0;
    it->peer = *peer;
    if (peer_id_equal(peer, host_id(host))) finish_initial(it, "this is our own address");
    else if (dht_ask_ping(it->join->calls, peer, 1, on_pong, it)) finish_initial(it, "no memory");
}

/* Dial, then ping: on_dialled, on_pong. */
static void try_initial(struct dht_initial *it)
{
    it->state = INITIAL_TRYING;
    it->dialling = host_dial(it->join->core->host, &it->address, DHT_DIAL_LIMIT, on_dialled, it);
    if (!it->dialling) finish_initial(it, "no memory");
}

/* --- maintenance ------------------------------------------------------------------------------ */

/* 1: the routing table has it, or nodes enough to do without it. Calls that fail remove a node from
 * the table, though its connection may survive, as that of a process that stood still for a while.
 * Two nodes that have both removed the other one would never meet again. */
static int is_in_table(const struct dht_core *n, const struct dht_initial *it)
{
    const struct dht_routing *r = &n->state.routing;
    return dht_routing_size(r) >= r->bucket_size || dht_routing_find_peer(r, &it->peer);
}

/* Initial peers are tried for as long as the node lives: hivemind tries them once, and a swarm
 * that fell apart never meets again. */
static void on_retry(void *context)
{
    struct dht_join *j = context;
    struct dht_core *n = j->core;
    int missing = 0;
    for (size_t i = 0; i < n->initial_count; i++) {
        struct dht_initial *it = &n->initials[i];
        if (it->state == INITIAL_GOOD && host_is_connected(n->host, &it->peer) &&
            is_in_table(n, it) && (j->reachability->called_back || n->wants_client_mode))
            continue;
        missing = 1;
        if (it->state == INITIAL_TRYING) continue;
        /* Starts a new round of joining, whose time limits begin now. */
        if (!n->asks_initials) j->began = loop_now(n->loop);
        n->asks_initials = 1; /* so their answers start a search for ourselves again */
        try_initial(it);
    }
    j->retry_after = missing ? fmin(2 * j->retry_after, RETRY_EVERY) : RETRY_FIRST;
    timer_start(n->loop, &j->retry_timer, missing ? j->retry_after : MAINTENANCE_EVERY, on_retry,
                j);
}

static void start_retrying(struct dht_join *j)
{
    j->retry_after = RETRY_FIRST;
    timer_start(j->core->loop, &j->retry_timer, RETRY_FIRST, on_retry, j);
}

/* dht_calls.c has blacklisted it; it could not remove it, since a ping knows no id. */
static void on_alive(void *context, const struct dht_contact *who, const struct dht_reply *r)
{
    struct dht_join *j = context;
    struct dht_routing *routing = &j->core->state.routing;
    const struct dht_contact *known = dht_routing_find_peer(routing, &who->peer);
    if (known && r->status) dht_routing_remove(routing, &known->id);
}

/* A node that left without notice would stay in the table until a search asks it, which then
 * waits. */
static void ping_silent(struct dht_join *j, double now)
{
    struct dht_routing *routing = &j->core->state.routing;
    for (int i = 0; i < SILENT_AT_ONCE; i++) {
        const struct dht_contact *oldest = dht_routing_oldest(routing);
        struct dht_contact c;
        if (!oldest || now - oldest->seen < SILENT_LIMIT) return;
        c = *oldest;
        if (dht_ask_ping(j->calls, &c.peer, 0, on_alive, j)) return;
        /* Counts as seen now: it is not asked again while the answer is on its way. */
        dht_routing_add(routing, &c.id, &c.peer, now, NULL);
    }
}

/* Nothing to do: nodes that answered are in the table now. */
static void on_refreshed(void *context, struct dht_walk *w) {}

/* One search at most each time: it costs some 20 calls, and there may be dozens of buckets. */
static void on_maintenance(void *context)
{
    struct dht_join *j = context;
    struct dht_core *n = j->core;
    double now = loop_now(n->loop), dht_now = dht_core_time(n);
    struct dht_id id;
    struct dht_walk *w = NULL;
    /* Reads and stores prune as well; this serves a node that gets no calls. */
    dht_store_prune(&n->state.storage, dht_now);
    dht_store_prune(&n->state.cache, dht_now);
    dht_core_count_records(n);
    ping_silent(j, now);
    if (is_clock_open(j)) ask_clocks(j);
    if (j->phase == JOIN_JOINED) dht_reachability_check(j->reachability);
    if (j->phase == JOIN_JOINED && now - j->refreshed > SELF_EVERY) {
        j->refreshed = now;
        w = dht_walk_start(j->walks, &n->state.self, INFINITY, on_refreshed, j);
    } else if (dht_routing_size(&n->state.routing) &&
               !dht_routing_refresh(&n->state.routing, &id, now - REFRESH_EVERY, now)) {
        w = dht_walk_start(j->walks, &id, INFINITY, on_refreshed, j);
    }
    if (w) w->search.nodes_only = 1; /* the id is not a key: no record is stored under it */
    timer_start(n->loop, &j->maintenance_timer, MAINTENANCE_EVERY, on_maintenance, j);
}

/* --- life ------------------------------------------------------------------------------------- */

int dht_join_open(struct dht_join *j, const char *const *join, size_t count, int hold,
                  struct pl_err *err)
{
    struct dht_core *n = j->core;
    int rc;
    if (count > DHT_INITIAL_MAX)
        return pl_fail(err, PL_EUSE, "DHT: %zu initial peers, at most %d are allowed", count,
                       DHT_INITIAL_MAX);
    if (count && !(n->initials = calloc(count, sizeof *n->initials)))
        return pl_fail(err, PL_ENOMEM, "DHT: no memory");
    for (size_t i = 0; i < count; i++) {
        struct multiaddr_target target;
        struct dht_initial *it = &n->initials[n->initial_count++];
        it->join = j;
        if ((rc = multiaddr_from_text(&it->address, join[i], err))) return rc;
        if (multiaddr_target(&target, &it->address))
            return pl_fail(err, PL_EUSE, "%.200s: not an address of TCP", join[i]);
        it->peer = target.peer; /* length 0: the address names no peer */
    }
    j->phase = hold ? JOIN_HELD : JOIN_ENTERING;
    j->clock_error = NAN;
    n->asks_initials = 1;
    timer_start(n->loop, &j->maintenance_timer, MAINTENANCE_EVERY, on_maintenance, j);
    if (!hold) start_retrying(j);
    dht_core_wake(n);
    return PL_OK;
}

void dht_join_run(struct dht_join *j)
{
    struct dht_core *n = j->core;
    if (j->phase != JOIN_ENTERING || !n->asks_initials) return;
    if (!n->initial_count) { /* the first node of a DHT has no initial peers */
        n->asks_initials = 0;
        j->refreshed = loop_now(n->loop);
        on_walked(j, NULL);
    }
    j->began = loop_now(n->loop);
    for (size_t i = 0; i < n->initial_count; i++)
        if (n->initials[i].state == INITIAL_IDLE) try_initial(&n->initials[i]);
}

/* The retry timer also notices when nothing came of the first try. */
void dht_join_enter(struct dht_join *j)
{
    if (j->phase == JOIN_HELD) j->phase = JOIN_ENTERING;
    start_retrying(j);
    dht_core_wake(j->core);
}

void dht_join_close(struct dht_join *j)
{
    struct dht_core *n = j->core;
    timer_stop(&j->join_timer);
    timer_stop(&j->maintenance_timer);
    timer_stop(&j->retry_timer);
    for (size_t i = 0; i < n->initial_count; i++) {
        if (n->initials[i].dialling) host_wait_cancel(n->initials[i].dialling);
        if (n->initials[i].is_protected) host_unprotect(n->host, &n->initials[i].peer);
    }
    free(n->initials);
    n->initials = NULL;
    n->initial_count = 0;
}
