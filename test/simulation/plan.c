/* plan.c - a seed becomes a swarm with its faults. */
#include "plan.h"

#include <stdio.h>
#include <string.h>

struct plan plan;
int plan_only = -1;
const char *const plan_faults[FAULT_KINDS] = { "cuts", "breaks", "kills", "power", "stops",
                                               "slow", "clocks", "disk",  "memory" };

const char *plan_algorithm;
int plan_kind = -1;
const char *const plan_kinds[BYZANTINE_KINDS] = {
    "",        "epoch-far", "epoch-near", "samples",       "for-ever",       "flood",
    "nested",  "overwrite", "unread",     "silent",        "silent-reducer", "false-sum",
    "nan",     "ahead",     "state",      "state-endless", "gradient",       "weight",
    "accuser", "hashes",    "garbler",    "stranger",      "expelled"
};

/* Fewer than a third of the peers: two of them if there are five honest ones. */
static void draw_byzantine(struct sim_random *r)
{
    if (!sim_random_happens(r, 0.4) && plan_kind < 0) return;
    plan.byzantine = 1 + (plan.honest > 4 && sim_random_happens(r, 0.3));
    for (int i = plan.honest; i < plan.honest + plan.byzantine; i++) {
        plan.kinds[i] = (enum byzantine)(1 + sim_random_below(r, BYZANTINE_KINDS - 1));
        if (plan_kind >= 0) plan.kinds[i] = (enum byzantine)plan_kind;
        /* These lie in verified rounds, those in moderated runs. */
        plan.verify |= plan.kinds[i] >= BYZANTINE_ACCUSER && plan.kinds[i] <= BYZANTINE_GARBLER;
        plan.moderated |= plan.kinds[i] >= BYZANTINE_STRANGER;
    }
}

/* A third of all seeds have one kind of faults only: what fails then is easier to understand. */
static void draw_faults(struct sim_random *r)
{
    static const int most[FAULT_KINDS] = { 3, 8, 3, 3, 3, 2, 2, 2, 2 };
    int only = (int)sim_random_below(r, FAULT_KINDS), single = sim_random_happens(r, 0.33);
    for (int i = 0; i < FAULT_KINDS; i++) {
        int n = (int)sim_random_below(r, (uint64_t)most[i] + 1);
        if (single ? i == only : sim_random_happens(r, 0.4)) plan.faults[i] = n;
        if (plan_only >= 0) plan.faults[i] = i == plan_only ? most[i] : 0;
    }
}

/* By random numbers of their own: a seed keeps the rest of its swarm. */
static void draw_algorithm(uint64_t seed)
{
    static const char *const algorithms[] = { "diloco", "local_sgd", "powersgd", "powersgd_own" };
    struct sim_random r = { sim_digest(seed, "algorithm", 9) };
    struct plan *p = &plan;
    p->algorithm = "gradients";
    if (sim_random_happens(&r, 0.3)) p->algorithm = algorithms[sim_random_below(&r, 4)];
    if (plan_algorithm) p->algorithm = plan_algorithm;
    p->inner_steps = 1 + (int64_t)sim_random_below(&r, 4);
    /* Several groups at the same time: smaller ones under one key, or two keys. */
    if (p->honest > 3 && sim_random_happens(&r, 0.1)) p->group_size = 2;
    else if (p->honest > 3 && sim_random_happens(&r, 0.1)) p->group_bits = "0";
    /* Which options may be combined: optimizer_options.h. */
    if (p->verify || (p->clip && !strncmp(p->algorithm, "powersgd", 8))) p->algorithm = "gradients";
    if (plan_has_outer_steps()) {
        p->delay = PL_DELAY_NONE;
        p->group_size = 0;
        p->group_bits = NULL;
        /* Each inner step takes a target batch of the peer's own samples. */
        p->target_batch = p->batch;
    }
}

int plan_has_outer_steps(void)
{
    return !strcmp(plan.algorithm, "diloco") || !strcmp(plan.algorithm, "local_sgd");
}

void plan_draw(uint64_t seed)
{
    struct sim_random r = { seed };
    static const char *const methods[] = { "none", "float16", "run", "uniform8" };
    struct plan *p = &plan;
    memset(p, 0, sizeof *p);
    p->seed = seed;
    p->honest = 3 + (int)sim_random_below(&r, 4);
    p->batch = 4;
    p->target_batch = p->honest * p->batch * (int64_t)(1 + sim_random_below(&r, 3));
    p->batch_seconds = sim_random_between(&r, 0.5, 2);
    p->matchmaking_time = sim_random_between(&r, 2, 5);
    p->averaging_timeout = 40;
    p->allreduce_timeout = 15;
    p->compression = methods[sim_random_below(&r, 4)];
    p->delay = (enum pl_collaborative_delay)sim_random_below(&r, 3);
    p->method = (enum plan_method)sim_random_below(&r, 2);
    p->clients = sim_random_happens(&r, 0.2);
    if (sim_random_happens(&r, 0.15)) p->verify = 1;
    else if (sim_random_happens(&r, 0.15)) p->clip = 1;
    p->checkpoint_every = 1 + (int64_t)sim_random_below(&r, 3);
    p->calm_at = sim_random_between(&r, 40, 120);
    p->end_at = p->calm_at + 600;
    draw_faults(&r);
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
    p->moderated = sim_random_happens(&r, 0.1);
    draw_byzantine(&r);
    draw_algorithm(seed);
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
    size_t used = (size_t)snprintf(text, n, "%d peers, %s, %s, delay %d", plan.honest,
                                   plan.algorithm, plan.compression, (int)plan.delay);
    if (plan.group_size && used < n)
        used += (size_t)snprintf(text + used, n - used, ", groups of %zu", plan.group_size);
    if (plan.group_bits && used < n) used += (size_t)snprintf(text + used, n - used, ", two keys");
    for (int i = plan.honest; i < plan.honest + plan.byzantine && used < n; i++)
        used += (size_t)snprintf(text + used, n - used, ", %s", plan_kinds[plan.kinds[i]]);
    if (plan.verify && used < n) used += (size_t)snprintf(text + used, n - used, ", btard");
    if (plan.moderated && used < n) used += (size_t)snprintf(text + used, n - used, ", moderated");
    if (plan.clip > 0 && used < n) used += (size_t)snprintf(text + used, n - used, ", clip");
    if (plan.clients && used < n) used += (size_t)snprintf(text + used, n - used, ", client");
    for (int i = 0; i < FAULT_KINDS && used < n; i++)
        if (plan.faults[i])
            used += (size_t)snprintf(text + used, n - used, ", %s %d", plan_faults[i],
                                     plan.faults[i]);
}
