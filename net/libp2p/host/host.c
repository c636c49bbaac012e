/* host.c - a peer's life: what it serves, who is connected, and an end in order. */
#include "host_internal.h"
#include "net/libp2p/relay/autonat.h"
#include "net/libp2p/protocols/identify.h"
#include "net/libp2p/protocols/kad.h"
#include "net/libp2p/protocols/ping.h"
#include "net/libp2p/relay/relay.h"

#include <assert.h>
#include <math.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#define SWEEP_EVERY 30.0 /* s between looks for addresses that are over */

/* --- what we serve ---------------------------------------------------------------------------- */

int host_find_service(void *context, const char *name, size_t n)
{
    const struct host *h = context;
    for (size_t i = 0; i < h->service_count && !h->closing; i++)
        if (strlen(h->services[i].protocol) == n && !memcmp(h->services[i].protocol, name, n))
            return (int)i;
    return -1;
}

int host_serve(struct host *h, const char *protocol, stream_opened *opened, void *context)
{
    char *copy;
    if (host_find_service(h, protocol, strlen(protocol)) >= 0) return PL_EUSE;
    if (h->service_count == HOST_PROTOCOLS_MAX) return PL_ELIMIT;
    if (!(copy = strdup(protocol))) return PL_ENOMEM;
    h->services[h->service_count++] = (struct service){ copy, opened, context };
    host_changed(h);
    return PL_OK;
}

void host_unserve(struct host *h, const char *protocol)
{
    int i = host_find_service(h, protocol, strlen(protocol));
    if (i < 0) return;
    free(h->services[i].protocol);
    h->services[i] = h->services[--h->service_count];
    host_changed(h);
}

/* --- who is connected ------------------------------------------------------------------------- */

void host_link_open(struct connection *l)
{
    struct host *h = l->host;
    struct peer *p = peers_get(&h->peers, &l->conn.secure->remote, loop_now(h->loop));
    size_t count = 0, most = resources_limit(&h->resources, SCOPE_PEER, RESOURCE_CONNECTIONS);
    int first;
    if (!p) {
        connection_end(l, PL_ELIMIT, "too many peers are known");
        return;
    }
    if (peer_id_equal(&p->id, &h->me->id)) {
        connection_end(l, PL_EPROTO, "the other side has our own identity");
        return;
    }
    if (resources_authenticate(&l->account, &p->id)) {
        connection_end(l, PL_ENOMEM, "out of memory");
        return;
    }
    first = !p->links;
    for (struct connection *old = p->links; old; old = old->next_of_peer)
        if (!old->ending && ++count == most)
            connection_end(old, PL_OK, "a newer connection took its place");
    l->peer = p;
    l->next_of_peer = p->links;
    p->links = l;
    /* Whom we dialled is surely found there again. */
    if (!l->inbound && !l->relayed) peer_learn(p, &l->remote, loop_now(h->loop) + HOST_ADDRESS_TTL);
    peer_routing_news(p);
    if (h->identify) identify_link_open(l);
    for (struct host_watch *w = h->watches, *next; w && first; w = next) {
        next = w->next;
        if (w->events.connected) w->events.connected(w->context, &p->id);
    }
}

void host_link_closed(struct connection *l)
{
    struct host *h = l->host;
    struct peer *p = l->peer;
    struct connection **at;
    struct peer_id id;
    if (!p) return;
    for (at = &p->links; *at != l; at = &(*at)->next_of_peer) {}
    *at = l->next_of_peer;
    l->peer = NULL;
    p->seen = loop_now(h->loop);
    for (size_t i = 0; i < p->address_count; i++) /* as the original: for a while after the end */
        if (!p->links && p->addresses[i].expires < p->seen + HOST_ADDRESS_TTL)
            p->addresses[i].expires = p->seen + HOST_ADDRESS_TTL;
    if (p->links) return;
    p->observed.length = 0;
    id = p->id;
    for (struct host_watch *w = h->watches, *next; w; w = next) {
        next = w->next;
        if (w->events.disconnected) w->events.disconnected(w->context, &id);
    }
}

void host_watch(struct host *h, struct host_watch *w)
{
    w->next = h->watches;
    h->watches = w;
}

void host_unwatch(struct host *h, struct host_watch *w)
{
    struct host_watch **at = &h->watches;
    while (*at && *at != w) at = &(*at)->next;
    if (*at) *at = w->next;
}

int host_learn(struct host *h, const struct peer_id *id, const struct multiaddr *a, double ttl_s)
{
    double now = loop_now(h->loop);
    struct peer *p = peers_get(&h->peers, id, now);
    if (!p) return PL_ENOMEM;
    peer_routing_news(p);
    return peer_learn(p, a, ttl_s > 0 ? now + ttl_s : INFINITY);
}

size_t host_known(const struct host *h, const struct peer_id *id, struct multiaddr *out, size_t max)
{
    const struct peer *p = host_peer(h, id);
    for (size_t i = 0; p && i < p->address_count && i < max; i++) out[i] = p->addresses[i].at;
    return p ? p->address_count : 0;
}

int host_is_connected(const struct host *h, const struct peer_id *id)
{
    return connection_best(host_peer(h, id)) != NULL;
}

struct peer_list {
    struct peer_id *out;
    size_t count, max;
};

static void add_connected(void *context, struct peer *p)
{
    struct peer_list *list = context;
    if (!connection_best(p)) return;
    if (list->count < list->max) list->out[list->count] = p->id;
    list->count++;
}

size_t host_peers(const struct host *h, struct peer_id *out, size_t max)
{
    struct peer_list list = { out, 0, max };
    peers_each(&h->peers, add_connected, &list);
    return list.count;
}

int host_remote_address(const struct host *h, const struct peer_id *id, struct multiaddr *a)
{
    const struct connection *l = connection_best(host_peer(h, id));
    if (!l) return PL_ENOTFOUND;
    *a = l->remote;
    return PL_OK;
}

int host_peer_serves(const struct host *h, const struct peer_id *id, const char *protocol)
{
    const struct peer *p = host_peer(h, id);
    return p && peer_serves(p, protocol);
}

int host_observed(const struct host *h, const struct peer_id *id, struct multiaddr *a)
{
    const struct peer *p = host_peer(h, id);
    if (!p || !p->observed.length) return PL_ENOTFOUND;
    *a = p->observed;
    return PL_OK;
}

void host_disconnect(struct host *h, const struct peer_id *id)
{
    const struct peer *p = host_peer(h, id);
    for (struct connection *l = p ? p->links : NULL; l; l = l->next_of_peer)
        connection_end(l, PL_OK, "we have closed the connection");
}

int host_protect(struct host *h, const struct peer_id *id)
{
    return resources_protect(&h->resources, id);
}

void host_unprotect(struct host *h, const struct peer_id *id)
{
    resources_unprotect(&h->resources, id);
}

const struct resources *host_resources(const struct host *h) { return &h->resources; }

/* --- life ------------------------------------------------------------------------------------- */

struct loop *host_loop(const struct host *h) { return h->loop; }
const struct peer_id *host_id(const struct host *h) { return &h->me->id; }
const struct identity *host_identity(const struct host *h) { return h->me; }

static void on_settle(uv_prepare_t *prepare) { host_settle(prepare->data); }

static void on_sweep(void *context)
{
    struct host *h = context;
    peers_expire(&h->peers, loop_now(h->loop));
    timer_start(h->loop, &h->sweep, SWEEP_EVERY, on_sweep, h);
}

static void free_host(struct host *h)
{
    peers_clear(&h->peers);
    resources_clear(&h->resources);
    rpc_close_services(h);
    for (size_t i = 0; i < h->service_count; i++) free(h->services[i].protocol);
    free(h->announce);
    free(h->agent);
    free(h);
}

static void on_settle_closed(uv_handle_t *handle) { host_handle_closed(handle->data); }

/* Every link and listener, the settling and the goodbye count as one; with the last the host
 * goes. */
void host_handle_closed(struct host *h)
{
    loop_fn *closed = h->closed;
    void *context = h->closed_context;
    h->handles--;
    if (!h->closing) return;
    if (h->handles == 1 && !uv_is_closing((uv_handle_t *)&h->settle))
        uv_close((uv_handle_t *)&h->settle, on_settle_closed);
    if (h->handles) return;
    free_host(h);
    if (closed) closed(context);
}

/* Others still speak through it. */
static int carries(const struct connection *l)
{
    for (const struct connection *m = l->host->links; m; m = m->next)
        if (!m->ending && m->carrier && m->carrier->link == l) return 1;
    return 0;
}

/* 1: its last bytes are still on their way. */
static int has_last_words(struct connection *l, double now)
{
    size_t left = l->open ? connection_unsent(l) : 0;
    if (left != l->close_unsent) l->close_by = now + HOST_GOODBYE_LIMIT;
    l->close_unsent = left;
    return left && now < l->close_by && now < l->host->close_at_last;
}

/* Ends every link once its last bytes have arrived, or move no more. Each by itself: as long as one
 * is there its peer goes on asking, and all of them together would never fall silent. */
static void on_goodbye(void *context)
{
    struct host *h = context;
    double now = loop_now(h->loop);
    int waiting = 0;
    for (struct connection *l = h->links; l; l = l->next) {
        if (l->ending) continue;
        if (has_last_words(l, now) || carries(l)) waiting = 1;
        else connection_end(l, PL_OK, "this peer is closing");
    }
    if (waiting) timer_start(h->loop, &h->goodbye, 0.01, on_goodbye, h);
    else host_handle_closed(h); /* the goodbye itself */
}

static void begin_close(void *context)
{
    struct host *h = context;
    h->closing = 1;
    timer_stop(&h->sweep);
    timer_stop(&h->turn);
    identify_stop(h);
    autonat_stop(h);
    relay_stop(h);
    kad_stop(h);
    waits_close_all(h);
    channels_close_all(h);
    host_listen_stop(h);
    h->handles++; /* until on_goodbye is through, even if every link ends by itself before */
    h->close_at_last = loop_now(h->loop) + HOST_GOODBYE_MAX;
    timer_start(h->loop, &h->goodbye, 0, on_goodbye, h);
}

struct farewell {
    struct host *host;
    pthread_mutex_t lock;
    pthread_cond_t over;
    int done;
};

static void on_gone(void *context)
{
    struct farewell *f = context;
    pthread_mutex_lock(&f->lock);
    f->done = 1;
    pthread_cond_signal(&f->over);
    pthread_mutex_unlock(&f->lock);
}

static void close_here(void *context)
{
    struct farewell *f = context;
    f->host->closed = on_gone;
    f->host->closed_context = f;
    begin_close(f->host);
}

void host_close(struct host *h)
{
    struct farewell f = { .host = h };
    if (!h) return;
    assert(!loop_is_here(h->loop));
    pthread_mutex_init(&f.lock, NULL);
    pthread_cond_init(&f.over, NULL);
    loop_call(h->loop, close_here, &f);
    pthread_mutex_lock(&f.lock);
    while (!f.done) pthread_cond_wait(&f.over, &f.lock);
    pthread_mutex_unlock(&f.lock);
    pthread_cond_destroy(&f.over);
    pthread_mutex_destroy(&f.lock);
}

static int set_announce(struct host *h, const struct host_options *o, struct pl_err *err)
{
    int rc;
    if (!o->announce_count) return PL_OK;
    if (o->announce_count > HOST_LISTEN_MAX)
        return pl_fail(err, PL_EUSE, "announce: more than %d addresses", HOST_LISTEN_MAX);
    if (!(h->announce = calloc(o->announce_count, sizeof *h->announce))) return PL_ENOMEM;
    for (size_t i = 0; i < o->announce_count; i++) {
        if ((rc = multiaddr_from_text(&h->announce[i], o->announce[i], err))) return rc;
        multiaddr_strip_peer(&h->announce[i], &h->me->id);
        h->announce_count++;
    }
    return PL_OK;
}

struct opening {
    struct host *host;
    const struct host_options *options;
    struct pl_err *err;
    int rc;
};

static void open_here(void *context)
{
    struct opening *o = context;
    struct host *h = o->host;
    const struct host_options *options = o->options;
    o->rc = PL_ENOMEM;
    uv_prepare_init(loop_uv(h->loop), &h->settle);
    h->settle.data = h;
    h->handles = 1;
    uv_prepare_start(&h->settle, on_settle);
    if (timer_start(h->loop, &h->sweep, SWEEP_EVERY, on_sweep, h)) return;
    if (!(h->agent = strdup(options->agent ? options->agent : "potluck/" PL_VERSION))) return;
    if ((o->rc = set_announce(h, options, o->err))) return;
    if (options->listen_count > HOST_LISTEN_MAX)
        o->rc = pl_fail(o->err, PL_EUSE, "listen: more than %d addresses", HOST_LISTEN_MAX);
    for (size_t i = 0; i < options->listen_count && !o->rc; i++)
        o->rc = host_listen(h, options->listen[i], o->err);
    if (!o->rc) o->rc = identify_start(h);
    if (!o->rc) o->rc = kad_start(h);
    if (!o->rc) o->rc = ping_start(h);
    if (!o->rc) o->rc = relay_start(h);
    if (!o->rc) o->rc = autonat_start(h);
}

static size_t descriptors(void)
{
    struct rlimit files;
    return getrlimit(RLIMIT_NOFILE, &files) ? SIZE_MAX : (size_t)files.rlim_cur;
}

int host_open(struct host **out, struct loop *l, const struct host_options *options,
              struct pl_err *err)
{
    struct opening o = { .options = options, .err = err };
    struct host *h = calloc(1, sizeof *h);
    *out = NULL;
    if (!h) return pl_fail(err, PL_ENOMEM, "out of memory");
    h->loop = l;
    h->me = options->me;
    resources_init(&h->resources, descriptors());
    h->securities = options->securities ? options->securities : CONN_NOISE | CONN_TLS;
    h->client_mode = options->client_mode;
    h->serves_relay = options->relay;
    o.host = h;
    if (loop_call(l, open_here, &o)) {
        free(h);
        return pl_fail(err, PL_ENOMEM, "out of memory");
    }
    if (!o.rc) {
        *out = h;
        return PL_OK;
    }
    if (loop_is_here(l)) begin_close(h); /* it frees itself a moment later */
    else host_close(h);
    return o.rc == PL_ENOMEM ? pl_fail(err, o.rc, "out of memory") : o.rc;
}
