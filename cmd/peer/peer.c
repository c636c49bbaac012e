/* peer.c - `potluck peer`: a peer that trains nothing: where others enter the swarm, where records
 * lie when nobody else is awake, where checkpoints outlive those who train, and who adds up
 * gradients for them. */
#include "cmd/doctor/preflight.h"
#include "cmd/cmd.h"
#include "cmd/common/membership.h"
#include "cmd/common/swarm_messages.h"
#include "cmd/dash/own_page.h"
#include "peer_auxiliary.h"
#include "peer_save.h"
#include "cmd/train/train_job.h"

#include <getopt.h>
#include <jansson.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static const char usage[] =
    "usage: potluck peer [--listen MULTIADDR ...] [--join MULTIADDR ...] [--identity FILE] [--run ID]\n"
    "                    [--announce MULTIADDR ...] [--client-mode] [--relay] [--dash] [--json]\n"
    "                    [--save DIR] [--auxiliary] [--config NAME|FILE] [OPTION ...]\n"
    "\n"
    "Keeps a swarm's door open, until interrupted. Others join by the address that it prints first.\n"
    "\n"
    "  --listen MULTIADDR    default /ip4/0.0.0.0/tcp/0, any free port\n"
    "  --announce MULTIADDR  an address to be told to others instead, behind a router\n"
    "  --join MULTIADDR      a peer of the swarm; without it this is the first one\n"
    "  --identity FILE       the key behind the address, made if absent (default: a new one each time)\n"
    "  --run ID              refuse malformed records of this run; whose state is kept, whom we help\n"
    "  --client-mode         listen nowhere, serve nothing; needs --join\n"
    "  --relay               carry connections for peers that cannot be reached\n" MEMBERSHIP_USAGE
        OWN_PAGE_USAGE "  --json                lines of JSON\n" PREFLIGHT_USAGE "\n";

/* C11 promises 4,095 characters of a text */
static const char usage_work[] =
    "Of the run's model, with neither data nor a GPU:\n" PEER_SAVE_USAGE PEER_HELP_USAGE
    "  --config C       the run's: run, middle, small, demo, or a JSON file (default: demo)\n"
    "  --optimizer O    the run's: lamb8, lamb32, adamw8 or adamw32 (default: lamb8)\n";

#define ADDRESSES_MAX 64
#define RESOURCES_EVERY 10 /* s between reports of them, at least */

struct peer_options {
    const char *listen[ADDRESSES_MAX], *join[ADDRESSES_MAX], *announce[ADDRESSES_MAX];
    size_t listen_count, join_count, announce_count;
    const char *identity, *run;
    struct membership membership;
    struct own_page page;
    struct peer_save_options save;
    struct peer_help_options help;
    const char *config, *optimizer; /* of the run's model */
    int client_mode, relay, json, no_check;
};

static int add(const char **list, size_t *count, const char *address)
{
    if (*count == ADDRESSES_MAX)
        return cmd_misused("peer", "more than %d addresses", ADDRESSES_MAX);
    list[(*count)++] = address;
    return PL_OK;
}

static int take_optimizer(struct peer_options *o, const char *value)
{
    struct pl_optimizer_options unused;
    o->optimizer = value;
    if (!train_optimizer_named(&unused, value)) return PL_OK;
    return cmd_misused("peer", "--optimizer: '%.40s' is none of lamb8 lamb32 adamw8 adamw32",
                       value);
}

static int parse(struct peer_options *o, int argc, char **argv)
{
    static const struct option options[] = { { "listen", required_argument, NULL, 'l' },
                                             { "join", required_argument, NULL, 'j' },
                                             { "announce", required_argument, NULL, 'a' },
                                             { "identity", required_argument, NULL, 'i' },
                                             { "run", required_argument, NULL, 'r' },
                                             { "relay", no_argument, NULL, 'R' },
                                             { "client-mode", no_argument, NULL, 'c' },
                                             { "json", no_argument, NULL, 'J' },
                                             MEMBERSHIP_OPTIONS,
                                             OWN_PAGE_OPTIONS,
                                             PEER_SAVE_OPTIONS,
                                             PEER_HELP_OPTIONS,
                                             { "no-check", no_argument, NULL, 'n' },
                                             { "config", required_argument, NULL, 'C' },
                                             { "optimizer", required_argument, NULL, 'O' },
                                             { "help", no_argument, NULL, 'h' },
                                             { NULL, 0, NULL, 0 } };
    int option, rc = PL_OK;
    while (!rc && (option = getopt_long(argc, argv, "h", options, NULL)) != -1) {
        switch (option) {
        case 'l': rc = add(o->listen, &o->listen_count, optarg); break;
        case 'j': rc = add(o->join, &o->join_count, optarg); break;
        case 'a': rc = add(o->announce, &o->announce_count, optarg); break;
        case 'i': o->identity = optarg; break;
        case 'r': o->run = optarg; break;
        case 'R': o->relay = 1; break;
        case 'c': o->client_mode = 1; break;
        case 'J': o->json = 1; break;
        case 'n': o->no_check = 1; break;
        case 'C': o->config = optarg; break;
        case 'O': rc = take_optimizer(o, optarg); break;
        case 'h': fputs(usage, stdout), fputs(usage_work, stdout); exit(0);
        default:
            if (!membership_option(&o->membership, option, optarg) &&
                !own_page_option(&o->page, option, optarg) &&
                !(rc = peer_save_option(&o->save, option, optarg)) &&
                !(rc = peer_help_option(&o->help, option, optarg)))
                rc = PL_EUSE;
            if (rc > 0) rc = PL_OK;
        }
    }
    if (rc || cmd_no_more("peer", argc, argv)) return PL_EUSE;
    if (o->client_mode && (o->listen_count || !o->join_count || o->relay)) {
        fputs("potluck peer: --client-mode listens nowhere, so it needs --join and no --listen or "
              "--relay\n",
              stderr);
        return PL_EUSE;
    }
    if (o->page.wanted && !o->run) {
        fputs("potluck peer: --dash shows a run: --run ID\n", stderr);
        return PL_EUSE;
    }
    if (o->save.folder && !o->run)
        return cmd_misused("peer", "--save keeps a run's state: --run ID");
    if (o->help.wanted && (!o->run || o->client_mode))
        return cmd_misused("peer", "--auxiliary helps a run whose peers can call us: --run ID, and "
                                   "no --client-mode");
    o->page.run = o->run;
    o->page.folder = o->save.folder;
    o->page.membership = &o->membership;
    if (!o->listen_count && !o->client_mode) o->listen[o->listen_count++] = "/ip4/0.0.0.0/tcp/0";
    return PL_OK;
}

static void say(json_t *line)
{
    char *text = json_dumps(line, JSON_COMPACT);
    if (text) puts(text);
    free(text);
    json_decref(line);
    fflush(stdout);
}

static void announce(const struct peer_options *o, struct swarm *s)
{
    char text[MULTIADDR_TEXT_MAX];
    if (!o->json) cmd_show_addresses(s, stdout, "listening: others join with\n", "  --join ");
    else if (!swarm_address_for_others(s, text))
        say(json_pack("{s:s,s:s}", "event", "listening", "multiaddr", text));
}

static void report_failure(const struct peer_options *o, const struct pl_err *err)
{
    if (o->json) say(json_pack("{s:s,s:s}", "event", "alone", "why", err->text));
    else fprintf(stderr, "potluck peer: %s; trying again\n", err->text);
}

static void report_entry(const struct peer_options *o, struct swarm *s)
{
    struct dht_status status;
    swarm_status(s, &status);
    if (o->json) {
        say(json_pack("{s:s,s:I,s:b,s:f}", "event", "joined", "nodes", (json_int_t)status.nodes,
                      "reachable", status.reachable, "clock_offset", status.clock_offset));
        return;
    }
    if (o->join_count) printf("joined a swarm of at least %zu nodes\n", status.nodes + 1);
    fflush(stdout);
}

static json_t *sums(const struct scope *s)
{
    static const char *const names[RESOURCES] = {
        [RESOURCE_CONNECTIONS] = "connections",   [RESOURCE_STREAMS] = "streams",
        [RESOURCE_HELD] = "held_bytes",           [RESOURCE_UNSENT] = "unsent_bytes",
        [RESOURCE_RESERVATIONS] = "reservations", [RESOURCE_CIRCUITS] = "circuits",
        [RESOURCE_DIAL_BACKS] = "dial_backs",     [RESOURCE_HANDLER_US] = "handler_us"
    };
    json_t *o = json_object();
    for (int k = 0; o && k < RESOURCES; k++)
        json_object_set_new(o, names[k], json_integer((json_int_t)s->used[k]));
    return o;
}

/* Who uses how much of this peer: at first, and when somebody has met a limit since. */
static void report_resources(struct swarm *s, size_t *limited)
{
    struct resources r;
    swarm_resources(s, &r);
    if (r.limited == *limited) return;
    *limited = r.limited;
    say(json_pack("{s:s,s:I,s:o,s:o,s:o}", "event", "resources", "limited", (json_int_t)r.limited,
                  "system", sums(&r.system), "reserved", sums(&r.reserved), "transient",
                  sums(&r.transient)));
}

/* What there is to do beside keeping the door open. */
struct work {
    struct peer_model model;
    struct rsa_key key;
    struct peer_save *save;
    struct peer_help *help;
};

static int open_work(struct work *w, const struct peer_options *o, struct pl_err *err)
{
    int rc = PL_OK;
    if (o->save.folder || o->help.wanted)
        rc = peer_model_open(&w->model, o->config, o->optimizer, err);
    if (!rc && o->save.folder)
        rc = peer_save_open(&w->save, &o->save, &w->model, o->run, o->json, err);
    if (!rc && o->help.wanted) rc = rsa_key_make(&w->key, err);
    return rc;
}

static int start_work(struct work *w, const struct peer_options *o, struct swarm *s,
                      struct pl_err *err)
{
    int rc = w->save ? peer_save_start(w->save, s, err) : PL_OK;
    if (!rc && o->help.wanted)
        rc = peer_help_open(&w->help, &o->help, &w->model, s, &w->key, o->run, o->json, err);
    return rc;
}

/* Before swarm_close, if it was started. */
static void close_work(struct work *w)
{
    peer_help_close(w->help);
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
        if (membership_renew(&o->membership, s, &err))
            fprintf(stderr, "potluck peer: %s; asking again\n", err.text);
        if (o->json && ++turns % RESOURCES_EVERY == 0) report_resources(s, &limited);
        if (joined && work->save) peer_save_turn(work->save);
        if (joined && work->help) peer_help_turn(work->help);
    }
    preflight_join_end(check);
}

static int run(struct peer_options *o, struct swarm_options *how, struct work *work,
               const sigset_t *ends, struct pl_err *err)
{
    struct swarm s;
    int rc = membership_open(&o->membership, &how->auth, err);
    if (!rc && !(rc = swarm_open(&s, how, err))) {
        announce(o, &s);
        own_page_start(&o->page, &s, o->join, o->join_count);
        rc = start_work(work, o, &s, err);
        if (!rc) live(o, &s, how, work, ends);
        own_page_end(&o->page);
        close_work(work);
        swarm_close(&s);
    } else close_work(work);
    membership_close(&o->membership);
    return rc;
}

int cmd_peer(int argc, char **argv)
{
    struct peer_options o = { .save = PEER_SAVE_DEFAULTS,
                              .help = PEER_HELP_DEFAULTS,
                              .config = "demo",
                              .optimizer = "lamb8" };
    struct validators validators = { 0 };
    struct work work = { .save = NULL };
    struct pl_err err;
    sigset_t ends;
    int rc;
    if (parse(&o, argc, argv)) return 2;
    if (o.run && validators_add_run(&validators, o.run)) {
        fprintf(stderr, "potluck peer: --run: the name is too long\n");
        return 2;
    }
    /* Blocked before any thread begins, so that only live() sees them. */
    sigemptyset(&ends);
    sigaddset(&ends, SIGINT);
    sigaddset(&ends, SIGTERM);
    pthread_sigmask(SIG_BLOCK, &ends, NULL);
    struct swarm_options swarm = { .cmd = "peer",
                                   .listen = o.listen,
                                   .listen_count = o.listen_count,
                                   .announce = o.announce,
                                   .announce_count = o.announce_count,
                                   .join = o.join,
                                   .join_count = o.join_count,
                                   .identity = o.identity,
                                   .relay = o.relay,
                                   .hold = 1,
                                   .validators = &validators };
    if ((rc = open_work(&work, &o, &err))) close_work(&work);
    else rc = run(&o, &swarm, &work, &ends, &err);
    if (rc) fprintf(stderr, "potluck peer: %s\n", err.text);
    return rc ? 1 : 0;
}
