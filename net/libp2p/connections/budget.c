/* budget.c - applies the counts of resources.h to connections. At a limit a new connection takes
 * the place of one that is idle: the longest idle one of the largest holder. Without such a one it
 * is refused. */
#include "budget.h"

const char *budget_admit(struct connection *c)
{
    struct host_core *core = c->of->core;
    struct resources *r = &core->resources;
    const struct scope *full;
    if (resources_open(r, &c->account, &c->remote, !c->inbound, loop_now(core->loop)))
        return "out of memory";
    c->account.owner = c;
    while ((full = resources_charge(&c->account, RESOURCE_CONNECTIONS, 1))) {
        struct account *idle = resources_largest(r, full, RESOURCE_CONNECTIONS);
        if (!idle) return "too many connections";
        connection_end(idle->owner, PL_ELIMIT, "connection: it was idle longest of too many");
    }
    return NULL;
}

int budget_expect(struct connection *c, size_t n)
{
    /* Only the peer's own limit refuses: at the others the largest holder goes
     * (stream_budget.c). */
    const struct scope *full = resources_charge(&c->account, RESOURCE_HELD, n);
    if (!full) resources_release(&c->account, RESOURCE_HELD, n);
    return full && full->kind == SCOPE_PEER ? PL_ELIMIT : PL_OK;
}
