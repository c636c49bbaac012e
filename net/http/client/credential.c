/* credential.c - may this URL get that secret? [RFC 6454] [RFC 3986 3.2]
 *
 *   same origin:  scheme https, equal host, equal port
 *
 * The danger is a URL that two parsers read differently: in https://good.example\@evil.example/ one
 * sees the host good, the other evil. So this parser is stricter than libcurl's: every reader finds
 * the same host in a URL that it accepts, and any other URL gets no secret. */
#include "credential.h"

#include <arpa/inet.h>
#include <ctype.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#define HOST_MAX 253 /* characters of a DNS name [RFC 1035 2.3.4] */
#define HTTPS_PORT 443

struct origin {
    char host[HOST_MAX + 1]; /* lower case; an IPv6 address stands in `address` */
    unsigned char address[16];
    int is_ipv6, port;
};

/* "[2001:db8::1]": the address itself, which may be written in several ways. Returns the text
 * behind it, NULL if it is not an address. A zone ("%eth0") is refused: it means another host on
 * every machine. */
static const char *parse_ipv6(struct origin *o, const char *at)
{
    size_t n = strcspn(at + 1, "]");
    if (at[1 + n] != ']' || n > HOST_MAX) return NULL;
    memcpy(o->host, at + 1, n);
    o->host[n] = 0;
    o->is_ipv6 = 1;
    return inet_pton(AF_INET6, o->host, o->address) == 1 ? at + n + 2 : NULL;
}

/* A DNS name or an IPv4 address. Returns a pointer behind it, NULL if there is no name. */
static const char *parse_name(struct origin *o, const char *at)
{
    size_t n = 0;
    while (isalnum((unsigned char)at[n]) || (at[n] && strchr("-._", at[n]))) n++;
    if (!n || n > HOST_MAX) return NULL;
    for (size_t i = 0; i < n; i++) o->host[i] = (char)tolower((unsigned char)at[i]);
    o->host[n] = 0;
    return at + n;
}

/* https://HOST[:PORT][/...]. 0: anything else. */
static int parse_origin(struct origin *o, const char *url)
{
    memset(o, 0, sizeof *o);
    for (const char *p = url; *p; p++) /* libcurl refuses some of these and removes others */
        if ((unsigned char)*p <= ' ' || (unsigned char)*p >= 127) return 0;
    if (strncasecmp(url, "https://", 8)) return 0;
    const char *at = url[8] == '[' ? parse_ipv6(o, url + 8) : parse_name(o, url + 8);
    if (!at) return 0;
    o->port = HTTPS_PORT;
    if (*at == ':') {
        size_t digits = strspn(at + 1, "0123456789");
        if (!digits || digits > 5) return 0;
        o->port = atoi(at + 1);
        at += 1 + digits;
    }
    /* Where the authority ends [RFC 3986 3.2]. An @ or a \ here means that some readers take the
     * apparent host for a user's name. */
    return !*at || *at == '/' || *at == '?' || *at == '#';
}

int http_may_see(const char *url, const char *home)
{
    struct origin a, b;
    if (!url || !home || !parse_origin(&a, url) || !parse_origin(&b, home)) return 0;
    if (a.port != b.port || a.is_ipv6 != b.is_ipv6) return 0;
    return a.is_ipv6 ? !memcmp(a.address, b.address, sizeof a.address) : !strcmp(a.host, b.host);
}

const char *http_token_for(const char *url, const struct http_credential *credentials, size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (credentials[i].token && http_may_see(url, credentials[i].home))
            return credentials[i].token;
    return NULL;
}
