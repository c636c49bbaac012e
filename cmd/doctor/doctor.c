/* doctor.c - `potluck doctor`: why joining fails, on which side, and what to do. */
#include "preflight.h"
#include "preflight_ask.h"
#include "cmd/cmd.h"
#include "cmd/options/checks.h"
#include "cmd/options/join_options.h"
#include "cmd/common/swarm_messages.h"
#include "cmd/common/json_event.h"

#include <jansson.h>
#include <stdio.h>
#include <string.h>

struct doctor_options {
    struct join_options join;
    const char *model, *run;
    struct compute compute;
    int64_t target_batch;
    int quick, json, bad;
};

#define OPTIONS struct doctor_options
static const struct option_row rows[] = {
    { NULL, NULL, NULL, OPT_TABLE(join, join_rows), NULL },
    { "run", "ID", NULL, OPT_TEXT_CHECKED(run, check_run),
      "run to look for: says whether any peer trains it" },
    { "target-batch", "N", NULL, OPT_INTEGER(target_batch, 1, 1 << 20),
      "target batch that you will train with; it is compared with that of the other peers" },
    { "model", "NAME", "run", OPT_TEXT(model),
      "model whose memory and speed are checked, one of potluck calc --models" },
    { "quick", NULL, NULL, OPT_FLAG(quick), "skip the tests of bandwidth, memory and speed" },
    { "json", NULL, NULL, OPT_FLAG(json), "print findings as lines of JSON" },
    { NULL, NULL, NULL, OPT_TABLE(compute, compute_rows), NULL },
    { 0 },
};

static void print(void *context, const struct finding *f)
{
    static const char *const levels[] = { "ok", "warning", "bad" }, *const marks[] = { "ok  ",
                                                                                       "WARN",
                                                                                       "BAD " };
    struct doctor_options *o = context;
    o->bad |= f->level == FINDING_BAD;
    if (o->json) {
        json_event_print(json_pack("{s:s,s:s,s:s,s:s,s:s}", "event", "finding", "what", f->what,
                                   "level", levels[f->level], "text", f->text, "advice",
                                   f->advice));
    } else {
        printf("%s %-12s %s\n", marks[f->level], f->what, f->text);
        if (f->advice[0]) printf("     %-12s -> %s\n", "", f->advice);
    }
    fflush(stdout);
}

static int run_doctor(int argc, char **argv)
{
    struct doctor_options o = { .bad = 0 };
    struct preflight_plan plan;
    struct swarm_options swarm;
    struct pl_backend be;
    struct pl_err err;
    size_t bootstrap_peers;
    int rc;
    if (options_parse(&command_doctor, &o, argc, argv, NULL, &rc)) return rc;
    if (o.join.client_mode && o.join.listen.count) {
        command_misused("doctor", "--client-mode and --listen exclude each other");
        return 2;
    }
    join_options_default(&o.join);
    swarm = join_options_swarm(&o.join, "doctor");
    bootstrap_peers = o.join.join.count;
    if (cmd_membership_open(&o.join.membership, &swarm.auth, &err)) {
        struct finding f = { .level = FINDING_BAD, .what = "token" };
        char *advice = strstr(err.text, "; "); /* which side, as every sentence of it ends */
        if (advice) *advice = 0, advice += 2;
        snprintf(f.text, sizeof f.text, "%.500s", err.text);
        snprintf(
            f.advice, sizeof f.advice, "%.300s",
            advice
                ? advice
                : "no peer of this swarm answers without a token: ask the swarm's owner for one");
        print(&o, &f);
    }
    plan = (struct preflight_plan){ .load = o.quick ? 0 : PREFLIGHT_LOAD,
                                    .run = o.run,
                                    .trains = 1,
                                    .ways = 1,
                                    .target_batch = o.target_batch };
    if (bootstrap_peers && !o.json)
        fprintf(stderr, "potluck doctor: contacting %zu bootstrap peer%s, for at most %.0f s\n",
                bootstrap_peers, bootstrap_peers == 1 ? "" : "s", PROBE_LIMIT);
    if (bootstrap_peers) rc = preflight_swarm(&swarm, &plan, print, &o);
    else fputs("potluck doctor: without --join the network is not checked\n", stderr);
    if (!o.quick) {
        if (compute_open(&be, &o.compute, "doctor")) rc = PL_EDEVICE;
        else if (preflight_machine(o.model, &be, print, &o, &err)) {
            command_failed("doctor", "--model: %s", err.text);
            rc = PL_EUSE;
        }
    }
    membership_close(&o.join.membership);
    return rc || o.bad;
}

const struct command command_doctor = {
    .name = "doctor",
    .summary = "find out why joining fails, on which side, and what to do",
    .synopsis = "[--join MULTIADDR ...] [--run ID] [--model NAME] [OPTION ...]",
    .about =
        "Contacts each bootstrap peer, compares clocks, and tests whether other peers can connect "
        "to this machine, what kind of router is in between, whether the model fits into memory "
        "and how fast it would train. Give the options that you want to join with. Each finding "
        "is one line; a second line says what to do about a problem.",
    .rows = rows,
    .notes =
        "Exit status 1: no bootstrap peer accepts us, or another problem prevents taking part.",
    .run = run_doctor,
};
