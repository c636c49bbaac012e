/* bench_pictures.c - the run's codec and CLIP at their published sizes, with random weights: what
 * drawing spends beside the transformer. [TTT 3.1, 3.4] */
#include "bench.h"
#include "../ref/model/clip.h"
#include "../ref/model/vqgan.h"
#include "../ref/rng.h"

#include <math.h>
#include <stdio.h>

#define SIDE 256
#define GRID 32 /* f = 8 */

static void row(struct bench *b, const char *what, double seconds, double aim)
{
    const struct bench_peer_time *peer = bench_peer(&b->peers, "%s", what);
    printf("%-24s %10.1f", what, 1e3 * seconds);
    if (peer)
        printf(" %10.1f %6.2fx  aim %.0fx: %s", 1e3 * peer->seconds, peer->seconds / seconds, aim,
               peer->seconds / seconds >= aim ? "met" : "missed");
    putchar('\n');
    fflush(stdout);
    bench_row(b, peer,
              json_pack("{s:s, s:s, s:f}", "section", "pictures", "what", what, "be_s", seconds));
}

static void fill(struct pl_rng *rng, float *x, size_t n, double scale)
{
    for (size_t i = 0; i < n; i++) x[i] = (float)(scale * pl_rng_normal(rng));
}

static int bench_vqgan(struct bench *b, struct pl_rng *rng, struct pl_err *err)
{
    struct pl_vqgan_config config;
    struct pl_vqgan m;
    size_t n = 3 * SIDE * SIDE;
    float *x = pl_alloc(n, sizeof *x);
    int32_t *code = pl_alloc(GRID * GRID, sizeof *code);
    double encode = INFINITY, decode = INFINITY;
    int rc = !x || !code ? pl_fail(err, PL_ENOMEM, "no memory")
                         : pl_vqgan_named(&config, "gumbel_f8", err);
    if (!rc && !(rc = pl_vqgan_init(&m, &config, &b->be, 0))) {
        rc = pl_vqgan_reset(&m, 1);
        fill(rng, x, n, 0.5);
        for (int64_t i = 0; i < b->steps && !rc; i++) {
            double start = bench_now(b), middle;
            rc = pl_vqgan_encode(&m, code, NULL, x, NULL, 1, SIDE, SIDE);
            middle = bench_now(b);
            encode = fmin(encode, middle - start);
            if (!rc) rc = pl_vqgan_decode(&m, x, code, 1, GRID, GRID);
            decode = fmin(decode, bench_now(b) - middle);
        }
        pl_vqgan_clear(&m);
        if (rc) pl_fail(err, rc, "VQGAN: %s", pl_status_name(rc));
    }
    pl_free(x);
    pl_free(code);
    if (rc) return rc;
    row(b, "VQGAN encode", encode, b->bf16 ? 3 : 2);
    row(b, "VQGAN decode", decode, b->bf16 ? 3 : 2);
    return PL_OK;
}

static int bench_clip(struct bench *b, struct pl_rng *rng, struct pl_err *err)
{
    struct pl_clip_config config = pl_clip_vit_b_32();
    struct pl_clip_model m;
    size_t n = 3 * (size_t)config.image * (size_t)config.image;
    float *x = pl_alloc(n, sizeof *x), *vector = pl_alloc((size_t)config.embed, sizeof *vector);
    int32_t *tokens = pl_alloc((size_t)config.context, sizeof *tokens);
    double image = INFINITY, text = INFINITY;
    int rc = x && vector && tokens ? pl_clip_init(&m, &config, &b->be) : PL_ENOMEM;
    if (!rc) {
        for (size_t i = 0; i < m.params.count && !rc; i++)
            rc = pl_params_uniform(&m.params, i, 0.03f, rng);
        fill(rng, x, n, 1);
        for (int i = 0; i < config.context; i++)
            tokens[i] = (int32_t)pl_rng_below(rng, (uint64_t)config.vocab);
        for (int64_t i = 0; i < b->steps && !rc; i++) {
            double start = bench_now(b), middle;
            rc = pl_clip_images(&m, vector, x, 1);
            middle = bench_now(b);
            image = fmin(image, middle - start);
            if (!rc) rc = pl_clip_texts(&m, vector, tokens, 1);
            text = fmin(text, bench_now(b) - middle);
        }
        pl_clip_clear(&m);
    }
    pl_free(x);
    pl_free(vector);
    pl_free(tokens);
    if (rc) return pl_fail(err, rc, "CLIP: %s", pl_status_name(rc));
    row(b, "CLIP image", image, 2);
    row(b, "CLIP text", text, 2);
    return PL_OK;
}

int bench_pictures(struct bench *b)
{
    struct pl_rng rng;
    struct pl_err err;
    if (b->be.alloc != b->ref.alloc) {
        printf("\npictures: not timed on a device\n");
        return 0;
    }
    pl_rng_init(&rng, 1, 0);
    printf("\n%-24s %10s %10s %7s\n", "one picture or caption", "ms", "peer ms", "ratio");
    if (!bench_vqgan(b, &rng, &err) && !bench_clip(b, &rng, &err)) return 0;
    fprintf(stderr, "potluck bench: %s\n", err.text);
    return 1;
}
