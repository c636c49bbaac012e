/* budget.c - applies the counts of resources.h to connections. */
#include "budget.h"

#include <time.h>

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

/* --- time on the loop ------------------------------------------------------------------------- */

/* Processor time of this thread: on a busy machine a handler is not charged for being preempted. */
static uint64_t thread_us(void)
{
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (uint64_t)t.tv_sec * 1000000u + (uint64_t)t.tv_nsec / 1000u;
}

int budget_must_wait(const struct connection *c)
{
    struct host_core *core = c->of->core;
    resources_renew(&core->resources, loop_now(core->loop));
    return c->account.of && resources_must_wait(&c->account);
}

double budget_window_left(const struct connection *c)
{
    const struct host_core *core = c->of->core;
    double left = core->resources.window_at + HANDLER_WINDOW - loop_now(core->loop);
    return left > 0 ? left : 0;
}

void budget_begin_handler(struct handler_time *t, struct connection *c)
{
    t->core = c->of->core;
    resources_begin_handler(&t->charge, &c->account);
    t->nested_us = t->core->resources.handled_us;
    t->began_us = thread_us();
}

/* handled_us has grown by the handlers that ran within this one: their time is not ours. */
void budget_end_handler(struct handler_time *t)
{
    struct resources *r = &t->core->resources;
    uint64_t us = thread_us() - t->began_us, nested = r->handled_us - t->nested_us;
    us = us > nested ? us - nested : 0;
    r->handled_us += us;
    resources_end_handler(r, &t->charge, (size_t)us);
}
