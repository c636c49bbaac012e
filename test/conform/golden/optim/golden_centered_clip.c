/* golden_centered_clip.c - CenteredClip against three implementations and float64, with weights, a
 * schedule of radii and stopping rules. */
#include "golden_aggregate.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PEERS_MAX 1024 /* more than any file of the area has; bounds its arrays */

struct clip_case {
    struct golden *g;
    const struct st_file *f;
    const char *name;
    float *x, *median;
    double *weight, *v, total;
    int n;
    size_t d;
    double tau;
    struct pl_clip_result result;
};

static void start_at(struct clip_case *c, const float *from)
{
    for (size_t k = 0; k < c->d; k++) c->v[k] = from ? from[k] : 0;
}

static void run_clip(struct clip_case *c, const double *weight, const struct pl_clip *how)
{
    if (c->g->be->centered_clip(c->v, &c->result, c->x, weight, c->n, c->d, how))
        golden_fail(c->g, c->name, "out of memory");
}

static void compare_clip(struct clip_case *c, const char *what, double allowed)
{
    char name[80];
    snprintf(name, sizeof name, "%s.%s", c->name, what);
    agg_compare(c->g, c->f, name, c->v, c->d, allowed);
}

static void clip_variants(struct clip_case *c, const json_t *meta)
{
    static const int iterations[] = { 1, 2, 5, 20 };
    char what[40];
    for (size_t i = 0; i < PL_COUNT(iterations); i++) {
        struct pl_clip how = { c->tau, NULL, iterations[i], -1, -1, c->total };
        start_at(c, c->median);
        run_clip(c, c->weight, &how);
        snprintf(what, sizeof what, "ref_iter%d", iterations[i]);
        compare_clip(c, what, 1e-9);
    }
    compare_clip(c, "albert", 1e-6); /* the same 20 iterations */
    golden_check(c->g, c->name, c->result.clipped == golden_int(c->g, meta, "n_clipped_albert"),
                 "%d inputs clipped", c->result.clipped);

    start_at(c, c->median);
    run_clip(c, c->weight, &(struct pl_clip){ c->tau, NULL, 20, 1e-6, -1, c->total });
    compare_clip(c, "resnet", 1e-6);

    start_at(c, NULL); /* equal weights, and the state goes into the next call */
    run_clip(c, NULL, &(struct pl_clip){ c->tau, NULL, 3, -1, -1, 0 });
    compare_clip(c, "karimireddy_call1", 1e-6);
    for (size_t k = 0; k < (size_t)c->n * c->d; k++) c->x[k] *= 0.5f;
    run_clip(c, NULL, &(struct pl_clip){ c->tau, NULL, 3, -1, -1, 0 });
    compare_clip(c, "karimireddy_call2_half_inputs", 1e-6);
    for (size_t k = 0; k < (size_t)c->n * c->d; k++) c->x[k] *= 2;
}

/* The trajectory over a schedule of radii, and the schedule itself. */
static void clip_schedule(struct clip_case *c, const json_t *schedule)
{
    size_t count = 0;
    double *want = agg_list(c->g, schedule, "tau", 0, &count), *taus, *trajectory;
    double bound2 = pow(golden_real(c->g, schedule, "B0"), 2);
    if (!want) return;
    taus = pl_alloc(count, sizeof *taus);
    trajectory = pl_alloc(count * c->d, sizeof *trajectory);
    for (size_t l = 0; taus && l < count; l++)
        taus[l] = pl_clip_radius(&bound2, golden_real(c->g, schedule, "delta"),
                                 golden_real(c->g, schedule, "sigma"));
    if (taus && trajectory) {
        golden_case(c->g, "schedule of radii", agg_relative(taus, want, count), 1e-12);
        for (size_t l = 0; l < count; l++) {
            start_at(c, NULL);
            run_clip(c, NULL, &(struct pl_clip){ 0, taus, (int)l + 1, -1, -1, 0 });
            memcpy(trajectory + l * c->d, c->v, c->d * sizeof *trajectory);
        }
        agg_compare(c->g, c->f, "sched.out", trajectory, count * c->d, 1e-9);
    }
    pl_free(want);
    pl_free(taus);
    pl_free(trajectory);
}

/* The recorded values were divided by the weights' sum in float32 as numpy forms it: up to 128 of
 * them in eight interleaved sums. Its rounding is larger than the tolerance. */
static double float_total(const double *weight, int n)
{
    float s[8] = { 0 }, sum = 0;
    int i = 0;
    for (; n >= 8 && i + 8 <= n; i += 8)
        for (int k = 0; k < 8; k++) s[k] += (float)weight[i + k];
    sum = ((s[0] + s[1]) + (s[2] + s[3])) + ((s[4] + s[5]) + (s[6] + s[7]));
    for (; i < n; i++) sum += (float)weight[i];
    return sum;
}

static int clip_open(struct clip_case *c, const json_t *meta)
{
    char name[80];
    size_t n = (size_t)golden_int(c->g, meta, "n");
    float *median, *want;
    c->d = (size_t)golden_int(c->g, meta, "d");
    c->tau = golden_real(c->g, meta, "tau");
    c->n = (int)n;
    if (!n || n > PEERS_MAX || !c->d || c->d > 1u << 28) return PL_EFORMAT;
    snprintf(name, sizeof name, "%s.x", c->name);
    c->x = agg_floats(c->g, c->f, name, n * c->d);
    snprintf(name, sizeof name, "%s.w", c->name);
    c->weight = agg_doubles(c->g, c->f, name, n, NULL);
    if (c->weight) c->total = float_total(c->weight, c->n);
    snprintf(name, sizeof name, "%s.lower_median", c->name);
    want = agg_floats(c->g, c->f, name, c->d);
    c->median = median = pl_alloc(c->d, sizeof *median);
    c->v = pl_alloc(c->d, sizeof *c->v);
    if (c->x && want && median && c->v && !c->g->be->median(median, c->x, c->n, c->d, 0))
        golden_case(c->g, name, golden_absolute(median, want, c->d), 0);
    pl_free(want);
    return c->x && c->weight && median && c->v ? PL_OK : PL_ENOMEM;
}

static void clip_close(struct clip_case *c)
{
    pl_free(c->x);
    pl_free(c->weight);
    pl_free(c->median);
    pl_free(c->v);
}

/* "trajectory on a.x from ..." names the case whose inputs the schedule takes. */
static int schedule_takes(const json_t *config, const char *name)
{
    const char *text = json_string_value(json_object_get(config, "sched.out"));
    const char *at = text ? strstr(text, ".x") : NULL;
    size_t n = strlen(name);
    return at && (size_t)(at - text) >= n && !strncmp(at - n, name, n);
}

int golden_centered_clip(struct golden *g, const char *path, const char *stem)
{
    struct st_file *f;
    json_t *config, *meta;
    const char *name;
    (void)stem;
    if (!(f = golden_open(g, path))) return 1;
    config = golden_meta(g, f, "config");
    if (config && !json_object_size(json_object_get(config, "cases")))
        golden_fail(g, "cases", "none there");
    json_object_foreach(json_object_get(config, "cases"), name, meta)
    {
        struct clip_case c = { .g = g, .f = f, .name = name };
        if (clip_open(&c, meta)) golden_fail(g, name, "cannot be replayed");
        else {
            clip_variants(&c, meta);
            if (schedule_takes(config, name))
                clip_schedule(&c, json_object_get(config, "tau_schedule"));
        }
        clip_close(&c);
    }
    json_decref(config);
    pl_safetensors_close(f);
    return 1;
}
