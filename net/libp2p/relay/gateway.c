/* gateway.c - one port, by NAT-PMP or UPnP-IGD. [RFC 6886; UPnP InternetGatewayDevice 1 and 2]
 *
 *   NAT-PMP   the default gateway is asked for its outside address, then for the mapping: a
 *             datagram each
 *   UPnP      a multicast finds the router's description, which names the URL of a service that
 *             is called by HTTP */
#include "gateway.h"
#include "net/libp2p/peer/peerstore.h"

#include <arpa/inet.h>
#include <miniupnpc/miniupnpc.h>
#include <miniupnpc/upnpcommands.h>
#include <natpmp.h>
#include <poll.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define NATPMP_PATIENCE 1.0 /* s for an answer: two tries. A router of this network needs 10 ms */
#define UPNP_PATIENCE 1000  /* ms for each kind of device to answer the multicast */
#define UPNP_PORTS 4        /* outside ports that are tried: others may use ours */
#define PORT_FIRST 1024     /* ports below are for programs that the router's owner has chosen */
#define DESCRIPTION "potluck"
/* UPnP's error codes */
#define ONLY_PERMANENT 725
#define CONFLICT 718

__attribute__((format(printf, 3, 4))) static enum gateway_status end(struct gateway_outcome *o,
                                                                     enum gateway_status status,
                                                                     const char *format, ...)
{
    va_list list;
    o->status = status;
    va_start(list, format);
    vsnprintf(o->why, sizeof o->why, format, list);
    va_end(list);
    return status;
}

/* An address that only a network like ours knows would lead others to machines of their own. */
static enum gateway_status take_outside(struct gateway *g, struct gateway_outcome *o,
                                        const struct in_addr *ip, uint16_t port)
{
    struct multiaddr a = { .length = 0 };
    char text[INET_ADDRSTRLEN];
    multiaddr_add_ip(&a, 4, (const uint8_t *)ip);
    multiaddr_add_tcp(&a, port);
    inet_ntop(AF_INET, ip, text, sizeof text);
    if (multiaddr_scope(&a) != SCOPE_PUBLIC)
        return end(o, GATEWAY_PRIVATE, "the router's outside address, %s, is private", text);
    if (!port) return end(o, GATEWAY_REFUSED, "the router names no port");
    g->outside = a;
    g->outside_port = port;
    return end(o, GATEWAY_MAPPED, "%s", "");
}

/* --- NAT-PMP ---------------------------------------------------------------------------------- */

/* Waits for the answer to the request that was sent last. Only the gateway's datagrams count: the
 * socket is connected to it. */
static int await_natpmp(natpmp_t *n, natpmpresp_t *r)
{
    const double until = pl_seconds() + NATPMP_PATIENCE;
    int rc = NATPMP_TRYAGAIN;
    while (rc == NATPMP_TRYAGAIN && pl_seconds() < until) {
        struct pollfd wait = { .fd = n->s, .events = POLLIN };
        struct timeval left;
        if (getnatpmprequesttimeout(n, &left)) break;
        poll(&wait, 1, (int)(left.tv_sec * 1000 + left.tv_usec / 1000));
        rc = readnatpmpresponseorretry(n, r);
    }
    return rc;
}

static enum gateway_status natpmp_failed(struct gateway_outcome *o, int rc)
{
    if (rc == NATPMP_ERR_NOTAUTHORIZED || rc == NATPMP_ERR_OUTOFRESOURCES)
        return end(o, GATEWAY_REFUSED, "the router refuses: %s",
                   rc == NATPMP_ERR_NOTAUTHORIZED ? "its owner has not allowed it" : "it is full");
    if (rc == NATPMP_ERR_NETWORKFAILURE)
        return end(o, GATEWAY_PRIVATE, "the router has no outside address");
    if (rc == NATPMP_ERR_CANNOTGETGATEWAY)
        return end(o, GATEWAY_ABSENT, "this machine has no default gateway");
    return end(o, GATEWAY_SILENT, "no router answers");
}

static enum gateway_status map_natpmp(struct gateway *g, struct gateway_outcome *o)
{
    natpmp_t n;
    natpmpresp_t r;
    struct in_addr ip = { 0 };
    int rc = initnatpmp(&n, 0, 0);
    if (rc) return natpmp_failed(o, rc);
    rc = sendpublicaddressrequest(&n);
    if (rc >= 0) rc = await_natpmp(&n, &r);
    if (!rc) {
        ip = r.pnu.publicaddress.addr;
        rc = sendnewportmappingrequest(&n, NATPMP_PROTOCOL_TCP, g->port, g->port, GATEWAY_LEASE);
        if (rc >= 0) rc = await_natpmp(&n, &r);
    }
    closenatpmp(&n);
    if (rc) return natpmp_failed(o, rc);
    return take_outside(g, o, &ip, r.pnu.newportmapping.mappedpublicport);
}

/* --- UPnP-IGD --------------------------------------------------------------------------------- */

/* The router of the last answer, or one that answers the multicast. */
static enum gateway_status find_upnp(struct gateway *g, struct gateway_outcome *o)
{
    struct UPNPUrls urls = { 0 };
    struct IGDdatas data = { 0 };
    struct UPNPDev *list;
    int error = 0, found;
    if (g->url[0]) return GATEWAY_MAPPED;
    list = upnpDiscover(UPNP_PATIENCE, NULL, NULL, UPNP_LOCAL_PORT_ANY, 0, 2, &error);
    if (!list) return end(o, GATEWAY_SILENT, "no router answers");
#if MINIUPNPC_API_VERSION >= 18
    found = UPNP_GetValidIGD(list, &urls, &data, g->inside, sizeof g->inside, NULL, 0);
#else
    found = UPNP_GetValidIGD(list, &urls, &data, g->inside, sizeof g->inside);
#endif
    if (found != 1)
        end(o, GATEWAY_SILENT, "%s", found ? "the router is not connected" : "no router answers");
    else if (strlen(urls.controlURL) >= sizeof g->url ||
             strlen(data.first.servicetype) >= sizeof g->service) {
        found = 0;
        end(o, GATEWAY_REFUSED, "the router's URL has more than %d bytes", GATEWAY_URL_MAX);
    } else {
        strcpy(g->url, urls.controlURL);
        strcpy(g->service, data.first.servicetype);
    }
    FreeUPNPUrls(&urls); /* all of it is NULL where nothing was found */
    freeUPNPDevlist(list);
    return found == 1 ? GATEWAY_MAPPED : o->status;
}

static int add_upnp(const struct gateway *g, uint16_t outside, const char *lease)
{
    char out[8], in[8];
    snprintf(out, sizeof out, "%u", outside);
    snprintf(in, sizeof in, "%u", g->port);
    return UPNP_AddPortMapping(g->url, g->service, out, in, g->inside, DESCRIPTION, "TCP", NULL,
                               lease);
}

static enum gateway_status map_upnp(struct gateway *g, struct gateway_outcome *o)
{
    char text[64] = "", lease[16];
    struct in_addr ip;
    uint16_t outside = g->outside_port ? g->outside_port : g->port;
    int rc = 0;
    if (find_upnp(g, o) != GATEWAY_MAPPED) return o->status;
    if (UPNP_GetExternalIPAddress(g->url, g->service, text) || inet_pton(AF_INET, text, &ip) != 1) {
        g->url[0] = 0; /* it may be another router by now */
        return end(o, GATEWAY_REFUSED, "the router names no outside address");
    }
    snprintf(lease, sizeof lease, "%d", GATEWAY_LEASE);
    for (int i = 0; i < UPNP_PORTS; i++) {
        rc = add_upnp(g, outside, lease);
        if (rc == ONLY_PERMANENT) rc = add_upnp(g, outside, "0");
        if (rc != CONFLICT) break;
        outside = (uint16_t)(outside < UINT16_MAX ? outside + 1 : PORT_FIRST);
    }
    if (!rc) return take_outside(g, o, &ip, outside);
    g->url[0] = 0;
    return end(o, GATEWAY_REFUSED, "the router refuses: error %d", rc);
}

/* --- both ------------------------------------------------------------------------------------- */

void gateway_map(struct gateway *g)
{
    struct gateway_outcome *by = g->outcome;
    memset(by, 0, sizeof g->outcome);
    /* Without a default gateway there is no router to ask; libminiupnpc would print an error. */
    if (map_natpmp(g, &by[GATEWAY_NATPMP]) == GATEWAY_ABSENT) by[GATEWAY_UPNP] = by[GATEWAY_NATPMP];
    else if (by[GATEWAY_NATPMP].status != GATEWAY_MAPPED) map_upnp(g, &by[GATEWAY_UPNP]);
}

void gateway_unmap(struct gateway *g)
{
    natpmp_t n;
    char outside[8];
    if (g->outcome[GATEWAY_NATPMP].status == GATEWAY_MAPPED && !initnatpmp(&n, 0, 0)) {
        sendnewportmappingrequest(&n, NATPMP_PROTOCOL_TCP, g->port, 0, 0);
        closenatpmp(&n);
    }
    if (g->outcome[GATEWAY_UPNP].status == GATEWAY_MAPPED) {
        snprintf(outside, sizeof outside, "%u", g->outside_port);
        UPNP_DeletePortMapping(g->url, g->service, outside, "TCP", NULL);
    }
}

int gateway_is_mapped(const struct gateway *g)
{
    return g->outcome[GATEWAY_NATPMP].status == GATEWAY_MAPPED ||
           g->outcome[GATEWAY_UPNP].status == GATEWAY_MAPPED;
}
