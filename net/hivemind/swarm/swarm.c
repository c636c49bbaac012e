/* swarm.c - a peer as a whole: a network thread (the loop), a libp2p host on it, a DHT node on
 * that. [spec hivemind-protocol 1]
 *
 *   open    identity - loop - host (listens) - DHT node (asks the initial peers)
 *   call    post a request to the loop - sleep - the loop's callback completes it - wake
 *   close   node - host - loop: each before what it uses
 *
 * Host and node live on the network's thread alone, without locks: no other thread ever reads their
 * state. */
#include "swarm.h"
#include "net/libp2p/peer/peerstore.h"
#include "net/libp2p/libp2p.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

/* --- life ------------------------------------------------------------------------------------- */

/* After each attempt to join the DHT, successful or not. */
static void on_joined(void *context, int status, const struct pl_err *err)
{
    struct swarm *s = context;
    pthread_mutex_lock(&s->lock);
    s->joined = status == PL_OK;
    if (status) s->why = *err;
    /* The first try decides what swarm_wait_joined returns; the node keeps trying. */
    s->tries++;
    pthread_cond_broadcast(&s->changed);
    pthread_mutex_unlock(&s->lock);
}

/* The loop thread's arguments for opening the node, and the result. */
struct opening {
    struct swarm *s;
    const struct dht_node_options *options;
    struct pl_err *err;
    int rc;
};

/* On the loop's thread, as everything that touches the node. */
static void open_node(void *context)
{
    struct opening *o = context;
    o->rc = dht_node_open(&o->s->node, o->s->host, o->options, on_joined, o->s, o->err);
}

static void close_node(void *context)
{
    struct swarm *s = context;
    dht_node_close(s->node);
    s->node = NULL;
}

int swarm_check_peer_address(const char *text, struct pl_err *err)
{
    struct multiaddr a;
    struct multiaddr_target target;
    struct pl_err why;
    int rc = multiaddr_from_text(&a, text, &why);
    if (!rc && (rc = multiaddr_target(&target, &a)))
        pl_fail(&why, rc, "no TCP address; potluck dials TCP addresses only");
    if (!rc) return PL_OK;
    if (strpbrk(text, ", ;\t\n") && text[0] == '/')
        return pl_fail(err, PL_EUSE,
                       "'%.300s': more than one address, or text after it; your side: give one "
                       "address for each --join",
                       text);
    return pl_fail(err, PL_EUSE,
                   "%.200s; your side: an address looks like /ip4/1.2.3.4/tcp/31337/p2p/ID, ask "
                   "for one",
                   why.text);
}

int swarm_check_own_address(const char *text, struct pl_err *err)
{
    struct multiaddr a;
    struct pl_err why;
    if (!multiaddr_from_text(&a, text, &why)) return PL_OK;
    return pl_fail(err, PL_EUSE, "%.200s; your side: it looks like /ip4/0.0.0.0/tcp/4001",
                   why.text);
}

/* Before anything is opened: a typing error should fail at once, with the address that has it, not
 * after a timeout. */
static int check_addresses(const char *what, const char *const *list, size_t count,
                           int (*check)(const char *, struct pl_err *), struct pl_err *err)
{
    for (size_t i = 0; i < count; i++) {
        struct pl_err why;
        int rc = check(list[i], &why);
        if (rc) return pl_fail(err, rc, "%s %.200s: %.300s", what, list[i], why.text);
    }
    return PL_OK;
}

/* The commonest error deserves a hint: an address that is not this machine's, or a port in use. */
static int open_host(struct swarm *s, const struct host_options *o, struct pl_err *err)
{
    struct pl_err why = { "" };
    int rc = libp2p_open(&s->host, s->loop, o, &why);
    if (!rc) return PL_OK;
    return pl_fail(
        err, rc, "%.300s%s", why.text,
        strncmp(why.text, "listen: /", 9)
            ? ""
            : "; your side: --listen takes an address of this machine (0.0.0.0: all of them) "
              "and a port that is free (0: any)");
}

int swarm_open(struct swarm *s, const struct swarm_options *o, struct pl_err *err)
{
    struct dht_node_options node = { .join = o->join,
                                     .join_count = o->join_count,
                                     /* A peer that accepts no connections must not be in
                                      * anybody's routing table: requests to it would time out.
                                      * [spec hivemind-protocol 1.4] */
                                     .client_mode = !o->listen_count || o->visitor,
                                     /* Records of the run are refused unless they are signed and
                                      * fit their schemas. [spec hivemind-protocol 2] */
                                     .validators = o->validators,
                                     /* NULL: the run is open. [spec hivemind-protocol 3] */
                                     .auth = o->auth,
                                     .hold = o->hold };
    struct host_options host = { .me = &s->me,
                                 .listen = o->listen,
                                 .listen_count = o->listen_count,
                                 .announce = o->announce,
                                 .announce_count = o->announce_count,
                                 /* hivemind's client mode: dials, and is never dialed. */
                                 .client_mode = !o->listen_count,
                                 .relay = o->relay,
                                 .map_port = !o->no_port_mapping };
    struct opening opening = { s, &node, err, PL_OK };
    pthread_condattr_t attributes;
    int rc;
    memset(s, 0, sizeof *s);
    /* First the members that swarm_close destroys, so that it may be called after any failure
     * below. */
    pthread_mutex_init(&s->lock, NULL);
    pthread_condattr_init(&attributes);
    pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC); /* the wall clock may be set */
    pthread_cond_init(&s->changed, &attributes);
    pthread_condattr_destroy(&attributes);
    /* Then in the order of use: addresses, identity, loop, host, node. */
    rc = check_addresses("initial peer", o->join, o->join_count, swarm_check_peer_address, err);
    if (!rc)
        rc = check_addresses("listen", o->listen, o->listen_count, swarm_check_own_address, err);
    if (!rc)
        rc = check_addresses("announce", o->announce, o->announce_count, swarm_check_own_address,
                             err);
    if (!rc) /* A file keeps the peer id over restarts; without one each start is a new peer. */
        rc = o->identity ? identity_file(&s->me, o->identity, err)
                         : identity_make(&s->me, KEY_ED25519, err);
    if (!rc) rc = loop_open(&s->loop, err);
    if (!rc) rc = open_host(s, &host, err);
    if (!rc) {
        loop_call(s->loop, open_node, &opening);
        rc = opening.rc;
    }
    /* Whatever has been opened is closed, and *s is all zero again. */
    if (rc) swarm_close(s);
    return rc;
}

static void enter_node(void *context)
{
    struct swarm *s = context;
    dht_node_enter(s->node);
}

/* For callers that check or serve something before other peers come to know of them. */
void swarm_enter(struct swarm *s) { loop_call(s->loop, enter_node, s); }

/* Waits for the first attempt to join only: a peer that starts before its initial peers may
 * still join later. */
int swarm_wait_joined(struct swarm *s, double limit_s, struct pl_err *err)
{
    struct timespec until;
    int joined, late = 0;
    clock_gettime(CLOCK_MONOTONIC, &until);
    /* The monotonic clock, as the condition was made with it. */
    until.tv_sec += (time_t)ceil(limit_s);
    pthread_mutex_lock(&s->lock);
    while (!s->tries && !late)
        if (limit_s <= 0) pthread_cond_wait(&s->changed, &s->lock);
        else late = pthread_cond_timedwait(&s->changed, &s->lock, &until) == ETIMEDOUT;
    /* The attempt may have ended in the moment of the timeout: then it counts. */
    late = !s->tries;
    /* Joining asks all initial peers at once: it fails if none accepts us, if our clock is more
     * than 3 s from theirs, or if they cannot call us back. [spec hivemind-protocol 1.6] */
    joined = s->joined;
    if (err) *err = s->why;
    pthread_mutex_unlock(&s->lock);
    if (late) return pl_fail(err, PL_EAGAIN, "no initial peer has answered within %g s", limit_s);
    return joined ? PL_OK : PL_EIO;
}

void swarm_close(struct swarm *s)
{
    /* The reverse order of opening: the node uses the host, the host the loop. */
    if (s->node) loop_call(s->loop, close_node, s);
    host_close(s->host);
    loop_close(s->loop);
    identity_clear(&s->me);
    pthread_cond_destroy(&s->changed);
    pthread_mutex_destroy(&s->lock);
    memset(s, 0, sizeof *s);
}

/* --- status ----------------------------------------------------------------------------------- */

/* A question to the loop, answered while the caller waits: into what is not NULL, or addresses. */
struct query {
    struct swarm *s;
    struct dht_status *status;
    struct resources *resources;
    double *time;
    struct multiaddr addresses[SWARM_ADDRESSES_MAX];
    size_t count;
};

static void answer(void *context)
{
    struct query *q = context;
    if (q->status) dht_node_status(q->s->node, q->status);
    else if (q->resources) *q->resources = *host_resources(q->s->host);
    else if (q->time) *q->time = dht_node_time(q->s->node);
    else q->count = host_addresses(q->s->host, q->addresses, SWARM_ADDRESSES_MAX);
}

static struct query ask(struct query q)
{
    loop_call(q.s->loop, answer, &q);
    return q;
}

int swarm_address_for_others(struct swarm *s, char *text)
{
    const struct query q = ask((struct query){ .s = s });
    size_t best = 0;
    if (!q.count) return PL_ENOTFOUND;
    for (size_t i = 1; i < q.count; i++)
        /* A public address before one of the local network, and that before loopback. */
        if (multiaddr_scope(&q.addresses[i]) > multiaddr_scope(&q.addresses[best])) best = i;
    multiaddr_text(text, &q.addresses[best]);
    return PL_OK;
}

/* A copy: the host's own list changes on the loop, when others report how they see us. */
size_t swarm_addresses(struct swarm *s, struct multiaddr *addresses, size_t max)
{
    const struct query q = ask((struct query){ .s = s });
    const size_t count = q.count < max ? q.count : max;
    memcpy(addresses, q.addresses, count * sizeof *addresses);
    return count;
}

void swarm_status(struct swarm *s, struct dht_status *status)
{
    ask((struct query){ .s = s, .status = status });
}

void swarm_resources(struct swarm *s, struct resources *copy)
{
    ask((struct query){ .s = s, .resources = copy });
}

/* DHT time: this machine's clock, corrected to agree with the other peers'. Expirations and round
 * deadlines are in it, and a peer whose clock is off by more than 3 s is refused. [spec
 * hivemind-protocol 11] */
double swarm_time(struct swarm *s)
{
    double time;
    ask((struct query){ .s = s, .time = &time });
    return time;
}

/* --- requests --------------------------------------------------------------------------------- */

/* A call of the DHT for a thread that waits: arguments and result. */
struct request {
    struct swarm *s;
    struct loop_request wait;
    /* Only the fields of this kind of request are set. */
    const struct dht_id *key;
    const struct peer_id *peer;
    const struct bytes *subkey, *value;
    struct dht_result *result;
    struct dht_pong *pong;
    struct pl_err *err;
    double expiration;
    int latest;
};

/* Callbacks run on the loop; each copies its result and wakes the thread that waits. */
static void on_got(void *context, int status, const struct dht_result *r)
{
    struct request *w = context;
    /* The result lives as long as this callback: the waiting thread gets a copy. */
    if (!status && dht_result_copy(w->result, r)) status = PL_ENOMEM;
    loop_end(&w->wait, status);
}

static void on_stored(void *context, int status)
{
    struct request *w = context;
    loop_end(&w->wait, status);
}

static void on_pong(void *context, int status, const struct dht_pong *pong)
{
    struct request *w = context;
    *w->pong = *pong;
    /* The text belongs to the callback's caller: it is copied, or gone. */
    w->pong->error = NULL;
    if (status) snprintf(w->err->text, sizeof w->err->text, "%.400s", pong->error);
    loop_end(&w->wait, status);
}

static void begin_get(void *context)
{
    struct request *w = context;
    /* A lookup among the nodes nearest to the key. [spec hivemind-protocol 1.6] */
    if (!dht_node_get(w->s->node, w->key, w->latest, on_got, w)) loop_end(&w->wait, PL_ENOMEM);
}

static void begin_store(void *context)
{
    struct request *w = context;
    /* Stored at the nodes nearest to the key, until it expires. [spec hivemind-protocol 1.5,
     * 1.6] */
    if (!dht_node_store(w->s->node, w->key, w->subkey ? bytes_at(w->subkey) : NULL,
                        w->subkey ? bytes_length(w->subkey) : 0, bytes_at(w->value),
                        bytes_length(w->value), w->expiration, on_stored, w))
        loop_end(&w->wait, PL_ENOMEM);
}

static void begin_ping(void *context)
{
    struct request *w = context;
    /* Also tells whether the peer can reach us back. [spec hivemind-protocol 1.3] */
    if (!dht_node_ping(w->s->node, w->peer, 1, on_pong, w)) loop_end(&w->wait, PL_ENOMEM);
}

/* latest: all of the ~20 nodes nearest to the key are asked and the newest record wins; otherwise
 * the first valid one that has not expired is enough. [spec hivemind-protocol 1.6] */
int swarm_get(struct swarm *s, struct dht_result *r, const struct dht_id *key, int latest)
{
    struct request w = { .s = s, .key = key, .result = r, .latest = latest };
    dht_result_init(r);
    return loop_wait(s->loop, &w.wait, begin_get, &w);
}

/* With a subkey: one entry of the dictionary under the key, next to other peers' entries. The
 * expiration is the version: a record with a later one replaces ours. [spec hivemind-protocol
 * 1.5] */
int swarm_store(struct swarm *s, const struct dht_id *key, const struct bytes *subkey,
                const struct bytes *value, double expiration)
{
    struct request w = {
        .s = s, .key = key, .subkey = subkey, .value = value, .expiration = expiration
    };
    return loop_wait(s->loop, &w.wait, begin_store, &w);
}

int swarm_ping(struct swarm *s, struct dht_pong *pong, struct pl_err *err,
               const struct peer_id *peer)
{
    struct request w = { .s = s, .peer = peer, .pong = pong, .err = err };
    int rc;
    err->text[0] = 0;
    rc = loop_wait(s->loop, &w.wait, begin_ping, &w);
    return rc && !err->text[0] ? pl_fail(err, rc, "%s", pl_status_name(rc)) : rc;
}
