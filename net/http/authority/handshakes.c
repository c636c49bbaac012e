/* handshakes.c - in TLS a server signs before the client has proved anything, so a handshake is the
 * most expensive operation that a stranger can request. The library makes it as soon as a
 * ClientHello comes; we can only refuse the connection before that. A connection is charged when it
 * ends, and only if a handshake was made: otherwise silent connections from a network would shut
 * out its honest peers. Connections that are still open are bounded by their slots (slots.h), and
 * so are their handshakes. */
#include "handshakes.h"
#include "net/hivemind/records/hash_index.h"

#include <linux/tcp.h>
#include <netinet/in.h>

#define ALL 1 /* the one holder of `all` */
/* Bytes that we have sent: a ServerHello with a certificate is longer, an alert is 7. */
#define HANDSHAKE_BYTES_MIN 256

void handshakes_init(struct handshakes *h)
{
    h->network.rate = HANDSHAKES_A_SECOND;
    h->network.burst = HANDSHAKES_BURST;
    h->all.rate = HANDSHAKES_ALL_A_SECOND;
    h->all.burst = HANDSHAKES_ALL_BURST;
}

static uint64_t network_of(const struct http_address *from)
{
    struct http_address network;
    http_network_of(&network, from);
    return hash_bytes(&network, sizeof network);
}

int handshakes_may_begin(const struct handshakes *h, const struct http_address *from, double now)
{
    return rate_limit_has(&h->network, network_of(from), 1, now) &&
           rate_limit_has(&h->all, ALL, 1, now);
}

/* Charges one. */
static void charge(struct handshakes *h, const struct http_address *from, double now)
{
    rate_limit_take(&h->network, network_of(from), 1, now);
    rate_limit_take(&h->all, ALL, 1, now);
}

/* The kernel counts what we have sent, whether or not the client acknowledged it. */
void handshakes_end(struct handshakes *h, const struct http_address *from, int fd, double now)
{
    struct tcp_info info = { 0 };
    socklen_t n = sizeof info;
    if (getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &n)) return;
    if (info.tcpi_bytes_sent >= HANDSHAKE_BYTES_MIN) charge(h, from, now);
}
