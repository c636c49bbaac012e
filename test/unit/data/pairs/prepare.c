/* prepare.c - pictures to shards with a small codec of random weights: content, broken pictures,
 * resuming after a stop. */
#include "data/files/file.h"
#include "data/pairs/prepare.h"
#include "data/images/resize.h"
#include "data/pairs/shard.h"
#include "runtime/models.h"
#include "runtime/backend_open.h"
#include "test/unit/unit.h"

#include <sys/stat.h>
#include <unistd.h>

#define SIDE 8
#define CELLS 16 /* 4 x 4: the codec halves once */
#define PICTURES 11
#define BROKEN 4 /* this one is */

static char folder[] = "/tmp/potluck-prepare-XXXXXX";
static struct captions list;
static struct pl_backend be;
static struct pl_vqgan codec;
static struct pl_err err;

static char *at(const char *name) { return pl_path_join(folder, name); }

static void write_picture(const char *path, int i)
{
    struct pl_image image;
    assert_int_equal(pl_image_init(&image, 10 + i, 12, 3), PL_OK);
    for (int k = 0; k < image.width * image.height * 3; k++)
        image.pixels[k] = (uint8_t)(k * (i + 3) % 251);
    assert_int_equal(pl_image_write_png(path, &image, &err), PL_OK);
    pl_image_clear(&image);
}

static int setup(void **state)
{
    const struct pl_vqgan_config config = { .ch = 32,
                                            .ch_mult = { 1, 1 },
                                            .levels = 2,
                                            .num_res_blocks = 1,
                                            .resolution = SIDE,
                                            .z_channels = 32,
                                            .embed_dim = 4,
                                            .n_embed = 300,
                                            .norm_groups = 32 };
    FILE *f;
    char *tsv;
    if (!mkdtemp(folder)) return -1;
    tsv = at("captions.tsv");
    f = fopen(tsv, "w");
    for (int i = 0; i < PICTURES; i++) {
        char name[32], *path;
        snprintf(name, sizeof name, "p%d.png", i);
        path = at(name);
        if (i == BROKEN) pl_file_write(path, "\x89PNG\r\n\x1a\nbut no more", 19, &err);
        else write_picture(path, i);
        fprintf(f, "%s\tpicture %d\n", name, i);
        free(path);
    }
    fclose(f);
    free(tsv);
    if (pl_captions_read(&list, folder, &err) || pl_backend_open(&be, "ref", &err)) return -1;
    if (pl_vqgan_check(&config, &err) || pl_vqgan_init(&codec, &config, &be, 0)) return -1;
    return pl_vqgan_reset(&codec, 1);
}

static int teardown(void **state)
{
    char command[100];
    pl_captions_clear(&list);
    pl_vqgan_clear(&codec);
    snprintf(command, sizeof command, "rm -r %s", folder);
    return system(command);
}

struct watched {
    int broken, calls, stop_at; /* the call to stop at; 0: none */
    char last[512];
};

static int watch(void *context, const struct prepare_counts *counts, const char *broken)
{
    struct watched *w = context;
    assert_true(counts->entries <= PICTURES);
    if (broken) {
        w->broken++;
        snprintf(w->last, sizeof w->last, "%s", broken);
    }
    return ++w->calls == w->stop_at;
}

static int prepare(const char *out, size_t rows, struct prepare_counts *counts, struct watched *w)
{
    const struct prepare_options o = { .folder = out,
                                       .stem = "s",
                                       .codec = "id",
                                       .nsfw = "UNLIKELY",
                                       .side = SIDE,
                                       .batch = 2,
                                       .rows = rows,
                                       .quality = 5 };
    mkdir(out, 0755);
    return pl_prepare_shards(counts, &codec, &list, &o, watch, w, &err);
}

/* The codes of one picture, made the long way. */
static void encode(int32_t code[CELLS], int i)
{
    struct pl_image image, square;
    float x[3 * SIDE * SIDE];
    assert_int_equal(pl_image_read(&image, list.path[i], &err), PL_OK);
    assert_int_equal(pl_resize_square(&square, &image, SIDE, PL_BICUBIC), PL_OK);
    for (int c = 0; c < 3; c++)
        for (int k = 0; k < SIDE * SIDE; k++)
            x[c * SIDE * SIDE + k] = (float)square.pixels[3 * k + c] / 127.5f - 1;
    assert_int_equal(pl_vqgan_encode(&codec, code, NULL, x, NULL, 1, SIDE, SIDE), PL_OK);
    pl_image_clear(&image);
    pl_image_clear(&square);
}

static void check_shards(const char *out, size_t rows)
{
    int i = 0;
    for (size_t k = 0; k * rows < PICTURES; k++) {
        char name[32], origin[128], *path;
        struct shard *s;
        struct shard_row row;
        snprintf(name, sizeof name, "s-%05zu.parquet", k);
        path = pl_path_join(out, name);
        assert_int_equal(pl_shard_open(&s, path, &err), PL_OK);
        /* Which pictures it was made of, and how: the same are not encoded again. */
        snprintf(origin, sizeof origin,
                 "{\"side\": 8, \"grid\": 4, \"codes\": 300, \"codec\": \"id\", \"first\": %zu, "
                 "\"entries\": %zu, \"list\": \"",
                 k * rows, k * rows + rows < PICTURES ? rows : PICTURES - k * rows);
        assert_memory_equal(pl_shard_meta(s, "potluck"), origin, strlen(origin));
        while (!pl_shard_next(s, &row, &err)) {
            int32_t want[CELLS];
            char caption[32];
            i += i == BROKEN;
            snprintf(caption, sizeof caption, "picture %d", i);
            assert_int_equal(row.caption_bytes, strlen(caption));
            assert_memory_equal(row.caption, caption, row.caption_bytes);
            assert_true(row.width == 10 + i && row.height == 12);
            assert_int_equal(row.nsfw_bytes, 8);
            assert_int_equal(row.code_bytes, 2 * CELLS);
            encode(want, i);
            for (size_t c = 0; c < CELLS; c++) assert_int_equal(shard_code(row.code, c), want[c]);
            i++;
        }
        pl_shard_close(s);
        free(path);
    }
    assert_int_equal(i, PICTURES);
}

static void pictures_become_shards(void **state)
{
    char *out = at("out");
    struct prepare_counts counts;
    struct watched w = { 0 };
    assert_int_equal(prepare(out, 3, &counts, &w), PL_OK);
    assert_int_equal(counts.encoded, PICTURES - 1);
    assert_int_equal(counts.broken, 1);
    assert_int_equal(counts.shards, 4);
    assert_int_equal(w.broken, 1);
    assert_non_null(strstr(w.last, "p4.png: damaged PNG"));
    assert_true(counts.picture_bytes > 0 && counts.shard_bytes > 0);
    check_shards(out, 3);
    /* Once more: nothing is left to do, and the broken one is remembered. */
    assert_int_equal(prepare(out, 3, &counts, &w), PL_OK);
    assert_int_equal(counts.found, 4);
    assert_int_equal(counts.broken, 1);
    assert_int_equal(counts.encoded, PICTURES - 1);
    /* Otherwise cut, they don't fit what is there. */
    assert_int_equal(prepare(out, 4, &counts, &w), PL_EUSE);
    free(out);
}

static void a_stop_loses_and_repeats_nothing(void **state)
{
    for (int stop = 1; stop < 12; stop++) {
        char name[16], *out;
        struct prepare_counts counts;
        struct watched w = { .stop_at = stop };
        int rc;
        snprintf(name, sizeof name, "stop%d", stop);
        out = at(name);
        rc = prepare(out, 3, &counts, &w);
        assert_true(rc == PL_EAGAIN || (rc == PL_OK && w.calls < stop));
        w.stop_at = 0;
        assert_int_equal(prepare(out, 3, &counts, &w), PL_OK);
        assert_int_equal(counts.entries, PICTURES);
        check_shards(out, 3);
        free(out);
    }
}

static void what_does_not_fit_is_refused(void **state)
{
    char *out = at("refused");
    const struct prepare_options odd = { .folder = out,
                                         .stem = "s",
                                         .codec = "id",
                                         .nsfw = "UNLIKELY",
                                         .side = SIDE + 1,
                                         .batch = 2,
                                         .rows = 3,
                                         .quality = 5 };
    struct prepare_counts counts;
    struct watched w = { 0 };
    assert_int_equal(pl_prepare_shards(&counts, &codec, &list, &odd, watch, &w, &err), PL_EUSE);
    assert_int_equal(prepare("/dev/null/folder", 3, &counts, &w), PL_EIO);
    free(out);
}

/* The smallest grid is of one image token: pictures of as many pixels as the codec has in a token. */
static void one_token_a_picture(void **state)
{
    char *out = at("tokens");
    const struct prepare_options o = { .folder = out,
                                       .stem = "s",
                                       .codec = "id",
                                       .nsfw = "UNLIKELY",
                                       .side = 2,
                                       .batch = 3,
                                       .rows = PICTURES,
                                       .quality = 5 };
    struct prepare_counts counts;
    struct watched w = { 0 };
    struct shard_row row;
    struct shard *s;
    char *path;
    mkdir(out, 0755);
    assert_int_equal(pl_prepare_shards(&counts, &codec, &list, &o, watch, &w, &err), PL_OK);
    path = pl_path_join(out, "s-00000.parquet");
    assert_int_equal(pl_shard_open(&s, path, &err), PL_OK);
    assert_int_equal(pl_shard_rows(s), PICTURES - 1);
    while (!pl_shard_next(s, &row, &err)) {
        assert_int_equal(row.code_bytes, 2);
        assert_in_range(shard_code(row.code, 0), 0, 299);
    }
    pl_shard_close(s);
    free(path);
    free(out);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(pictures_become_shards),
        cmocka_unit_test(a_stop_loses_and_repeats_nothing),
        cmocka_unit_test(what_does_not_fit_is_refused),
        cmocka_unit_test(one_token_a_picture),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
