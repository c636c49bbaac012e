/* stream_budget.c - where a limit of resources.c is reached, the largest holder gives way. */
#include "stream_budget.h"

/* --- bytes ------------------------------------------------------------------------------------ */

static size_t bytes_of(const struct connection *c, enum resource kind)
{
    const struct conn *k = &c->conn;
    if (kind == RESOURCE_HELD) return k->yamux.held;
    return k->yamux.unsent + bytes_length(&k->wire) + bytes_length(&k->frames) + k->under_way;
}

/* The connection's largest unread message is not waited for any longer. */
static void drop_largest_message(struct connection *c)
{
    struct stream *largest = NULL;
    size_t most = 0;
    for (struct stream *s = c->streams.all; s; s = s->next)
        if (s->mux && bytes_length(&s->mux->in) > most) {
            largest = s;
            most = bytes_length(&s->mux->in);
        }
    if (largest) stream_fail(largest, PL_ELIMIT, "too much of this peer's lies unread");
    else connection_end(c, PL_ELIMIT, "connection: too much lies unread");
    resources_count(&c->account, RESOURCE_HELD, bytes_of(c, RESOURCE_HELD));
}

/* Each round ends a stream or a connection, so the loop ends. */
static void count(struct connection *c, enum resource kind)
{
    const struct scope *full;
    while (c->state != CONNECTION_ENDING &&
           (full = resources_count(&c->account, kind, bytes_of(c, kind)))) {
        struct account *largest = resources_largest(&c->of->core->resources, full, kind);
        if (!largest) return;
        if (kind == RESOURCE_HELD) drop_largest_message(largest->owner);
        else connection_end(largest->owner, PL_ELIMIT, "connection: too much is not taken");
    }
}

void stream_budget_count(struct connection *c)
{
    if (c->account.used[RESOURCE_HELD] != c->conn.yamux.held)
        c->account.active_at = loop_now(c->of->core->loop);
    count(c, RESOURCE_HELD);
    count(c, RESOURCE_UNSENT);
}

/* --- streams ---------------------------------------------------------------------------------- */

/* The newest: older ones have cost more to set up, and are nearer to their end. */
static struct stream *newest_inbound(const struct connection *c)
{
    struct stream *s = c->streams.all;
    while (s && !s->inbound) s = s->next;
    return s;
}

int stream_budget_open(struct connection *c)
{
    struct resources *r = &c->of->core->resources;
    const struct scope *full;
    while ((full = resources_charge(&c->account, RESOURCE_STREAMS, 1))) {
        struct account *largest = resources_largest(r, full, RESOURCE_STREAMS);
        struct stream *s;
        /* A peer's own streams are not ended for its new ones: it would only exchange them. */
        if (full->kind != SCOPE_SYSTEM || !largest || largest->subnet == c->account.subnet ||
            !(s = newest_inbound(largest->owner)))
            return PL_ELIMIT;
        stream_fail(s, PL_ELIMIT, "too many streams");
    }
    return PL_OK;
}
