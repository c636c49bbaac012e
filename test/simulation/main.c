/* main.c - plays seeds, each in a process of its own. */
#include "memory.h"
#include "plan.h"

#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define EPOCHS_AFTER 8     /* after the last fault, for all */
#define EPOCHS_TO_HALVE 12 /* the distance from the optimum (check_learnt); no run ends before */
#define SECONDS_MAX 60     /* of processor time for a seed; one takes one or two */

int __real_clock_gettime(clockid_t clock, struct timespec *t);

struct sim_peer sim_peers[SIM_PEERS_MAX];
int sim_peer_count;
int sim_verbose;
static uint64_t hash = 0xcbf29ce484222325u, events;

static void fold(const void *data, size_t n) { hash = sim_digest(hash, data, n); }

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

/* --- one seed --------------------------------------------------------------------------------- */

static void boot(void *context, uint64_t argument)
{
    (void)argument;
    trainer_boot(context);
}

/* Faults have ended: this many epochs more, and the run is over. */
static void on_calm(void *context, uint64_t argument)
{
    (void)context, (void)argument;
    plan.goal = plan.furthest + EPOCHS_AFTER;
    if (plan.goal < EPOCHS_TO_HALVE) plan.goal = EPOCHS_TO_HALVE;
    sim_log("calm; the goal is epoch %lld", (long long)plan.goal);
}

static void stop_when_done(void *context, uint64_t argument)
{
    int left = 0;
    (void)argument;
    for (int i = 0; i < plan.honest; i++) left += trainers[i].is_running || !trainers[i].is_done;
    if (!left) sim_stop();
    else sim_after(SIM_S, stop_when_done, context, argument);
}

static void play(uint64_t seed)
{
    char text[512];
    sim_random_install();
    plan_draw(seed);
    plan_describe(text, sizeof text);
    sim_log("%s", text);
    for (int i = 0; i < sim_peer_count; i++) trainer_prepare(&trainers[i], &sim_peers[i]);
    sim_run(SIM_S / 2);
    for (int i = 0; i < sim_peer_count; i++)
        sim_at(SIM_S + (uint64_t)(i ? sim_random_uniform(&sim_order) * 20e9 : 0), boot,
               &trainers[i], 0);
    faults_schedule();
    checks_begin();
    sim_at((uint64_t)(plan.calm_at * 1e9), on_calm, NULL, 0);
    sim_at(SIM_S, stop_when_done, NULL, 0);
    sim_run((uint64_t)(plan.end_at * 1e9));
    checks_end();
    plan_describe(text, sizeof text);
    printf("seed %llu: %s: %.0f s, epoch %lld, %llu events, hash %016llx\n",
           (unsigned long long)seed, text, (double)sim_now() * 1e-9, (long long)plan.furthest,
           (unsigned long long)events, (unsigned long long)hash);
    fflush(stdout);
    _exit(0);
}

/* --- many seeds ------------------------------------------------------------------------------- */

static const char usage[] =
    "usage: simulate_faults [--first SEED] [--seeds N] [--seconds S] [--only FAULTS]\n"
    "                       [--byzantine KIND] [--algorithm NAME] [--verbose | --packets]\n";

/* A process of its own for each seed: an abort, a hang or a leak is that seed's alone. */
static int play_apart(uint64_t seed, const char *program)
{
    const struct itimerval limit = { .it_value = { SECONDS_MAX, 0 } };
    int status = 0, bad;
    pid_t child = fork();
    if (!child) {
        setitimer(ITIMER_PROF, &limit, NULL);
        play(seed);
    }
    if (child < 0 || waitpid(child, &status, 0) != child) {
        perror("simulate_faults");
        exit(2);
    }
    bad = !WIFEXITED(status) || WEXITSTATUS(status);
    if (WIFSIGNALED(status))
        printf("seed %llu: ended by signal %d%s\n", (unsigned long long)seed, WTERMSIG(status),
               WTERMSIG(status) == SIGPROF ? ", it took too long" : "");
    if (bad)
        printf("  replay: %s --first %llu%s%s%s%s%s%s --verbose\n", program,
               (unsigned long long)seed, plan_only < 0 ? "" : " --only ",
               plan_only < 0 ? "" : plan_faults[plan_only], plan_kind < 0 ? "" : " --byzantine ",
               plan_kind < 0 ? "" : plan_kinds[plan_kind], plan_algorithm ? " --algorithm " : "",
               plan_algorithm ? plan_algorithm : "");
    fflush(stdout);
    return bad;
}

int main(int argc, char **argv)
{
    uint64_t first = 1, seeds = 1, played = 0, failed = 0;
    double seconds = 0;
    time_t began = 0;
    struct timespec now;
    char path[512];
    for (int i = 1; i < argc; i++) {
        const char *value = i + 1 < argc ? argv[i + 1] : "";
        if (!strcmp(argv[i], "--verbose")) sim_verbose = 1;
        else if (!strcmp(argv[i], "--packets")) sim_verbose = 2;
        else if (!strcmp(argv[i], "--first")) first = strtoull(value, NULL, 10), i++;
        else if (!strcmp(argv[i], "--seeds")) seeds = strtoull(value, NULL, 10), i++;
        else if (!strcmp(argv[i], "--only")) {
            for (int k = 0; k < FAULT_KINDS; k++)
                if (!strcmp(plan_faults[k], value)) plan_only = k;
            i++;
        } else if (!strcmp(argv[i], "--byzantine")) {
            for (int k = 1; k < BYZANTINE_KINDS; k++)
                if (!strcmp(plan_kinds[k], value)) plan_kind = k;
            i++;
        } else if (!strcmp(argv[i], "--algorithm")) plan_algorithm = value, i++;
        else if (!strcmp(argv[i], "--seconds")) seconds = strtod(value, NULL), i++;
        else {
            fputs(usage, stderr);
            return 2;
        }
    }
    setvbuf(stdout, NULL, _IOLBF, 0);
    sim_memory_install();
    sim_random_install();
    snprintf(path, sizeof path, "%s.keys", argv[0]);
    trainers_make_keys(path);
    for (; played < seeds; played++) {
        __real_clock_gettime(CLOCK_MONOTONIC, &now);
        if (!began) began = now.tv_sec;
        if (seconds > 0 && (double)(now.tv_sec - began) >= seconds) break;
        failed += (uint64_t)play_apart(first + played, argv[0]);
    }
    printf("%llu seeds, %llu failed\n", (unsigned long long)played, (unsigned long long)failed);
    return failed != 0;
}
