/* join_page.c - reads {"run": ..., "addresses": [MULTIADDR ...]} from api/join.json of a page.
 * The page stands for the person who gave its URL: TLS proves its name, and the peers that it names
 * sign the manifest. */
#include "join_page.h"
#include "cmd/common/environment.h"
#include "data/files/json.h"
#include "net/http/client/client.h"
#include "net/libp2p/peer/multiaddr.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define TRIES 3 /* a user is waiting */

int join_page_parse(struct join_page *page, const char *text, size_t n, struct pl_err *err)
{
    json_t *root = pl_json_load(text, n, JSON_REJECT_DUPLICATES, NULL);
    const json_t *list = json_object_get(root, "addresses"), *item;
    size_t i;
    int rc = root ? PL_OK : pl_json_status();
    memset(page, 0, sizeof *page);
    json_array_foreach(list, i, item)
    {
        struct multiaddr_target t;
        struct multiaddr a;
        const char *address = json_string_value(item);
        if (rc || page->count == JOIN_PAGE_ADDRESSES) break;
        if (!address || multiaddr_from_text(&a, address, NULL) || multiaddr_target(&t, &a) ||
            !t.peer.length)
            continue;
        if (!(page->address[page->count] = strdup(address))) rc = PL_ENOMEM;
        else page->count++;
    }
    json_decref(root);
    if (!rc && !page->count) rc = PL_EFORMAT;
    if (!rc) return PL_OK;
    join_page_clear(page);
    return pl_fail(err, rc, "the page names no address of a peer");
}

/* Nothing is read that others on the way could have changed. */
static int is_safe(const char *url)
{
    static const char *const here[] = { "http://127.0.0.1", "http://localhost", "http://[::1]" };
    if (!strncmp(url, "https://", 8)) return 1;
    for (size_t i = 0; i < PL_COUNT(here); i++) {
        const size_t n = strlen(here[i]);
        if (!strncmp(url, here[i], n) && (url[n] == ':' || url[n] == '/' || !url[n])) return 1;
    }
    return 0;
}

int join_page_read(struct join_page *page, const char *url, struct pl_err *err)
{
    struct http_client_options o = http_client_options();
    struct http_client *client;
    const size_t n = strlen(url);
    char full[HTTP_URL_MAX];
    void *data = NULL;
    size_t bytes;
    int rc;
    memset(page, 0, sizeof *page);
    if (!is_safe(url))
        return pl_fail(err, PL_EUSE, "'%.200s': give the page's address with https://", url);
    if (snprintf(full, sizeof full, "%s%sapi/join.json", url, n && url[n - 1] == '/' ? "" : "/") >=
        (int)sizeof full)
        return pl_fail(err, PL_EUSE, "the page's address is too long");
    o.ca_file = environment_ca_file();
    o.tries = TRIES;
    if ((rc = http_client_open(&client, &o, err))) return rc;
    rc = http_client_get(client, &data, &bytes, JOIN_PAGE_BYTES, full, err);
    if (!rc && (rc = join_page_parse(page, data, bytes, err)))
        pl_fail(err, rc, "%.300s names no address of a peer", full);
    free(data);
    http_client_close(client);
    return rc;
}

void join_page_clear(struct join_page *page)
{
    for (size_t i = 0; i < page->count; i++) free(page->address[i]);
    page->count = 0;
}
