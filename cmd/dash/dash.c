/* dash.c - `potluck dash`: a run's page, from the signed records of its DHT. [TTT 2.1] */
#include "cmd/doctor/preflight.h"
#include "cmd/cmd.h"
#include "dash_folder.h"
#include "cmd/options/checks.h"
#include "cmd/options/join_options.h"
#include "cmd/join/join_page.h"
#include "data/files/json.h"
#include "cmd/common/swarm_messages.h"
#include "net/hivemind/swarm/swarm.h"
#include "net/http/dashboard/run_records.h"
#include "net/http/server/host_name.h"
#include "net/libp2p/protocols/latency.h"
#include "cmd/common/outputs.h"

#include <jansson.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>

struct dash {
    struct option_list join, host;
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

#define OPTIONS struct dash
static const struct option_row rows[] = {
    { "join", "MULTIADDR", NULL, OPT_LIST_CHECKED(join, swarm_check_peer_address),
      "address of a peer of the swarm; may be repeated (default: no swarm)" },
    { "run", "ID", NULL, OPT_TEXT_CHECKED(run, check_run),
      "name of the run, under which its peers report" },
    { "folder", "DIR", NULL, OPT_PATH(folder),
      "output folder of a training on this machine: the page offers its checkpoints, shows its "
      "drawings and, without --join, its loss" },
    { "captions", "FILE", NULL, OPT_PATH(captions),
      "captions, one per line, to draw from each new checkpoint in --folder, at low priority" },
    { "nearest", "PATH", NULL, OPT_PATH(nearest),
      "shards with reference images of these captions: the page shows how many drawings are "
      "nearest to their own caption's image" },
    { "target-batch", "N", NULL, OPT_INTEGER(target_batch, 1, 1000000000),
      "samples per optimizer step of the run (default with --join: 64, as of train)" },
    { "total-steps", "N", NULL, OPT_INTEGER(total_steps, 1, INT64_MAX / 2),
      "steps of the whole run, to estimate the time that is left (default: those of the training "
      "in --folder)" },
    { "port", "PORT", "8000", OPT_INTEGER(port, 0, 65535),
      "port of the web server; 0 takes any free one" },
    { "address", "IP", NULL, OPT_TEXT_CHECKED(address, check_ip),
      "address to listen on (default: 127.0.0.1, for this machine only)" },
    { "allowed-host", "NAME", NULL, OPT_LIST(host),
      "another host name, of this machine or of a proxy, under which browsers may request the "
      "page; may be repeated. Requests for other hosts are refused" },
    { "host", "NAME", NULL, OPT_LIST(host), OPTION_OLD_NAME },
    { "database", "FILE", NULL, OPT_PATH(database),
      "keep the run's history there (default: in memory until the command ends)" },
    { "export", "DIR", NULL, OPT_PATH(export_to),
      "at the end, save the page as files that need no server" },
    { "every", "SECONDS", "10", OPT_SECONDS(every_s, 0.1, 3600), "time between updates" },
    { "json", NULL, NULL, OPT_FLAG(json), "print the page's address as a line of JSON" },
    { NULL, NULL, NULL, OPT_TABLE(membership, membership_rows), NULL },
    { 0 },
};

static int check(struct dash *o)
{
    if (o->host.count > HTTP_HOSTS_MAX - 1) /* --address is the first */
        return command_misused("dash", "--allowed-host: at most %d of them", HTTP_HOSTS_MAX - 1);
    if (o->join.count && !o->run)
        return command_misused("dash",
                               "--run is missing: the name under which the swarm's peers report");
    if (!o->target_batch && o->join.count) o->target_batch = 64; /* train's and peer's default */
    if (!o->run && o->folder) { /* its name, not its path: others read it */
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

/* --- one poll of the swarm -------------------------------------------------------------------- */

static int fetch(struct dash *o, struct run_records *l, const struct dht_id *key,
                 int (*take)(struct run_records *, const struct dht_dictionary *))
{
    struct dht_result r;
    int rc = swarm_get(&o->swarm, &r, key, 1);
    if (!rc && r.type == DHT_FOUND_DICTIONARY) rc = take(l, &r.dictionary);
    dht_result_clear(&r);
    return rc == PL_ENOMEM ? rc : PL_OK; /* no such record: an empty list */
}

/* To peers that can be called; returns how many are known. */
static size_t distances(struct dash *o, struct distance *out, const struct run_records *l)
{
    struct peer_id peers[LATENCY_MAX];
    size_t n = 0;
    for (size_t i = 0; i < l->progress_count && n < LATENCY_MAX; i++)
        if (!l->progress[i].record.client_mode) peers[n++] = l->progress[i].record.peer;
    return latency_update(o->distances, out, peers, n);
}

static int poll_dht(struct dash *o, struct pl_err *err)
{
    struct run_records l = { 0 };
    struct distance distance[LATENCY_MAX];
    struct dht_status status;
    struct dashboard_snapshot at = { 0 };
    struct resources resources;
    int rc = fetch(o, &l, &o->progress_key, run_records_progress);
    if (!rc) rc = fetch(o, &l, &o->metrics_key, run_records_metrics);
    if (!rc) rc = fetch(o, &l, &o->report_key, run_records_report);
    if (!rc) rc = fetch(o, &l, &o->group_key, run_records_group);
    swarm_status(&o->swarm, &status);
    swarm_resources(&o->swarm, &resources);
    at.resources = &resources;
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
    if (!status.joined) at.problem = "The swarm's bootstrap peer does not answer; trying again.";
    else if (!l.metrics_count && !l.progress_count)
        at.problem = "No peer of this run has reported lately.";
    if (rc) pl_fail(err, rc, "%s", pl_status_name(rc));
    else rc = dashboard_update(o->dashboard, &at, err);
    run_records_clear(&l);
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

/* For the page and for potluck join: by which addresses the run is joined, those of our --join. */
static int publish_addresses(const struct dash *o, struct pl_err *err)
{
    json_t *list = json_array(), *root;
    char *text;
    int rc = PL_ENOMEM;
    pl_json_begin();
    for (size_t i = 0; i < o->join.count && i < JOIN_PAGE_ADDRESSES; i++)
        json_array_append_new(list, json_string(o->join.item[i]));
    root = json_pack("{s:s, s:o}", "run", o->run, "addresses", list);
    text = pl_json_text(root, JSON_COMPACT);
    if (text)
        rc = http_server_put(o->server, "/api/join.json", "application/json", text, strlen(text));
    free(text);
    json_decref(root);
    return rc ? pl_fail(err, rc, "page: %s", pl_status_name(rc)) : PL_OK;
}

static int serve(struct dash *o, const struct swarm_options *how, const sigset_t *ends,
                 struct pl_err *err)
{
    struct timespec pause = { (time_t)o->every_s,
                              (long)(1e9 * (o->every_s - (double)(time_t)o->every_s)) };
    int rc = PL_OK;
    /* Without a bootstrap peer there is nothing to poll; the page is served already, and says
     * so. */
    if (o->swarm.node && cmd_wait_joined("dash", &o->swarm, err)) {
        preflight_explain(&o->swarm, how, err);
        fprintf(stderr, "potluck dash: %s; trying again\n", err->text);
    }
    for (;;) {
        if (o->swarm.node && membership_renew(&o->membership, &o->swarm, err))
            fprintf(stderr, "potluck dash: %s; asking again\n", err->text);
        rc = o->swarm.node ? poll_dht(o, err) : PL_OK;
        if (!rc && o->folder) rc = dash_folder_poll(&o->training, o->server, o->dashboard, err);
        if (!rc && o->folder && !o->swarm.node)
            rc = dash_folder_log(&o->training, o->dashboard, err);
        /* A full disk or a lost lock shall not end the page: say so, go on. */
        if (rc) fprintf(stderr, "potluck dash: %s\n", err->text);
        if (sigtimedwait(ends, NULL, &pause) > 0) break;
    }
    if (o->export_to) { /* records since the last poll belong to the copy */
        rc = o->folder ? dash_folder_finish(&o->training, o->server, o->dashboard, err) : PL_OK;
        if (!rc && o->swarm.node) rc = poll_dht(o, err);
        else if (!rc && o->folder) rc = dash_folder_log(&o->training, o->dashboard, err);
        if (rc) fprintf(stderr, "potluck dash: %s\n", err->text);
    }
    rc = o->export_to ? dashboard_export(o->dashboard, o->export_to, err) : PL_OK;
    return !rc && o->export_to && o->folder ? dash_folder_export(&o->training, o->export_to, err)
                                            : rc;
}

static int run_dash(int argc, char **argv)
{
    struct dash o = { .run = NULL };
    struct validators validators = { 0 };
    struct pl_err err;
    sigset_t ends;
    struct stat st;
    int rc;
    if (options_parse(&command_dash, &o, argc, argv, NULL, &rc)) return rc;
    if (check(&o)) return 2;
    if (o.folder && (stat(o.folder, &st) || !S_ISDIR(st.st_mode))) {
        return command_failed("dash", "--folder: '%.100s' is not a folder", o.folder);
    }
    if (keys(&o, &validators)) {
        command_misused("dash", "--run: the name is too long");
        return 2;
    }
    struct dashboard_options page = { .run = o.run,
                                      .target_batch = (double)o.target_batch,
                                      .total_steps = o.total_steps,
                                      .database = o.database };
    struct swarm_options swarm = {
        .cmd = "dash", .join = o.join.item, .join_count = o.join.count, .validators = &validators
    };
    if (o.export_to && outputs_check_folder(o.export_to, &err))
        return command_failed("dash", "--export: %s", err.text);
    more_descriptors();
    sigemptyset(&ends); /* blocked before any thread begins: only sigtimedwait sees them */
    sigaddset(&ends, SIGINT);
    sigaddset(&ends, SIGTERM);
    pthread_sigmask(SIG_BLOCK, &ends, NULL);
    rc = http_server_open(&o.server, o.address, (int)o.port, &err);
    for (size_t i = 0; i < o.host.count && !rc; i++)
        if ((rc = http_server_host(o.server, o.host.item[i], &err)) == PL_EUSE) {
            command_failed("dash", "--allowed-host: %s", err.text);
            http_server_close(o.server);
            return 2;
        }
    if (!rc) rc = dashboard_open(&o.dashboard, o.server, &page, &err);
    if (!rc) rc = publish_addresses(&o, &err);
    if (!rc && o.join.count) rc = cmd_membership_open(&o.membership, &swarm.auth, &err);
    if (!rc && o.join.count) rc = swarm_open(&o.swarm, &swarm, &err);
    if (!rc && o.join.count && (rc = latency_open(&o.distances, o.swarm.host)))
        pl_fail(&err, rc, "no memory");
    if (!rc) {
        dash_folder_begin(&o.training, o.folder, o.captions, o.nearest, o.total_steps);
        announce(&o);
        rc = serve(&o, &swarm, &ends, &err);
        dash_folder_end(&o.training);
    }
    if (rc) command_failed("dash", "%s", err.text);
    latency_stop(o.distances);
    if (o.swarm.loop) swarm_close(&o.swarm);
    latency_close(o.distances);
    membership_close(&o.membership);
    http_server_close(o.server);
    dashboard_close(o.dashboard);
    return rc != 0;
}

const struct command command_dash = {
    .name = "dash",
    .summary = "web page of a run: loss, peers, leaderboard, and how to take part",
    .synopsis = "--join MULTIADDR ... --run ID [OPTION ...]\n"
                "--folder DIR [OPTION ...]",
    .about =
        "Serves a web page about a run until interrupted: loss and peers over time, progress, "
        "leaderboard, and how collaborative training works. With --join it reads signed records of "
        "the DHT, so it works for swarms of any implementation, and writes nothing to the swarm. "
        "With --folder it shows a training on this machine. It uses no outside service.",
    .rows = rows,
    .run = run_dash,
};
