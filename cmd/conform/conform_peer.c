/* conform_peer.c - `potluck conform --peer`: checks another implementation of a peer over the
 * network. The clauses are in test/peer/. */
#include "conform_peer.h"
#include "conform_report.h"
#include "cmd/common/swarm_messages.h"
#include "cmd/options/averaging_options.h"
#include "cmd/options/checks.h"

#include "test/peer/walk.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

/* A line on the terminal, and in the report if there is one. */
static void put(struct walk *w, const char *word, const char *result, const char *section,
                const char *what, const char *why)
{
    printf("%-4s %-13s %s%s%s\n", word, section, what, why ? ": " : "", why ? why : "");
    fflush(stdout);
    if (w->report) conform_report_clause(w->report, section, what, result, why);
}

int walk_clause(struct walk *w, const char *section, const char *what, int good, const char *why,
                ...)
{
    char text[1024];
    va_list args;
    *(good ? &w->passed : &w->failed) += 1;
    va_start(args, why);
    vsnprintf(text, sizeof text, why, args);
    va_end(args);
    put(w, good ? "ok" : "FAIL", good ? "passed" : "failed", section, what, good ? NULL : text);
    return good;
}

void walk_skip(struct walk *w, const char *section, const char *what, const char *why, ...)
{
    char text[1024];
    va_list args;
    w->skipped++;
    va_start(args, why);
    vsnprintf(text, sizeof text, why, args);
    va_end(args);
    put(w, "skip", "skipped", section, what, text);
}

#define OPTIONS struct conform_peer
const struct option_row conform_peer_rows[] = {
    { "peer", "MULTIADDR", NULL, OPT_TEXT_CHECKED(address, swarm_check_peer_address),
      "test a live peer of any implementation. Records that we store there have random keys and "
      "expire within seconds; its averagers meet us as a client with weight 0" },
    { "run", "ID", NULL, OPT_TEXT_CHECKED(run, check_run),
      "also test the averagers of a peer that trains this run. If it trains alone, we report "
      "ourselves as the run's second peer until the end: otherwise it would not average" },
    { "prefix", "P", NULL, OPT_TEXT(prefix), "also test an averager with this prefix" },
    { "class", "NAME", "DecentralizedAverager", OPT_TEXT(class_name),
      "Python class of that averager, which is part of its RPC names" },
    { "wait", "SECONDS", "60", OPT_SECONDS(patience, 0, 86400), "longest time to find a group" },
    { "compression", "C", "run", OPT_NAME(compression, compression_names),
      "the group's, as for potluck average" },
    { "threshold", "N", "65537", OPT_INTEGER(threshold, 0, INT64_MAX),
      "the group's, as for potluck average" },
    { "part-bytes", "N", "524288", OPT_INTEGER(part_bytes, 16, 8 << 20),
      "the group's, as for potluck average" },
    { NULL, NULL, NULL, OPT_TABLE(membership, membership_rows), NULL },
    { 0 },
};

int conform_peer_misused(const struct conform_peer *o, int something_else)
{
    if (o->address && something_else)
        return command_misused("conform", "--peer does not go with --golden");
    if (!o->address && (o->run || o->prefix))
        return command_misused("conform", "--run and --prefix go with --peer");
    return PL_OK;
}

int conform_peer(struct conform_peer *o, const struct pl_backend *be, const char *page)
{
    struct walk w = { .be = be,
                      .run = o->run,
                      .prefix = o->prefix,
                      .class_name = o->class_name,
                      .compression = o->compression,
                      .threshold = (size_t)o->threshold,
                      .part_bytes = (size_t)o->part_bytes,
                      .patience = o->patience };
    struct rsa_key key = { 0 };
    struct validators validators = { .key = o->run ? &key : NULL };
    struct swarm_options options = { .cmd = "conform",
                                     .join = &o->address,
                                     .join_count = 1,
                                     .visitor = 1,
                                     .validators = &validators };
    struct conform_report report = { NULL };
    struct multiaddr_target target;
    struct swarm s;
    struct pl_err err = { "" };
    if (multiaddr_from_text(&w.address, o->address, &err) ||
        multiaddr_target(&target, &w.address) || !target.peer.length) {
        command_failed("conform", "--peer: %.300s: %s", o->address,
                       err.text[0] ? err.text : "no /p2p/ID at its end");
        return 2;
    }
    if (page && conform_report_open_peer(&report, o->address, o->run, o->prefix, &err)) {
        return command_failed("conform", "%s", err.text);
    }
    if (page) w.report = &report;
    if (o->run) validators_add_run(&validators, o->run); /* its only guards: there is space */
    if ((o->run && rsa_key_make(&key, &err)) ||
        cmd_membership_open(&o->membership, &options.auth, &err) ||
        swarm_open(&s, &options, &err)) {
        command_failed("conform", "%s", err.text);
        membership_close(&o->membership);
        conform_report_close(&report);
        rsa_key_clear(&key);
        return 1;
    }
    w.swarm = &s;
    w.key = &key;
    w.auth = options.auth;
    talk_init(&w.talk, s.host, &target.peer);
    if (walk_clause(&w, "hivemind 1.6", "a client joins the DHT through it",
                    !cmd_wait_joined("conform", &s, &err), "%s", err.text)) {
        walk_wire(&w);
        walk_dht(&w);
        walk_averaging(&w);
    }
    talk_clear(&w.talk);
    swarm_close(&s);
    membership_close(&o->membership);
    if (page && conform_report_write(&report, page, &err)) {
        command_failed("conform", "%s", err.text);
        w.failed++;
    } else if (page) printf("report: %s\n", page);
    printf("%ld passed, %ld failed, %ld skipped\n", w.passed, w.failed, w.skipped);
    conform_report_close(&report);
    rsa_key_clear(&key);
    return w.failed != 0;
}
