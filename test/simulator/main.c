/* main.c - `make simulate`: swarms of 30 to 10,000 peers, with several settings; a
 * table, and curves in paper/figures. */
#include "world.h"
#include "data/images/figure.h"

#include <stdio.h>
#include <stdlib.h>

#define STEPS 3
#define LIFE (4 * 3600.0) /* s; volunteers of the run stayed for hours */
#define SIZES 6

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

static int simulate(struct world_result *r, const struct plan *plan, size_t peers, uint64_t seed)
{
    struct world_options o = { .peers = peers,
                               .seed = seed,
                               .steps = peers >= 1000 ? 1 : STEPS,
                               .accumulate_s = 120,
                               .warm = plan->measured,
                               .life_s = LIFE,
                               .rounds = 1,
                               .expect = 1,
                               .measured = plan->measured,
                               .limited = plan->grid,
                               .grid = plan->grid,
                               .values = 125894244 };
    struct pl_err err;
    if (!world_run(r, &o, &err)) return 0;
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

static int draw(const char *folder, const char *name, const char *title, const char *unit,
                double y[][SIZES])
{
    struct figure_line lines[PL_COUNT(plans)];
    struct figure figure = { .title = title, .x_label = "peers", .y_label = unit, .log_x = 1 };
    char path[512];
    double x[SIZES];
    FILE *out;
    for (int i = 0; i < SIZES; i++) x[i] = (double)sizes[i];
    for (size_t k = 0; k < PL_COUNT(plans); k++)
        lines[k] = (struct figure_line){
            .label = plans[k].label, .x = x, .y = y[k], .count = (size_t)sizes_of(&plans[k])
        };
    snprintf(path, sizeof path, "%.400s/%s.svg", folder, name);
    if ((out = fopen(path, "w"))) figure_lines(out, &figure, lines, PL_COUNT(plans));
    if (out && !fclose(out)) return 0;
    fprintf(stderr, "simulate: cannot write %s\n", path);
    return 1;
}

/* The figures that paper/scaling.md quotes. */
static void put_json(FILE *out, const struct plan *plan, size_t peers, const struct world_result *r,
                     int is_first)
{
    fprintf(out,
            "%s\n  {\"plan\": \"%s\", \"peers\": %zu, \"averaging_s\": %.1f, \"first_s\": %.1f, "
            "\"failed\": %.5f, \"tries\": %.3f, \"group\": %.2f, \"spread\": %.3g, "
            "\"sent_mb\": %.1f, \"matchmaking_mb\": %.3f, \"looks_lost\": %.5f, "
            "\"progress_mb_s\": %.2f, \"progress_lost\": %.4f}",
            is_first ? "[" : ",", plan->name, peers, r->averaging_s, r->first_s, r->failed,
            r->tries, r->group, r->spread, r->moved / 1e6, r->control / 1e6, r->looks_lost,
            r->progress / 1e6, r->unheard);
}

int main(int argc, char **argv)
{
    static double step[PL_COUNT(plans)][SIZES], failed[PL_COUNT(plans)][SIZES];
    static struct world_result records[SIZES];
    const char *folder = argc > 1 ? argv[1] : NULL;
    uint64_t seed = argc > 2 ? strtoull(argv[2], NULL, 10) : 1;
    char path[512];
    FILE *json = NULL;
    snprintf(path, sizeof path, "%.400s/scaling.json", folder ? folder : "");
    if (folder && !(json = fopen(path, "w"))) {
        fprintf(stderr, "simulate: cannot write %s\n", path);
        return 1;
    }
    printf("seed %llu\n"
           "peers  first step  averaging  failed  tries  group  spread left  MB moved  MB control  "
           "MB/s of a DHT node  looks lost  dead expected\n",
           (unsigned long long)seed);
    for (size_t k = 0; k < PL_COUNT(plans); k++) {
        printf("%s\n", plans[k].name);
        for (int i = 0; i < sizes_of(&plans[k]); i++) {
            struct world_result r;
            if (simulate(&r, &plans[k], sizes[i], seed)) return 1;
            step[k][i] = r.step_s;
            failed[k][i] = 100 * r.failed;
            printf("%6zu %11.0f %10.0f %8.1f%% %6.2f %6.1f %11.2g %10.0f %10.2f %14.2f %17.1f%% "
                   "%9.2f\n",
                   sizes[i], r.first_s, r.averaging_s, 100 * r.failed, r.tries, r.group, r.spread,
                   r.moved / 1e6, r.control / 1e6, r.replica / 1e6, 100 * r.looks_lost, r.dead);
            fflush(stdout);
            if (json) put_json(json, &plans[k], sizes[i], &r, !k && !i);
            records[i] = r; /* the last plan has all sizes */
        }
    }
    printf("records of progress: %zu fit into a dictionary\n"
           "peers   MB/s of a DHT node  looks lost\n",
           records[0].records_fit);
    for (int i = 0; i < SIZES; i++)
        printf("%6zu %14.1f %14.1f%%\n", sizes[i], records[i].progress / 1e6,
               100 * records[i].unheard);
    if (!folder) return 0;
    fprintf(json, "\n]\n");
    fclose(json);
    return draw(folder, "scaling_step", "Time of a step, 120 s of it samples", "seconds", step) ||
           draw(folder, "scaling_failed", "Rounds that ended without a mean", "percent", failed);
}
