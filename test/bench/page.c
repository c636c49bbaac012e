/* page.c - the page of a large swarm: bench PEERS DAYS [PORT]. Fills a history with DAYS of a point
 * every ten seconds, then shows PEERS peers' records, all of them new every ten seconds, as
 * `potluck dash` does after it has read them; prints the time of an update and the process's
 * memory, until interrupted. */
#include "net/http/dashboard/dashboard.h"

#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

static volatile sig_atomic_t over;

static void on_signal(int number)
{
    (void)number;
    over = 1;
}

static double peak_mb(void)
{
    struct rusage u;
    getrusage(RUSAGE_SELF, &u);
    return (double)u.ru_maxrss / 1024;
}

static int fill(const char *path, int64_t points, double now)
{
    struct history *h;
    struct pl_err err;
    int rc = history_open(&h, path, "bench", &err);
    if (!rc) rc = history_begin(h, &err);
    for (int64_t i = 0; i < points && !rc; i++) {
        struct history_point p = { .time = now - 10 * (double)(points - i),
                                   .step = i / 26,
                                   .peers = 9000 + i % 1000,
                                   .samples = i * 157 % 4096,
                                   .loss = 7 * exp(-(double)i / 1e5) + 1,
                                   .samples_per_second = 900 + (double)(i % 100),
                                   .held_out = NAN,
                                   .sent = 1e7 * (double)i };
        rc = history_add(h, &p, &err);
    }
    if (!rc) rc = history_commit(h, &err);
    if (rc) fprintf(stderr, "%s\n", err.text);
    else history_close(h);
    return rc;
}

static void fill_snapshot(struct dashboard_snapshot *l, size_t peers, struct dashboard_metrics *m,
                          struct dashboard_progress *p, struct dashboard_report *r, int64_t step)
{
    l->time = (double)time(NULL);
    for (size_t i = 0; i < peers; i++) {
        char key[17];
        snprintf(key, sizeof key, "%016llx", (unsigned long long)i * 0x9e3779b97f4a7c15u);
        memcpy(m[i].key, key, sizeof key);
        memcpy(p[i].key, key, sizeof key);
        memcpy(r[i].key, key, sizeof key);
        m[i].record = (struct metrics_record){ step, 0.1 + (double)(i % 37) / 100,
                                               (int64_t)(i % 40), 30, 10 };
        m[i].expiration = l->time + METRICS_LIFE;
        p[i].record = (struct progress_record){ .epoch = step,
                                                .samples = (int64_t)(i % 5),
                                                .time = l->time,
                                                .samples_per_second = 0.1 + (double)(i % 37) / 100,
                                                .client_mode = i % 3 == 0 };
        r[i].record = (struct report_record){ .version = "potluck " PL_VERSION,
                                              .reachability = REPORT_DIRECT,
                                              .rounds = 2 * step,
                                              .sent = 100000000 * step,
                                              .received = 100000000 * step,
                                              .uncompressed = 390000000 * step,
                                              .held_out = NAN };
    }
}

int main(int argc, char **argv)
{
    size_t peers = argc > 1 ? (size_t)atol(argv[1]) : 10000;
    int64_t points = argc > 2 ? 8640 * atol(argv[2]) : 30 * 8640;
    struct dashboard_metrics *m = calloc(peers, sizeof *m);
    struct dashboard_progress *p = calloc(peers, sizeof *p);
    struct dashboard_report *r = calloc(peers, sizeof *r);
    struct dashboard_snapshot snapshot = { .metrics = m,
                                           .progress = p,
                                           .report = r,
                                           .metrics_count = peers,
                                           .progress_count = peers,
                                           .report_count = peers };
    char path[] = "/tmp/potluck-bench-XXXXXX";
    struct dashboard_options o = {
        .run = "bench", .target_batch = 4096, .total_steps = 31250, .database = path
    };
    struct http_server *s = NULL;
    struct dashboard *d = NULL;
    struct pl_err err = { "no memory" };
    int fd = mkstemp(path), rc = m && p && r && fd >= 0 ? PL_OK : PL_ENOMEM;
    signal(SIGINT, on_signal);
    signal(SIGTERM, on_signal);
    if (!rc) rc = fill(path, points, (double)time(NULL));
    if (!rc) rc = http_server_open(&s, NULL, argc > 3 ? atoi(argv[3]) : 0, &err);
    if (!rc) rc = dashboard_open(&d, s, &o, &err);
    for (int64_t step = 20000; !rc && !over; step++) {
        double began = pl_seconds();
        fill_snapshot(&snapshot, peers, m, p, r, step);
        rc = dashboard_update(d, &snapshot, &err);
        printf("port %d, an update %.3f s, peak memory %.1f MB, watchers %zu\n",
               http_server_port(s), pl_seconds() - began, peak_mb(), http_server_watchers(s));
        fflush(stdout);
        for (int i = 0; i < 100 && !over; i++)
            nanosleep(&(struct timespec){ .tv_nsec = 100000000 }, NULL);
    }
    if (rc) fprintf(stderr, "%s\n", err.text);
    http_server_close(s);
    dashboard_close(d);
    unlink(path);
    free(m);
    free(p);
    free(r);
    return rc != 0;
}
