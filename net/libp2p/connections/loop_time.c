/* loop_time.c - the clock of resources.h's limits on time. */
#include "loop_time.h"

#include <time.h>

/* Processor time of this thread: on a busy machine nobody is charged for being preempted. */
static uint64_t thread_us(void)
{
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (uint64_t)t.tv_sec * 1000000u + (uint64_t)t.tv_nsec / 1000u;
}

int loop_time_is_used(struct host_core *core, const struct account *a)
{
    resources_renew(&core->resources, loop_now(core->loop));
    return a->of && resources_must_wait(a);
}

double loop_time_left(const struct host_core *core)
{
    double left = core->resources.window_at + HANDLER_WINDOW - loop_now(core->loop);
    return left > 0 ? left : 0;
}

void loop_time_begin(struct loop_time *t, struct host_core *core, struct account *a)
{
    t->core = core;
    resources_begin_handler(&t->charge, a);
    t->nested_us = core->resources.handled_us;
    t->began_us = thread_us();
}

/* handled_us has grown by the work that was done within this one: that time is not ours. */
uint64_t loop_time_end(struct loop_time *t)
{
    struct resources *r = &t->core->resources;
    uint64_t all = thread_us() - t->began_us, nested = r->handled_us - t->nested_us;
    uint64_t us = all > nested ? all - nested : 0;
    r->handled_us += us;
    resources_end_handler(r, &t->charge, (size_t)us);
    return all;
}
