/* peer.c - `potluck peer`: a peer that trains nothing: where others enter the swarm, where records lie when
 * nobody else is awake, and where checkpoints outlive those who train. */
#include "checkup.h"
#include "cmd.h"
#include "membership.h"
#include "own_page.h"
#include "peer_save.h"

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
    "                    [--save DIR]\n"
    "\n"
    "Keeps a swarm's door open, until interrupted. Others join by the address that it prints first.\n"
    "\n"
    "  --listen MULTIADDR    default /ip4/0.0.0.0/tcp/0, any free port\n"
    "  --announce MULTIADDR  an address to be told to others instead, behind a router\n"
    "  --join MULTIADDR      a peer of the swarm; without it this is the first one\n"
    "  --identity FILE       the key behind the address, made if absent (default: a new one each time)\n"
    "  --run ID              refuse malformed records of this run; whose state --save keeps\n"
    "  --client-mode         listen nowhere, serve nothing; needs --join\n"
    "  --relay               carry connections for peers that cannot be reached\n"
    MEMBERSHIP_USAGE
    OWN_PAGE_USAGE
    PEER_SAVE_USAGE
    "  --json                lines of JSON\n";

#define ADDRESSES_MAX 64

struct peer_options {
    const char *listen[ADDRESSES_MAX], *join[ADDRESSES_MAX], *announce[ADDRESSES_MAX];
    size_t listen_count, join_count, announce_count;
    const char *identity, *run;
    struct membership membership;
    struct own_page page;
    struct peer_save_options save;
    int client_mode, relay, json;
};

static int add(const char **list, size_t *count, const char *address)
{
    if (*count == ADDRESSES_MAX)
        return cmd_misused("peer", "more than %d addresses", ADDRESSES_MAX);
    list[(*count)++] = address;
    return PL_OK;
}

static int parse(struct peer_options *o, int argc, char **argv)
{
    static const struct option options[] = {
        { "listen", required_argument, NULL, 'l' }, { "join", required_argument, NULL, 'j' },
        { "announce", required_argument, NULL, 'a' }, { "identity", required_argument, NULL, 'i' },
        { "run", required_argument, NULL, 'r' }, { "relay", no_argument, NULL, 'R' }, { "client-mode", no_argument, NULL, 'c' },
        { "json", no_argument, NULL, 'J' }, MEMBERSHIP_OPTIONS, OWN_PAGE_OPTIONS,
        PEER_SAVE_OPTIONS, { "help", no_argument, NULL, 'h' }, { NULL, 0, NULL, 0 }
    };
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
        case 'h': fputs(usage, stdout); exit(0);
        default:
            if (!membership_option(&o->membership, option, optarg) &&
                !own_page_option(&o->page, option, optarg) &&
                peer_save_option(&o->save, option, optarg) <= 0)
                rc = PL_EUSE;
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
    if (swarm_address(s, text)) return;
    if (o->json) say(json_pack("{s:s,s:s}", "event", "listening", "multiaddr", text));
    else {
        printf("listening: others join with\n  --join %s\n", text);
        fflush(stdout);
    }
}

static void report_failure(const struct peer_options *o, const struct pl_err *err)
{
    if (o->json) say(json_pack("{s:s,s:s}", "event", "alone", "why", err->text));
    else fprintf(stderr, "potluck peer: %s; trying again every half minute\n", err->text);
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

/* Until a signal; an entry that failed at first may succeed meanwhile. */
static void live(struct peer_options *o, struct swarm *s, const struct swarm_options *how,
                 struct peer_save *save, const sigset_t *ends)
{
    static const struct timespec a_while = { .tv_sec = 1 };
    struct pl_err err;
    int joined = swarm_wait_joined(s, &err) == PL_OK;
    if (joined) report_entry(o, s);
    else report_failure(o, &err);
    if (how->join_count) checkup_explain(s, how);
    while (sigtimedwait(ends, NULL, &a_while) < 0) {
        if (!joined && (joined = swarm_wait_joined(s, &err) == PL_OK)) report_entry(o, s);
        if (membership_renew(&o->membership, s, &err))
            fprintf(stderr, "potluck peer: %s; asking again\n", err.text);
        if (joined && save) peer_save_turn(save);
    }
}

static int run(struct peer_options *o, struct swarm_options *how, struct peer_save *save,
               const sigset_t *ends, struct pl_err *err)
{
    struct swarm s;
    int rc = membership_open(&o->membership, &how->auth, err);
    if (!rc && !(rc = swarm_open(&s, how, err))) {
        announce(o, &s);
        own_page_start(&o->page, &s, o->join, o->join_count);
        if (save) rc = peer_save_start(save, &s, err);
        if (!rc) live(o, &s, how, save, ends);
        own_page_end(&o->page);
        peer_save_close(save);
        swarm_close(&s);
    } else peer_save_close(save);
    membership_close(&o->membership);
    return rc;
}

int cmd_peer(int argc, char **argv)
{
    struct peer_options o = { .save = PEER_SAVE_DEFAULTS };
    struct validators validators = { 0 };
    struct peer_save *save = NULL;
    struct pl_err err;
    sigset_t ends;
    int rc = PL_OK;
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
    struct swarm_options swarm = {
        .cmd = "peer", .listen = o.listen, .listen_count = o.listen_count, .announce = o.announce,
        .announce_count = o.announce_count, .join = o.join, .join_count = o.join_count,
        .identity = o.identity, .relay = o.relay, .validators = &validators
    };
    if (o.save.folder) rc = peer_save_open(&save, &o.save, o.run, o.json, &err);
    if (!rc) rc = run(&o, &swarm, save, &ends, &err);
    if (rc) fprintf(stderr, "potluck peer: %s\n", err.text);
    return rc ? 1 : 0;
}
