/* host_name.c - does a request's Host header name this server? [RFC 9110 7.2]
 *
 * The attack that this ends is DNS rebinding: evil.example serves a page, then lets its name
 * lead to 127.0.0.1. The browser thinks that our page belongs to evil.example, and lets its
 * scripts read it. The request still says "Host: evil.example", so a server that answers only to
 * its own names gives nothing away.
 *
 * Both sides are parsed to the same form and compared: addresses by their bits, since ::1 has
 * many spellings, names without regard to case. */
#include "host_name.h"

#include <arpa/inet.h>
#include <ctype.h>
#include <string.h>
#include <strings.h>

/* A host as it is compared: addresses by their bits, names by their letters. */
struct host {
    char name[HTTP_HOST_MAX];
    struct http_address address;
    int is_address;
};

static void read_address(struct host *h, int is_ipv6)
{
    struct sockaddr_in four = { .sin_family = AF_INET };
    struct sockaddr_in6 six = { .sin6_family = AF_INET6 };
    if (is_ipv6) h->is_address = inet_pton(AF_INET6, h->name, &six.sin6_addr) == 1;
    else h->is_address = inet_pton(AF_INET, h->name, &four.sin_addr) == 1;
    http_address_of(&h->address, is_ipv6 ? (struct sockaddr *)&six : (struct sockaddr *)&four);
}

/* HOST[:PORT]. 0: anything else, which no browser sends. */
static int parse_host(struct host *h, const char *text)
{
    int is_ipv6 = *text == '[';
    size_t n = 0;
    memset(h, 0, sizeof *h);
    if (is_ipv6) n = strcspn(++text, "]");
    else
        while (isalnum((unsigned char)text[n]) || (text[n] && strchr("-._", text[n]))) n++;
    if (!n || n >= sizeof h->name || (is_ipv6 && text[n] != ']')) return 0;
    memcpy(h->name, text, n);
    read_address(h, is_ipv6);
    /* Brackets hold an IPv6 address or nothing that we know. */
    if (is_ipv6 && !h->is_address) return 0;
    text += n + (size_t)is_ipv6;
    /* Any port: a proxy may forward ours from another. */
    return !*text || (*text == ':' && text[1] && !text[1 + strspn(text + 1, "0123456789")]);
}

static int is_same(const struct host *a, const struct host *b)
{
    if (a->is_address != b->is_address) return 0;
    return a->is_address ? !memcmp(&a->address, &b->address, sizeof a->address)
                         : !strcasecmp(a->name, b->name);
}

int http_hosts_add(struct http_hosts *hosts, const char *name, struct pl_err *err)
{
    char text[HTTP_HOST_MAX + 2];
    struct host h;
    int is_bare = strchr(name, ':') && *name != '['; /* an IPv6 address without brackets */
    if (strlen(name) >= HTTP_HOST_MAX - 2)
        return pl_fail(err, PL_EUSE, "'%.60s...' is too long a name", name);
    memcpy(text + is_bare, name, strlen(name) + 1);
    if (is_bare) {
        *text = '[';
        memcpy(text + strlen(text), "]", 2);
    }
    if (!parse_host(&h, text) || (*text != '[' && strchr(text, ':')) ||
        (*text == '[' && text[strlen(text) - 1] != ']'))
        return pl_fail(err, PL_EUSE, "'%.60s' is neither a name nor an address", name);
    if (hosts->count == HTTP_HOSTS_MAX)
        return pl_fail(err, PL_ELIMIT, "'%.60s': more than %d names", name, HTTP_HOSTS_MAX);
    memcpy(hosts->name[hosts->count++], text, strlen(text) + 1);
    return PL_OK;
}

int http_hosts_have(const struct http_hosts *hosts, const char *value,
                    const struct http_address *local)
{
    static const char *const loopback[] = { "localhost", "127.0.0.1", "[::1]" };
    struct host asked, known;
    if (!value || !parse_host(&asked, value)) return 0;
    /* The very address that the connection came in at: no DNS name was involved. */
    if (asked.is_address && !memcmp(&asked.address, local, sizeof *local)) return 1;
    for (size_t i = 0; i < PL_COUNT(loopback); i++)
        if (parse_host(&known, loopback[i]) && is_same(&asked, &known)) return 1;
    for (size_t i = 0; i < hosts->count; i++)
        if (parse_host(&known, hosts->name[i]) && is_same(&asked, &known)) return 1;
    return 0;
}
