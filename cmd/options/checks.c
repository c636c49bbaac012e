/* checks.c - forms of values: IP addresses, URLs, names of runs. None is looked up. */
#include "checks.h"

#include <arpa/inet.h>
#include <string.h>

int check_ip(const char *text, struct pl_err *err)
{
    struct in6_addr ip;
    if (inet_pton(AF_INET, text, &ip) == 1 || inet_pton(AF_INET6, text, &ip) == 1) return PL_OK;
    return pl_fail(err, PL_EUSE, "'%.60s' is neither an IPv4 nor an IPv6 address", text);
}

int check_url(const char *text, struct pl_err *err)
{
    const char *host = strstr(text, "://");
    if ((!strncmp(text, "http://", 7) || !strncmp(text, "https://", 8)) && host[3] &&
        host[3] != '/')
        return PL_OK;
    return pl_fail(err, PL_EUSE, "'%.80s' is not a URL such as https://example.org/folder/", text);
}

int check_run(const char *text, struct pl_err *err)
{
    if (!*text || strchr(text, '.') || strlen(text) > RUN_MAX)
        return pl_fail(err, PL_EUSE, "'%.60s': a run's name has 1 to %d characters and no dot",
                       text, RUN_MAX);
    return PL_OK;
}
