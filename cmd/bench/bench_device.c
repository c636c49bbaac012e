/* bench_device.c - a device against its own peaks: its matrix product and its copy, measured in the
 * same run. An operation that only moves memory can at best be as fast as the copy. Everything is
 * called through the backend's table, so any backend can be measured; without a device the emulated
 * one tests this code. */
#include "bench.h"
#include "runtime/optimizer.h"

#include <math.h>
#include <stdio.h>

#define ROWS_WIDE 1024 /* the reference run's model width: one row of a norm */
#define BEST_OF 5
#define LEAST_S 0.02 /* of calls between two readings of the clock: a launch takes microseconds */
#define CALLS_MOST 10000
#define LESS "a smaller --values"

struct device {
    const struct pl_backend *be;
    size_t n;    /* floats of a buffer */
    int product; /* rows and columns */
    float *x, *y, *z, *rows;
    uint8_t *code[2];
    float *absmax[2];
    struct pl_moments moments;
    float book[PL_CODES];
};

static int product(struct device *d)
{
    return d->be->linear(d->z, d->x, d->y, NULL, d->product, d->product, d->product);
}
static int copy(struct device *d) { return d->be->copy(d->y, d->x, d->n); }
static int fill(struct device *d) { return d->be->fill(d->y, 0.5f, d->n); }
static int axpy(struct device *d) { return d->be->axpy(d->y, 1e-6f, d->x, d->n); }
static int scale(struct device *d) { return d->be->scale(d->y, 1, d->n); }
static int sumsq(struct device *d)
{
    double sum;
    return d->be->sumsq(&sum, d->x, d->n);
}
static int norm(struct device *d)
{
    return d->be->layer_norm(d->y, d->x, d->rows, d->rows + ROWS_WIDE, (int)(d->n / ROWS_WIDE),
                             ROWS_WIDE, 1e-5f);
}
static int quantize(struct device *d)
{
    return d->be->quantize(d->code[0], d->absmax[0], d->x, d->n, d->moments.block, PL_MAP_SIGNED,
                           PL_RULE_RUN);
}
static int dequantize(struct device *d)
{
    return d->be->dequantize(d->y, d->code[0], d->absmax[0], d->n, d->moments.block, d->book);
}
static int lamb(struct device *d)
{
    struct pl_lamb step = { .lr = 1e-6,
                            .beta1 = 0.9,
                            .beta2 = 0.96,
                            .eps = 1e-6,
                            .decay = 0.045,
                            .clamp = 1e4,
                            .clip = 1 };
    struct pl_lamb_norms norms;
    return d->be->lamb(&norms, d->y, d->z, d->x, &d->moments, d->n, &step);
}
static int adam(struct device *d)
{
    struct pl_adam step = {
        .lr = 1e-6, .beta1 = 0.9, .beta2 = 0.999, .eps = 1e-8, .bias1 = 1, .bias2 = 1, .clip = 1
    };
    return d->be->adam(d->y, d->x, &d->moments, d->n, &step);
}

/* bytes: read and written per element at least, whatever the algorithm */
static const struct {
    const char *name;
    int (*run)(struct device *d);
    double bytes;
} kinds[] = {
    { "fill", fill, 4 },
    { "axpy", axpy, 12 },
    { "scale", scale, 8 },
    { "sumsq", sumsq, 4 },
    { "layer_norm", norm, 8 },
    { "quantize", quantize, 5 },
    { "dequantize", dequantize, 5 },
    { "LAMB, 8-bit", lamb, 28 }, /* p, g, u and codes; then p and u again */
    { "Adam, 8-bit", adam, 16 },
};

/* The best time of one call, in seconds; NAN: it failed. */
static double seconds_of(struct device *d, int (*run)(struct device *))
{
    double best = INFINITY, start, took;
    int calls = 1;
    if (run(d) || d->be->sync()) return NAN; /* warm-up: loads code, takes scratch memory */
    for (int i = 0; i < BEST_OF;) {
        start = pl_seconds();
        for (int k = 0; k < calls; k++)
            if (run(d)) return NAN;
        if (d->be->sync()) return NAN;
        took = pl_seconds() - start;
        if (took < LEAST_S && calls < CALLS_MOST) {
            calls *= 2;
            continue;
        }
        best = fmin(best, took / calls);
        i++;
    }
    return best;
}

static void close_device(struct device *d)
{
    d->be->free(d->x);
    d->be->free(d->y);
    d->be->free(d->z);
    d->be->free(d->rows);
    for (int k = 0; k < 2; k++) {
        d->be->free(d->code[k]);
        d->be->free(d->absmax[k]);
    }
}

/* Buffers of n floats with normal values in x and y. */
static int open_device(struct device *d, const struct pl_backend *be, size_t n)
{
    size_t bytes = n * sizeof(float), some = n < 1 << 20 ? n : 1 << 20;
    float *host = pl_alloc(some, sizeof *host);
    struct pl_rng rng;
    int rc = PL_OK;
    *d = (struct device){ .be = be,
                          .n = n,
                          .x = be->alloc(bytes),
                          .y = be->alloc(bytes),
                          .z = be->alloc(bytes),
                          .rows = be->alloc(2 * ROWS_WIDE * sizeof(float)),
                          .moments = { .block = 4096, .rule = PL_RULE_RUN } };
    for (int k = 0; k < 2; k++) {
        d->moments.code[k] = d->code[k] = be->alloc(n);
        d->moments.absmax[k] = d->absmax[k] = be->alloc(pl_blocks(n, 4096) * sizeof(float));
        if (!d->code[k] || !d->absmax[k]) rc = PL_ENOMEM;
    }
    if (!d->x || !d->y || !d->z || !d->rows || !host) rc = PL_ENOMEM;
    pl_codebook(d->book, PL_MAP_SIGNED, PL_RULE_RUN);
    if (!rc) {
        pl_rng_init(&rng, 1, 0);
        for (size_t i = 0; i < some; i++) host[i] = (float)(0.02 * pl_rng_normal(&rng));
    }
    for (size_t at = 0; !rc && at < n; at += some) {
        size_t part = n - at < some ? n - at : some;
        rc = be->put(d->x + at, host, part * sizeof *host);
        if (!rc) rc = be->put(d->y + at, host, part * sizeof *host);
    }
    /* Registered as parameters, so that in bfloat16 the matrix product alone is timed, not the
     * rounding before it. */
    for (d->product = 64; (size_t)d->product * (size_t)d->product * 4 <= n && d->product < 8192;)
        d->product *= 2;
    if (!rc && be->weights) rc = be->weights(d->x, n);
    if (!rc && be->weights) rc = be->weights(d->y, n);
    pl_free(host);
    if (rc) close_device(d);
    return rc;
}

/* One step of the optimizer in host memory, while gradients and parameters are copied. */
static double offloaded_seconds(const struct bench *b, struct device *d)
{
    struct pl_optimizer_options options = pl_lamb_options();
    struct pl_optimizer_tensor tensors[8];
    struct pl_optimizer *o;
    struct pl_backend host;
    double best = INFINITY;
    size_t count = PL_COUNT(tensors), each = d->n / count / 16 * 16;
    compute_open_host(&host, &b->compute);
    options.host = &host;
    for (size_t i = 0; i < count; i++)
        tensors[i] = (struct pl_optimizer_tensor){ i * each, each, options.decay, NULL, 0 };
    if (pl_optimizer_open(&o, d->be, &options, tensors, count, NULL)) return NAN;
    for (int i = 0; i < BEST_OF; i++) {
        double start = pl_seconds();
        if (pl_optimizer_step_normed(o, d->y, d->x, 1, 1e-6) || d->be->sync()) best = NAN;
        if (i) best = fmin(best, pl_seconds() - start); /* the first copies the master weights */
    }
    pl_optimizer_close(o);
    return best;
}

int bench_device_peak(struct bench *b, struct pl_err *err)
{
    struct device d;
    double one, other;
    int rc = open_device(&d, &b->be, b->values);
    if (rc) {
        pl_fail(err, rc, "the device's peaks: %s", pl_status_name(rc));
        compute_explain(err, rc, &b->be, 0, LESS);
        return rc;
    }
    one = seconds_of(&d, product);
    other = seconds_of(&d, copy);
    close_device(&d);
    if (isnan(one) || isnan(other)) {
        pl_fail(err, PL_EDEVICE, "the device's peaks could not be measured");
        compute_explain(err, PL_EDEVICE, &b->be, 0, NULL);
        return PL_EDEVICE;
    }
    b->peak.vectors = "its own product and copy";
    b->peak.float32 = 2.0 * d.product * d.product * d.product / one;
    b->peak.bf16 = b->bf16 ? b->peak.float32 : 0;
    b->peak.memory = 8.0 * (double)d.n / other;
    return PL_OK;
}

static int complain(const struct pl_backend *be, const char *what, int rc)
{
    struct pl_err err;
    pl_fail(&err, rc, "device: %s", what);
    compute_explain(&err, rc, be, 0, LESS);
    return command_failed("bench", "%s", err.text);
}

int bench_device(struct bench *b)
{
    struct device d;
    char what[64];
    double took;
    int rc;
    rc = open_device(&d, &b->be, b->values);
    if (rc) return complain(&b->be, "out of memory", rc);
    printf("\n%-24s %12s %10s %12s %6s\n", "device", "values", "ms", "rate", "peak");
    for (size_t i = 0; i <= PL_COUNT(kinds); i++) {
        int is_offload = i == PL_COUNT(kinds);
        const char *name = is_offload ? "LAMB, offloaded" : kinds[i].name;
        double bytes = is_offload ? 8 : kinds[i].bytes; /* down and up */
        took = is_offload ? offloaded_seconds(b, &d) : seconds_of(&d, kinds[i].run);
        if (isnan(took)) {
            snprintf(what, sizeof what, "%s failed", name);
            complain(&b->be, what, PL_EDEVICE);
            break;
        }
        printf("%-24s %12zu %10.3f %7.1f GB/s ", name, d.n, 1e3 * took,
               1e-9 * bytes * (double)d.n / took);
        if (is_offload) printf("%6s\n", "-"); /* limited by the bus, whose peak is not measured */
        else printf("%4.0f %%\n", 100 * bytes * (double)d.n / took / b->peak.memory);
        fflush(stdout);
        bench_row(b, NULL,
                  json_pack("{s:s, s:s, s:I, s:f, s:f, s:f}", "section", "device", "operation",
                            name, "values", (json_int_t)d.n, "be_s", took, "bytes",
                            bytes * (double)d.n, "of_peak",
                            is_offload ? 0 : bytes * (double)d.n / took / b->peak.memory));
    }
    close_device(&d);
    return isnan(took);
}
