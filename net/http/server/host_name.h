/* host_name.h - the Host header of a request. [RFC 9110 7.2]
 *
 * A page on this machine is out of reach for other people's pages in its user's browser, unless a
 * name of theirs suddenly leads here (DNS rebinding): then they may read ours as their own. Their
 * requests still carry their name, so a server answers only to the names that it was given. A
 * literal address is safe: no DNS answer changes where it leads. */
#ifndef PL_HTTP_HOST_NAME_H
#define PL_HTTP_HOST_NAME_H

#include "slots.h"

#define HTTP_HOST_MAX 254 /* a DNS name has 253 characters, and a zero behind them */
#define HTTP_HOSTS_MAX 16 /* names of one page: its machine's, its proxies' */

struct http_hosts {
    char name[HTTP_HOSTS_MAX][HTTP_HOST_MAX];
    size_t count;
};

/* Adds a name or an address, without a port; an IPv6 address may stand in brackets. PL_EUSE: it is
 * neither; PL_ELIMIT: more than HTTP_HOSTS_MAX. */
int http_hosts_add(struct http_hosts *hosts, const char *name, struct pl_err *err);
/* 1: the header's value, a name and perhaps a port (any: it may be forwarded), is localhost, a
 * loopback address, `local` (the address that the connection came in at) or one of `hosts`. */
int http_hosts_have(const struct http_hosts *hosts, const char *value,
                    const struct http_address *local);

#endif
