/* rpc_service.c - a list of RPCs by name, kept by the host as the state of this protocol.
 *
 * An RPC may be withdrawn while requests to it are still arriving. Its entry is then retired, and
 * freed with the last of those calls. */
#include "rpc_service.h"

#include <stdlib.h>
#include <string.h>

static struct rpc_service *unlink_first(struct rpc_service **at)
{
    struct rpc_service *s = *at;
    *at = s->next;
    return s;
}

static void retire(struct rpc_service *s)
{
    s->retired = 1;
    if (s->waiting) return;
    free(s->name);
    free(s);
}

static void free_all(struct host *h);

static const struct host_protocol rpc_protocol = { .free = free_all };

static void free_all(struct host *h)
{
    struct rpc_service *list = host_state(h, &rpc_protocol);
    while (list) retire(unlink_first(&list));
}

int rpc_service_add(const struct rpc_service *service, stream_opened *opened)
{
    struct host *h = service->host;
    struct rpc_service *s;
    int rc = host_join(h, &rpc_protocol);
    if (rc) return rc;
    if (!(s = malloc(sizeof *s))) return PL_ENOMEM;
    *s = *service;
    rc = PL_ENOMEM;
    if ((s->name = strdup(service->name)) && !(rc = host_serve(h, s->name, opened, s))) {
        s->next = host_state(h, &rpc_protocol);
        host_set_state(h, &rpc_protocol, s);
        return PL_OK;
    }
    free(s->name);
    free(s);
    return rc;
}

void rpc_unserve(struct host *h, const char *name)
{
    struct rpc_service *list = host_state(h, &rpc_protocol), **at = &list, *s;
    while (*at && strcmp((*at)->name, name)) at = &(*at)->next;
    if (!*at) return;
    s = unlink_first(at);
    host_set_state(h, &rpc_protocol, list);
    host_unserve(h, name);
    retire(s);
}

void rpc_service_enter(struct rpc_service *s) { s->waiting++; }

void rpc_service_leave(struct rpc_service *s)
{
    if (s && !--s->waiting && s->retired) retire(s);
}
