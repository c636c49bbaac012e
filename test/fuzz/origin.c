/* origin.c - any text as a URL that wants a token, and as a Host header. Accepted ones are
 * compared with a description of their form that is independent of the parsers. */
#include "net/http/client/credential.h"
#include "net/http/server/host_name.h"

#include <stdlib.h>
#include <string.h>
#include <strings.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

/* Behind the host: nothing, or this port and then the path. */
static int ends_host(const char *rest)
{
    if (*rest == ':') {
        rest += 1 + strspn(rest + 1, "0");
        if (strncmp(rest, "443", 3)) return 0;
        rest += 3;
    }
    return !*rest || strchr("/?#", *rest);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    static const char hub[] = "https://huggingface.co";
    const struct http_address local = { { 0 } };
    struct http_hosts hosts = { .count = 0 };
    char *text = malloc(bytes + 1);
    if (!text) return 0;
    if (bytes) memcpy(text, data, bytes);
    text[bytes] = 0;
    if (http_may_see(text, hub) &&
        (strncasecmp(text, hub, sizeof hub - 1) || !ends_host(text + sizeof hub - 1)))
        abort();
    if (http_hosts_have(&hosts, text, &local) && strncasecmp(text, "localhost", 9) &&
        strncmp(text, "127.0.0.1", 9) && *text != '[')
        abort();
    if (!http_hosts_add(&hosts, text, NULL) && !http_hosts_have(&hosts, hosts.name[0], &local))
        abort();
    free(text);
    return 0;
}
