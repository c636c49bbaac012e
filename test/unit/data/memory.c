/* memory.c - every allocation of data/, and of the reference's gradients, fails once: the call
 * reports it, frees what it had (checked in the sanitizer build), and leaves no file behind. */
#include "test/unit/failing_memory.h"
#include "data/text/bpe.h"
#include "data/text/clean.h"
#include "data/files/file.h"
#include "data/files/json.h"
#include "data/files/memory_stream.h"
#include "data/images/resize.h"
#include "data/files/safetensors.h"
#include "data/pairs/shard.h"
#include "data/images/contact_sheet.h"
#include "data/pairs/batch_stream.h"
#include "data/models/vqgan_file.h"
#include "data/models/weights.h"
#include "data/files/yaml.h"
#include "net/http/client/shard_list.h"
#include "ref/feedforward.h"
#include "ref/norm.h"
#include "runtime/models.h"
#include "test/unit/unit.h"

#include <dirent.h>
#include <unistd.h>

static char folder[] = "/tmp/potluck-memory-XXXXXX", shard_path[80], other_path[80], saved_path[80];
static struct pl_err err;
static struct unigram *tokenizer;
static struct bpe *bpe;

static int files(void)
{
    DIR *d = opendir(folder);
    int n = 0;
    while (readdir(d)) n++;
    closedir(d);
    return n - 2;
}

/* Runs `what` with its first allocation failing, its second, ... until none is left to fail.
 * may_pass: the one that fails may be for something that is not needed in the end. */
struct work {
    int (*what)(void);
    int may_pass;
};

static void each_allocation_fails_once(void **state)
{
    const struct work *work = *state;
    for (long n = 0;; n++) {
        int rc, before = files();
        fail_at = n;
        calls = 0;
        rc = work->what();
        fail_at = -1;
        if (calls <= n) {
            assert_int_equal(rc, PL_OK);
            assert_true(n > 0);
            return;
        }
        if (!work->may_pass) assert_int_not_equal(rc, PL_OK);
        assert_int_equal(files(), before);
    }
}

/* --- what is tried -------------------------------------------------------------------------- */

static int write_shard(const char *path)
{
    static const uint8_t code[8] = { 1, 0, 2, 0, 3, 0, 4, 0 };
    struct parquet_writer *w;
    int rc = pl_shard_writer_open(&w, path, 1, &err);
    if (rc) return rc;
    rc = pl_parquet_writer_meta(w, "potluck", "{\"codec\":\"id\"}", &err);
    for (int r = 0; !rc && r < 20; r++) {
        const struct shard_row row = { .caption = "a caption",
                                       .caption_bytes = 9,
                                       .nsfw = "UNLIKELY",
                                       .nsfw_bytes = 8,
                                       .width = 1,
                                       .height = 1,
                                       .code = code,
                                       .code_bytes = 8,
                                       .key = r % 2 ? "key" : NULL };
        rc = pl_shard_writer_row(w, &row, &err);
    }
    if (!rc) return pl_parquet_writer_close(w, &err);
    pl_parquet_writer_discard(w);
    return rc;
}

static int writing_a_shard(void) { return write_shard(shard_path); }

static int reading_a_shard(void)
{
    struct shard *s;
    struct shard_row row;
    char codec[SHARD_CODEC_MAX + 1];
    int rc = pl_shard_open(&s, shard_path, &err);
    if (rc) return rc;
    while (!(rc = pl_shard_next(s, &row, &err))) {}
    if (rc == PL_ENOTFOUND) rc = pl_shard_seek(s, 3, &err);
    if (!rc && !(rc = pl_shard_codec(codec, s))) assert_string_equal(codec, "id");
    pl_shard_close(s);
    return rc;
}

static int read_dictionaries(void)
{
    struct pl_source *source;
    struct parquet *p = NULL;
    int rc = pl_source_file(&source, "test/interop/pyarrow/v2_dictionary_zstd.parquet", &err);
    if (!rc) rc = pl_parquet_open(&p, source, &err);
    for (size_t c = 0; !rc && c < p->columns; c++) {
        struct parquet_cursor *cursor;
        struct parquet_value v;
        if (p->column[c].nested) continue;
        if ((rc = pl_parquet_cursor_open(&cursor, p, 0, c, &err))) break;
        while (!(rc = pl_parquet_cursor_next(cursor, &v, &err))) {}
        if (rc == PL_ENOTFOUND) rc = PL_OK;
        pl_parquet_cursor_close(cursor);
    }
    pl_parquet_close(p);
    pl_source_close(source);
    return rc;
}

static int streaming(void)
{
    const char *paths[] = { shard_path }, *without[] = { "this", "that" };
    const struct pairs_options o = { .path = paths,
                                     .paths = 1,
                                     .tokenizer = tokenizer,
                                     .text = 4,
                                     .pad = 1,
                                     .cells = 4,
                                     .codes = 16,
                                     .buffer = 8,
                                     .exclude = without,
                                     .excludes = 2 };
    struct stream_batch b;
    struct stream *s;
    char *position = NULL;
    int rc = pl_batch_stream_open(&s, &o, 2, 2, &err);
    if (rc) return rc;
    for (int i = 0; !rc && i < 12; i++) rc = pl_batch_stream_next(s, &b, &err);
    if (!rc && !(position = pl_batch_stream_position(s))) rc = PL_ENOMEM;
    pl_batch_stream_close(s);
    if (!rc && !(rc = pl_batch_stream_open(&s, &o, 2, 2, &err))) {
        rc = pl_batch_stream_restore(s, position, &err);
        pl_batch_stream_close(s);
    }
    free(position);
    return rc;
}

static int pictures(void)
{
    struct pl_image a = { 0 }, b = { 0 }, c = { 0 };
    void *png = NULL;
    size_t bytes;
    int rc = pl_image_init(&a, 40, 30, 4);
    if (!rc) rc = pl_resize_square(&b, &a, 16, PL_BICUBIC);
    if (!rc) rc = pl_sheet(&c, &b, 1, 1, 1);
    if (!rc) rc = pl_image_encode_png(&png, &bytes, &c);
    pl_image_clear(&c);
    if (!rc) rc = pl_image_decode(&c, png, bytes, "test", &err);
    if (!rc) rc = pl_image_rgb(&b, PL_ALPHA_WHITE);
    if (!rc) rc = pl_image_write_png(other_path, &b, &err);
    pl_image_clear(&a);
    pl_image_clear(&b);
    pl_image_clear(&c);
    free(png);
    return rc;
}

static int saving_a_codec(void)
{
    const struct pl_vqgan_config config = { 4, { 1, 2 }, 2, 1, { 4 }, 1, 8, 4, 4, 6, 1, 0.5f, 2 };
    struct pl_vqgan_config found;
    struct pl_backend ref;
    struct st_file *f;
    struct pl_vqgan m;
    int rc;
    pl_backend_ref(&ref);
    if ((rc = pl_vqgan_init(&m, &config, &ref, 0))) return rc;
    rc = pl_vqgan_save(&m, other_path, 0, &err);
    pl_vqgan_clear(&m);
    if (rc || (rc = pl_weights_open(&f, other_path, &err))) return rc;
    if (!(rc = pl_vqgan_config_find(&found, f, &err)))
        assert_memory_equal(&found, &config, sizeof found);
    pl_safetensors_close(f);
    return rc;
}

static int memory_streams(void)
{
    struct pl_memory_stream s;
    FILE *f = pl_memory_stream_open(&s);
    for (int i = 0; f && i < 4000; i++) fputs("a line\n", f);
    if (pl_memory_stream_close(&s, f)) return PL_ENOMEM;
    assert_int_equal(s.bytes, 28000);
    for (int i = 0; i < 4000; i++) assert_memory_equal(s.text + 7 * i, "a line\n", 7);
    assert_int_equal(s.text[s.bytes], 0);
    free(s.text);
    return PL_OK;
}

static int tensors(void)
{
    static const float x[4];
    struct st_writer *w = pl_safetensors_writer_new();
    struct st_file *f;
    int rc = w ? PL_OK : PL_ENOMEM;
    if (!rc) rc = pl_safetensors_writer_meta(w, "a", "b");
    if (!rc) rc = pl_safetensors_writer_add(w, "x", PL_F32, 1, (int64_t[]){ 4 }, x);
    if (!rc) rc = pl_safetensors_write(w, other_path, &err);
    pl_safetensors_writer_free(w);
    if (rc) return rc;
    if (!(rc = pl_safetensors_open(&f, other_path, &err))) pl_safetensors_close(f);
    return rc;
}

static int checkpoints(void)
{
    static const char *const files[] = { "test/golden/vqgan/container_mixed.pt",
                                         "test/golden/vqgan/container_mixed_legacy.pt",
                                         "test/golden/clip/clip_container_torchscript.pt" };
    int rc = PL_OK;
    for (size_t i = 0; i < PL_COUNT(files) && !rc; i++) {
        struct st_file *f;
        if ((rc = pl_weights_open(&f, files[i], &err))) return rc;
        rc = pl_weights_save(f, saved_path, &err);
        pl_safetensors_close(f);
    }
    return rc;
}

static int texts(void)
{
    static const char text[] = "Caf\xc3\xa9 &amp; \xef\xac\x81sh &EACUTE;\n<b> e\xcc\x81";
    int32_t ids[64];
    char *out = NULL;
    size_t n, count;
    int rc = pl_clean_text(&out, &n, text, sizeof text - 1);
    free(out);
    if (!rc) rc = pl_bpe_encode(ids, 64, &count, bpe, text, sizeof text - 1);
    if (!rc && !(rc = pl_bpe_decode(&out, &n, bpe, ids, count))) free(out);
    return rc;
}

static int settings(void)
{
    static const char text[] = "a: [1, {b: c}]\nd: 1.0e-3\n",
                      shards[] = "a "
                                 "\n"
                                 "b\n# c\n/d\n",
                      page[] = "<a href=b.parquet><a href=a.parquet><a href=b.parquet>";
    struct http_list list;
    json_t *json;
    int rc = pl_yaml_parse(&json, text, sizeof text - 1, "y", &err);
    if (rc) return rc;
    json_decref(json);
    if (!(rc = http_list_parse(&list, shards, sizeof shards - 1, "http://h/l", &err)))
        http_list_clear(&list);
    if (!rc && !(rc = http_list_parse(&list, page, sizeof page - 1, "http://h/l/", &err)))
        http_list_clear(&list);
    return rc;
}

/* jansson by itself would read 37 as 7, or leave out a name. */
static int documents(void)
{
    static const char text[] =
        "{\"a name of forty bytes, and a few more\":[37,-0.045,123456789012]}";
    json_error_t why;
    json_t *root = pl_json_load(text, sizeof text - 1, 0, &why);
    char *again;
    if (!root) {
        assert_string_equal(why.text, "no memory");
        return pl_json_status();
    }
    again = pl_json_text(root, JSON_COMPACT | JSON_REAL_PRECISION(2));
    json_decref(root);
    if (!again) return PL_ENOMEM;
    assert_string_equal(again, text);
    free(again);
    return PL_OK;
}

static int codec_sizes(void)
{
    struct pl_vqgan_config config;
    struct st_file *f;
    int rc = pl_weights_open(&f, "test/golden/vqgan/vq_f16_small.weights.safetensors", &err);
    if (rc) return rc;
    rc = pl_vqgan_config_find(&config, f, &err);
    pl_safetensors_close(f);
    return rc;
}

/* Their scratch is one piece that is cut up: not before it is known to be there. */
static int gradients(void)
{
    enum { M = 2, D = 4, C = 8 };
    static float x[M * D], dx[M * D], weight[D], dweight[D], W1[2 * C * D], b1[2 * C], W2[D * C],
        b2[D];
    const struct pl_ffn w = { W1, b1, W2, b2 };
    int rc = ref_layer_norm_backward(dx, dweight, b2, x, x, weight, M, D, 1e-5f, 0);
    if (!rc) rc = ref_group_norm_backward(dx, dweight, b2, x, x, weight, 1, D, M, 2, 1e-5f);
    if (!rc) rc = ref_ffn_backward(NULL, dx, &w, x, NULL, x, &w, M, D, C);
    return rc;
}

static int setup(void **state)
{
    if (!mkdtemp(folder)) return -1;
    snprintf(shard_path, sizeof shard_path, "%s/s.parquet", folder);
    snprintf(other_path, sizeof other_path, "%s/other", folder);
    snprintf(saved_path, sizeof saved_path, "%s/saved.pt", folder);
    if (pl_bpe_open_gpt2(&bpe, "test/golden/tokenizer/gpt2_bpe/vocab.json",
                         "test/golden/tokenizer/gpt2_bpe/merges.txt", &err) ||
        pl_file_write(saved_path, "", 0, &err))
        return -1;
    if (write_shard(shard_path) || pl_file_write(other_path, "", 0, &err)) return -1;
    return pl_unigram_open(&tokenizer, "test/golden/tokenizer/t5_2k/spiece.model", &err);
}

static int teardown(void **state)
{
    unlink(shard_path);
    unlink(other_path);
    unlink(saved_path);
    pl_unigram_close(tokenizer);
    pl_bpe_close(bpe);
    return rmdir(folder);
}

#define EACH_FAILING(function, passes) \
    { \
        .name = #function, .test_func = each_allocation_fails_once, \
        .initial_state = &(struct work) \
        { \
            .what = function, .may_pass = passes \
        } \
    }

int main(void)
{
    const struct CMUnitTest tests[] = {
        EACH_FAILING(writing_a_shard, 0),   EACH_FAILING(reading_a_shard, 0),
        EACH_FAILING(read_dictionaries, 0), EACH_FAILING(streaming, 1),
        EACH_FAILING(pictures, 0),          EACH_FAILING(tensors, 0),
        EACH_FAILING(checkpoints, 1),       EACH_FAILING(texts, 0),
        EACH_FAILING(settings, 0),          EACH_FAILING(documents, 0),
        EACH_FAILING(codec_sizes, 0),       EACH_FAILING(memory_streams, 0),
        EACH_FAILING(saving_a_codec, 0),    EACH_FAILING(gradients, 0),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
