/* handshakes.h - how many TLS handshakes a network, and all of them together, may cause. */
#ifndef PL_HTTP_HANDSHAKES_H
#define PL_HTTP_HANDSHAKES_H

#include "net/http/server/slots.h"
#include "net/rate_limit.h"

#include <sys/socket.h>

/* A handshake takes about a millisecond (an RSA certificate's signature), so a network gets a
 * hundredth of a core, and all get a fifth. A peer needs one an hour. The bursts: a laboratory
 * that starts 500 peers at once, and four of them; more have to try again some seconds later. */
#define HANDSHAKES_A_SECOND 10
#define HANDSHAKES_BURST 500
#define HANDSHAKES_ALL_A_SECOND 200
#define HANDSHAKES_ALL_BURST 2000

struct handshakes {
    struct rate_limit network, all; /* all: one holder */
};
void handshakes_init(struct handshakes *h);

/* 1: a connection from this address may begin. It is not charged yet: until the client speaks
 * TLS it costs next to nothing. */
int handshakes_may_begin(const struct handshakes *h, const struct http_address *from, double now);
/* A connection ends; `fd` is still open. Charged if we have sent a handshake on it. */
void handshakes_end(struct handshakes *h, const struct http_address *from, int fd, double now);

#endif
