/* budget.c - between resources.h and the host's links: what is refused, and what ends, when somebody
 * uses too much. */
#include "host_internal.h"

const char *budget_admit(struct connection *l)
{
    struct resources *r = &l->host->resources;
    const struct scope *full;
    if (resources_open(r, &l->account, &l->remote, !l->inbound, loop_now(l->host->loop)))
        return "out of memory";
    l->account.owner = l;
    while ((full = resources_charge(&l->account, RESOURCE_CONNECTIONS, 1))) {
        struct account *idle = resources_largest(r, full, RESOURCE_CONNECTIONS);
        if (!idle) return "too many connections";
        connection_end(idle->owner, PL_ELIMIT, "connection: it was idle longest of too many");
    }
    return NULL;
}

/* --- bytes ------------------------------------------------------------------------------------ */

static size_t bytes_of(const struct connection *l, enum resource kind)
{
    const struct conn *c = &l->conn;
    if (kind == RESOURCE_HELD) return c->yamux.held;
    return c->yamux.unsent + bytes_length(&c->wire) + bytes_length(&c->frames) + c->under_way;
}

/* The largest half message of the connection is not waited for any longer. */
static void drop_stream(struct connection *l)
{
    struct stream *largest = NULL;
    size_t most = 0;
    for (struct stream *c = l->channels; c; c = c->next)
        if (c->stream && bytes_length(&c->stream->in) > most) {
            largest = c;
            most = bytes_length(&c->stream->in);
        }
    if (largest) stream_fail(largest, PL_ELIMIT, "too much of this peer's lies unread");
    else connection_end(l, PL_ELIMIT, "connection: too much lies unread");
    resources_count(&l->account, RESOURCE_HELD, bytes_of(l, RESOURCE_HELD));
}

static void count(struct connection *l, enum resource kind)
{
    const struct scope *full;
    while (!l->ending && (full = resources_count(&l->account, kind, bytes_of(l, kind)))) {
        struct account *largest = resources_largest(&l->host->resources, full, kind);
        if (!largest) return;
        if (kind == RESOURCE_HELD) drop_stream(largest->owner);
        else connection_end(largest->owner, PL_ELIMIT, "connection: too much is not taken");
    }
}

void budget_count(struct connection *l)
{
    if (l->account.used[RESOURCE_HELD] != l->conn.yamux.held)
        l->account.active_at = loop_now(l->host->loop);
    count(l, RESOURCE_HELD);
    count(l, RESOURCE_UNSENT);
}

int budget_expects(struct connection *l, size_t n)
{
    const struct scope *full = resources_charge(&l->account, RESOURCE_HELD, n);
    if (!full) resources_release(&l->account, RESOURCE_HELD, n);
    return full && full->kind == SCOPE_PEER ? PL_ELIMIT : PL_OK;
}

/* --- streams ---------------------------------------------------------------------------------- */

static struct stream *newest_inbound(const struct connection *l)
{
    struct stream *c = l->channels;
    while (c && !c->inbound) c = c->next;
    return c;
}

int budget_stream(struct connection *l)
{
    struct resources *r = &l->host->resources;
    const struct scope *full;
    while ((full = resources_charge(&l->account, RESOURCE_STREAMS, 1))) {
        struct account *largest = resources_largest(r, full, RESOURCE_STREAMS);
        struct stream *c;
        if (full->kind != SCOPE_SYSTEM || !largest || largest->subnet == l->account.subnet ||
            !(c = newest_inbound(largest->owner)))
            return PL_ELIMIT;
        stream_fail(c, PL_ELIMIT, "too many streams");
    }
    return PL_OK;
}
