/* main.c - `make simulate`: swarms of 30 to 10,000 peers, with several settings, five seeds each: a
 * table, scaling.json and curves. `simulate --peers N` plays one swarm with default options. */
#include "world.h"
#include "data/images/figure.h"

#include <math.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define STEPS 3
#define LIFE (4 * 3600.0) /* s; volunteers of the run stayed for hours */
#define SIZES 6
#define SEEDS 5

static const size_t sizes[SIZES] = { 30, 100, 300, 1000, 3000, 10000 };

static const struct plan {
    const char *name, *label; /* in the table; in the figures */
    int measured, grid;
    size_t most; /* peers: larger swarms take minutes to fail */
} plans[] = {
    { "one group, equal shares (the reference run)", "equal shares", 0, 0, 1000 },
    { "one group, measured bandwidth", "measured bandwidth", 1, 0, 1000 },
    { "default options", "default options", 1, 1, SIZE_MAX },
};

static struct world_result results[PL_COUNT(plans)][SIZES][SEEDS];

static struct world_options options_of(const struct plan *plan, size_t peers, uint64_t seed)
{
    return (struct world_options){ .peers = peers,
                                   .seed = seed,
                                   .steps = STEPS,
                                   .accumulate_s = 120,
                                   .warm = plan->measured,
                                   .life_s = LIFE,
                                   .rounds = 1,
                                   .expect = 1,
                                   .measured = plan->measured,
                                   .limited = plan->grid,
                                   .grid = plan->grid,
                                   .values = 125894244 };
}

static int simulate(struct world_result *r, const struct world_options *o)
{
    struct pl_err err;
    if (!world_run(r, o, &err)) return 0;
    fprintf(stderr, "simulate: %s\n", err.text);
    return 1;
}

/* Sizes that a plan is played with: the first ones. */
static int sizes_of(const struct plan *plan)
{
    int n = 0;
    while (n < SIZES && sizes[n] <= plan->most) n++;
    return n;
}

/* --- the table and the figures that paper/scaling.md quotes ------------------------------------- */

/* What is measured: its name in scaling.json; its column; how it is printed there. */
static const struct column {
    const char *key, *title, *unit;
    size_t at; /* of a double in world_result */
    double scale;
    int digits;
} columns[] = {
#define COLUMN(key, title, unit, field, scale, digits) \
    { \
        key, title, unit, offsetof(struct world_result, field), scale, digits \
    }
    COLUMN("averaging_s", "averaging, s", "", averaging_s, 1, 0),
    COLUMN("first_s", "first, s", "", first_s, 1, 0),
    COLUMN("failed", "failed rounds", " %", failed, 100, 1),
    COLUMN("tries", "tries", "", tries, 1, 2),
    COLUMN("group", "mean group", "", group, 1, 0),
    COLUMN("spread", "spread left", "", spread, 1, 3),
    COLUMN("withheld", "withheld", " %", withheld, 100, 1),
    COLUMN("sent_mb", "MB sent, a peer and step", "", moved, 1e-6, 0),
    COLUMN("matchmaking_mb", "MB for matchmaking", "", control, 1e-6, 1),
    COLUMN("polls_lost", "polls lost", " %", polls_lost, 100, 1),
    COLUMN("progress_mb_s", "MB/s of a DHT node", "", progress, 1e-6, 1),
    COLUMN("progress_lost", "progress polls lost", " %", unheard, 100, 1),
#undef COLUMN
};

static double value_of(const struct world_result *r, const struct column *c)
{
    return c->scale * *(const double *)((const char *)r + c->at);
}

/* The seeds' mean, with the least and the most where these differ as they are printed. */
static void put_cell(FILE *out, const struct world_result *r, int seeds, const struct column *c)
{
    double sum = 0, least = INFINITY, most = -INFINITY;
    char low[32], high[32];
    for (int s = 0; s < seeds; s++) {
        const double v = value_of(&r[s], c);
        sum += v;
        least = fmin(least, v);
        most = fmax(most, v);
    }
    snprintf(low, sizeof low, "%.*f", c->digits, least);
    snprintf(high, sizeof high, "%.*f", c->digits, most);
    fprintf(out, " %.*f%s", c->digits, sum / seeds, c->unit);
    if (strcmp(low, high)) fprintf(out, " (%s to %s)", low, high);
    fprintf(out, " |");
}

static void put_row(FILE *out, const char *plan, size_t peers, const struct world_result *r,
                    int seeds)
{
    fprintf(out, "| %s | %zu |", plan, peers);
    for (size_t c = 0; c < PL_COUNT(columns); c++) put_cell(out, r, seeds, &columns[c]);
    fprintf(out, "\n");
    fflush(out);
}

static void put_titles(FILE *out)
{
    fprintf(out, "| | peers |");
    for (size_t c = 0; c < PL_COUNT(columns); c++) fprintf(out, " %s |", columns[c].title);
    fprintf(out, "\n| --- | --- |");
    for (size_t c = 0; c < PL_COUNT(columns); c++) fprintf(out, " --- |");
    fprintf(out, "\n");
}

static void put_json(FILE *out, const struct plan *plan, size_t peers, int seed,
                     const struct world_result *r, int is_first)
{
    fprintf(out, "%s\n  {\"plan\": \"%s\", \"peers\": %zu, \"seed\": %d", is_first ? "[" : ",",
            plan->name, peers, seed);
    for (size_t c = 0; c < PL_COUNT(columns); c++)
        fprintf(out, ", \"%s\": %.5g", columns[c].key,
                value_of(r, &columns[c]) / (columns[c].scale == 100 ? 100 : 1));
    fprintf(out, "}");
}

static int draw(const char *folder, const char *name, const char *title, const char *unit,
                const struct column *c)
{
    static double y[PL_COUNT(plans)][SIZES];
    struct figure_line lines[PL_COUNT(plans)];
    struct figure figure = { .title = title, .x_label = "peers", .y_label = unit, .log_x = 1 };
    char path[512];
    double x[SIZES];
    FILE *out;
    for (int i = 0; i < SIZES; i++) x[i] = (double)sizes[i];
    for (size_t k = 0; k < PL_COUNT(plans); k++) {
        for (int i = 0; i < sizes_of(&plans[k]); i++) {
            y[k][i] = 0;
            for (int s = 0; s < SEEDS; s++) y[k][i] += value_of(&results[k][i][s], c) / SEEDS;
        }
        lines[k] = (struct figure_line){
            .label = plans[k].label, .x = x, .y = y[k], .count = (size_t)sizes_of(&plans[k])
        };
    }
    snprintf(path, sizeof path, "%.400s/%s.svg", folder, name);
    if ((out = fopen(path, "w"))) figure_lines(out, &figure, lines, PL_COUNT(plans));
    if (out && !fclose(out)) return 0;
    fprintf(stderr, "simulate: cannot write %s\n", path);
    return 1;
}

/* --- the program -------------------------------------------------------------------------------- */

#define TENSORS_MAX 16

/* One number: as many values, in tensors like a transformer's. More, with commas: a tensor of each. */
static void take_values(struct world_options *o, size_t tensor[TENSORS_MAX], const char *text)
{
    char *end = (char *)(uintptr_t)text;
    size_t count = 0, sum = 0;
    do {
        tensor[count] = strtoull(end, &end, 10);
        sum += tensor[count++];
    } while (count < TENSORS_MAX && *end++ == ',');
    o->values = sum;
    if (count > 1) o->tensor = tensor, o->tensors = count;
}

/* Any number of peers with default options: one seed, or five where the swarm is test/soak/grid.py's,
 * with its tensors, time of a batch and lives. How tensors are cut decides who reduces a part, and so
 * whose death makes a round fail. */
static int simulate_one(char **argv, int argc)
{
    const struct plan *plan = &plans[PL_COUNT(plans) - 1];
    const int seeds = argc > 1 ? SEEDS : 1;
    struct world_result r[SEEDS];
    size_t tensor[TENSORS_MAX];
    for (int s = 0; s < seeds; s++) {
        struct world_options o = options_of(plan, strtoull(argv[0], NULL, 10), (uint64_t)s + 1);
        if (argc > 1) take_values(&o, tensor, argv[1]);
        if (argc > 2) o.accumulate_s = strtod(argv[2], NULL);
        if (argc > 3) o.life_s = strtod(argv[3], NULL);
        if (simulate(&r[s], &o)) return 1;
    }
    put_titles(stdout);
    put_row(stdout, plan->name, strtoull(argv[0], NULL, 10), r, seeds);
    return 0;
}

static int simulate_all(const char *folder)
{
    char path[512];
    FILE *json;
    snprintf(path, sizeof path, "%.400s/scaling.json", folder);
    if (!(json = fopen(path, "w"))) {
        fprintf(stderr, "simulate: cannot write %s\n", path);
        return 1;
    }
    put_titles(stdout);
    for (size_t k = 0; k < PL_COUNT(plans); k++)
        for (int i = 0; i < sizes_of(&plans[k]); i++) {
            struct world_result *r = results[k][i];
            for (int s = 0; s < SEEDS; s++) {
                const struct world_options o = options_of(&plans[k], sizes[i], (uint64_t)s + 1);
                if (simulate(&r[s], &o)) return 1;
                put_json(json, &plans[k], sizes[i], s + 1, &r[s], !k && !i && !s);
            }
            put_row(stdout, i ? "" : plans[k].name, sizes[i], r, SEEDS);
        }
    fprintf(json, "\n]\n");
    fclose(json);
    return draw(folder, "scaling_step", "Averaging, behind a step's last sample", "seconds",
                &columns[0]) ||
           draw(folder, "scaling_failed", "Rounds that ended without a mean", "percent",
                &columns[2]);
}

int main(int argc, char **argv)
{
    if (argc > 2 && argc < 7 && !strcmp(argv[1], "--peers"))
        return simulate_one(argv + 2, argc - 2);
    if (argc == 2) return simulate_all(argv[1]);
    fprintf(stderr, "usage: simulate FOLDER | --peers N [VALUES,... [FULL_S [LIFE_S]]]\n");
    return 2;
}
