/* dht_join.c - entering a DHT through its initial peers, and keeping in touch: clocks, silent
 * nodes, buckets nobody asked about, initial peers that come back. [spec hivemind-protocol 1.6,
 * 12]
 *
 *   initial peers: IDLE --dial, ping with validate--> GOOD or BAD
 *   node: one GOOD, and a second or as long as it took for the rest, DHT_JOIN_LIMIT at most
 *                     --search for ourselves--> joined
 *         all BAD --> told so; tried again after RETRY_FIRST, in the end every RETRY_EVERY */
#include "dht_node_internal.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define UPKEEP_EVERY 10.0 /* s */
/* s between tries to reach initial peers that are not connected: two halves of a swarm that lost
 * each other, or began apart because one's entry was not up yet, meet through them. Twice as
 * long each time */
#define RETRY_FIRST 1.0
#define RETRY_EVERY 30.0
#define SILENT_LIMIT 120.0 /* s; a node not heard of for so long is pinged */
#define SILENT_AT_ONCE 4   /* pings per upkeep */
/* s after which a bucket is searched; in the original only on request */
#define REFRESH_EVERY 900.0
#define SELF_EVERY 300.0 /* s between searches for our own id */

/* --- the clock -------------------------------------------------------------------------------- */

/* Among the first `count` initial peers. */
static int is_initial(const struct dht_node *n, const struct peer_id *peer, size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (peer_id_equal(&n->initials[i].peer, peer)) return 1;
    return 0;
}

/* Real nodes refuse to join when clocks differ by 3 s, and everybody's expirations would be
 * wrong; so whoever is off corrects itself, as far as there are peers that agree. Each is
 * measured against our own clock: corrections do not add up. */
static void set_clock(struct dht_node *n)
{
    double errors[DHT_INITIAL_MAX + DHT_CLOCK_PEERS];
    size_t count = 0;
    for (size_t i = 0; i < n->initial_count; i++)
        if (n->initials[i].state == INITIAL_GOOD && isfinite(n->initials[i].clock_error) &&
            !is_initial(n, &n->initials[i].peer, i)) /* one that was named twice has one voice */
            errors[count++] = n->initials[i].clock_error;
    for (size_t i = 0; i < n->voice_count; i++) errors[count++] = n->voices[i];
    if (count) n->clock_offset = dht_clock_correction(&n->clock_error, errors, count);
}

/* A peer's clock was read half-way; ours is the machine's. */
static double clock_error(const struct dht_node *n, const struct dht_reply *r)
{
    if (r->pong->dht_time == 0) return NAN; /* it did not say */
    return r->pong->dht_time - (dht_node_time(n) - n->clock_offset - r->seconds / 2);
}

static void on_walked(void *context, struct dht_walk *w);

static void on_voice(void *context, const struct dht_contact *who, const struct dht_reply *r)
{
    struct dht_node *n = context;
    double error = r->status ? NAN : clock_error(n, r);
    (void)who;
    if (isfinite(error) && n->voice_count < DHT_CLOCK_PEERS) n->voices[n->voice_count++] = error;
    if (--n->voices_awaited) return;
    set_clock(n);
    on_walked(n, NULL);
}

/* One initial peer's word is not enough to move our clock by: those found behind it are heard,
 * too. */
static void ask_voices(struct dht_node *n)
{
    struct dht_contact near[DHT_CLOCK_PEERS];
    size_t count = dht_routing_nearest(&n->state.routing, near, DHT_CLOCK_PEERS, &n->state.self,
                                       NULL);
    n->corrected = 1;
    n->voice_count = 0;
    for (size_t i = 0; i < count; i++)
        if (!is_initial(n, &near[i].peer, n->initial_count) &&
            !dht_ask_ping(n, &near[i].peer, 0, on_voice, n))
            n->voices_awaited++;
}

/* --- initial peers ---------------------------------------------------------------------------- */

/* "none of 2 initial peers: ADDRESS: why; ADDRESS: why" */
static void describe(const struct dht_node *n, struct pl_err *err)
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

static void enter(struct dht_node *n)
{
    struct dht_walk *w;
    int good = 0, available = 0;
    timer_stop(&n->join_timer);
    n->joining = 0;
    for (size_t i = 0; i < n->initial_count; i++) {
        good += n->initials[i].state == INITIAL_GOOD;
        available += n->initials[i].state == INITIAL_GOOD && n->initials[i].available;
    }
    if (good) n->corrected = 0;
    if (!n->voices_awaited) set_clock(n);
    if (good && !n->wants_client_mode) {
        /* Records on a node that nobody reaches are lost: rather be a client until that changes. */
        n->called_back = available > 0;
        dht_reach_look(n);
    }
    if (!good && n->initial_count) {
        struct pl_err err;
        describe(n, &err);
        if (!n->joined && n->on_joined) n->on_joined(n->on_joined_context, PL_EIO, &err);
        return;
    }
    n->refreshed = loop_now(n->loop);
    w = dht_walk_start(n, &n->state.self, INFINITY, on_walked, n);
    if (w) w->search.nodes_only = w->search.one_will_do = 1; /* the late ones come into the table */
}

static void on_join_timer(void *context) { enter(context); }

static void on_walked(void *context, struct dht_walk *w)
{
    struct dht_node *n = context;
    (void)w;
    if (n->voices_awaited) return;
    if (!n->corrected && fabs(n->clock_error) > DHT_CLOCK_TOLERANCE) ask_voices(n);
    if (n->voices_awaited || n->joined) return;
    n->joined = 1;
    if (n->on_joined) n->on_joined(n->on_joined_context, PL_OK, NULL);
}

/* One has answered: the others are given as long again, and what anybody is forgiven. */
static double time_for_others(const struct dht_node *n)
{
    return fmin(DHT_JOIN_LIMIT, DHT_SEARCH_PATIENCE + loop_now(n->loop) - n->join_began);
}

/* One of them has come to an end. */
static void settle(struct initial *it, const char *why)
{
    struct dht_node *n = it->node;
    int trying = 0, good = 0;
    it->state = why ? INITIAL_BAD : INITIAL_GOOD;
    if (!why && !it->is_protected) it->is_protected = !host_protect(n->host, &it->peer);
    if (why) snprintf(it->why, sizeof it->why, "%s", why);
    for (size_t i = 0; i < n->initial_count; i++) {
        trying += n->initials[i].state == INITIAL_TRYING;
        good += n->initials[i].state == INITIAL_GOOD;
    }
    if (!trying && n->joining) enter(n);
    else if (good && n->joining && !n->join_timer.place)
        timer_start(n->loop, &n->join_timer, time_for_others(n), on_join_timer, n);
}

static void on_pong(void *context, const struct dht_contact *who, const struct dht_reply *r)
{
    struct initial *it = context;
    (void)who;
    if (r->status == PL_EPROTO && it->node->auth) {
        char why[128];
        snprintf(why, sizeof why, "refused us (access token?): %.80s", r->error);
        settle(it, why);
    } else if (r->status) {
        settle(it, r->error);
    } else {
        it->available = r->pong->available;
        it->clock_error = clock_error(it->node, r);
        settle(it, NULL);
    }
}

static void on_dialled(void *context, int status, const struct peer_id *peer,
                       const struct pl_err *err)
{
    struct initial *it = context;
    it->dialling = NULL;
    if (status) {
        settle(it, err->text);
        return;
    }
    if (it->is_protected)
        host_unprotect(it->node->host, &it->peer); /* another may answer there now */
    it->is_protected = 0;
    it->peer = *peer;
    if (peer_id_equal(peer, host_id(it->node->host))) settle(it, "this is our own address");
    else if (dht_ask_ping(it->node, peer, 1, on_pong, it)) settle(it, "no memory");
}

static void try(struct initial *it)
{
    it->state = INITIAL_TRYING;
    it->dialling = host_dial(it->node->host, &it->address, DHT_DIAL_LIMIT, on_dialled, it);
    if (!it->dialling) settle(it, "no memory");
}

/* --- upkeep ----------------------------------------------------------------------------------- */

static void on_retry(void *context)
{
    struct dht_node *n = context;
    int missing = 0;
    for (size_t i = 0; i < n->initial_count; i++) {
        struct initial *it = &n->initials[i];
        if (it->state == INITIAL_GOOD && host_is_connected(n->host, &it->peer) &&
            (n->called_back || n->wants_client_mode))
            continue;
        missing = 1;
        if (it->state == INITIAL_TRYING) continue;
        if (!n->joining) n->join_began = loop_now(n->loop);
        n->joining = 1; /* also: look around again once they have answered */
        try(it);
    }
    n->retry_after = missing ? fmin(2 * n->retry_after, RETRY_EVERY) : RETRY_FIRST;
    timer_start(n->loop, &n->retry_timer, missing ? n->retry_after : UPKEEP_EVERY, on_retry, n);
}

static void start_retrying(struct dht_node *n)
{
    n->retry_after = RETRY_FIRST;
    timer_start(n->loop, &n->retry_timer, RETRY_FIRST, on_retry, n);
}

static void on_alive(void *context, const struct dht_contact *who, const struct dht_reply *r)
{
    struct dht_node *n = context;
    const struct dht_contact *known = dht_routing_find_peer(&n->state.routing, &who->peer);
    if (known && r->status) dht_routing_remove(&n->state.routing, &known->id);
}

static void ping_silent(struct dht_node *n, double now)
{
    for (int i = 0; i < SILENT_AT_ONCE; i++) {
        const struct dht_contact *oldest = dht_routing_oldest(&n->state.routing);
        struct dht_contact c;
        if (!oldest || now - oldest->seen < SILENT_LIMIT) return;
        c = *oldest;
        if (dht_ask_ping(n, &c.peer, 0, on_alive, n)) return;
        /* not asked again meanwhile */
        dht_routing_add(&n->state.routing, &c.id, &c.peer, now, NULL);
    }
}

/* Whoever answered is in the table now. */
static void on_refreshed(void *context, struct dht_walk *w)
{
    (void)context;
    (void)w;
}

static void on_upkeep(void *context)
{
    struct dht_node *n = context;
    double now = loop_now(n->loop), dht_now = dht_node_time(n);
    struct dht_id id;
    struct dht_walk *w = NULL;
    dht_store_prune(&n->state.storage, dht_now);
    dht_store_prune(&n->state.cache, dht_now);
    ping_silent(n, now);
    if (n->joined) dht_reach_look(n);
    if (n->joined && now - n->refreshed > SELF_EVERY) {
        n->refreshed = now;
        w = dht_walk_start(n, &n->state.self, INFINITY, on_refreshed, n);
    } else if (dht_routing_size(&n->state.routing) &&
               !dht_routing_refresh(&n->state.routing, &id, now - REFRESH_EVERY, now)) {
        w = dht_walk_start(n, &id, INFINITY, on_refreshed, n);
    }
    if (w) w->search.nodes_only = 1;
    timer_start(n->loop, &n->upkeep_timer, UPKEEP_EVERY, on_upkeep, n);
}

/* --- life ------------------------------------------------------------------------------------- */

int dht_join_open(struct dht_node *n, const char *const *join, size_t count, struct pl_err *err)
{
    int rc;
    if (count > DHT_INITIAL_MAX)
        return pl_fail(err, PL_EUSE, "DHT: %zu initial peers, %d are enough", count,
                       DHT_INITIAL_MAX);
    if (count && !(n->initials = calloc(count, sizeof *n->initials)))
        return pl_fail(err, PL_ENOMEM, "DHT: no memory");
    for (size_t i = 0; i < count; i++) {
        struct multiaddr_target target;
        struct initial *it = &n->initials[n->initial_count++];
        it->node = n;
        if ((rc = multiaddr_from_text(&it->address, join[i], err))) return rc;
        if (multiaddr_target(&target, &it->address))
            return pl_fail(err, PL_EUSE, "%.200s: not an address of TCP", join[i]);
        it->peer = target.peer;
    }
    n->joining = 1;
    timer_start(n->loop, &n->upkeep_timer, UPKEEP_EVERY, on_upkeep, n);
    if (!n->held) start_retrying(n);
    dht_node_wake(n);
    return PL_OK;
}

/* The first turn of the node's life. */
void dht_join_turn(struct dht_node *n)
{
    if (n->held || !n->joining || n->joined) return;
    if (!n->initial_count) {
        n->joining = 0;
        n->refreshed = loop_now(n->loop);
        on_walked(n, NULL);
    }
    n->join_began = loop_now(n->loop);
    for (size_t i = 0; i < n->initial_count; i++)
        if (n->initials[i].state == INITIAL_IDLE) try(&n->initials[i]);
}

void dht_node_enter(struct dht_node *n)
{
    n->held = 0;
    start_retrying(n);
    dht_node_wake(n);
}

void dht_join_close(struct dht_node *n)
{
    timer_stop(&n->join_timer);
    timer_stop(&n->upkeep_timer);
    timer_stop(&n->retry_timer);
    for (size_t i = 0; i < n->initial_count; i++) {
        if (n->initials[i].dialling) host_wait_cancel(n->initials[i].dialling);
        if (n->initials[i].is_protected) host_unprotect(n->host, &n->initials[i].peer);
    }
    free(n->initials);
    n->initials = NULL;
    n->initial_count = 0;
}
