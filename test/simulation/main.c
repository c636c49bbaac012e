/* main.c - plays seeds, each in a process of its own. */
#include "memory.h"
#include "plan.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

struct sim_peer sim_peers[SIM_PEERS_MAX];
int sim_peer_count;
int sim_verbose;
static uint64_t hash = 0xcbf29ce484222325u, events;

static void fold(const void *data, size_t n)
{
    const uint8_t *p = data;
    for (size_t i = 0; i < n; i++) hash = (hash ^ p[i]) * 0x100000001b3u;
}

void sim_log(const char *format, ...)
{
    char text[512];
    uint64_t at = sim_now();
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    events++;
    fold(&at, sizeof at);
    fold(text, strlen(text));
    if (sim_verbose) printf("%.6f %s\n", (double)at * 1e-9, text);
}

void sim_log_bytes(const char *what, int from, int to, const void *data, size_t n)
{
    uint64_t at = sim_now();
    events++;
    fold(&at, sizeof at);
    fold(&from, sizeof from);
    fold(data, n);
    if (sim_verbose > 1) printf("%.6f %s %d to %d, %zu\n", (double)at * 1e-9, what, from, to, n);
}

uint64_t sim_log_hash(void) { return hash; }

_Noreturn void sim_fail(const char *format, ...)
{
    va_list args;
    va_start(args, format);
    printf("seed %llu at %.3f s: ", (unsigned long long)plan.seed, (double)sim_now() * 1e-9);
    vprintf(format, args);
    va_end(args);
    puts("");
    fflush(stdout);
    _exit(1);
}

static void boot(void *context, uint64_t argument)
{
    (void)argument;
    trainer_boot(context);
}

static void look_for_end(void *context, uint64_t argument)
{
    int left = 0;
    for (int i = 0; i < plan.honest; i++) left += trainers[i].is_running || !trainers[i].is_done;
    if (!left) sim_stop();
    else sim_after(SIM_S, look_for_end, context, argument);
}

static void play(uint64_t seed)
{
    char text[512];
    sim_random_install();
    plan_draw(seed);
    for (int i = 0; i < plan.honest; i++) trainer_prepare(&trainers[i], &sim_peers[i]);
    sim_after(0, look_for_end, NULL, 0);
    for (int i = 0; i < plan.honest; i++)
        sim_at(SIM_S + (uint64_t)(i ? sim_random_uniform(&sim_order) * 20e9 : 0), boot,
               &trainers[i], 0);
    sim_run((uint64_t)(plan.end_at * 1e9));
    plan_describe(text, sizeof text);
    printf("seed %llu: %s: %.1f s, %llu events, hash %016llx\n", (unsigned long long)seed, text,
           (double)sim_now() * 1e-9, (unsigned long long)events, (unsigned long long)hash);
    fflush(stdout);
    _exit(0);
}

int main(int argc, char **argv)
{
    uint64_t seed = argc > 1 ? strtoull(argv[1], NULL, 10) : 1;
    sim_verbose = argc > 2 ? atoi(argv[2]) : 0;
    char path[512];
    setvbuf(stdout, NULL, _IOLBF, 0);
    sim_memory_install();
    sim_random_install();
    snprintf(path, sizeof path, "%s.keys", argv[0]);
    trainers_make_keys(path);
    play(seed);
}
