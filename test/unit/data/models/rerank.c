/* rerank.c - scores of pictures for a caption, from a small CLIP with the published vocabulary. */
#include "data/models/rerank.h"
#include "data/files/safetensors.h"
#include "runtime/models.h"
#include "test/unit/unit.h"

#include <math.h>
#include <unistd.h>

#define VOCAB "test/golden/tokenizer/" RERANK_VOCAB
#define PICTURES 19 /* more than one batch, and not a whole number of them */

static char folder[] = "/tmp/potluck-rerank-XXXXXX", path[80];
static struct pl_backend be;
static struct pl_err err;

static int setup(void **state)
{
    const struct pl_clip_config config = { .embed = 8,
                                           .image = 16,
                                           .patch = 8,
                                           .vision_width = 64,
                                           .vision_layers = 1,
                                           .context = 77,
                                           .vocab = 49408,
                                           .text_width = 64,
                                           .text_layers = 1 };
    struct pl_clip_model m;
    struct st_writer *w = pl_safetensors_writer_new();
    uint32_t seed = 1;
    float *data[100];
    pl_backend_ref(&be);
    if (!mkdtemp(folder) || !w || pl_clip_declare(&m, &config) || m.params.count > 100) return -1;
    snprintf(path, sizeof path, "%s/clip.safetensors", folder);
    for (size_t i = 0; i < m.params.count; i++) {
        const struct pl_param *p = &m.params.list[i];
        data[i] = malloc(p->n * sizeof **data);
        for (size_t k = 0; k < p->n; k++) {
            seed = seed * 1664525 + 1013904223;
            data[i][k] = (float)(seed >> 8) * 0x1p-24f - 0.5f;
        }
        if (pl_safetensors_writer_add(w, p->name, PL_F32, p->dims, p->shape, data[i])) return -1;
    }
    if (pl_safetensors_write(w, path, &err)) return -1;
    for (size_t i = 0; i < m.params.count; i++) free(data[i]);
    pl_safetensors_writer_free(w);
    pl_clip_clear(&m);
    return 0;
}

static int teardown(void **state)
{
    unlink(path);
    return rmdir(folder);
}

static void make_pictures(struct pl_image *images)
{
    for (int i = 0; i < PICTURES; i++) {
        assert_int_equal(pl_image_init(&images[i], 20 + i, 16 + 2 * i, i % 2 ? 3 : 1), PL_OK);
        for (int k = 0; k < images[i].width * images[i].height * images[i].channels; k++)
            images[i].pixels[k] = (uint8_t)(k * (i + 3) * 7);
    }
}

static void scores_do_not_depend_on_company(void **state)
{
    struct pl_image images[PICTURES];
    struct pl_rerank r;
    float all[PICTURES], one, share[PICTURES], sum = 0;
    int32_t order[PICTURES];
    int cut;
    make_pictures(images);
    assert_int_equal(pl_rerank_open(&r, &be, path, VOCAB, &err), PL_OK);
    assert_int_equal(pl_rerank_score(&r, all, &cut, "a photo of a cat", images, PICTURES, &err),
                     PL_OK);
    assert_int_equal(cut, 0);
    for (int i = 0; i < PICTURES; i++) {
        assert_int_equal(pl_rerank_score(&r, &one, NULL, "a photo of a cat", &images[i], 1, &err),
                         PL_OK);
        assert_true(fabsf(one - all[i]) <= 1e-5f * fabsf(one));
    }
    pl_clip_rank(order, share, all, PICTURES);
    for (int i = 0; i < PICTURES; i++) {
        sum += share[i];
        if (i) assert_true(all[order[i - 1]] >= all[order[i]]);
    }
    assert_true(fabsf(sum - 1) < 1e-5f);
    assert_true(all[order[0]] > all[order[PICTURES - 1]]);
    for (int i = 0; i < PICTURES; i++) pl_image_clear(&images[i]);
    pl_rerank_close(&r);
}

/* ViT-B/32 as published; a test must not need a download. */
static void the_published_sizes(void **state)
{
    const struct pl_clip_config c = pl_clip_vit_b_32();
    assert_int_equal(c.embed, 512);
    assert_int_equal(c.image, 224);
    assert_int_equal(c.patch, 32);
    assert_int_equal(c.vision_width, 768);
    assert_int_equal(c.vision_layers, 12);
    assert_int_equal(c.context, 77);
    assert_int_equal(c.vocab, 49408);
    assert_int_equal(c.text_width, 512);
    assert_int_equal(c.text_layers, 12);
}

static void long_captions_are_cut_and_reported(void **state)
{
    char text[2000];
    struct pl_image image;
    struct pl_rerank r;
    float score;
    int cut;
    for (size_t i = 0; i < sizeof text; i++) text[i] = i % 2 ? ' ' : 'a';
    text[sizeof text - 1] = 0;
    assert_int_equal(pl_image_init(&image, 16, 16, 3), PL_OK);
    assert_int_equal(pl_rerank_open(&r, &be, path, VOCAB, &err), PL_OK);
    assert_int_equal(pl_rerank_score(&r, &score, &cut, text, &image, 1, &err), PL_OK);
    assert_int_equal(cut, 1);
    pl_image_clear(&image);
    pl_rerank_close(&r);
}

static void what_is_missing_is_named(void **state)
{
    struct pl_rerank r;
    /* no merge list in its folder */
    assert_int_not_equal(pl_rerank_open(&r, &be, path, NULL, &err), PL_OK);
    assert_non_null(strstr(err.text, RERANK_VOCAB));
    assert_int_not_equal(pl_rerank_open(&r, &be, "/nonexistent.pt", VOCAB, &err), PL_OK);
    assert_int_not_equal(pl_rerank_open(&r, &be, "test/golden/clip/clip_tiny.weights.safetensors",
                                        VOCAB, &err),
                         PL_OK);
    assert_non_null(strstr(err.text, "600"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(scores_do_not_depend_on_company),
        cmocka_unit_test(the_published_sizes),
        cmocka_unit_test(long_captions_are_cut_and_reported),
        cmocka_unit_test(what_is_missing_is_named),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
