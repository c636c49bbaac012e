/* services.c - a small table, searched linearly: a stream is negotiated once for many messages. */
#include "services.h"

#include <stdlib.h>
#include <string.h>

int services_find(const struct services *t, const char *name, size_t n)
{
    for (size_t i = 0; i < t->count; i++)
        if (strlen(t->list[i].protocol) == n && !memcmp(t->list[i].protocol, name, n))
            return (int)i;
    return -1;
}

/* The name is copied: it lives as long as it is served. */
int services_add(struct services *t, const char *protocol, stream_opened *opened, void *context)
{
    char *copy;
    if (services_find(t, protocol, strlen(protocol)) >= 0) return PL_EUSE;
    if (t->count == HOST_PROTOCOLS_MAX) return PL_ELIMIT;
    if (!(copy = strdup(protocol))) return PL_ENOMEM;
    t->list[t->count++] = (struct service){ copy, opened, context };
    return PL_OK;
}

int services_remove(struct services *t, const char *protocol)
{
    int i = services_find(t, protocol, strlen(protocol));
    if (i < 0) return 0;
    free(t->list[i].protocol);
    t->list[i] = t->list[--t->count]; /* the order has no meaning */
    return 1;
}

void services_clear(struct services *t)
{
    while (t->count) free(t->list[--t->count].protocol);
}
