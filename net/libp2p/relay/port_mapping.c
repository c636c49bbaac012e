/* port_mapping.c - asks on a helper thread, tells the host on the loop's.
 *
 * A request that is under way outlives the host: the two know each other only as long as both are
 * there. */
#include "port_mapping.h"
#include "net/libp2p/host/host_protocol.h"
#include "net/libp2p/peer/peerstore.h"

#include <stdlib.h>
#include <string.h>

struct request {
    struct loop *loop;
    struct gateway gateway;
    struct port_mapping *of; /* NULL: the host has closed */
};

struct port_mapping {
    struct host *host;
    struct timer timer;
    struct request *request; /* under way */
    struct gateway gateway;  /* after the last one */
    enum port_mapping_state state;
};

static struct port_mapping *mapping_of(const struct host *h)
{
    return host_state(h, &port_mapping_protocol);
}

/* The port to map: of a private IPv4 address, unless an interface has a public one. 0: none. */
static uint16_t port_to_map(const struct host *h)
{
    struct multiaddr own[HOST_LISTEN_MAX];
    struct multiaddr_target t;
    size_t n = host_own_addresses(h, own, HOST_LISTEN_MAX);
    uint16_t port = 0;
    for (size_t i = 0; i < n; i++) {
        if (multiaddr_target(&t, &own[i]) || t.family != 4 || t.relay.length) continue;
        if (multiaddr_scope(&own[i]) == SCOPE_PRIVATE) port = port ? port : t.port;
        else if (multiaddr_scope(&own[i]) == SCOPE_PUBLIC && !host_is_translated(h, &own[i]))
            return 0;
    }
    return port;
}

/* --- on a helper thread ----------------------------------------------------------------------- */

static void map(void *context)
{
    struct request *r = context;
    gateway_map(&r->gateway);
}

static void unmap(void *context)
{
    struct request *r = context;
    gateway_unmap(&r->gateway);
}

/* --- on the loop's ---------------------------------------------------------------------------- */

static void ask(void *context);

/* The host has closed: its mappings are removed. Without memory the lease ends them. */
static void remove_mapping(struct request *r)
{
    if (!gateway_is_mapped(&r->gateway) || loop_work(r->loop, unmap, free, r)) free(r);
}

static void on_mapped(void *context)
{
    struct request *r = context;
    struct port_mapping *m = r->of;
    int is_mapped = gateway_is_mapped(&r->gateway);
    if (!m) {
        remove_mapping(r);
        return;
    }
    m->request = NULL;
    m->gateway = r->gateway;
    m->state = PORT_MAPPING_KNOWN;
    free(r);
    host_set_mapped(m->host, is_mapped ? &m->gateway.outside : NULL);
    timer_start(host_loop(m->host), &m->timer, is_mapped ? MAPPING_RENEW : MAPPING_RETRY, ask, m);
}

static int begin(struct port_mapping *m)
{
    struct request *r = calloc(1, sizeof *r);
    if (!r) return PL_ENOMEM;
    *r = (struct request){ .loop = host_loop(m->host), .gateway = m->gateway, .of = m };
    if (loop_work(r->loop, map, on_mapped, r)) {
        free(r);
        return PL_ENOMEM;
    }
    m->request = r;
    return PL_OK;
}

static void ask(void *context)
{
    struct port_mapping *m = context;
    uint16_t port = port_to_map(m->host);
    /* Interfaces come and go: a laptop may be behind another router by then. */
    if (port) m->gateway.port = port;
    if (!port || begin(m)) timer_start(host_loop(m->host), &m->timer, MAPPING_RETRY, ask, m);
    else if (m->state == PORT_MAPPING_OFF) m->state = PORT_MAPPING_PENDING;
}

enum port_mapping_state port_mapping_outcome(const struct host *h, struct gateway *out)
{
    const struct port_mapping *m = mapping_of(h);
    if (!m) return PORT_MAPPING_OFF;
    *out = m->gateway;
    return m->state;
}

static int start(struct host *h)
{
    struct port_mapping *m;
    if (!host_maps_port(h)) return PL_OK;
    if (!(m = calloc(1, sizeof *m))) return PL_ENOMEM;
    m->host = h;
    host_set_state(h, &port_mapping_protocol, m);
    ask(m);
    return PL_OK;
}

static void stop(struct host *h)
{
    struct port_mapping *m = mapping_of(h);
    struct request *r;
    if (!m) return;
    timer_stop(&m->timer);
    if (m->request) m->request->of = NULL;
    else if ((r = calloc(1, sizeof *r))) {
        *r = (struct request){ .loop = host_loop(h), .gateway = m->gateway };
        remove_mapping(r);
    }
    host_set_state(h, &port_mapping_protocol, NULL);
    free(m);
}

const struct host_protocol port_mapping_protocol = { .start = start, .stop = stop };
