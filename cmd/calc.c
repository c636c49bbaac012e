/* calc.c - `potluck calc`: what training a model takes, term by term. [TTT 2.2] */
#include "cmd.h"
#include "data/models/dalle_config.h"
#include "data/models/memory_json.h"

#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char usage[] =
    "usage: potluck calc [MODEL] [--original] [--json] [OPTION ...]\n"
    "\n"
    "Prints the memory that training takes, each term explained. MODEL (default: run) is run,\n"
    "middle, small, demo, a JSON file, or one of the demonstration's calculator (--models).\n"
    "\n"
    "  --original         the demonstration's own formulas, its errors included\n"
    "                     (default MODEL: gpt2-l)\n"
    "  --json             for programs: bytes and seconds\n"
    "  --models           what models there are\n"
    "\n"
    "  --model NAME       the same as MODEL\n"
    "  --optimizer O      32-bit (adam), 16-bit, 8-bit, factorized (adafactor), factorized-alone\n"
    "  --precision P      full (O0), mixed (O1, O2) or half (O3); also --fp16-level\n"
    "  --layers A         stored, checkpoint or reversible; --checkpoint and --no-checkpoint too\n"
    "  --offload          optimizer in host memory; --no-offload\n"
    "  --shared-groups N  sets of layer weights\n"
    "  --bsz N            sequences in a micro-batch\n"
    "  --nlayers --seqlen --dmodel --dhid --vocab-size --heads N   in place of the model's own\n"
    "  --zero N           ZeRO stage, 0 to 3, over --ngpus N devices\n"
    "\n"
    "Without --original also:\n"
    "  --exchange BITS    gradients averaged with other peers in 8, 16 or 32 bits; --peers N\n"
    "                     of them\n"
    "  --min-8bit N       tensors below keep 32-bit statistics; --block N elements share a scale\n"
    "  --fused --no-fused       attention that never writes its scores\n"
    "  --dropout --no-dropout   keeps masks\n"
    "\n"
    "What the original got wrong, and how far the corrected figures are from measured memory:\n"
    "paper/memory.md.\n";

enum { OPTION_VALUE = 256, OPTION_ON, OPTION_OFF };

#define VALUE(name) \
    { \
        name, required_argument, NULL, OPTION_VALUE \
    }
#define SWITCH(name) \
    { name, no_argument, NULL, OPTION_ON }, { "no-" name, no_argument, NULL, OPTION_OFF }
static const struct option options[] = {
    VALUE("model"),
    VALUE("optimizer"),
    VALUE("precision"),
    VALUE("fp16-level"),
    VALUE("layers"),
    VALUE("shared-groups"),
    VALUE("shared_groups"),
    VALUE("bsz"),
    VALUE("nlayers"),
    VALUE("seqlen"),
    VALUE("dmodel"),
    VALUE("dhid"),
    VALUE("vocab-size"),
    VALUE("vocab_size"),
    VALUE("heads"),
    VALUE("zero"),
    VALUE("ngpus"),
    VALUE("exchange"),
    VALUE("peers"),
    VALUE("min-8bit"),
    VALUE("block"),
    SWITCH("checkpoint"),
    SWITCH("offload"),
    SWITCH("fused"),
    SWITCH("dropout"),
    { "original", no_argument, NULL, 'o' },
    { "json", no_argument, NULL, 'j' },
    { "models", no_argument, NULL, 'm' },
    { "help", no_argument, NULL, 'h' },
    { 0 },
};

struct request {
    struct pl_memory_plan plan;
    const char *model;
    int original, json, models;
};

static int parse_model(struct request *r, struct pl_err *err)
{
    struct pl_memory_model m;
    struct pl_dalle_config c;
    int rc;
    if (!r->model) r->model = r->original ? "gpt2-l" : "run";
    if (!strpbrk(r->model, "./")) rc = pl_memory_model_named(&m, r->model, err);
    else if (!(rc = pl_dalle_config_find(&c, r->model, err))) pl_memory_model_of(&m, &c);
    if (!rc) pl_memory_plan_for(&r->plan, &m);
    return rc;
}

/* Twice over the options: the model first, because the others change what it brings. */
static int parse(struct request *r, int argc, char **argv, struct pl_err *err)
{
    for (int pass = 0; pass < 2; pass++) {
        int c, at, rc = PL_OK;
        optind = 1;
        while ((c = getopt_long(argc, argv, "h", options, &at)) != -1) {
            const char *name = c == '?' || c == 'h' ? "" : options[at].name;
            switch (c) {
            case 'o': r->original = 1; break;
            case 'j': r->json = 1; break;
            case 'm': r->models = 1; break;
            case OPTION_VALUE:
                if (!strcmp(name, "model")) r->model = optarg;
                else if (pass) rc = pl_memory_set(&r->plan, name, optarg, err);
                break;
            case OPTION_ON:
                if (pass) rc = pl_memory_set(&r->plan, name, "on", err);
                break;
            case OPTION_OFF:
                if (pass) rc = pl_memory_set(&r->plan, name + 3, "off", err);
                break;
            case 'h': fputs(usage, stdout); exit(0);
            default: return PL_EUSE; /* getopt has said it */
            }
            if (rc) return rc;
        }
        if (optind < argc) r->model = argv[optind++];
        if (optind < argc)
            return pl_fail(err, PL_EUSE, "one model at a time, not '%.40s' too", argv[optind]);
        if (!pass && (rc = parse_model(r, err))) return rc;
    }
    return pl_memory_check(&r->plan, err);
}

static int print_json(json_t *o)
{
    int bad = !o || json_dumpf(o, stdout, JSON_INDENT(1) | JSON_REAL_PRECISION(17));
    putchar('\n');
    json_decref(o);
    return bad;
}

static void size(char out[32], double bytes)
{
    if (bytes == 0) snprintf(out, 32, "-");
    else if (bytes < 0x1p30) snprintf(out, 32, "%.2f MiB", bytes / 0x1p20);
    else snprintf(out, 32, "%.2f GiB", bytes / 0x1p30);
}

static void row(const char *name, double device, double host)
{
    char d[32], h[32];
    size(d, device);
    size(h, host);
    printf("%-12s %14s %14s", name, d, h);
}

static void print_original(const struct pl_memory_plan *plan)
{
    struct pl_memory_original m;
    pl_memory_original(&m, plan);
    printf("%s, by the demonstration's own formulas (2^30 bytes, which its page called GB)\n\n"
           "parameters            %.0f\n"
           "GPU total             %.2f\n"
           "offloaded to RAM      %.2f\n"
           "parameters' memory    %.2f\n"
           "activations           %.2f\n"
           "optimizer (%s)       %.2f\n"
           "CPU-GPU transfer      %.0f ms\n"
           "weight gradients      %.2f (in the total, but on none of its lines)\n",
           *plan->model.name ? plan->model.name : "own sizes", m.parameters, m.device / 0x1p30,
           m.host / 0x1p30, m.weights / 0x1p30, m.activations / 0x1p30,
           plan->offload ? "CPU" : "GPU", (plan->offload ? m.host : m.optimizer) / 0x1p30,
           1000 * m.transfer_s, m.gradients / 0x1p30);
}

/* A sentence in lines beside the figures. */
static void explain(const char *why)
{
    const int from = 44, width = 56;
    int at = 0;
    fputs("  ", stdout);
    while (*why) {
        int n = (int)strcspn(why, " ");
        if (at && at + 1 + n > width) {
            printf("\n%*s", from, "");
            at = 0;
        }
        at += printf(at ? " %.*s" : "%.*s", n, why);
        why += n + (why[n] == ' ');
    }
    putchar('\n');
}

static void print_corrected(const struct pl_memory_plan *plan)
{
    static const char *const layers[] = { "stored layers", "checkpointed layers",
                                          "reversible layers" };
    static const char *const precisions[] = { "32-bit", "mixed precision", "16-bit" };
    struct pl_memory_use use;
    pl_memory_estimate(&use, plan);
    printf("%s: %.0f parameters", plan->model.name, use.parameters);
    if (use.unshared > use.parameters)
        printf(", shared from %.0f (%.2f times as many)", use.unshared,
               use.unshared / use.parameters);
    printf("\nmicro-batch %.0f, %s, %s\n\n%-12s %14s %14s\n", plan->batch, layers[plan->layers],
           precisions[plan->precision], "", "device", "host");
    for (int t = 0; t < PL_TERM_COUNT; t++) {
        if (use.term[t].device == 0 && use.term[t].host == 0) continue;
        row(pl_memory_term_name(t), use.term[t].device, use.term[t].host);
        explain(pl_memory_term_why(t));
    }
    row("total", use.device, use.host);
    putchar('\n');
    if (use.transfer_s > 0)
        printf("\n%.3f s a step for gradients down and weights up, or among devices\n",
               use.transfer_s);
    if (use.allreduce_bytes > 0)
        printf("\n%.1f MB sent a step in a swarm of %.0f (32-bit: %.1f MB)\n",
               use.allreduce_bytes / 1e6, plan->peers,
               8 * use.parameters * (plan->peers - 1) / plan->peers / 1e6);
    puts(plan->model.family == PL_FAMILY_DALLE
             ? "\nOn a processor both columns are the same memory."
             : "\nA framework on a GPU adds its context and unused pieces of its pool: plan 20 to "
               "30 % more.");
}

static void print_models(void)
{
    printf("%-12s %8s %8s %8s %7s %10s %16s\n", "", "sequence", "width", "hidden", "layers",
           "vocabulary", "parameters");
    for (size_t i = 0; i < pl_memory_models(); i++) {
        struct pl_memory_model m;
        struct pl_memory_plan plan;
        struct pl_memory_use use;
        double d;
        if (pl_memory_model_at(&m, i)) continue;
        pl_memory_plan_for(&plan, &m);
        pl_memory_estimate(&use, &plan);
        d = m.published_width > 0 ? m.published_width : m.width;
        printf("%-12s %8.0f %8.0f %8.0f %7.0f %10.0f %16.0f\n", m.name, m.sequence, d,
               m.hidden / m.width * d, m.layers, m.vocabulary, use.parameters);
    }
}

int cmd_calc(int argc, char **argv)
{
    struct request r = { 0 };
    struct pl_err err = { "" };
    if (parse(&r, argc, argv, &err)) {
        if (err.text[0]) fprintf(stderr, "potluck calc: %s\n", err.text);
        return 2;
    }
    if (r.models && r.json) return print_json(pl_memory_models_to_json());
    if (r.models) print_models();
    else if (r.original && r.json) {
        struct pl_memory_original m;
        pl_memory_original(&m, &r.plan);
        return print_json(pl_memory_original_to_json(&m));
    } else if (r.json) {
        struct pl_memory_use use;
        pl_memory_estimate(&use, &r.plan);
        return print_json(pl_memory_use_to_json(&use));
    } else if (r.original) print_original(&r.plan);
    else print_corrected(&r.plan);
    return 0;
}
