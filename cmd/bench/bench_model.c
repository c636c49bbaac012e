/* bench_model.c - whole training steps and sampling, compared with the roofline, the reference
 * backend and Python. The roofline: paper/log/limits.md 8. */
#include "bench.h"
#include "operation_count.h"
#include "runtime/generate.h"

#include <math.h>
#include <stdio.h>

/* Floating-point operations that one sample's step asks for: a forward pass, and for each of its
 * products two gradients. A multiply-add counts two. Each row has its own columns of the logits. */
static double operations(const struct pl_dalle_config *c)
{
    double S = pl_dalle_positions(c), D = c->D, E = (double)c->H * c->d, blocks = 0;
    double logits = 2 * D * ((double)c->T * pl_dalle_text_rows(c) + (double)c->F * c->F * c->Vi);
    for (int l = 0; l < c->L; l++) {
        struct pl_mask mask;
        pl_dalle_mask(c, l, &mask);
        blocks += 2 * S * (4 * D * E + 12 * D * D) + 4 * E * (double)pl_mask_count(&mask, (int)S);
    }
    return 3 * (blocks + logits);
}

/* A random batch; the caller frees *text. */
static int batch(int32_t **text, int32_t **codes, const struct pl_dalle_config *c, int B)
{
    size_t T = (size_t)c->T, I = (size_t)c->F * (size_t)c->F;
    struct pl_rng rng;
    *text = pl_alloc((size_t)B * (T + I), sizeof **text);
    if (!*text) return PL_ENOMEM;
    *codes = *text + (size_t)B * T;
    pl_rng_init(&rng, 1, 0);
    for (size_t i = 0; i < (size_t)B * T; i++)
        (*text)[i] = (int32_t)pl_rng_below(&rng, (uint64_t)c->V);
    for (size_t i = 0; i < (size_t)B * I; i++)
        (*codes)[i] = (int32_t)pl_rng_below(&rng, (uint64_t)c->Vi);
    return PL_OK;
}

/* A model with initial values and a batch. */
static int prepare(struct pl_dalle **m, int32_t **text, int32_t **codes,
                   const struct pl_backend *be, const struct pl_dalle_config *c, int B,
                   int gradients, struct pl_err *err)
{
    int rc = pl_dalle_open(m, c, be, gradients, err);
    *text = NULL;
    if (!rc && ((rc = pl_dalle_init(*m, 1)) || (rc = batch(text, codes, c, B))))
        pl_fail(err, rc, "%s: %s", c->name, pl_status_name(rc));
    return rc;
}

/* The best time of several steps, or a negative status with a sentence. *done: the operations of
 * one, with what is computed twice: a reversible or recomputed block's forward pass, and scores. */
static double step_seconds(const struct bench *b, const struct pl_backend *backend,
                           const struct pl_dalle_config *c, enum pl_activations mode, int B,
                           int steps, double *done, struct pl_err *err)
{
    struct pl_backend counting, *be = &counting;
    struct pl_dalle *m = NULL;
    struct pl_dalle_loss loss;
    int32_t *text, *codes;
    double best = INFINITY;
    int rc;
    operation_count_begin(be, backend);
    rc = prepare(&m, &text, &codes, be, c, B, 1, err);
    if (!rc) m->activations = mode;
    for (int i = 0; !rc && i < steps; i++) {
        double start = bench_now(b);
        rc = pl_dalle_step(m, text, codes, B, 1, &loss, err);
        if (!rc) best = fmin(best, bench_now(b) - start);
    }
    compute_explain(err, rc, be, m ? B : 0, "--activations reversible, or a smaller --size");
    *done = operation_count() / steps;
    pl_free(text);
    pl_dalle_close(m);
    return rc ? rc : best;
}

/* Seconds to sample n images, or a negative status. */
static double draw_seconds(const struct bench *b, const struct pl_backend *be,
                           const struct pl_dalle_config *c, int n, int uncached, struct pl_err *err)
{
    struct pl_generate_options o = pl_generate_options();
    struct pl_dalle *m = NULL;
    int32_t *text, *codes;
    double start = 0;
    int rc = prepare(&m, &text, &codes, be, c, n, 0, err);
    o.batch = n;
    o.uncached = uncached;
    if (!rc) {
        start = bench_now(b);
        rc = pl_generate(m, codes, text, n, &o, err);
    }
    start = bench_now(b) - start;
    compute_explain(err, rc, be, 0, "a smaller --size");
    pl_free(text);
    pl_dalle_close(m);
    return rc ? rc : start;
}

static int complain(const struct pl_err *err) { return command_failed("bench", "%s", err->text); }

/* The reference backend's operations per second, from one sample of the demo's size: any larger
 * takes minutes. */
static double reference_rate(const struct bench *b, struct pl_err *err)
{
    struct pl_dalle_config demo;
    double done, seconds = pl_dalle_config_named(&demo, "demo", err);
    if (seconds == 0) seconds = step_seconds(b, &b->ref, &demo, PL_STORED, 1, 1, &done, err);
    return seconds < 0 ? seconds : done / seconds;
}

static void print_aim(const struct bench *b, const struct bench_size *size, double took,
                      double peer)
{
    double aim = b->bf16 ? size->aim_bf16 : size->aim;
    if (size->aim_rate > 0)
        printf("  aim %.0f/s: %.0f/s, %s", size->aim_rate, 1 / took,
               1 / took >= size->aim_rate ? "met" : "missed");
    else if (peer > 0) printf("  aim %.2fx: %s", aim, peer / took >= aim ? "met" : "missed");
    putchar('\n');
    fflush(stdout);
}

static int step_row(struct bench *b, const struct bench_size *size, double ref_rate)
{
    static const char *const ways[] = { "reversible", "recomputed", "stored" };
    const struct bench_peer_time *peer = bench_peer(&b->peers, "step %s", size->name);
    enum pl_activations mode = b->activations >= 0 ? (enum pl_activations)b->activations
                                                   : size->activations;
    int pairs = b->bf16 && b->peak.bf16 > b->peak.float32;
    double peak = pairs ? b->peak.bf16 : b->peak.float32, asked, work, ref, took;
    int B = bench_samples(b, size), slow, measured;
    struct pl_dalle_config c;
    struct pl_err err;
    json_t *row;
    if (pl_dalle_config_named(&c, size->name, &err)) return complain(&err);
    asked = operations(&c);
    slow = B * asked > 1e12;
    measured = size == bench_sizes && mode == PL_STORED;
    if (slow) {
        printf("%-7s (at least %.0f s a step)\r", c.name, B * asked / peak);
        fflush(stdout);
    }
    took = step_seconds(b, &b->be, &c, mode, B, slow ? 1 : (int)b->steps, &work, &err) / B;
    if (took < 0) return complain(&err);
    work /= B;
    ref = work / ref_rate;
    printf("%-7s %4d %-10s %10.2f %9.3f %9.3f %8.1f %5.0f %% %s%9.0f %6.0fx", c.name, B, ways[mode],
           1e3 * took, 1e-9 * asked, 1e-9 * work, 1e-9 * work / took, 100 * work / peak / took,
           measured ? " " : "~", 1e3 * ref, ref / took);
    if (peer) printf(" %10.1f %6.2fx", 1e3 * peer->seconds, peer->seconds / took);
    else printf(" %10s %7s", "-", "-");
    print_aim(b, size, took, peer ? peer->seconds : 0);
    row = json_pack("{s:s, s:s, s:i, s:s, s:f, s:f, s:f, s:f, s:f}", "section", "step", "size",
                    c.name, "samples", B, "activations", ways[mode], "sample_s", took,
                    "flops_asked", asked, "flops", work, "of_roofline", work / peak / took,
                    measured ? "ref_s" : "ref_scaled_s", ref);
    if (b->be.memory_peak)
        json_object_set_new(row, "memory_bytes", json_integer((json_int_t)b->be.memory_peak()));
    bench_row(b, peer, row);
    return 0;
}

int bench_steps(struct bench *b)
{
    struct pl_err err;
    double ref_rate = reference_rate(b, &err);
    int rc = 0;
    if (ref_rate < 0) return complain(&err);
    printf("\n%-7s %4s %-10s %10s %9s %9s %8s %7s %10s %7s %10s %7s\n", "step", "B", "",
           "ms/sample", "GF asked", "GF done", "GF/s", "roof", "ref ms", "ratio", "peer ms",
           "ratio");
    for (size_t i = 0; i < BENCH_SIZES; i++)
        if (b->chosen[i] && step_row(b, &bench_sizes[i], ref_rate)) rc = 1;
    return rc;
}

/* Bytes that a picture reads with the cache, if n are drawn at a time: for each image token all
 * layers' weights (once for the batch) and the keys and values that it may see. In bfloat16 a
 * weight has 2 bytes. */
static double drawing_bytes(const struct pl_dalle_config *c, int n, int bf16)
{
    double D = c->D, E = (double)c->H * c->d, cells = (double)c->F * c->F, keys = 0;
    double weights = c->L * (4 * D * E + 12 * D * D) + D * c->Vi;
    for (int l = 0; l < c->L; l++) {
        struct pl_mask mask;
        int S = pl_dalle_positions(c), text = S - c->F * c->F;
        pl_dalle_mask(c, l, &mask);
        keys += (double)(pl_mask_count(&mask, S) - pl_mask_count(&mask, text));
    }
    return cells * weights * (bf16 ? 2 : 4) / n + keys * 2 * E * 4;
}

static int draw_row(struct bench *b, const struct bench_size *size)
{
    const struct bench_peer_time *peer = bench_peer(&b->peers, "draw %s", size->name);
    /* without a cache the reference run's size takes hours */
    int n = (int)b->images, uncached = size < bench_sizes + BENCH_SIZES - 1;
    struct pl_dalle_config c;
    struct pl_err err;
    double took, slow = 0, bound;
    json_t *row;
    if (pl_dalle_config_named(&c, size->name, &err)) return complain(&err);
    if ((took = draw_seconds(b, &b->be, &c, n, 0, &err)) < 0 ||
        (uncached && (slow = draw_seconds(b, &b->be, &c, 2, 1, &err)) < 0))
        return complain(&err);
    took /= n;
    slow /= 2;
    bound = drawing_bytes(&c, n, b->bf16) / b->peak.memory;
    printf("%-7s %4d %10.2f %8.0f %10.2f", c.name, n, 1e3 * took, c.F * c.F / took, 1e3 * bound);
    if (uncached) printf(" %12.1f %6.1fx", 1e3 * slow, slow / took);
    else printf(" %12s %7s", "-", "-");
    if (peer)
        printf(" %10.1f %6.1fx  aim 5x: %s", 1e3 * peer->seconds, peer->seconds / took,
               peer->seconds / took >= 5 ? "met" : "missed");
    putchar('\n');
    fflush(stdout);
    row = json_pack("{s:s, s:s, s:i, s:f, s:f}", "section", "draw", "size", c.name, "images", n,
                    "picture_s", took, "bound_s", bound);
    if (uncached) json_object_set_new(row, "uncached_s", json_real(slow));
    bench_row(b, peer, row);
    return 0;
}

int bench_drawing(struct bench *b)
{
    int rc = 0;
    printf("\n%-7s %4s %10s %8s %10s %12s %7s %10s %7s\n", "draw", "n", "ms each", "codes/s",
           "bound, ms", "no cache, ms", "ratio", "peer ms", "ratio");
    for (size_t i = 0; i < BENCH_SIZES; i++)
        if (b->chosen[i] && (i + 1 < BENCH_SIZES || b->named) && draw_row(b, &bench_sizes[i]))
            rc = 1;
    return rc;
}
