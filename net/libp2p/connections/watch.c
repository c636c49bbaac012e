/* watch.c - a list of watchers. The next one is read before one is called, so that it may leave. */
#include "watch.h"

void watches_add(struct host_watch **list, struct host_watch *w)
{
    w->next = *list;
    *list = w;
}

void watches_remove(struct host_watch **list, struct host_watch *w)
{
    while (*list && *list != w) list = &(*list)->next;
    if (*list) *list = w->next;
}

#define TELL(list, event, arguments) \
    for (struct host_watch *w = (list), *next; w; w = next) { \
        next = w->next; \
        if (w->events.event) w->events.event arguments; \
    }

void watches_connected(struct host_watch *list, const struct peer_id *peer)
{
    TELL(list, connected, (w->context, peer))
}

void watches_disconnected(struct host_watch *list, const struct peer_id *peer)
{
    TELL(list, disconnected, (w->context, peer))
}

void watches_identified(struct host_watch *list, const struct peer_id *peer)
{
    TELL(list, identified, (w->context, peer))
}

/* The watchers that are protocols: identify asks each new connection. */
void watches_connection(struct host_watch *list, struct connection *c)
{
    TELL(list, connection, (w->context, c))
}

void watches_changed(struct host_watch *list) { TELL(list, changed, (w->context)) }
