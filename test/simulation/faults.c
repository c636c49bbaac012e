/* faults.c - what goes wrong, and when: drawn from the seed, all of it over at plan.calm_at. */
#include "plan.h"

#include <string.h>

#define BEGIN 5.0 /* s: the first peer is there */

static double draw_time(void) { return sim_random_between(&sim_order, BEGIN, plan.calm_at); }

static void at(double s, sim_event_fn *fn, void *context, uint64_t argument)
{
    sim_at((uint64_t)(s * 1e9), fn, context, argument);
}

/* The end of a fault that begins at `from` and lasts up to `most`. */
static double draw_end(double from, double most)
{
    double to = from + sim_random_between(&sim_order, 1, most);
    return to < plan.calm_at ? to : plan.calm_at;
}

static struct sim_peer *draw_peer(void)
{
    return &sim_peers[sim_random_below(&sim_order, (uint64_t)plan.honest)];
}

/* --- network ---------------------------------------------------------------------------------- */

/* Bit i of `side` says on which side of the cut computer i is. Bit 31: in one direction only, as
 * a broken route does it. */
static void set_cut(uint64_t side, int value)
{
    for (int i = 0; i < sim_peer_count; i++)
        for (int k = 0; k < sim_peer_count; k++)
            if ((side >> i & 1) && !(side >> k & 1)) {
                sim_cut[i][k] = (uint8_t)(sim_cut[i][k] + value);
                if (!(side >> 31)) sim_cut[k][i] = (uint8_t)(sim_cut[k][i] + value);
            }
}

static void begin_cut(void *context, uint64_t side)
{
    (void)context;
    sim_log("cut %llx", (unsigned long long)side);
    set_cut(side, 1);
}

static void end_cut(void *context, uint64_t side)
{
    (void)context;
    sim_log("cut %llx ends", (unsigned long long)side);
    set_cut(side, -1);
}

static void schedule_cut(void)
{
    uint64_t side = 1 + sim_random_below(&sim_order, (1u << sim_peer_count) - 2);
    double from = draw_time(), to = draw_end(from, 60);
    if (sim_random_happens(&sim_order, 0.3))
        side = 1u << sim_random_below(&sim_order, (uint64_t)sim_peer_count);
    if (sim_random_happens(&sim_order, 0.2)) side |= 1u << 31;
    at(from, begin_cut, NULL, side);
    at(to, end_cut, NULL, side);
}

static void break_one(void *peer, uint64_t stall) { sim_network_break(peer, (int)stall); }

/* --- computers -------------------------------------------------------------------------------- */

static void boot_again(void *context, uint64_t boot)
{
    struct trainer *t = context;
    if (t->boot == boot && !t->is_running) trainer_boot(t);
}

void faults_boot_after(struct trainer *t, double pause)
{
    sim_after((uint64_t)(pause * 1e9), boot_again, t, t->boot);
}

static void crash(void *peer, uint64_t power)
{
    struct sim_peer *p = peer;
    struct trainer *t = &trainers[p->index];
    if (!t->is_running) return;
    sim_log("peer %d %s", p->index, power ? "loses power" : "is killed");
    sim_threads_end(p);
    sim_network_crash(p, (int)power);
    sim_disk_crash(p->disk, (int)power, &sim_order);
    p->is_on = !power;
    p->bytes = 0;
    checks_crash(t);
    t->is_running = 0;
    faults_boot_after(t, sim_random_between(&sim_order, 0.5, 30));
}

static void stop(void *peer, uint64_t until)
{
    struct sim_peer *p = peer;
    sim_log("peer %d is stopped for %.1f s", p->index, (double)(until - sim_now()) * 1e-9);
    p->stopped_until = until;
}

static void wake(void *peer, uint64_t argument)
{
    (void)argument;
    sim_log("peer %d goes on", ((struct sim_peer *)peer)->index);
}

static void schedule_stop(void)
{
    struct sim_peer *p = draw_peer();
    double from = draw_time(), to = draw_end(from, 40);
    at(from, stop, p, (uint64_t)(to * 1e9));
    at(to, wake, p, 0);
}

static void set_slowness(void *peer, uint64_t times)
{
    ((struct sim_peer *)peer)->slowness = (double)times;
}

static void set_skew(void *peer, uint64_t ms)
{
    struct sim_peer *p = peer;
    p->skew = (double)(int64_t)ms * 1e-3;
    sim_log("peer %d's clock is %.3f s ahead", p->index, p->skew);
}

static void set_full(void *peer, uint64_t full)
{
    struct sim_peer *p = peer;
    sim_log("peer %d's disk is%s full", p->index, full ? "" : " no longer");
    sim_disk_faults(p->disk)->full = (int)full;
}

/* A disk that fails is often about to fail for good: the bytes that the failed fsync has lost are
 * missed only after a power failure, before the next checkpoint takes the place of this one. */
static void on_sync_failed(struct sim_peer *p)
{
    uint64_t pause = 1 + sim_random_below(&sim_order, 5 * SIM_S);
    sim_log("peer %d's fsync has failed", p->index);
    if (sim_random_happens(&sim_order, 0.5) && (double)(sim_now() + pause) < plan.calm_at * 1e9)
        sim_after(pause, crash, p, 1);
}

static void set_failure(void *peer, uint64_t per_million)
{
    struct sim_peer *p = peer;
    sim_disk_faults(p->disk)->failure = (double)per_million * 1e-6;
    sim_disk_faults(p->disk)->short_write = (double)per_million * 1e-5;
}

static void set_sync_failure(void *peer, uint64_t per_million)
{
    struct sim_peer *p = peer;
    sim_disk_faults(p->disk)->sync_failed = on_sync_failed;
    sim_disk_faults(p->disk)->sync_failure = (double)per_million * 1e-6;
}

static void set_malloc(void *peer, uint64_t per_million)
{
    struct sim_peer *p = peer;
    sim_log("peer %d's malloc fails with %llu in a million", p->index,
            (unsigned long long)per_million);
    p->malloc_failure = (double)per_million * 1e-6;
}

static void schedule_span(sim_event_fn *fn, double most, uint64_t value, uint64_t usual)
{
    struct sim_peer *p = draw_peer();
    double from = draw_time(), to = draw_end(from, most);
    at(from, fn, p, value);
    at(to, fn, p, usual);
}

void faults_schedule(void)
{
    const int *n = plan.faults;
    for (int i = 0; i < n[FAULT_CUT]; i++) schedule_cut();
    for (int i = 0; i < n[FAULT_BREAK]; i++)
        at(draw_time(), break_one, draw_peer(), sim_random_below(&sim_order, 2));
    for (int i = 0; i < n[FAULT_KILL]; i++) at(draw_time(), crash, draw_peer(), 0);
    for (int i = 0; i < n[FAULT_POWER]; i++) at(draw_time(), crash, draw_peer(), 1);
    for (int i = 0; i < n[FAULT_STOP]; i++) schedule_stop();
    for (int i = 0; i < n[FAULT_SLOW]; i++)
        schedule_span(set_slowness, 120, 2 + sim_random_below(&sim_order, 8), 1);
    for (int i = 0; i < n[FAULT_CLOCK]; i++)
        schedule_span(set_skew, 120,
                      (uint64_t)(int64_t)sim_random_between(&sim_order, -20000, 20000), 0);
    for (int i = 0; i < n[FAULT_DISK]; i++) {
        schedule_span(set_full, 60, 1, 0);
        schedule_span(set_failure, 60, 1 + sim_random_below(&sim_order, 200000), 0);
        schedule_span(set_sync_failure, 60, 100000 + sim_random_below(&sim_order, 600000), 0);
    }
    for (int i = 0; i < n[FAULT_MEMORY]; i++)
        schedule_span(set_malloc, 30,
                      1 + sim_random_below(&sim_order, 10u << sim_random_below(&sim_order, 12)), 0);
}
