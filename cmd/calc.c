/* calc.c - `potluck calc`: the memory for training a model, term by term. [TTT 2.2] */
#include "cmd.h"
#include "cmd/train/train_job.h"
#include "data/files/json.h"
#include "data/models/dalle_config.h"
#include "data/models/memory_json.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SETTINGS_MAX 64 /* more than there are options: later ones replace earlier ones */

struct request {
    struct pl_memory_plan plan;
    const char *model;
    int original, json, models;
    /* In the order given. They change the model's own settings, so they wait until the model is
     * known. */
    struct {
        const char *name, *value;
    } set[SETTINGS_MAX];
    int settings;
};

static int take_setting(void *options, const char *name, const char *value, struct pl_err *err)
{
    struct request *r = options;
    if (r->settings == SETTINGS_MAX)
        return pl_fail(err, PL_EUSE, "more than %d options", SETTINGS_MAX);
    if (!value) value = strncmp(name, "no-", 3) ? "on" : "off";
    r->set[r->settings].name = strncmp(name, "no-", 3) ? name : name + 3;
    r->set[r->settings++].value = value;
    return PL_OK;
}

static const char *const optimizers[] = { "32-bit",     "16-bit",           "8-bit",
                                          "factorized", "factorized-alone", NULL };
static const char *const precision_names[] = { "full", "mixed", "half", NULL };
static const char *const layer_names[] = { "stored", "checkpoint", "reversible", NULL };

#define SETTING OPT_CALL(take_setting)
#define OPTIONS struct request
static const struct option_row rows[] = {
    { "original", NULL, NULL, OPT_FLAG(original),
      "use the formulas of the demonstration's calculator, with its errors (default model: "
      "gpt2-l)" },
    { "json", NULL, NULL, OPT_FLAG(json), "print bytes and seconds as JSON" },
    { "models", NULL, NULL, OPT_FLAG(models), "list the models" },
    { "model", "NAME", NULL, OPT_PATH_OR(model, train_configs), "the same as MODEL" },
    { "optimizer", "O", NULL, OPT_CALL_OF(take_setting, optimizers),
      "32-bit (adam), 16-bit, 8-bit, factorized (adafactor) or factorized-alone" },
    { "precision", "P", NULL, OPT_CALL_OF(take_setting, precision_names),
      "full (O0), mixed (O1, O2) or half (O3)" },
    { "fp16-level", "P", NULL, SETTING, "the same as --precision" },
    { "layers", "A", NULL, OPT_CALL_OF(take_setting, layer_names),
      "activations kept for the backward pass: stored, checkpoint or reversible" },
    { "checkpoint", NULL, NULL, SETTING, "the same as --layers checkpoint" },
    { "no-checkpoint", NULL, NULL, SETTING, "the same as --layers stored" },
    { "offload", NULL, NULL, SETTING, "optimizer in host memory" },
    { "no-offload", NULL, NULL, SETTING, "optimizer on the device" },
    { "shared-groups", "N", NULL, SETTING, "number of sets of layer parameters that layers share" },
    { "bsz", "N", NULL, SETTING, "sequences per micro-batch" },
    { "nlayers", "N", NULL, SETTING,
      "layers; this option and the next five replace the model's own values" },
    { "seqlen", "N", NULL, SETTING, "tokens per sequence" },
    { "dmodel", "N", NULL, SETTING, "model width" },
    { "dhid", "N", NULL, SETTING, "width of the feed-forward layers" },
    { "vocab-size", "N", NULL, SETTING, "vocabulary" },
    { "heads", "N", NULL, SETTING, "attention heads" },
    { "zero", "N", NULL, SETTING, "ZeRO stage, 0 to 3, over --ngpus devices" },
    { "ngpus", "N", NULL, SETTING, "devices" },
    { NULL, NULL, NULL, OPT_HEADING, "Only without --original" },
    { "compression-bits", "BITS", NULL, SETTING,
      "gradients averaged with other peers in 8, 16 or 32 bits" },
    { "exchange", "BITS", NULL, SETTING, OPTION_OLD_NAME },
    { "peers", "N", NULL, SETTING, "peers that average gradients" },
    { "min-8bit", "N", NULL, SETTING, "tensors with fewer elements keep 32-bit optimizer state" },
    { "block", "N", NULL, SETTING, "elements that share a scale in 8-bit optimizer state" },
    { "fused", NULL, NULL, SETTING, "attention that never writes its scores to memory" },
    { "no-fused", NULL, NULL, SETTING, "attention that writes its scores" },
    { "packed", NULL, NULL, SETTING,
      "weights that --precision bf16 keeps packed on a processor with instructions for it; this "
      "project's models alone" },
    { "no-packed", NULL, NULL, SETTING, "no packed weights" },
    { "dropout", NULL, NULL, SETTING, "keep dropout masks" },
    { "no-dropout", NULL, NULL, SETTING, "no dropout" },
    { 0 },
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

static int apply(struct request *r, struct pl_err *err)
{
    int rc = parse_model(r, err);
    for (int i = 0; i < r->settings && !rc; i++)
        rc = pl_memory_set(&r->plan, r->set[i].name, r->set[i].value, err);
    return rc ? rc : pl_memory_check(&r->plan, err);
}

static int print_json(json_t *o)
{
    char *text = pl_json_text(o, JSON_INDENT(1) | JSON_REAL_PRECISION(17));
    int bad = !text || puts(text) < 0;
    if (bad) command_failed("calc", "%s", text ? "cannot write" : "no memory");
    free(text);
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

/* A sentence in lines next to the figures. */
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

static int run_calc(int argc, char **argv)
{
    struct request r = { .model = NULL };
    struct pl_err err = { "" };
    int words, status;
    if (options_parse(&command_calc, &r, argc, argv, &words, &status)) return status;
    if (words > 1) {
        command_misused("calc", "one model at a time, not '%.40s' too", argv[2]);
        return 2;
    }
    if (words) r.model = argv[1];
    if (apply(&r, &err)) {
        command_failed("calc", "%s", err.text);
        return 2;
    }
    pl_json_begin();
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

const struct command command_calc = {
    .name = "calc",
    .summary = "memory that training a model takes, term by term",
    .synopsis = "[MODEL] [--original] [--json] [OPTION ...]",
    .about =
        "Prints the memory that training takes and explains each term. MODEL (default: run) is "
        "run, middle, small, demo, a JSON file, or a model of the demonstration's calculator (see "
        "--models).",
    .rows = rows,
    .notes =
        "paper/memory.md describes the original calculator's errors, and how far the corrected "
        "figures are from measured memory.",
    .run = run_calc,
};
