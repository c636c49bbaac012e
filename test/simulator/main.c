/* main.c - `make simulate`: swarms of 30 to 10,000 peers, with several settings; a
 * table, and curves in paper/figures. */
#include "world.h"
#include "data/images/plot.h"

#include <stdio.h>
#include <stdlib.h>

#define STEPS 3
#define LIFE (4 * 3600.0) /* s; volunteers of the run stayed for hours */
#define SIZES 6

static const size_t sizes[SIZES] = { 30, 100, 300, 1000, 3000, 10000 };

static const struct plan {
    const char *name;
    int measured, grid;
} plans[] = {
    { "one group, equal shares", 0, 0 },
    { "one group, shares by measured bandwidth", 1, 0 },
    { "groups of 16, two rounds", 1, 1 },
};

/* Sixteen to a key, on average; a group begins at 16, what is left over waits for its time. */
static int bits_for(size_t peers)
{
    int bits = 0;
    while ((size_t)24 << bits < peers) bits++;
    return bits;
}

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
                               .values = 125894244 };
    struct pl_err err;
    if (plan->grid) {
        o.bits = bits_for(peers);
        o.target = 16;
        o.rounds = 2;
    }
    if (!world_run(r, &o, &err)) return 0;
    fprintf(stderr, "simulate: %s\n", err.text);
    return 1;
}

static int draw(const char *path, const char *title, const char *unit, double y[][SIZES])
{
    struct pl_curve curves[PL_COUNT(plans)];
    struct pl_plot plot = {
        .title = title, .x_label = "peers", .y_label = unit, .log_x = 1, .log_y = 0
    };
    struct pl_image image = { 0 };
    struct pl_err err = { "no memory" };
    double x[SIZES];
    int rc;
    for (int i = 0; i < SIZES; i++) x[i] = (double)sizes[i];
    for (size_t k = 0; k < PL_COUNT(plans); k++) {
        curves[k] = (struct pl_curve){ .label = plans[k].name, .x = x, .y = y[k], .count = SIZES };
        pl_plot_colour(curves[k].colour, k);
    }
    rc = pl_plot_draw(&image, &plot, curves, PL_COUNT(plans));
    if (!rc) rc = pl_image_write_png(path, &image, &err);
    if (rc) fprintf(stderr, "simulate: %s\n", err.text);
    pl_image_clear(&image);
    return rc != 0;
}

int main(int argc, char **argv)
{
    static double step[PL_COUNT(plans)][SIZES], failed[PL_COUNT(plans)][SIZES];
    static struct world_result records[SIZES];
    uint64_t seed = argc > 2 ? strtoull(argv[2], NULL, 10) : 1;
    char path[512];
    printf("seed %llu\n"
           "peers  first step  averaging  failed  tries  group  spread left  MB moved  MB control  "
           "MB/s of a DHT node  looks lost  dead expected\n",
           (unsigned long long)seed);
    for (size_t k = 0; k < PL_COUNT(plans); k++) {
        printf("%s\n", plans[k].name);
        for (int i = 0; i < SIZES; i++) {
            struct world_result r;
            if (simulate(&r, &plans[k], sizes[i], seed)) return 1;
            step[k][i] = r.step_s;
            failed[k][i] = 100 * r.failed;
            printf("%6zu %11.0f %10.0f %8.1f%% %6.2f %6.1f %11.2g %10.0f %10.2f %14.2f %17.1f%% "
                   "%9.2f\n",
                   sizes[i], r.first_s, r.averaging_s, 100 * r.failed, r.tries, r.group, r.spread,
                   r.moved / 1e6, r.control / 1e6, r.replica / 1e6, 100 * r.looks_lost, r.dead);
            fflush(stdout);
            if (!k) records[i] = r;
        }
    }
    printf("records of progress: %zu fit into a dictionary\n"
           "peers   MB/s of a DHT node  looks lost\n",
           records[0].records_fit);
    for (int i = 0; i < SIZES; i++)
        printf("%6zu %14.1f %14.1f%%\n", sizes[i], records[i].progress / 1e6,
               100 * records[i].unheard);
    if (argc < 2) return 0;
    snprintf(path, sizeof path, "%.400s/scaling_step.png", argv[1]);
    if (draw(path, "Time of a step, 120 s of it samples", "seconds", step)) return 1;
    snprintf(path, sizeof path, "%.400s/scaling_failed.png", argv[1]);
    return draw(path, "Rounds that ended without a mean", "percent", failed);
}
