/* peer.c - `potluck peer`: a peer that trains nothing. It is a bootstrap peer for others, stores
 * the swarm's records while no trainer is online, and may save the run's checkpoints and reduce a
 * share of its gradients. */
#include "cmd/doctor/preflight.h"
#include "cmd/cmd.h"
#include "cmd/options/checks.h"
#include "cmd/options/join_options.h"
#include "cmd/common/swarm_messages.h"
#include "cmd/common/json_event.h"
#include "cmd/dash/own_page.h"
#include "data/files/json.h"
#include "net/http/dashboard/feeds.h"
#include "peer_auxiliary.h"
#include "peer_save.h"
#include "cmd/train/train_job.h"
#include "cmd/common/plural.h"

#include <jansson.h>
#include <signal.h>
#include <stdio.h>

#define RESOURCES_EVERY 10 /* s between reports of them, at least */

struct peer_options {
    struct join_options join;
    const char *run;
    struct own_page page;
    struct peer_save_options save;
    struct peer_auxiliary_options auxiliary;
    const char *config, *optimizer; /* of the run's model */
    int json, no_check;
};

#define OPTIONS struct peer_options
static const struct option_row rows[] = {
    { NULL, NULL, NULL, OPT_TABLE(join, join_rows), NULL },
    { "run", "ID", NULL, OPT_TEXT_CHECKED(run, check_run),
      "the run to serve: its malformed records are refused. Required by --save and --auxiliary" },
    PREFLIGHT_ROW(no_check),
    { "json", NULL, NULL, OPT_FLAG(json), "print events as lines of JSON" },
    { NULL, NULL, NULL, OPT_HEADING, "Saving the run's state" },
    { NULL, NULL, NULL, OPT_TABLE(save, peer_save_rows), NULL },
    { NULL, NULL, NULL, OPT_HEADING, "Reducing gradients (give the same values as the trainers)" },
    { NULL, NULL, NULL, OPT_TABLE(auxiliary, peer_auxiliary_rows), NULL },
    { NULL, NULL, NULL, OPT_HEADING, "The run's model, for --save and --auxiliary" },
    { "config", "NAME|FILE", "demo", OPT_PATH_OR(config, train_configs),
      "the run's model: run, middle, small, demo, or a JSON file" },
    { "optimizer", "O", "lamb8", OPT_NAME(optimizer, train_optimizers), "the run's optimizer" },
    { NULL, NULL, NULL, OPT_TABLE(page, own_page_rows), NULL },
    { 0 },
};

static int check(struct peer_options *o)
{
    const struct join_options *join = &o->join;
    if (join->client_mode && (join->listen.count || !join->join.count || join->relay))
        return command_misused(
            "peer",
            "--client-mode accepts no connections: it needs --join, and excludes --listen and "
            "--relay");
    if (o->page.wanted && !o->run)
        return command_misused("peer", "--dash shows a run: --run ID is needed");
    if (o->save.folder && !o->run)
        return command_misused("peer", "--save saves a run's state: --run ID is needed");
    if (o->auxiliary.wanted && (!o->run || join->client_mode))
        return command_misused(
            "peer", "--auxiliary helps a run whose peers can connect to us: it needs --run ID and "
                    "excludes --client-mode");
    o->page.run = o->run;
    o->page.folder = o->save.folder;
    o->page.json = o->json;
    o->page.membership = &join->membership;
    join_options_default(&o->join);
    return PL_OK;
}

static void announce(const struct peer_options *o, struct swarm *s)
{
    char text[MULTIADDR_TEXT_MAX];
    if (!o->json) cmd_show_addresses(s, stdout, "listening: others join with\n", "  --join ");
    else if (!swarm_address_for_others(s, text))
        json_event_print(json_pack("{s:s,s:s}", "event", "listening", "multiaddr", text));
}

static void report_failure(const struct peer_options *o, const struct pl_err *err)
{
    if (o->json) json_event_print(json_pack("{s:s,s:s}", "event", "alone", "why", err->text));
    else fprintf(stderr, "potluck peer: %s; trying again\n", err->text);
}

static void report_entry(const struct peer_options *o, struct swarm *s)
{
    struct dht_status status;
    swarm_status(s, &status);
    if (o->json) {
        json_event_print(json_pack("{s:s,s:I,s:b,s:f}", "event", "joined", "nodes",
                                   (json_int_t)status.nodes, "reachable", status.reachable,
                                   "clock_offset", status.clock_offset));
        return;
    }
    if (o->join.join.count)
        printf("joined a swarm of at least %zu node%s\n", status.nodes + 1,
               PLURAL(status.nodes + 1));
    fflush(stdout);
}

/* Reports the use of this peer's resources: at first, and after a peer has reached a limit. */
static void report_resources(struct swarm *s, size_t *limited)
{
    struct resources r;
    json_t *line;
    swarm_resources(s, &r);
    if (r.limited == *limited) return;
    *limited = r.limited;
    pl_json_begin();
    line = json_pack("{s:s}", "event", "resources");
    json_object_update_new(line, feed_resources_json(&r));
    json_event_print(line);
}

/* The jobs of --save and --auxiliary. */
struct work {
    struct peer_model model;
    struct rsa_key key;
    struct peer_save *save;
    struct peer_auxiliary *auxiliary;
};

static int open_work(struct work *w, const struct peer_options *o, struct pl_err *err)
{
    int rc = PL_OK;
    if (o->save.folder || o->auxiliary.wanted)
        rc = peer_model_open(&w->model, o->config, o->optimizer, err);
    if (!rc && o->save.folder)
        rc = peer_save_open(&w->save, &o->save, &w->model, o->run, o->json, err);
    if (!rc && o->auxiliary.wanted) rc = rsa_key_make(&w->key, err);
    return rc;
}

static int start_work(struct work *w, const struct peer_options *o, struct swarm *s,
                      struct pl_err *err)
{
    int rc = w->save ? peer_save_start(w->save, s, err) : PL_OK;
    if (!rc && o->auxiliary.wanted)
        rc = peer_auxiliary_open(&w->auxiliary, &o->auxiliary, &w->model, s, &w->key, o->run,
                                 o->json, err);
    return rc;
}

/* Before swarm_close, if it was started. */
static void close_work(struct work *w)
{
    peer_auxiliary_close(w->auxiliary);
    peer_save_close(w->save);
    peer_model_close(&w->model);
    rsa_key_clear(&w->key);
}

/* Until a signal; an entry that failed at first may succeed meanwhile. */
static void live(struct peer_options *o, struct swarm *s, const struct swarm_options *how,
                 struct work *work, const sigset_t *ends)
{
    static const struct timespec a_while = { .tv_sec = 1 };
    struct pl_err err;
    const struct preflight_join_options asks = {
        .swarm = how, .run = o->run, .json = o->json, .off = o->no_check
    };
    struct preflight_join *check;
    size_t limited = SIZE_MAX, turns = 0;
    int joined = preflight_join(&check, s, &asks, &err) == PL_OK;
    if (joined) report_entry(o, s);
    else report_failure(o, &err);
    while (sigtimedwait(ends, NULL, &a_while) < 0) {
        if (!joined && (joined = cmd_wait_joined("peer", s, &err) == PL_OK)) report_entry(o, s);
        if (membership_renew(&o->join.membership, s, &err))
            fprintf(stderr, "potluck peer: %s; asking again\n", err.text);
        if (o->json && ++turns % RESOURCES_EVERY == 0) report_resources(s, &limited);
        if (joined && work->save) peer_save_turn(work->save);
        if (joined && work->auxiliary) peer_auxiliary_turn(work->auxiliary);
    }
    preflight_join_end(check);
}

static int run(struct peer_options *o, struct swarm_options *how, struct work *work,
               const sigset_t *ends, struct pl_err *err)
{
    struct swarm s;
    int rc = cmd_membership_open(&o->join.membership, &how->auth, err);
    if (!rc && !(rc = swarm_open(&s, how, err))) {
        announce(o, &s);
        own_page_start(&o->page, &s, o->join.join.item, o->join.join.count);
        rc = start_work(work, o, &s, err);
        if (!rc) live(o, &s, how, work, ends);
        own_page_end(&o->page);
        close_work(work);
        swarm_close(&s);
    } else close_work(work);
    membership_close(&o->join.membership);
    return rc;
}

static int run_peer(int argc, char **argv)
{
    struct peer_options o = { .auxiliary.averaging.bandwidth = PL_BANDWIDTH_UNKNOWN };
    struct validators validators = { 0 };
    struct work work = { .save = NULL };
    struct swarm_options swarm;
    struct pl_err err;
    sigset_t ends;
    int rc;
    if (options_parse(&command_peer, &o, argc, argv, NULL, &rc)) return rc;
    if (check(&o)) return 2;
    if (o.run) validators_add_run(&validators, o.run); /* its only guards: there is space */
    /* Blocked before any thread begins, so that only live() sees them. */
    sigemptyset(&ends);
    sigaddset(&ends, SIGINT);
    sigaddset(&ends, SIGTERM);
    pthread_sigmask(SIG_BLOCK, &ends, NULL);
    swarm = join_options_swarm(&o.join, "peer");
    swarm.hold = 1;
    swarm.validators = &validators;
    if ((rc = open_work(&work, &o, &err))) close_work(&work);
    else rc = run(&o, &swarm, &work, &ends, &err);
    if (rc) command_failed("peer", "%s", err.text);
    return rc ? 1 : 0;
}

const struct command command_peer = {
    .name = "peer",
    .summary = "run a peer that trains nothing: bootstrap peer, backup, reducer",
    .synopsis = "[--listen MULTIADDR ...] [--join MULTIADDR ...] [OPTION ...]",
    .about =
        "Runs a bootstrap peer until interrupted. It prints the addresses by which other peers "
        "join, and keeps the swarm's records available while no trainer is online. Without --join "
        "it starts a new swarm.",
    .rows = rows,
    .run = run_peer,
};
