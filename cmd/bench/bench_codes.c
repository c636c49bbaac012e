/* bench_codes.c - operations of the optimizer and the wire on every parameter: 8-bit quantization,
 * LAMB. One thread. Then attention over allowed keys. Each is compared with the Python package that
 * does the same. */
#include "bench.h"
#include "runtime/optimizer.h"
#include "ref/mask.h"

#include <math.h>
#include <stdio.h>

#define VALUES ((size_t)1 << 20) /* elements, as in the Python benchmarks */
#define BEST_OF 5
#define BLOCK 4096

struct codes {
    float *x, *y, *absmax, table[PL_CODES];
    uint8_t *code;
    struct pl_optimizer *lamb;
};

static int run(const struct pl_backend *be, struct codes *c, int kind)
{
    switch (kind) {
    case 0:
        return be->quantize(c->code, c->absmax, c->x, VALUES, BLOCK, PL_MAP_SIGNED, PL_RULE_RUN);
    case 1: return be->dequantize(c->y, c->code, c->absmax, VALUES, BLOCK, c->table);
    case 2: return be->uniform8_encode(c->code, c->table, c->x, VALUES);
    case 3: return be->table8_decode(c->y, c->code, c->table, VALUES);
    default: return pl_optimizer_step(c->lamb, c->x, c->y, 1e-6);
    }
}

/* recorded: elements per second of the Python packages on another machine, for where none is
 * installed; the targets (aim) were set against these. */
static const struct {
    const char *what, *peer;
    double recorded, aim;
} kinds[] = {
    { "quantize, 8 bit by blocks", "quantize", 0.058e9, 25 },
    { "dequantize", "dequantize", 0.13e9, 0 },
    { "Uniform8Bit encode", "uniform8 encode", 0.01525e9, 50 },
    { "Uniform8Bit decode", "uniform8 decode", 0.055e9, 50 },
    { "LAMB with 8-bit moments", "lamb", 7.5e6, 50 },
};

static void codes_row(struct bench *b, size_t i, double seconds, double ref)
{
    const struct bench_peer_time *peer = bench_peer(&b->peers, "%s", kinds[i].peer);
    double rate = (double)VALUES / seconds,
           theirs = peer ? (double)VALUES / peer->seconds : kinds[i].recorded;
    printf("%-30s %9.3f %7.0fx %9.4f %-16.16s %6.1fx", kinds[i].what, 1e-9 * rate, ref / seconds,
           1e-9 * theirs, peer ? peer->by : "(recorded)", rate / theirs);
    if (kinds[i].aim > 0)
        printf("  aim %.0fx: %s", kinds[i].aim, rate / theirs >= kinds[i].aim ? "met" : "missed");
    putchar('\n');
    fflush(stdout);
    bench_row(b, peer,
              json_pack("{s:s, s:s, s:f, s:f}", "section", "codes", "what", kinds[i].what, "be_s",
                        seconds, "ref_s", ref));
}

static double best(const struct pl_backend *be, struct codes *c, int kind, int times)
{
    static const struct bench one = { .compute = { .threads = 1 } };
    double found = INFINITY;
    for (int i = 0; i < times; i++) {
        double start = bench_now(&one);
        if (run(be, c, kind)) return NAN;
        found = fmin(found, bench_now(&one) - start);
    }
    return found;
}

/* These sections pass host memory to the backend, which a device cannot read. */
static int has_own_memory(const struct bench *b, const char *section)
{
    if (b->be.alloc == b->ref.alloc) return 0;
    printf("\n%s: not timed on a device\n", section);
    return 1;
}

int bench_codes(struct bench *b)
{
    struct pl_optimizer_options options = pl_lamb_options();
    struct pl_optimizer_tensor tensor = { .n = VALUES };
    struct codes c = { 0 };
    struct pl_rng rng;
    struct pl_err err;
    int rc = 1;
    if (has_own_memory(b, "codes")) return 0;
    c.x = pl_alloc(2 * VALUES, sizeof *c.x);
    c.y = c.x ? c.x + VALUES : NULL;
    c.absmax = pl_alloc(pl_blocks(VALUES, BLOCK), sizeof *c.absmax);
    c.code = pl_alloc(VALUES, 1);
    if (!c.x || !c.absmax || !c.code) {
        command_failed("bench", "codes: no memory");
        goto done;
    }
    pl_rng_init(&rng, 1, 0);
    for (size_t i = 0; i < 2 * VALUES; i++) c.x[i] = (float)pl_rng_normal(&rng);
    pl_codebook(c.table, PL_MAP_SIGNED, PL_RULE_RUN);
    printf("\n%-30s %9s %8s %9s %-16s %7s\n", "codes, one thread", "G/s", "to ref", "peer G/s", "",
           "ratio");
    b->be.set_threads(1);
    for (size_t i = 0; i < PL_COUNT(kinds); i++) {
        double seconds, ref;
        for (int side = 0; side < 2; side++) {
            const struct pl_backend *be = side ? &b->ref : &b->be;
            if (i + 1 == PL_COUNT(kinds) &&
                pl_optimizer_open(&c.lamb, be, &options, &tensor, 1, &err)) {
                command_failed("bench", "%s", err.text);
                goto done;
            }
            *(side ? &ref : &seconds) = best(be, &c, (int)i, side ? 1 : BEST_OF);
            pl_optimizer_close(c.lamb);
            c.lamb = NULL;
        }
        codes_row(b, i, seconds, ref);
    }
    rc = 0;
done:
    b->be.set_threads((int)b->compute.threads);
    pl_free(c.x);
    pl_free(c.absmax);
    pl_free(c.code);
    return rc;
}

/* ---- attention ---- */

static int attention_row(struct bench *b, const char *size, float *x,
                         const struct pl_dalle_config *c)
{
    struct pl_mask mask;
    int n = pl_dalle_positions(c), E = c->H * c->d;
    size_t row = (size_t)n * (size_t)E;
    float *dqkv = x + 3 * row, *o = dqkv + 3 * row, *dout = o + row, *lse = dout + row;
    double took[2] = { INFINITY, INFINITY };
    pl_dalle_mask(c, 0, &mask);
    for (int i = 0; i < BEST_OF; i++) {
        double start = bench_now(b), middle;
        int rc = b->be.attention(o, lse, x, 1, n, c->H, c->d, &mask, NULL);
        if (rc) return rc;
        middle = bench_now(b);
        rc = b->be.attention_backward(dqkv, dout, x, o, lse, 1, n, c->H, c->d, &mask, NULL);
        if (rc) return rc;
        took[0] = fmin(took[0], middle - start);
        took[1] = fmin(took[1], bench_now(b) - middle);
    }
    for (int back = 0; back < 2; back++) {
        double seconds = back ? took[0] + took[1] : took[0];
        double keys = (double)pl_mask_count(&mask, n), work = (back ? 14 : 4) * keys * E;
        const struct bench_peer_time *peer =
            bench_peer(&b->peers, back ? "attention backward %s" : "attention %s", size);
        printf("%-7s %-16s %9.2f %7.1f GF/s %4.0f %%", size, back ? "both ways" : "forward",
               1e3 * seconds, 1e-9 * work / seconds, 100 * work / seconds / b->peak.float32);
        if (peer)
            printf(" %9.2f %6.1fx  aim 2.5x: %s", 1e3 * peer->seconds, peer->seconds / seconds,
                   peer->seconds / seconds >= 2.5 ? "met" : "missed");
        putchar('\n');
        bench_row(b, peer,
                  json_pack("{s:s, s:s, s:b, s:f}", "section", "attention", "size", size,
                            "backward", back, "be_s", seconds));
    }
    return 0;
}

int bench_attention(struct bench *b)
{
    int rc = 0;
    if (has_own_memory(b, "attention")) return 0;
    printf("\n%-7s %-16s %9s %12s %6s %9s %7s\n", "row", "attention, 1 seq", "ms", "rate", "peak",
           "peer ms", "ratio");
    for (size_t i = 0; i < BENCH_SIZES && !rc; i++) {
        struct pl_dalle_config c;
        struct pl_rng rng;
        size_t n;
        float *x;
        if (!b->chosen[i] || pl_dalle_config_named(&c, bench_sizes[i].name, NULL)) continue;
        n = (size_t)pl_dalle_positions(&c) * (size_t)(8 * c.H * c.d + c.H);
        if (!(x = pl_alloc(n, sizeof *x)))
            return command_failed("bench", "attention: no memory for size %s", bench_sizes[i].name);
        pl_rng_init(&rng, 1, 0);
        for (size_t k = 0; k < n; k++) x[k] = (float)pl_rng_normal(&rng);
        if ((rc = attention_row(b, bench_sizes[i].name, x, &c)))
            command_failed("bench", "attention: %s", pl_status_name(rc));
        pl_free(x);
    }
    return rc;
}
