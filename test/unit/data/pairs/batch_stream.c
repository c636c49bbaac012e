/* batch_stream.c - pairs and batches: the filter's counts, epochs, reproducibility, resuming from a
 * saved position, errors from the reading thread. */
#include "data/pairs/shard.h"
#include "data/pairs/batch_stream.h"
#include "test/unit/unit.h"

#include <unistd.h>

#define TEXT 8
#define CELLS 4
#define SHARDS 3
#define ROWS 40 /* a shard */

static char folder[] = "/tmp/potluck-stream-XXXXXX";
static char paths[SHARDS][64];
static const char *path_list[SHARDS];
static struct unigram *tokenizer;
static struct pl_err err;

/* Row r of shard s: its code says which it is, so that a test can recognise it. */
static void write_shard(const char *path, int s, int rows)
{
    struct parquet_writer *w;
    assert_int_equal(pl_shard_writer_open(&w, path, 5, &err), PL_OK);
    for (int r = 0; r < rows; r++) {
        char caption[32];
        uint8_t code[2 * CELLS] = { (uint8_t)s, 0, (uint8_t)r, 0, 7, 0, 255, 31 };
        struct shard_row row = { .nsfw = "UNLIKELY",
                                 .nsfw_bytes = 8,
                                 .width = 64,
                                 .height = 64,
                                 .code = code,
                                 .code_bytes = sizeof code };
        snprintf(caption, sizeof caption, "picture %d of %d", r, s);
        row.caption = caption;
        row.caption_bytes = strlen(caption);
        switch (r) { /* one of each sin, and near misses that pass */
        case 0:
            row.caption = "\xc3\xa9"
                          "e";
            row.caption_bytes = 3;
            break; /* two characters */
        case 1: row.caption = NULL; break;
        case 2:
            row.nsfw = "UNSURE";
            row.nsfw_bytes = 6;
            break;
        case 3: row.nsfw = NULL; break;
        case 4: row.width = 129; break;
        case 5: row.height = 129; break;
        case 6: row.width = 0; break;
        case 7: row.code = NULL; break;
        case 8: row.height = 128; break; /* exactly 1:2 */
        case 9:
            row.caption = "\xc3\xa9"
                          "ee";
            row.caption_bytes = 4;
            break; /* three characters */
        }
        assert_int_equal(pl_shard_writer_row(w, &row, &err), PL_OK);
    }
    assert_int_equal(pl_parquet_writer_close(w, &err), PL_OK);
}

static int setup(void **state)
{
    if (!mkdtemp(folder)) return -1;
    for (int s = 0; s < SHARDS; s++) {
        snprintf(paths[s], sizeof paths[s], "%s/%d.parquet", folder, s);
        path_list[s] = paths[s];
        write_shard(paths[s], s, ROWS);
    }
    return pl_unigram_open(&tokenizer, "test/golden/tokenizer/t5_2k/spiece.model", &err);
}

static int teardown(void **state)
{
    for (int s = 0; s < SHARDS; s++) unlink(paths[s]);
    rmdir(folder);
    pl_unigram_close(tokenizer);
    return 0;
}

static struct pairs_options options(void)
{
    return (struct pairs_options){ .path = path_list,
                                   .paths = SHARDS,
                                   .tokenizer = tokenizer,
                                   .text = TEXT,
                                   .pad = 1,
                                   .cells = CELLS,
                                   .codes = 8192,
                                   .buffer = 16,
                                   .seed = 5 };
}

static struct stream *open_stream(const struct pairs_options *o, int batch, int ahead)
{
    struct stream *s;
    assert_int_equal(pl_batch_stream_open(&s, o, batch, ahead, &err), PL_OK);
    return s;
}

#define USED (SHARDS * (ROWS - 8)) /* pairs of an epoch */

/* --- what comes ---------------------------------------------------------------------------- */

static void every_pair_once_an_epoch(void **state)
{
    struct pairs_options o = options();
    struct stream *s = open_stream(&o, 8, 0);
    struct stream_batch b;
    struct pairs_counts c;
    int first[USED], same = 0;
    assert_int_equal(USED % 8, 0);
    for (int epoch = 0; epoch < 3; epoch++) {
        int seen[SHARDS][ROWS] = { { 0 } }, n = 0;
        while (n < USED) {
            assert_int_equal(pl_batch_stream_next(s, &b, &err), PL_OK);
            for (int i = 0; i < b.batch; i++, n++) {
                const int32_t *code = b.codes + i * CELLS;
                assert_int_equal(code[2], 7);
                assert_int_equal(code[3], 8191);
                assert_int_equal(seen[code[0]][code[1]]++, 0);
                if (!epoch) first[n] = code[0] * ROWS + code[1];
                else same += first[n] == code[0] * ROWS + code[1];
            }
        }
        for (int k = 0; k < SHARDS; k++) {
            assert_int_equal(seen[k][8], 1);
            assert_int_equal(seen[k][9], 1);
        }
        assert_int_equal(b.given, (uint64_t)(epoch + 1) * USED);
    }
    assert_true(same < USED / 2); /* later epochs come in another order */
    assert_int_equal(pl_batch_stream_counts(s, &c), 1);
    assert_int_equal(c.rows, SHARDS * ROWS);
    assert_int_equal(c.used, USED);
    assert_int_equal(c.caption, SHARDS * 2);
    assert_int_equal(c.nsfw, SHARDS * 2);
    assert_int_equal(c.aspect, SHARDS * 3);
    assert_int_equal(c.no_code, SHARDS);
    pl_batch_stream_close(s);
}

static void tokens_are_padded_and_cut(void **state)
{
    struct pairs_options o = options();
    struct pairs *p;
    for (o.text = 3; o.text <= 12; o.text += 9) {
        int32_t tokens[12], codes[CELLS], want[12];
        char caption[32];
        size_t n;
        assert_int_equal(pl_pairs_open(&p, &o, &err), PL_OK);
        do assert_int_equal(pl_pairs_next(p, tokens, codes, &err), PL_OK);
        while (codes[1] < 10);
        snprintf(caption, sizeof caption, "picture %d of %d", codes[1], codes[0]);
        pl_unigram_encode(want, 12, &n, tokenizer, caption, strlen(caption), UNIGRAM_TRANSFORMERS);
        assert_in_range(n, 4, 11);
        for (size_t i = 0; i < (size_t)o.text; i++)
            assert_int_equal(tokens[i], i < n ? want[i] : 1);
        pl_pairs_close(p);
    }
}

static void order_depends_on_the_seed_alone(void **state)
{
    static const int ahead[] = { 1, 7, 1 };
    int32_t order[3][2 * USED];
    int differ = 0;
    for (int k = 0; k < 3; k++) {
        struct pairs_options o = options();
        struct stream_batch b;
        struct stream *s;
        o.seed += k == 2;
        s = open_stream(&o, k == 1 ? 1 : 4, ahead[k]); /* nor on batches or how far it is ahead */
        for (int n = 0; n < 2 * USED;) {
            assert_int_equal(pl_batch_stream_next(s, &b, &err), PL_OK);
            for (int i = 0; i < b.batch; i++)
                order[k][n++] = b.codes[i * CELLS] * ROWS + b.codes[i * CELLS + 1];
        }
        pl_batch_stream_close(s);
    }
    assert_memory_equal(order[0], order[1], sizeof order[0]);
    for (int n = 0; n < 2 * USED; n++) differ += order[0][n] != order[2][n];
    assert_true(differ > USED);
}

static void held_out_captions_never_come(void **state)
{
    static const char *const without[] = { "picture 30 of 1", "picture 12 of 0",
                                           "no such picture" };
    struct pairs_options o = options();
    struct pairs_counts c;
    struct stream_batch b;
    struct stream *s;
    o.exclude = without;
    o.excludes = 3;
    s = open_stream(&o, 2, 0);
    for (int n = 0; n < 2 * USED; n += 2) {
        assert_int_equal(pl_batch_stream_next(s, &b, &err), PL_OK);
        for (int i = 0; i < 2; i++) {
            const int32_t *code = b.codes + i * CELLS;
            assert_false(code[0] == 1 && code[1] == 30);
            assert_false(code[0] == 0 && code[1] == 12);
        }
    }
    pl_batch_stream_counts(s, &c);
    assert_int_equal(c.held_out, 2);
    pl_batch_stream_close(s);
}

static void a_limit_spreads_over_the_shards(void **state)
{
    struct pairs_options o = options();
    struct pairs_counts c;
    struct stream_batch b;
    struct stream *s;
    int from[SHARDS] = { 0 };
    o.limit = 30;
    s = open_stream(&o, 1, 0);
    do {
        assert_int_equal(pl_batch_stream_next(s, &b, &err), PL_OK);
        if (!b.epoch) from[b.codes[0]]++;
    } while (!b.epoch);
    assert_int_equal(pl_batch_stream_counts(s, &c), 1);
    assert_int_equal(c.rows, 30);
    for (int k = 0; k < SHARDS; k++) assert_in_range(from[k], 6, 10);
    pl_batch_stream_close(s);
}

/* --- going on ------------------------------------------------------------------------------ */

static void a_saved_position_goes_on_exactly(void **state)
{
    for (int stop = 0; stop < 70; stop += 3) { /* of 64 batches in two epochs */
        struct pairs_options o = options();
        struct stream *s = open_stream(&o, 3, 4), *again;
        struct stream_batch a, b;
        struct pairs_counts x, y;
        char *position;
        for (int i = 0; i < stop; i++) assert_int_equal(pl_batch_stream_next(s, &a, &err), PL_OK);
        position = pl_batch_stream_position(s);
        assert_non_null(position);
        again = open_stream(&o, 3, 1);
        assert_int_equal(pl_batch_stream_restore(again, position, &err), PL_OK);
        for (int i = 0; i < 40; i++) {
            char *p, *q;
            assert_int_equal(pl_batch_stream_next(s, &a, &err), PL_OK);
            assert_int_equal(pl_batch_stream_next(again, &b, &err), PL_OK);
            assert_memory_equal(a.tokens, b.tokens, 3 * TEXT * sizeof *a.tokens);
            assert_memory_equal(a.codes, b.codes, 3 * CELLS * sizeof *a.codes);
            assert_int_equal(a.given, b.given);
            assert_int_equal(a.epoch, b.epoch);
            assert_int_equal(pl_batch_stream_counts(s, &x), pl_batch_stream_counts(again, &y));
            assert_memory_equal(&x, &y, sizeof x);
            if (i % 13) continue;
            p = pl_batch_stream_position(s);
            q = pl_batch_stream_position(again);
            assert_string_equal(p, q);
            free(p);
            free(q);
        }
        free(position);
        pl_batch_stream_close(s);
        pl_batch_stream_close(again);
    }
}

static void a_position_of_other_data_is_refused(void **state)
{
    struct pairs_options o = options(), other;
    struct stream *s = open_stream(&o, 3, 4), *again;
    struct stream_batch b;
    char *position, *shorter;
    pl_batch_stream_next(s, &b, &err);
    position = pl_batch_stream_position(s);
    for (int k = 0; k < 5; k++) {
        const char *const without[] = { "picture 30 of 1" };
        other = options();
        switch (k) {
        case 0: other.seed++; break;
        case 1: other.buffer++; break;
        case 2: other.paths--; break;
        case 3:
            other.exclude = without;
            other.excludes = 1;
            break;
        case 4: other.limit = 50; break;
        }
        again = open_stream(&other, 3, 1);
        assert_int_equal(pl_batch_stream_restore(again, position, &err), PL_EUSE);
        assert_non_null(strstr(err.text, "data position"));
        pl_batch_stream_close(again);
    }
    /* Cut anywhere, it is not JSON; nothing worse happens. */
    for (size_t n = 0; n < strlen(position); n += 7) {
        shorter = strndup(position, n);
        again = open_stream(&o, 3, 1);
        assert_int_equal(pl_batch_stream_restore(again, shorter, &err), PL_EFORMAT);
        pl_batch_stream_close(again);
        free(shorter);
    }
    assert_int_equal(pl_batch_stream_restore(s, position, &err), PL_EUSE); /* it has begun */
    free(position);
    pl_batch_stream_close(s);
}

/* A position is text from a file: numbers in it are not to be trusted. */
static void a_forged_position_is_refused(void **state)
{
    static const char *const keys[] = { "\"at_shard\":", "\"at_row\":", "\"places\":[" };
    static const char *const lists[] = { "\"no\":[]", "\"places\":7", "\"places\":[0,\"0\"]" };
    struct pairs_options o = options();
    struct stream *s = open_stream(&o, 3, 4), *again;
    struct stream_batch b;
    char *position;
    pl_batch_stream_next(s, &b, &err);
    position = pl_batch_stream_position(s);
    for (size_t k = 0; k < PL_COUNT(keys); k++) {
        char *at = strstr(position, keys[k]) + strlen(keys[k]), *forged;
        size_t capacity = strlen(position) + 32;
        forged = malloc(capacity);
        snprintf(forged, capacity, "%.*s99999999%s", (int)(at - position), position, at);
        again = open_stream(&o, 3, 1);
        assert_int_equal(pl_batch_stream_restore(again, forged, &err), PL_EFORMAT);
        pl_batch_stream_close(again);
        free(forged);
    }
    for (size_t k = 0; k < PL_COUNT(lists); k++) { /* a missing buffer is not an empty one */
        char *at = strstr(position, "\"places\":"), *forged = malloc(strlen(position) + 32);
        sprintf(forged, "%.*s%s%s", (int)(at - position), position, lists[k], strchr(at, ']') + 1);
        again = open_stream(&o, 3, 1);
        assert_int_equal(pl_batch_stream_restore(again, forged, &err), PL_EFORMAT);
        pl_batch_stream_close(again);
        free(forged);
    }
    free(position);
    pl_batch_stream_close(s);
}

/* --- refusals ------------------------------------------------------------------------------ */

static void damage_is_reported_after_the_good_batches(void **state)
{
    char path[80];
    const char *list[1] = { path };
    struct pairs_options o = options();
    struct stream_batch b;
    struct stream *s;
    FILE *f;
    long bytes;
    int rc, good = 0;
    snprintf(path, sizeof path, "%s/damaged.parquet", folder);
    write_shard(path, 0, ROWS);
    f = fopen(path, "r+b");
    fseek(f, 0, SEEK_END);
    bytes = ftell(f);
    fseek(f, bytes / 3, SEEK_SET); /* inside a page */
    fputs("damage", f);
    fclose(f);
    o.path = list;
    o.paths = 1;
    s = open_stream(&o, 1, 1);
    while (!(rc = pl_batch_stream_next(s, &b, &err))) good++;
    assert_int_equal(rc, PL_EFORMAT);
    assert_non_null(strstr(err.text, "damaged.parquet"));
    assert_int_equal(pl_batch_stream_next(s, &b, &err), PL_EFORMAT); /* and again */
    pl_batch_stream_close(s);
    unlink(path);
}

static void wrong_codes_are_refused(void **state)
{
    struct pairs_options o = options();
    struct stream_batch b;
    struct stream *s;
    o.codes = 100;
    s = open_stream(&o, 1, 1);
    assert_int_equal(pl_batch_stream_next(s, &b, &err), PL_EFORMAT);
    assert_non_null(strstr(err.text, "is 8191; 0 to 99 were expected"));
    pl_batch_stream_close(s);
    o.codes = 8192;
    o.cells = 5;
    s = open_stream(&o, 1, 1);
    assert_int_equal(pl_batch_stream_next(s, &b, &err), PL_EFORMAT);
    assert_non_null(strstr(err.text, "5 codes of 2 bytes were expected"));
    pl_batch_stream_close(s);
}

static void empty_selection_is_reported(void **state)
{
    char path[80];
    const char *list[1] = { path };
    struct pairs_options o = options();
    struct stream_batch b;
    struct stream *s;
    snprintf(path, sizeof path, "%s/bad.parquet", folder);
    write_shard(path, 0, 8);
    o.path = list;
    o.paths = 1;
    s = open_stream(&o, 1, 1);
    assert_int_equal(pl_batch_stream_next(s, &b, &err), PL_ENOTFOUND);
    assert_non_null(strstr(err.text, "no pair of 8 is left"));
    pl_batch_stream_close(s);
    unlink(path);
    assert_int_equal(pl_batch_stream_open(&s, &o, 1, 1, &err), PL_EIO);
    assert_null(s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_pair_once_an_epoch),
        cmocka_unit_test(tokens_are_padded_and_cut),
        cmocka_unit_test(order_depends_on_the_seed_alone),
        cmocka_unit_test(held_out_captions_never_come),
        cmocka_unit_test(a_limit_spreads_over_the_shards),
        cmocka_unit_test(a_saved_position_goes_on_exactly),
        cmocka_unit_test(a_position_of_other_data_is_refused),
        cmocka_unit_test(a_forged_position_is_refused),
        cmocka_unit_test(damage_is_reported_after_the_good_batches),
        cmocka_unit_test(wrong_codes_are_refused),
        cmocka_unit_test(empty_selection_is_reported),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
