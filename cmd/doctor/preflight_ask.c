/* preflight_ask.c - a request begins on the loop's thread; the calling thread sleeps on a condition
 * variable until the answer comes or the checks are stopped. */
#include "preflight_ask.h"

#include "net/libp2p/relay/autonat.h"
#include "net/libp2p/protocols/ping.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define PING_LIMIT 3.0      /* s; a ping cannot be canceled */
#define IDENTIFY_WAIT 2.0   /* s to wait for a peer's identify message */
#define IDENTIFY_POLL 10000 /* us between polls */
#define HOP "/libp2p/circuit/relay/0.2.0/hop"

static void end(struct probe *p, int status, const char *why)
{
    pthread_mutex_lock(&p->s->lock);
    p->status = status;
    p->under_way = NULL;
    snprintf(p->why, sizeof p->why, "%s", why);
    p->done = 1;
    pthread_cond_broadcast(&p->s->changed);
    pthread_mutex_unlock(&p->s->lock);
}

/* On the loop's thread, where an answer may just have come. */
static void take_back(void *context)
{
    struct probe *p = context;
    if (p->done) return;
    p->cancel(p);
    end(p, PL_EAGAIN, "canceled");
}

static int ask(struct probe *p, loop_fn *begin, void (*cancel)(struct probe *p))
{
    int unwanted = 0;
    p->done = 0;
    p->under_way = NULL;
    p->cancel = cancel;
    if (probe_is_stopped(p->s, p->stop)) return PL_EAGAIN;
    if (loop_post(p->s->loop, begin, p)) return PL_ENOMEM;
    pthread_mutex_lock(&p->s->lock);
    while (!p->done && !unwanted) {
        unwanted = cancel && p->stop && p->stop->wanted;
        if (!unwanted) pthread_cond_wait(&p->s->changed, &p->s->lock);
    }
    pthread_mutex_unlock(&p->s->lock);
    if (unwanted) loop_call(p->s->loop, take_back, p);
    return p->status;
}

void probe_stop(struct swarm *s, struct probe_stop *stop)
{
    pthread_mutex_lock(&s->lock);
    stop->wanted = 1;
    pthread_cond_broadcast(&s->changed);
    pthread_mutex_unlock(&s->lock);
}

int probe_is_stopped(struct swarm *s, const struct probe_stop *stop)
{
    int wanted;
    pthread_mutex_lock(&s->lock);
    wanted = stop && stop->wanted;
    pthread_mutex_unlock(&s->lock);
    return wanted;
}

/* --- the requests ----------------------------------------------------------------------------- */

static void on_dialled(void *context, int status, const struct peer_id *peer,
                       const struct pl_err *err)
{
    struct probe *p = context;
    if (!status) p->peer = *peer;
    end(p, status, status ? err->text : "");
}

static void dial(void *context)
{
    struct probe *p = context;
    struct multiaddr_target t;
    if (!multiaddr_target(&t, &p->at)) p->peer = t.peer;
    if (p->peer.length && host_is_connected(p->s->host, &p->peer)) {
        end(p, PL_OK, "");
        return;
    }
    p->under_way = host_dial(p->s->host, &p->at, PROBE_LIMIT, on_dialled, p);
    if (!p->under_way) end(p, PL_ENOMEM, "no memory");
}

static void cancel_dial(struct probe *p) { host_wait_cancel(p->under_way); }

int probe_dial(struct probe *p)
{
    double began = pl_seconds();
    int status = ask(p, dial, cancel_dial);
    p->seconds = pl_seconds() - began;
    return status;
}

static void on_pinged(void *context, int status, double rtt_s, const char *why)
{
    struct probe *p = context;
    p->seconds = rtt_s;
    end(p, status, why);
}

static void ping(void *context)
{
    struct probe *p = context;
    if (ping_peer(p->s->host, &p->peer, PING_LIMIT, on_pinged, p)) end(p, PL_ENOMEM, "no memory");
}

int probe_ping(struct probe *p) { return ask(p, ping, NULL); }

static void on_reached(void *context, int status, const struct multiaddr *at, const char *why)
{
    struct probe *p = context;
    p->at = *at;
    end(p, status, why);
}

static void begin_autonat(void *context)
{
    struct probe *p = context;
    p->under_way = autonat_ask(p->s->host, &p->peer, 2 * PROBE_LIMIT, on_reached, p);
    if (!p->under_way) end(p, PL_ENOMEM, "no memory");
}

static void cancel_probe(struct probe *p) { autonat_cancel(p->under_way); }

int probe_reachability(struct probe *p) { return ask(p, begin_autonat, cancel_probe); }

static void on_called(void *context, const struct rpc_result *r)
{
    struct probe *p = context;
    end(p, r->status, r->status ? r->error : "");
}

static void call(void *context)
{
    struct probe *p = context;
    p->under_way = rpc_call_unary(p->s->host, &p->peer, p->call, bytes_at(p->request),
                                  bytes_length(p->request), 3 * PROBE_LIMIT, on_called, p);
    if (!p->under_way) end(p, PL_ENOMEM, "no memory");
}

static void cancel_call(struct probe *p) { rpc_cancel(p->under_way); }

int probe_call(struct probe *p, const char *name, const struct bytes *request)
{
    double began = pl_seconds();
    int status;
    p->call = name;
    p->request = request;
    status = ask(p, call, cancel_call);
    p->seconds = pl_seconds() - began;
    return status;
}

/* --- known without asking --------------------------------------------------------------------- */

struct view_request {
    struct probe *p;
    struct probe_view *v;
};

static void read_view(void *context)
{
    struct view_request *l = context;
    const struct host *h = l->p->s->host;
    l->v->has_seen = !host_observed(h, &l->p->peer, &l->v->seen);
    l->v->has_local = !host_local_address(h, &l->p->peer, &l->v->local);
    l->v->relays = host_peer_serves(h, &l->p->peer, HOP);
}

void probe_identity(struct probe *p, struct probe_view *v)
{
    struct view_request l = { p, v };
    double until = pl_seconds() + IDENTIFY_WAIT;
    memset(v, 0, sizeof *v);
    while (loop_call(p->s->loop, read_view, &l),
           !v->has_seen && pl_seconds() < until && !probe_is_stopped(p->s, p->stop))
        usleep(IDENTIFY_POLL);
}
