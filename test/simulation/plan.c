/* plan.c - a seed becomes a swarm with its faults. */
#include "plan.h"

#include <stdio.h>
#include <string.h>

struct plan plan;

void plan_draw(uint64_t seed)
{
    struct sim_random r = { seed };
    static const char *const methods[] = { "none", "float16", "run", "uniform8" };
    struct plan *p = &plan;
    memset(p, 0, sizeof *p);
    p->seed = seed;
    p->honest = 3 + (int)sim_random_below(&r, 4);
    p->epochs = 12;
    p->batch = 4;
    p->target_batch = p->honest * p->batch * (int64_t)(1 + sim_random_below(&r, 3));
    p->batch_seconds = sim_random_between(&r, 0.5, 2);
    p->matchmaking_time = sim_random_between(&r, 2, 5);
    p->averaging_timeout = 40;
    p->allreduce_timeout = 15;
    p->compression = methods[sim_random_below(&r, 4)];
    p->delay = (enum pl_collaborative_delay)sim_random_below(&r, 3);
    p->method = (enum plan_method)sim_random_below(&r, 2);
    p->checkpoint_every = 1 + (int64_t)sim_random_below(&r, 3);
    p->calm_at = 120;
    p->end_at = 900;
    for (int i = 0; i < PLAN_TENSORS; i++) {
        p->rows[i] = 1 + (int64_t)sim_random_below(&r, 30);
        p->columns[i] = 1 + (int64_t)sim_random_below(&r, 30);
    }
    for (int i = 0; i < PLAN_VALUES; i++) p->optimum[i] = (float)sim_random_normal(&r);
    sim_links.delay = sim_random_between(&r, 0.001, 0.1);
    sim_links.jitter = sim_random_happens(&r, 0.5) ? sim_random_between(&r, 0, 0.05) : 0;
    sim_links.loss = sim_random_happens(&r, 0.5) ? sim_random_between(&r, 0, 0.02) : 0;
    sim_links.retransmit = 0.2;
    sim_links.window = 65536u << sim_random_below(&r, 5);
    sim_order.state = sim_random_next(&r);
    sim_peer_count = p->honest + p->byzantine;
    for (int i = 0; i < sim_peer_count; i++) {
        struct sim_peer *x = &sim_peers[i];
        x->index = i;
        x->slowness = 1;
        x->bandwidth = 1e6 * sim_random_between(&r, 0.5, 20);
        x->random.state = sim_random_next(&r);
        x->disk = sim_disk_new();
    }
}

void plan_describe(char *text, size_t n)
{
    snprintf(text, n, "%d peers, target %lld, %s, delay %d, method %d", plan.honest,
             (long long)plan.target_batch, plan.compression, (int)plan.delay, (int)plan.method);
}
