/* dht_node.c - puts the parts of a node together and runs them. Requests of the user and answers
 * from the network only change the parts' states and wake the node; once in this iteration of
 * the loop all parts run, from the top down, so that whatever they want from one peer leaves in
 * one message:
 *
 *  join, get, put --start searches--> walks --ask nodes--> calls --one message a peer--> network */
#include "dht_node.h"
#include "dht_node_internal.h"

#include <stdlib.h>
#include <string.h>

/* The parts above the calls come first; the calls, last, send all of their requests. A search that
 * starts for a get and one that starts for a put in the same iteration thus ask a node in one
 * message. */
static void run_parts(void *context)
{
    struct dht_node *n = context;
    dht_join_run(&n->join);
    dht_gets_run(&n->gets);
    dht_puts_run(&n->puts);
    dht_walks_run(&n->walks);
    dht_calls_send(&n->calls);
}

/* Several requests in one iteration of the loop share one run: a timer that is due at once, unless
 * it is set already. So no part is entered from inside of another, or of a callback of the
 * user's. */
static void schedule_run(void *context)
{
    struct dht_node *n = context;
    if (!n->run_timer.is_running && n->state != NODE_CLOSING)
        timer_start(n->core.loop, &n->run_timer, 0, run_parts, n);
}

/* Every answer names its sender's node id; the table is above the calls, so they report upwards. */
static void on_seen(void *context, const struct dht_id *id, const struct peer_id *peer)
{
    struct dht_node *n = context;
    dht_table_seen(&n->table, id, peer);
}

/* Each part gets pointers to the parts below it, which are the ones that it may call. */
static void connect_parts(struct dht_node *n)
{
    struct dht_core *core = &n->core;
    core->wake = schedule_run;
    core->context = n;
    n->calls = (struct dht_calls){ .core = core, .seen = on_seen, .context = n };
    n->table = (struct dht_table){ core, &n->calls };
    n->walks = (struct dht_walks){ .core = core, .calls = &n->calls };
    n->gets.core = n->puts.core = core;
    n->gets.calls = n->puts.calls = &n->calls;
    n->gets.walks = n->puts.walks = &n->walks;
    n->pings = (struct dht_pings){ .core = core, .calls = &n->calls };
    n->server = (struct dht_server){ .core = core, .calls = &n->calls, .table = &n->table };
    n->reachability.core = core;
    n->join.core = core;
    n->join.calls = &n->calls;
    n->join.walks = &n->walks;
    n->join.reachability = &n->reachability;
}

/* The state that the parts share: identity, clock, tables. Nothing is sent or registered yet. */
static int open_core(struct dht_core *c, struct host *h, const struct dht_node_options *o,
                     struct pl_err *err)
{
    struct dht_id self;
    c->host = h;
    c->loop = host_loop(h);
    c->self = (struct dht_caller){ .peer = *host_id(h), .is_self = 1 };
    c->auth = o->auth;
    if (c->auth)
        c->auth->self = *host_id(
            h); /* our signed messages name us, so they cannot be replayed by others */
    c->call_limit = o->call_limit_s > 0 ? o->call_limit_s : DHT_CALL_LIMIT;
    c->wants_client_mode = o->client_mode;
    c->blacklist = c->vain = (struct dht_blacklist){ .first = BLACKLIST_FIRST,
                                                     .longest = BLACKLIST_LONGEST,
                                                     .max = BLACKLIST_MAX };
    /* A node's id is drawn at each start: it only has to be somewhere in the id space. Uniformly
     * random ids make buckets and replicas even [spec hivemind-protocol 1.1]. Signatures are
     * checked even if the caller gives no validators. */
    if (dht_id_random(&self) || dht_state_init(&c->state, &self, o->client_mode,
                                               o->validators ? o->validators : &c->fallback))
        return pl_fail(err, PL_ENOMEM, "DHT: no memory");
    dht_core_count_records(c);
    return PL_OK;
}

/* Opens and returns; joining goes on in the loop and is reported by `joined`. */
int dht_node_open(struct dht_node **out, struct host *h, const struct dht_node_options *o,
                  dht_joined *joined, void *context, struct pl_err *err)
{
    struct dht_node *n = calloc(1, sizeof *n);
    int rc;
    *out = NULL;
    if (!n) return pl_fail(err, PL_ENOMEM, "DHT: no memory");
    connect_parts(n);
    rc = open_core(&n->core, h, o, err);
    n->join.joined = joined;
    n->join.context = context;
    n->reachability.called_back = !o->client_mode; /* until the initial peers have tried it */
    dht_reachability_open(&n->reachability);
    /* A client serves nothing: it registers no handlers, and its requests carry no node id, so it
     * gets into no routing table [spec hivemind-protocol 1.6]. Handlers first: an initial peer that
     * we ping calls back before it answers. */
    if (!rc && !o->client_mode) rc = dht_server_open(&n->server, err);
    if (!rc) rc = dht_join_open(&n->join, o->join, o->join_count, o->hold, err);
    if (rc) {
        dht_node_close(n);
        return rc;
    }
    n->state = NODE_RUNNING;
    *out = n;
    return PL_OK;
}

/* After `hold`: a program first asks the DHT as an outsider, and enters when it knows its role. */
void dht_node_enter(struct dht_node *n) { dht_join_enter(&n->join); }

void dht_node_close(struct dht_node *n)
{
    if (!n) return;
    n->state = NODE_CLOSING;
    /* The server first: from now on no request finds a half-closed node. */
    dht_server_close(&n->server);
    timer_stop(&n->run_timer);
    dht_join_close(&n->join);
    dht_reachability_close(&n->reachability);
    /* Calls and walks end before the requests that wait for them, so that no callback comes
     * later. */
    dht_calls_close(&n->calls);
    dht_walks_close(&n->walks);
    dht_gets_close(&n->gets);
    dht_puts_close(&n->puts);
    dht_pings_close(&n->pings);
    dht_members_close(&n->core.members);
    dht_state_clear(&n->core.state);
    dht_blacklist_close(&n->core.blacklist);
    dht_blacklist_close(&n->core.vain);
    free(n);
}

/* Each request of the user's is a part's; a task is a handle to cancel it by. */

/* --- requests: each is a part's --------------------------------------------------------------- */

struct dht_task *dht_node_get(struct dht_node *n, const struct dht_id *key, int latest,
                              dht_got *got, void *context)
{
    return dht_get_start(&n->gets, key, latest, got, context);
}

struct dht_task *dht_node_store(struct dht_node *n, const struct dht_id *key, const void *subkey,
                                size_t subkey_n, const void *value, size_t value_n,
                                double expiration, dht_stored *stored, void *context)
{
    return dht_put_start(&n->puts, key, subkey, subkey_n, value, value_n, expiration, stored,
                         context);
}

struct dht_task *dht_node_ping(struct dht_node *n, const struct peer_id *peer, int validate,
                               dht_pinged *pinged, void *context)
{
    return dht_ping_start(&n->pings, peer, validate, pinged, context);
}

struct dht_task *dht_node_admit(struct dht_node *n, const struct peer_id *peer,
                                dht_admitted *admitted, void *context)
{
    return dht_admit_start(&n->pings, peer, admitted, context);
}

/* The request goes on, since it may be shared or half done; only its callback is dropped. */
void dht_node_cancel(struct dht_task *t) { t->cancelled = 1; }

/* --- status ----------------------------------------------------------------------------------- */

/* Expirations are DHT times: use this clock for them, not the machine's. */
double dht_node_time(const struct dht_node *n) { return dht_core_time(&n->core); }

int dht_node_has_tokens(const struct dht_node *n) { return n->core.auth != NULL; }

/* Without an authority anybody may take part. */
int dht_node_admits(const struct dht_node *n, const struct peer_id *peer)
{
    return !n->core.auth || dht_members_has(&n->core.members, peer, dht_node_time(n));
}

uint64_t dht_node_subnet(const struct dht_node *n, const struct peer_id *peer)
{
    return dht_core_subnet(&n->core, peer);
}

int dht_node_protects(const struct dht_node *n, const struct peer_id *peer)
{
    return host_protects(n->core.host, peer);
}

/* A listening node that others can open connections to, directly or through a relay. */
int dht_node_is_reachable(const struct dht_node *n)
{
    return !n->core.wants_client_mode && n->reachability.called_back &&
           dht_reachability_is_open(&n->reachability);
}

/* Relays carry little (128 KiB, 2 minutes), so a peer that only they can reach does not lead groups
 * or reduce parts, though it is part of the DHT. */
int dht_node_is_behind_nat(const struct dht_node *n)
{
    return n->reachability.state == REACH_CLOSED;
}

int dht_node_knows_reachability(const struct dht_node *n)
{
    return dht_reachability_is_known(&n->reachability);
}

/* For `potluck peer` and the page: a snapshot, cheap enough for every second. */
void dht_node_status(const struct dht_node *n, struct dht_status *s)
{
    const struct dht_core *c = &n->core;
    memset(s, 0, sizeof *s);
    s->id = c->state.self;
    s->joined = n->join.phase == JOIN_JOINED;
    s->client_mode = c->wants_client_mode;
    s->reachable = dht_node_is_reachable(n);
    s->relayed = dht_reachability_is_relayed(&n->reachability);
    s->clock_offset = c->clock_offset;
    s->clock_error = n->join.clock_error;
    /* Counts of records are keys; a dictionary is one, however many peers write into it. */
    s->nodes = dht_routing_size(&c->state.routing);
    s->records = c->state.storage.count;
    s->cached = c->state.cache.count;
    s->initial = c->initial_count;
    for (size_t i = 0; i < c->initial_count; i++)
        s->initial_answered += c->initials[i].state == INITIAL_GOOD;
    s->calls_made = c->calls_made;
    s->calls_failed = c->calls_failed;
    s->calls_served = c->calls_served;
}
