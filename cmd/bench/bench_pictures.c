/* bench_pictures.c - the VQGAN and CLIP at their published sizes, with random weights: the time of
 * image generation besides the transformer. [TTT 3.1, 3.4] */
#include "bench.h"
#include "ref/model/clip.h"
#include "ref/model/vqgan.h"
#include "ref/rng.h"
#include "../../runtime/models.h"

#include <math.h>
#include <stdio.h>

#define SIDE 256
#define GRID 32 /* f = 8 */
#define AT_LEAST_S 2

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

/* The models and their inputs: one image, or one caption. */
struct subject {
    struct pl_vqgan vqgan;
    struct pl_clip_model clip;
    float *x, *vector;
    int32_t *codes, *tokens;
};

static int encode(struct subject *s)
{
    return pl_vqgan_encode(&s->vqgan, s->codes, NULL, s->x, NULL, 1, SIDE, SIDE);
}

static int decode(struct subject *s)
{
    return pl_vqgan_decode(&s->vqgan, s->x, s->codes, 1, GRID, GRID);
}

static int image(struct subject *s) { return pl_clip_images(&s->clip, s->vector, s->x, 1); }

static int text(struct subject *s) { return pl_clip_texts(&s->clip, s->vector, s->tokens, 1); }

/* Times as test/bench/peer.py does: repeats for two seconds, and at least b->steps times. */
static int time_best(struct bench *b, const char *what, double aim, int (*once)(struct subject *),
                     struct subject *s)
{
    double best = INFINITY, begin = pl_seconds();
    for (int64_t i = 0; i < b->steps || pl_seconds() - begin < AT_LEAST_S; i++) {
        double start = bench_now(b);
        int rc = once(s);
        if (rc) return rc;
        best = fmin(best, bench_now(b) - start);
    }
    row(b, what, best, aim);
    return PL_OK;
}

static void fill(struct pl_rng *rng, float *x, size_t n, double scale)
{
    for (size_t i = 0; i < n; i++) x[i] = (float)(scale * pl_rng_normal(rng));
}

static int bench_vqgan(struct bench *b, struct pl_rng *rng, struct pl_err *err)
{
    struct pl_vqgan_config config;
    struct subject s = { .x = pl_alloc(3 * SIDE * SIDE, sizeof *s.x),
                         .codes = pl_alloc(GRID * GRID, sizeof *s.codes) };
    int rc = !s.x || !s.codes ? pl_fail(err, PL_ENOMEM, "no memory")
                              : pl_vqgan_named(&config, "gumbel_f8", err);
    if (!rc && !(rc = pl_vqgan_init(&s.vqgan, &config, &b->be, 0))) {
        rc = pl_vqgan_reset(&s.vqgan, 1);
        fill(rng, s.x, 3 * SIDE * SIDE, 0.5);
        if (!rc) rc = time_best(b, "VQGAN encode", b->bf16 ? 3 : 2, encode, &s);
        if (!rc) rc = time_best(b, "VQGAN decode", b->bf16 ? 3 : 2, decode, &s);
        pl_vqgan_clear(&s.vqgan);
        if (rc) pl_fail(err, rc, "VQGAN: %s", pl_status_name(rc));
    }
    pl_free(s.x);
    pl_free(s.codes);
    return rc;
}

static int bench_clip(struct bench *b, struct pl_rng *rng, struct pl_err *err)
{
    struct pl_clip_config config = pl_clip_vit_b_32();
    size_t n = 3 * (size_t)config.image * (size_t)config.image;
    struct subject s = { .x = pl_alloc(n, sizeof *s.x),
                         .vector = pl_alloc((size_t)config.embed, sizeof *s.vector),
                         .tokens = pl_alloc((size_t)config.context, sizeof *s.tokens) };
    int rc = s.x && s.vector && s.tokens ? pl_clip_init(&s.clip, &config, &b->be) : PL_ENOMEM;
    if (!rc) {
        for (size_t i = 0; i < s.clip.params.count && !rc; i++)
            rc = pl_params_uniform(&s.clip.params, i, 0.03f, rng);
        fill(rng, s.x, n, 1);
        for (int i = 0; i < config.context; i++)
            s.tokens[i] = (int32_t)pl_rng_below(rng, (uint64_t)config.vocab);
        if (!rc) rc = time_best(b, "CLIP image", 2, image, &s);
        if (!rc) rc = time_best(b, "CLIP text", 2, text, &s);
        pl_clip_clear(&s.clip);
    }
    pl_free(s.x);
    pl_free(s.vector);
    pl_free(s.tokens);
    return rc ? pl_fail(err, rc, "CLIP: %s", pl_status_name(rc)) : PL_OK;
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
    return command_failed("bench", "%s", err.text);
}
