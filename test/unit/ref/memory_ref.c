/* memory_ref.c - every allocation of the reference's models and of its outer steps fails once: the call reports it
 * and frees what it had (checked in the sanitizer build). */
#include "test/unit/failing_work.h"
#include "ref/model/vqgan_train.h"
#include "ref/outer/algorithms.h"
#include "runtime/models.h"
#include "test/unit/runtime/small_run.h"

/* --- the transformer --------------------------------------------------------------------------- */

static int dalle_with(enum pl_activations how)
{
    struct pl_dalle_config c = { .name = "test",
                                 .T = T,
                                 .F = F,
                                 .D = 12,
                                 .H = 2,
                                 .d = 8,
                                 .L = 3,
                                 .V = V,
                                 .Vi = VI,
                                 .pad = 1,
                                 .image_weight = 7 };
    int32_t text[T], codes[F * F];
    float logits[(T + F * F) * (V + T + VI)];
    struct pl_dalle_loss loss;
    struct pl_dalle *m;
    int rc;
    pl_dalle_config_pattern(&c, 3, 1);
    draw_tokens(text, T, codes, F * F, 0);
    if ((rc = pl_dalle_open(&m, &c, &be, 1, NULL))) return rc;
    m->activations = how;
    rc = pl_dalle_init(m, 4);
    if (!rc) rc = pl_dalle_step(m, text, codes, 1, 1, &loss, NULL);
    if (!rc) rc = pl_dalle_evaluate(m, text, codes, 1, &loss, NULL, NULL);
    if (!rc) rc = pl_dalle_next(m, logits, text, codes, 1, 1, NULL);
    pl_dalle_close(m);
    return rc;
}

static int reversible(void) { return dalle_with(PL_REVERSIBLE); }
static int stored(void) { return dalle_with(PL_STORED); }

/* How often the models below repeat their calls, and the buffers that they have taken after each. */
static int passes = 1, taken, after[2];

static void *count_buffers(size_t bytes)
{
    taken++;
    return pl_alloc(bytes, 1);
}

/* --- the other models: where memory for a buffer is missing, their pool frees idle ones and tries again */

static int gpt2_with(int stored_)
{
    static const struct pl_gpt2_config config = { 2, 2, 8, 6, 10, 16, 0 };
    static const int32_t ids[6] = { 1, 2, 3, 4, 5, 6 };
    static const uint8_t mask[6] = { 1, 1, 1, 1, 1, 0 };
    float logits[6 * 10];
    double loss;
    struct pl_gpt2 m;
    int rc = pl_gpt2_init(&m, &config, &be, 1);
    if (rc) return rc;
    m.stack.stored = stored_;
    rc = pl_gpt2_reset(&m, 3);
    for (int i = 0; !rc && i < passes; after[i++] = taken) {
        rc = pl_gpt2_loss(&m, &loss, ids, ids, mask, 1, 6, 1);
        if (!rc) rc = pl_gpt2_logits(&m, logits, ids, mask, 1, 6);
    }
    pl_gpt2_clear(&m);
    return rc;
}

static int gpt2_recomputed(void) { return gpt2_with(0); }
static int gpt2_stored(void) { return gpt2_with(1); }

static int clip(void)
{
    static const struct pl_clip_config config = {
        8, 8, 4, PL_CLIP_HEAD, 1, 5, 20, PL_CLIP_HEAD, 1
    };
    static const int32_t tokens[5] = { 1, 2, 19, 0, 0 };
    static const float pixels[3 * 8 * 8];
    float image[8], text[8], logit;
    struct pl_clip_model m;
    int rc = pl_clip_init(&m, &config, &be);
    if (rc) return rc;
    for (int i = 0; !rc && i < passes; after[i++] = taken) {
        rc = pl_clip_images(&m, image, pixels, 1);
        if (!rc) rc = pl_clip_texts(&m, text, tokens, 1);
        if (!rc) rc = pl_clip_logits(&m, &logit, text, 1, image, 1);
    }
    pl_clip_clear(&m);
    return rc;
}

static int vqgan(int gumbel)
{
    enum { SIDE = 8 };
    const struct pl_vqgan_config config = { 4,    { 1, 2 }, 2, 1, { 4 },  1,
                                            SIDE, 4,        4, 6, gumbel, gumbel ? 0.5f : 0,
                                            2 };
    struct pl_vqgan_task task = pl_vqgan_published_task();
    float x[3 * SIDE * SIDE] = { 0.5f }, z[4 * SIDE * SIDE], y[3 * SIDE * SIDE];
    int32_t code[SIDE * SIDE];
    struct pl_vqgan_loss loss;
    struct pl_vqgan m;
    int rc = pl_vqgan_init(&m, &config, &be, 1);
    if (rc) return rc;
    rc = pl_vqgan_reset(&m, 3);
    for (int i = 0; !rc && i < passes; after[i++] = taken) {
        rc = pl_vqgan_encode(&m, code, z, x, NULL, 1, SIDE, SIDE);
        if (!rc) rc = pl_vqgan_decode(&m, x, code, 1, SIDE / 2, SIDE / 2);
        if (!rc) rc = pl_vqgan_gradient(&m, &loss, y, code, &task, x, NULL, 1, SIDE, SIDE);
    }
    pl_vqgan_clear(&m);
    return rc;
}

static int vqgan_nearest(void) { return vqgan(0); }
static int vqgan_gumbel(void) { return vqgan(1); }

/* Each buffer goes back to its pool: the second pass finds all that it needs there. */
static void a_second_pass_takes_no_more(void **state)
{
    static int (*const models[])(void) = { gpt2_recomputed, gpt2_stored, clip, vqgan_nearest,
                                           vqgan_gumbel };
    void *(*const alloc)(size_t) = be.alloc;
    be.alloc = count_buffers;
    passes = 2;
    for (size_t i = 0; i < PL_COUNT(models); i++) {
        taken = 0;
        assert_int_equal(models[i](), PL_OK);
        assert_true(after[0] > 0);
        assert_int_equal(after[0], after[1]);
    }
    be.alloc = alloc;
    passes = 1;
}

/* --- outer steps ------------------------------------------------------------------------------- */

static const struct pl_outer_algorithm *algorithm;

static struct pl_outer_setup outer_setup(void)
{
    static const struct pl_outer_tensor tensors[2] = {
        { .offset = 0, .n = 48, .axes = 2, .shape = { 8, 6 }, .fragment = 0 },
        { .offset = 48, .n = 9, .axes = 1, .shape = { 9 }, .fragment = 1 },
    };
    struct pl_outer_setup s;
    pl_outer_defaults(&s);
    s.be = &be;
    s.tensors = tensors;
    s.count = 2;
    s.peers = 2;
    s.H = 4;
    s.fragments = 2;
    s.tau = 1;
    s.topk = 6;
    s.chunk = 8;
    s.share = 0.2;
    s.powersgd_rank = 2;
    s.warm_up = 2;
    s.nu = 0.4;
    s.gamma = 0.5;
    s.N = 2;
    return s;
}

/* Some gradients of a peer whose messages the other one repeats. */
static int outer(void)
{
    const struct pl_outer_setup setup = outer_setup();
    float x[57] = { 1 }, g[57] = { 0.25f };
    struct pl_outer *o;
    int rc = pl_outer_open(&o, algorithm, &setup, x, NULL);
    if (rc) return rc;
    for (int i = 0; i < 10 && rc >= 0; i++) {
        struct pl_outer_message m[2];
        rc = pl_outer_before_step(o, x, g, 0.1);
        while (rc >= 0 && rc != PL_OUTER_GRADIENT) {
            if (rc == PL_OUTER_STEP) rc = pl_outer_after_step(o, x);
            else if (rc == PL_OUTER_SEND) rc = pl_outer_message(o, &m[0], x, g);
            else {
                m[1] = m[0];
                m[1].rank = 1;
                rc = pl_outer_apply(o, x, g, m, 2);
            }
        }
    }
    pl_outer_close(o);
    return rc < 0 ? rc : PL_OK;
}

static void outer_steps(void **state)
{
    struct failing_work work = { .what = outer, .sampled = 0 };
    void *each = &work;
    (void)state;
    for (int a = 0; (algorithm = pl_outer_at(a)); a++) each_failing(&each);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        EACH_FAILING(reversible, 0),
        EACH_FAILING(stored, 0),
        EACH_FAILING(gpt2_recomputed, 1),
        EACH_FAILING(gpt2_stored, 1),
        EACH_FAILING(clip, 1),
        EACH_FAILING(vqgan_nearest, 1),
        EACH_FAILING(vqgan_gumbel, 1),
        cmocka_unit_test(a_second_pass_takes_no_more),
        cmocka_unit_test(outer_steps),
    };
    pl_backend_ref(&be);
    if (argc > 1) cmocka_set_test_filter(argv[1]);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
