/* averager_turn.c - how an averager goes on without one engine's being called from inside another's
 * callback.
 *
 *   averager_turn    schedules on_turn (averager.c), which handles the event in the next iteration
 *   averager_drive   an event of the round has been handled: the uplink is measured, and the timer
 *                    is set for the engine's next deadline
 *
 * Every part of an averager calls these two, so they lie below all of them. */
#include "averager_internal.h"

#include <math.h>

double averager_now(const struct averager *a) { return dht_node_time(a->node); }

void averager_turn(struct averager *a)
{
    if (a->end.closed) return; /* a round that is cancelled at the end calls this, too */
    /* A timer of 0 s: the engine that called this returns first. Several calls make one
     * turn. */
    timer_start(a->loop, &a->call.turn, 0, a->call.on_turn, a);
}

static void on_time(void *context)
{
    struct averager *a = context;
    struct allreduce_job *job;
    /* 1. Jobs that ran here for lack of memory. 2. Streams that could not be opened. 3. The
     * engine's own deadlines. */
    while ((job = a->round.done_here)) {
        a->round.done_here = job->next;
        allreduce_done(a->round.x, loop_now(a->loop), job);
    }
    if (a->call.phase != AVERAGER_REDUCING) return;
    /* If a stream cannot even be opened, its reducer is lost; the engine decides the
     * consequences. */
    for (size_t p = 0; p < a->round.group.count; p++)
        if (a->round.out[p].state == OUT_STREAM_DEAD) {
            a->round.out[p].state = OUT_STREAM_CLOSED;
            allreduce_failed(a->round.x, loop_now(a->loop), p, ALLREDUCE_OUT,
                             "no stream to it can be opened");
        }
    allreduce_tick(a->round.x, loop_now(a->loop));
    averager_drive(a);
}

/* Of the bytes that the round has given to its streams, those that groupmates have confirmed have
 * left. What the kernel has taken may wait in its buffers and in the router's: half a megabyte a
 * connection, which would pass for a faster uplink. */
static void measure_uplink(struct averager *a)
{
    const double now = loop_now(a->loop);
    double unconfirmed = 0;
    size_t waiting = 0;
    if (!a->round.x || now < a->round.sampled + BANDWIDTH_SAMPLE_EVERY) return;
    for (size_t p = 0; p < a->round.group.count; p++) {
        if (p == a->round.group.self) continue;
        if (a->round.out[p].stream) waiting += rpc_queued(a->round.out[p].stream);
        if (a->round.in[p]) waiting += rpc_queued(a->round.in[p]->caller.stream);
        unconfirmed += (double)host_unconfirmed(a->host, &a->round.group.members[p].peer);
    }
    bandwidth_sample(&a->round.uplink, now, a->round.given - unconfirmed, waiting > 0);
    a->round.sampled = now;
}

void averager_drive(struct averager *a)
{
    double wake, in_s;
    measure_uplink(a);
    if (a->call.phase != AVERAGER_REDUCING && !a->round.done_here) {
        timer_stop(&a->round.timer);
        return;
    }
    /* Nothing to wait for by time: packets and jobs come with their own events. */
    wake = allreduce_wake(a->round.x);
    in_s = a->round.done_here ? 0 : fmax(0, wake - loop_now(a->loop));
    for (size_t p = 0; p < a->round.group.count; p++)
        if (a->round.out[p].state == OUT_STREAM_DEAD) in_s = 0;
    if (isfinite(in_s)) timer_start(a->loop, &a->round.timer, in_s, on_time, a);
    else timer_stop(&a->round.timer);
}
