/* dash.c - `potluck dash`: a run's page, from the signed records of its DHT. [TTT 2.1] */
#include "cmd/doctor/preflight.h"
#include "cmd/cmd.h"
#include "dash_folder.h"
#include "cmd/common/membership.h"
#include "cmd/common/swarm_messages.h"
#include "net/hivemind/swarm/swarm.h"
#include "net/http/dashboard/dht_poll.h"
#include "net/http/server/host_name.h"
#include "net/libp2p/protocols/latency.h"

#include <getopt.h>
#include <jansson.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>

static const char usage[] =
    "usage: potluck dash --join MULTIADDR ... --run ID [OPTION ...]\n"
    "       potluck dash --folder DIR [OPTION ...]\n"
    "\n"
    "Serves the page of a run until interrupted: loss and peers over time, progress, leaderboard, "
    "and\n"
    "what there is to know about training together. Reads signed records alone, so it works for "
    "swarms\n"
    "of any implementation; writes nothing, and asks no outside service for anything.\n"
    "\n"
    "  --join MULTIADDR   a peer of the swarm; may be repeated. Without it: the page without a "
    "run\n"
    "  --run ID           the run's name, under which its peers report\n"
    "  --folder DIR       of a training on this machine: its checkpoints to download, its pictures "
    "and,\n"
    "                     without --join, its loss\n"
    "  --captions FILE    lines to draw from each new checkpoint in --folder, at low priority\n"
    "  --nearest PATH     shards (a file or a folder) with these captions: how many of the pictures are "
    "nearest\n"
    "                     to their own caption's there\n"
    "  --target-batch N   samples a common step takes (default: 4096 with --join)\n"
    "  --total-steps N    of the schedule, for the time that is left (default: not known)\n"
    "  --port N           of the web server (default: 8000; 0: any free one)\n"
    "  --address A        to listen on (default: 127.0.0.1, this machine alone)\n"
    "  --host NAME        a further name or address of this machine, or of a proxy, that the page is asked\n"
    "                     for by; may be repeated. Others than these are refused\n"
    "  --database FILE    where history is kept (default: in memory, gone at the end)\n"
    "  --export DIR       at the end, the page as files that need no server\n"
    "  --every S          seconds between looks (default: 10)\n"
    "  --json             lines of JSON\n" MEMBERSHIP_USAGE;

#define JOIN_MAX 64

struct dash {
    const char *join[JOIN_MAX];
    size_t join_count;
    const char *host[HTTP_HOSTS_MAX];
    size_t host_count;
    const char *run, *address, *database, *export_to, *folder, *captions, *nearest;
    struct dash_folder training;
    int64_t target_batch, total_steps, port;
    double every_s;
    int json;
    struct membership membership;
    struct swarm swarm;
    struct dht_id metrics_key, progress_key, report_key, group_key;
    struct http_server *server;
    struct dashboard *dashboard;
    struct latency *distances;
};

static int parse(struct dash *o, int argc, char **argv)
{
    static const struct option options[] = {
        { "join", required_argument, NULL, 'j' },
        { "run", required_argument, NULL, 'r' },
        { "target-batch", required_argument, NULL, 't' },
        { "total-steps", required_argument, NULL, 's' },
        { "folder", required_argument, NULL, 'f' },
        { "captions", required_argument, NULL, 'c' },
        { "nearest", required_argument, NULL, 'n' },
        { "port", required_argument, NULL, 'p' },
        { "address", required_argument, NULL, 'a' },
        { "host", required_argument, NULL, 'H' },
        { "database", required_argument, NULL, 'd' },
        { "export", required_argument, NULL, 'x' },
        { "every", required_argument, NULL, 'e' },
        { "json", no_argument, NULL, 'J' },
        MEMBERSHIP_OPTIONS,
        { "help", no_argument, NULL, 'h' },
        { 0 },
    };
    int c, rc = PL_OK;
    while (!rc && (c = getopt_long(argc, argv, "h", options, NULL)) != -1) {
        switch (c) {
        case 'j':
            if (o->join_count == JOIN_MAX)
                return cmd_misused("dash", "--join: at most %d of them", JOIN_MAX);
            o->join[o->join_count++] = optarg;
            break;
        case 'r': o->run = optarg; break;
        case 't':
            rc = cmd_integer(&o->target_batch, "dash", "--target-batch", optarg, 1, 1000000000);
            break;
        case 's':
            rc = cmd_integer(&o->total_steps, "dash", "--total-steps", optarg, 1, INT64_MAX / 2);
            break;
        case 'p': rc = cmd_integer(&o->port, "dash", "--port", optarg, 0, 65535); break;
        case 'f': o->folder = optarg; break;
        case 'c': o->captions = optarg; break;
        case 'n': o->nearest = optarg; break;
        case 'a': o->address = optarg; break;
        case 'H':
            if (o->host_count == HTTP_HOSTS_MAX - 1) /* --address is the first */
                return cmd_misused("dash", "--host: at most %d of them", HTTP_HOSTS_MAX - 1);
            o->host[o->host_count++] = optarg;
            break;
        case 'd': o->database = optarg; break;
        case 'x': o->export_to = optarg; break;
        case 'e': rc = cmd_real(&o->every_s, "dash", "--every", optarg, 0.1, 3600); break;
        case 'J': o->json = 1; break;
        case 'h': fputs(usage, stdout); exit(0);
        default:
            if (!membership_option(&o->membership, c, optarg)) return PL_EUSE;
        }
    }
    if (rc || cmd_no_more("dash", argc, argv)) return PL_EUSE;
    if (o->join_count && !o->run) {
        fputs("potluck dash: --run is missing: the name under which the swarm's peers report\n",
              stderr);
        return PL_EUSE;
    }
    if (!o->target_batch && o->join_count) o->target_batch = 4096;
    if (!o->run && o->folder) { /* what it is called, not where it lies: others read it */
        const char *slash = strrchr(o->folder, '/');
        o->run = slash && slash[1] ? slash + 1 : o->folder;
    }
    if (!o->run) o->run = "none";
    return PL_OK;
}

static int keys(struct dash *o, struct validators *v)
{
    char key[1100];
    if (strlen(o->run) > 900 || validators_add_run(v, o->run)) return PL_EUSE;
    snprintf(key, sizeof key, "%s_metrics", o->run);
    dht_id_of_text(&o->metrics_key, key);
    snprintf(key, sizeof key, "%s_progress", o->run);
    dht_id_of_text(&o->progress_key, key);
    snprintf(key, sizeof key, "%s_report", o->run);
    dht_id_of_text(&o->report_key, key);
    snprintf(key, sizeof key, "%s_grad_averager.0b", o->run);
    dht_id_of_text(&o->group_key, key);
    return PL_OK;
}

/* --- one look at the swarm -------------------------------------------------------------------- */

static int fetch(struct dash *o, struct dht_look *l, const struct dht_id *key,
                 int (*take)(struct dht_look *, const struct dht_dictionary *))
{
    struct dht_result r;
    int rc = swarm_get(&o->swarm, &r, key, 1);
    if (!rc && r.type == DHT_FOUND_DICTIONARY) rc = take(l, &r.dictionary);
    dht_result_clear(&r);
    return rc == PL_ENOMEM ? rc : PL_OK; /* nobody has it: an empty list */
}

/* To peers that can be called; returns how many are known. */
static size_t distances(struct dash *o, struct distance *out, const struct dht_look *l)
{
    struct peer_id peers[LATENCY_MAX];
    size_t n = 0;
    for (size_t i = 0; i < l->progress_count && n < LATENCY_MAX; i++)
        if (!l->progress[i].record.client_mode) peers[n++] = l->progress[i].record.peer;
    return latency_look(o->distances, out, peers, n);
}

static int look(struct dash *o, struct pl_err *err)
{
    struct dht_look l = { 0 };
    struct distance distance[LATENCY_MAX];
    struct dht_status status;
    struct dashboard_look at = { 0 };
    int rc = fetch(o, &l, &o->progress_key, dht_look_progress);
    if (!rc) rc = fetch(o, &l, &o->metrics_key, dht_look_metrics);
    if (!rc) rc = fetch(o, &l, &o->report_key, dht_look_report);
    if (!rc) rc = fetch(o, &l, &o->group_key, dht_look_group);
    swarm_status(&o->swarm, &status);
    at.time = swarm_time(&o->swarm);
    at.metrics = l.metrics;
    at.metrics_count = l.metrics_count;
    at.progress = l.progress;
    at.progress_count = l.progress_count;
    at.report = l.report;
    at.report_count = l.report_count;
    at.searching = l.searching;
    at.distance = distance;
    at.distance_count = distances(o, distance, &l);
    if (!status.joined) at.problem = "The swarm's entry does not answer; trying again.";
    else if (!l.metrics_count && !l.progress_count)
        at.problem = "No peer of this run has reported lately.";
    if (rc) pl_fail(err, rc, "%s", pl_status_name(rc));
    else rc = dashboard_update(o->dashboard, &at, err);
    dht_look_clear(&l);
    return rc;
}

/* --- the command ------------------------------------------------------------------------------ */

static void announce(const struct dash *o)
{
    const char *host = o->address ? o->address : "127.0.0.1";
    int v6 = strchr(host, ':') != NULL, port = http_server_port(o->server);
    if (o->json)
        printf("{\"event\":\"serving\",\"url\":\"http://%s%s%s:%d/\"}\n", v6 ? "[" : "", host,
               v6 ? "]" : "", port);
    else printf("the page: http://%s%s%s:%d/\n", v6 ? "[" : "", host, v6 ? "]" : "", port);
    fflush(stdout);
}

/* A watcher is a file descriptor; the usual limit of 1,024 is for programs with fewer friends. */
static void more_descriptors(void)
{
    struct rlimit limit;
    if (getrlimit(RLIMIT_NOFILE, &limit)) return;
    if (limit.rlim_cur < 4096) limit.rlim_cur = limit.rlim_max < 4096 ? limit.rlim_max : 4096;
    setrlimit(RLIMIT_NOFILE, &limit);
}

static int serve(struct dash *o, const struct swarm_options *how, const sigset_t *ends,
                 struct pl_err *err)
{
    struct timespec pause = { (time_t)o->every_s,
                              (long)(1e9 * (o->every_s - (double)(time_t)o->every_s)) };
    int rc = PL_OK;
    /* Without the entry there is nothing to look at; the page is there already, and says so. */
    if (o->swarm.node && cmd_wait_joined("dash", &o->swarm, err)) {
        preflight_explain(&o->swarm, how, err);
        fprintf(stderr, "potluck dash: %s; trying again\n", err->text);
    }
    for (;;) {
        if (o->swarm.node && membership_renew(&o->membership, &o->swarm, err))
            fprintf(stderr, "potluck dash: %s; asking again\n", err->text);
        rc = o->swarm.node ? look(o, err) : PL_OK;
        if (!rc && o->folder) rc = dash_folder_look(&o->training, o->server, o->dashboard, err);
        if (!rc && o->folder && !o->swarm.node)
            rc = dash_folder_log(&o->training, o->dashboard, err);
        /* A full disk or a lost lock shall not end the page: say so, go on. */
        if (rc) fprintf(stderr, "potluck dash: %s\n", err->text);
        if (sigtimedwait(ends, NULL, &pause) > 0) break;
    }
    if (o->export_to && o->folder) { /* what has come since the last look belongs to the copy */
        rc = dash_folder_finish(&o->training, o->server, o->dashboard, err);
        if (!rc && !o->swarm.node) rc = dash_folder_log(&o->training, o->dashboard, err);
        if (rc) fprintf(stderr, "potluck dash: %s\n", err->text);
    }
    rc = o->export_to ? dashboard_export(o->dashboard, o->export_to, err) : PL_OK;
    return !rc && o->export_to && o->folder ? dash_folder_export(&o->training, o->export_to, err)
                                            : rc;
}

int cmd_dash(int argc, char **argv)
{
    struct dash o = { .port = 8000, .every_s = DASHBOARD_EVERY };
    struct validators validators = { 0 };
    struct pl_err err;
    sigset_t ends;
    int rc;
    if (parse(&o, argc, argv)) return 2;
    if (keys(&o, &validators)) {
        fputs("potluck dash: --run: the name is too long\n", stderr);
        return 2;
    }
    struct dashboard_options page = { .run = o.run,
                                      .target_batch = (double)o.target_batch,
                                      .total_steps = o.total_steps,
                                      .database = o.database };
    struct swarm_options swarm = {
        .cmd = "dash", .join = o.join, .join_count = o.join_count, .validators = &validators
    };
    more_descriptors();
    sigemptyset(&ends); /* blocked before any thread begins: only sigtimedwait sees them */
    sigaddset(&ends, SIGINT);
    sigaddset(&ends, SIGTERM);
    pthread_sigmask(SIG_BLOCK, &ends, NULL);
    rc = http_server_open(&o.server, o.address, (int)o.port, &err);
    for (size_t i = 0; i < o.host_count && !rc; i++)
        if ((rc = http_server_host(o.server, o.host[i], &err)) == PL_EUSE) {
            fprintf(stderr, "potluck dash: --host: %s\n", err.text);
            http_server_close(o.server);
            return 2;
        }
    if (!rc) rc = dashboard_open(&o.dashboard, o.server, &page, &err);
    if (!rc && o.join_count) rc = membership_open(&o.membership, &swarm.auth, &err);
    if (!rc && o.join_count) rc = swarm_open(&o.swarm, &swarm, &err);
    if (!rc && o.join_count && (rc = latency_open(&o.distances, o.swarm.host)))
        pl_fail(&err, rc, "no memory");
    if (!rc) {
        dash_folder_begin(&o.training, o.folder, o.captions, o.nearest);
        announce(&o);
        rc = serve(&o, &swarm, &ends, &err);
        dash_folder_end(&o.training);
    }
    if (rc) fprintf(stderr, "potluck dash: %s\n", err.text);
    latency_stop(o.distances);
    if (o.swarm.loop) swarm_close(&o.swarm);
    latency_close(o.distances);
    membership_close(&o.membership);
    http_server_close(o.server);
    dashboard_close(o.dashboard);
    return rc != 0;
}
