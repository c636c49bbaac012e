/* doctor.c - `potluck doctor`: why joining fails, on which side, and what to do. */
#include "preflight.h"
#include "preflight_ask.h"
#include "cmd/cmd.h"
#include "cmd/common/membership.h"

#include <getopt.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char usage[] =
    "usage: potluck doctor [--join MULTIADDR ...] [--listen MULTIADDR ...] [--announce MULTIADDR ...]\n"
    "                      [--identity FILE] [--client-mode] [--run ID] [--target-batch N]\n"
    "                      [--model NAME] [--quick] [--json]\n"
    "\n"
    "Asks each entry peer by itself, compares clocks, sees whether others can call this machine and what\n"
    "router is between, and whether the model fits and how fast it would go. Use the options that you\n"
    "join with. One line a finding, and one of advice where something is to be done.\n"
    "\n"
    "  --join MULTIADDR   an entry peer; may be repeated\n"
    "  --listen, --announce, --identity, --client-mode   as for potluck peer\n"
    "  --run ID           the run that is to be joined: does anybody train it\n"
    "  --target-batch N   that you will train it with: do the others step at so many samples, too\n"
    "  --model NAME       of potluck calc --models (default: run)\n"
    "  --quick            neither bandwidth nor memory and speed\n"
    "  --json             lines of JSON\n" MEMBERSHIP_USAGE COMPUTE_USAGE "\n"
    "Exit status 1: no entry peer lets us in, or something else will keep you from taking part.\n";

#define ADDRESSES_MAX 64

struct doctor_options {
    const char *join[ADDRESSES_MAX], *listen[ADDRESSES_MAX], *announce[ADDRESSES_MAX];
    size_t join_count, listen_count, announce_count;
    const char *identity, *model, *run;
    struct compute compute;
    struct membership membership;
    int64_t target_batch;
    int client_mode, quick, json, bad;
};

static int add(const char **list, size_t *count, const char *address)
{
    if (*count == ADDRESSES_MAX)
        return cmd_misused("doctor", "more than %d addresses", ADDRESSES_MAX);
    list[(*count)++] = address;
    return PL_OK;
}

static int parse(struct doctor_options *o, int argc, char **argv)
{
    static const struct option options[] = { { "join", required_argument, NULL, 'j' },
                                             { "listen", required_argument, NULL, 'l' },
                                             { "announce", required_argument, NULL, 'a' },
                                             { "identity", required_argument, NULL, 'i' },
                                             { "client-mode", no_argument, NULL, 'c' },
                                             { "run", required_argument, NULL, 'r' },
                                             { "target-batch", required_argument, NULL, 't' },
                                             { "model", required_argument, NULL, 'm' },
                                             { "quick", no_argument, NULL, 'q' },
                                             { "json", no_argument, NULL, 'J' },
                                             COMPUTE_OPTIONS,
                                             MEMBERSHIP_OPTIONS,
                                             { "help", no_argument, NULL, 'h' },
                                             { NULL, 0, NULL, 0 } };
    int option, rc = PL_OK;
    while (rc >= 0 && (option = getopt_long(argc, argv, "h", options, NULL)) != -1) {
        switch (option) {
        case 'j': rc = add(o->join, &o->join_count, optarg); break;
        case 'l': rc = add(o->listen, &o->listen_count, optarg); break;
        case 'a': rc = add(o->announce, &o->announce_count, optarg); break;
        case 'i': o->identity = optarg; break;
        case 'c': o->client_mode = 1; break;
        case 'r': o->run = optarg; break;
        case 't':
            rc = cmd_integer(&o->target_batch, "doctor", "--target-batch", optarg, 1, 1 << 20);
            break;
        case 'm': o->model = optarg; break;
        case 'q': o->quick = 1; break;
        case 'J': o->json = 1; break;
        case 'h': fputs(usage, stdout); exit(0);
        default:
            if (membership_option(&o->membership, option, optarg)) break;
            if ((rc = compute_option(&o->compute, "doctor", option, optarg)) == 0) rc = PL_EUSE;
        }
    }
    if (rc < 0 || cmd_no_more("doctor", argc, argv)) return PL_EUSE;
    if (o->client_mode && o->listen_count)
        return cmd_misused("doctor", "--client-mode and --listen exclude each other");
    if (!o->client_mode && !o->listen_count) o->listen[o->listen_count++] = "/ip4/0.0.0.0/tcp/0";
    return PL_OK;
}

static void print(void *context, const struct finding *f)
{
    static const char *const levels[] = { "ok", "warning", "bad" }, *const marks[] = { "ok  ",
                                                                                       "WARN",
                                                                                       "BAD " };
    struct doctor_options *o = context;
    o->bad |= f->level == FINDING_BAD;
    if (o->json) {
        json_t *line = json_pack("{s:s,s:s,s:s,s:s,s:s}", "event", "finding", "what", f->what,
                                 "level", levels[f->level], "text", f->text, "advice", f->advice);
        char *text = json_dumps(line, JSON_COMPACT);
        if (text) puts(text);
        free(text);
        json_decref(line);
    } else {
        printf("%s %-10s %s\n", marks[f->level], f->what, f->text);
        if (f->advice[0]) printf("     %-10s -> %s\n", "", f->advice);
    }
    fflush(stdout);
}

int cmd_doctor(int argc, char **argv)
{
    struct doctor_options o = { .model = "run" };
    struct preflight_plan plan;
    struct pl_backend be;
    struct pl_err err;
    int rc = PL_OK;
    if (parse(&o, argc, argv)) return 2;
    struct swarm_options swarm = { .cmd = "doctor",
                                   .listen = o.listen,
                                   .listen_count = o.listen_count,
                                   .announce = o.announce,
                                   .announce_count = o.announce_count,
                                   .join = o.join,
                                   .join_count = o.join_count,
                                   .identity = o.identity };
    if (membership_open(&o.membership, &swarm.auth, &err)) {
        struct finding f = { .level = FINDING_BAD, .what = "token" };
        char *advice = strstr(err.text, "; "); /* which side, as every sentence of it ends */
        if (advice) *advice = 0, advice += 2;
        snprintf(f.text, sizeof f.text, "%.500s", err.text);
        snprintf(f.advice, sizeof f.advice, "%.300s",
                 advice ? advice : "without a token nobody in this swarm answers: ask its keeper");
        print(&o, &f);
    }
    plan = (struct preflight_plan){ .load = o.quick ? 0 : PREFLIGHT_LOAD,
                                    .run = o.run,
                                    .trains = 1,
                                    .target_batch = o.target_batch };
    if (o.join_count && !o.json)
        fprintf(stderr, "potluck doctor: asking %zu entry peer%s, for %.0f s at most\n",
                o.join_count, o.join_count == 1 ? "" : "s", PROBE_LIMIT);
    if (o.join_count) rc = preflight_swarm(&swarm, &plan, print, &o);
    else fputs("potluck doctor: no --join: the network is not looked at\n", stderr);
    if (!o.quick) {
        if (compute_open(&be, &o.compute, "doctor")) rc = PL_EDEVICE;
        else if (preflight_machine(o.model, &be, print, &o, &err)) {
            fprintf(stderr, "potluck doctor: --model: %s\n", err.text);
            rc = PL_EUSE;
        }
    }
    membership_close(&o.membership);
    return rc || o.bad;
}
