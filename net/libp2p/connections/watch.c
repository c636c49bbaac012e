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

void watches_connected(struct host_watch *w, const struct peer_id *peer)
{
    for (struct host_watch *next; w; w = next) {
        next = w->next;
        if (w->events.connected) w->events.connected(w->context, peer);
    }
}

void watches_disconnected(struct host_watch *w, const struct peer_id *peer)
{
    for (struct host_watch *next; w; w = next) {
        next = w->next;
        if (w->events.disconnected) w->events.disconnected(w->context, peer);
    }
}

void watches_identified(struct host_watch *w, const struct peer_id *peer)
{
    for (struct host_watch *next; w; w = next) {
        next = w->next;
        if (w->events.identified) w->events.identified(w->context, peer);
    }
}

/* The watchers that are protocols: identify asks each new connection. */
void watches_connection(struct host_watch *w, struct connection *c)
{
    for (struct host_watch *next; w; w = next) {
        next = w->next;
        if (w->events.connection) w->events.connection(w->context, c);
    }
}

void watches_changed(struct host_watch *w)
{
    for (struct host_watch *next; w; w = next) {
        next = w->next;
        if (w->events.changed) w->events.changed(w->context);
    }
}
