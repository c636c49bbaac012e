/* shard.c - a shard's columns, of any order and of several types; rows found from anywhere; the name
 * of the codec; and sources that end too early. */
#include "data/pairs/shard.h"
#include "test/unit/unit.h"

#include <errno.h>
#include <unistd.h>

static char folder[] = "/tmp/potluck-shard-XXXXXX", path[80];
static struct pl_err err;

enum { ROWS = 25, KEY = 0, CAPTION, NSFW, WIDTH, HEIGHT, CODE, COLUMNS };

static const struct parquet_column usual[COLUMNS] = {
    { .name = (char *)"key", .type = PARQUET_INT32 },
    { .name = (char *)"caption", .type = PARQUET_BYTES, .text = 1, .optional = 1 },
    { .name = (char *)"NSFW", .type = PARQUET_BYTES, .text = 1, .optional = 1 },
    { .name = (char *)"original_width", .type = PARQUET_INT64 },
    { .name = (char *)"original_height", .type = PARQUET_DOUBLE },
    { .name = (char *)"code", .type = PARQUET_BYTES, .optional = 1 },
};

/* Row r: everything says which row it is, and each fourth one is null where that is allowed. */
static void write_table(const struct parquet_column *columns, size_t group, const char *origin)
{
    const struct parquet_options o = { PL_CODEC_NONE, 0, group, 64 };
    struct parquet_writer *w;
    assert_int_equal(pl_parquet_writer_open(&w, path, columns, COLUMNS, &o, &err), PL_OK);
    if (origin) assert_int_equal(pl_parquet_writer_meta(w, "potluck", origin, &err), PL_OK);
    for (int r = 0; r < ROWS; r++) {
        struct parquet_value v[COLUMNS] = { 0 };
        char text[16];
        snprintf(text, sizeof text, "row %d", r);
        for (int c = 0; c < COLUMNS; c++) {
            v[c].null = columns[c].optional && r % 4 == 1;
            v[c].bytes = (const uint8_t *)text;
            v[c].length = columns[c].type == PARQUET_BYTES ? strlen(text) : 0;
            v[c].integer = 100 * c + r;
            v[c].real = 100 * c + r + 0.5;
        }
        assert_int_equal(pl_parquet_writer_row(w, v, &err), PL_OK);
    }
    assert_int_equal(pl_parquet_writer_close(w, &err), PL_OK);
}

static void check_row(const struct shard_row *row, int r)
{
    char text[16];
    size_t n = (size_t)snprintf(text, sizeof text, "row %d", r);
    if (r % 4 == 1) assert_true(!row->caption && !row->nsfw && !row->code);
    else {
        assert_true(row->caption_bytes == n && row->nsfw_bytes == n && row->code_bytes == n);
        assert_memory_equal(row->caption, text, n);
        assert_memory_equal(row->nsfw, text, n);
        assert_memory_equal(row->code, text, n);
    }
    assert_true(row->width == 300 + r && row->height == 400 + r + 0.5);
}

/* From each row to each other one, forward and backward, within a group and across. */
static void rows_are_found_from_anywhere(void **state)
{
    static const size_t groups[] = { 4, 7, ROWS, 100 };
    for (size_t g = 0; g < PL_COUNT(groups); g++) {
        struct shard_row row;
        struct shard *s;
        write_table(usual, groups[g], NULL);
        assert_int_equal(pl_shard_open(&s, path, &err), PL_OK);
        assert_int_equal(pl_shard_rows(s), ROWS);
        for (int r = 0; r < ROWS; r++) {
            assert_int_equal(pl_shard_next(s, &row, &err), PL_OK);
            check_row(&row, r);
        }
        assert_int_equal(pl_shard_next(s, &row, &err), PL_ENOTFOUND);
        assert_int_equal(pl_shard_next(s, &row, &err), PL_ENOTFOUND);
        for (int from = 0; from <= ROWS; from++)
            for (int to = 0; to <= ROWS; to++) {
                assert_int_equal(pl_shard_seek(s, (uint64_t)from, &err), PL_OK);
                if (from < ROWS && (from + to) % 2) {
                    assert_int_equal(pl_shard_next(s, &row, &err), PL_OK);
                    check_row(&row, from);
                }
                assert_int_equal(pl_shard_seek(s, (uint64_t)to, &err), PL_OK);
                for (int r = to; r < ROWS && r < to + 6; r++) {
                    assert_int_equal(pl_shard_next(s, &row, &err), PL_OK);
                    check_row(&row, r);
                }
                if (to + 6 >= ROWS) assert_int_equal(pl_shard_next(s, &row, &err), PL_ENOTFOUND);
            }
        assert_int_equal(pl_shard_seek(s, ROWS + 1, &err), PL_EUSE);
        assert_non_null(strstr(err.text, "row 26 of 25"));
        pl_shard_close(s);
    }
}

static void columns_have_their_types(void **state)
{
    static const struct {
        int column;
        enum parquet_type type;
        const char *name, *why; /* name NULL: as usual; why NULL: it may be so */
    } cases[] = {
        { WIDTH, PARQUET_INT32, NULL, NULL },
        { WIDTH, PARQUET_DOUBLE, NULL, NULL },
        { HEIGHT, PARQUET_INT32, NULL, NULL },
        { HEIGHT, PARQUET_BYTES, NULL, "column 'original_height' is BYTE_ARRAY; a number was" },
        { WIDTH, PARQUET_BYTES, NULL, "column 'original_width' is BYTE_ARRAY; a number was" },
        { CAPTION, PARQUET_INT32, NULL, "column 'caption' is INT32; BYTE_ARRAY was expected" },
        { NSFW, PARQUET_DOUBLE, NULL, "column 'NSFW' is DOUBLE; BYTE_ARRAY was expected" },
        { CODE, PARQUET_INT64, NULL, "column 'code' is INT64; BYTE_ARRAY was expected" },
        { CODE, PARQUET_BYTES, "codes", "no flat column 'code'" },
        { CAPTION, PARQUET_BYTES, "Caption", "no flat column 'caption'" },
        { KEY, PARQUET_BYTES, "url", NULL },
    };
    for (size_t i = 0; i < PL_COUNT(cases); i++) {
        struct parquet_column columns[COLUMNS];
        struct shard *s;
        memcpy(columns, usual, sizeof usual);
        columns[cases[i].column].type = cases[i].type;
        if (cases[i].name) columns[cases[i].column].name = (char *)cases[i].name;
        write_table(columns, 10, NULL);
        if (cases[i].why) {
            assert_int_equal(pl_shard_open(&s, path, &err), PL_EFORMAT);
            assert_null(s);
            assert_memory_equal(err.text, path, strlen(path));
            if (!strstr(err.text, cases[i].why)) fail_msg("%s", err.text);
        } else {
            assert_int_equal(pl_shard_open(&s, path, &err), PL_OK);
            pl_shard_close(s);
        }
    }
}

/* Printable ASCII of at most 64 characters, or no name. */
static void the_codec_has_a_printable_name(void **state)
{
    static const char sixty_four[] =
        "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";
    static const struct {
        const char *name, *is;
    } cases[] = {
        { "1a2b3c4d", "1a2b3c4d" },
        { "!~", "!~" },
        { "a b", "" },
        { "a\\u007f", "" },
        { "caf\xc3\xa9", "" },
        { "", "" },
        { sixty_four, sixty_four },
        { "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef0", "" },
    };
    char codec[SHARD_CODEC_MAX + 1], origin[200];
    struct shard *s;
    for (size_t i = 0; i < PL_COUNT(cases) + 3; i++) {
        static const char *const other[] = { "{\"codec\": 7}", "not JSON", NULL };
        const char *is = i < PL_COUNT(cases) ? cases[i].is : "";
        snprintf(origin, sizeof origin, "{\"codec\": \"%s\"}",
                 i < PL_COUNT(cases) ? cases[i].name : "");
        write_table(usual, 10, i < PL_COUNT(cases) ? origin : other[i - PL_COUNT(cases)]);
        assert_int_equal(pl_shard_open(&s, path, &err), PL_OK);
        memset(codec, 'x', sizeof codec);
        assert_int_equal(pl_shard_codec(codec, s), PL_OK);
        assert_string_equal(codec, is);
        pl_shard_close(s);
    }
}

/* Bytes beyond the end are never asked of a source; a file that shrinks while it is open says so. */
static void sources_end(void **state)
{
    struct pl_source *s;
    char got[4] = "";
    FILE *f = fopen(path, "w");
    fputs("abcd", f);
    fclose(f);
    assert_int_equal(pl_source_file(&s, path, &err), PL_OK);
    assert_int_equal(s->size, 4);
    assert_int_equal(pl_source_read(s, 1, got, 3, &err), PL_OK);
    assert_memory_equal(got, "bcd", 3);
    assert_int_equal(pl_source_read(s, 4, got, 0, &err), PL_OK);
    assert_int_equal(pl_source_read(s, 2, got, 3, &err), PL_EFORMAT);
    assert_non_null(strstr(err.text, "bytes 2 to 5 were expected, the file has 4"));
    assert_int_equal(pl_source_read(s, 5, got, 0, &err), PL_EFORMAT);
    assert_int_equal(pl_source_read(s, UINT64_MAX, got, 1, &err), PL_EFORMAT);
    assert_int_equal(truncate(path, 2), 0);
    errno = EINTR; /* of an earlier call: the end of a file is not an interruption */
    assert_int_equal(pl_source_read(s, 1, got, 3, &err), PL_EIO);
    assert_non_null(strstr(err.text, "cannot read at byte 2: the file has shrunk"));
    pl_source_close(s);
    pl_source_close(NULL);
    assert_int_equal(pl_source_file(&s, "/no/such/file", &err), PL_EIO);
    assert_null(s);
}

static int setup(void **state)
{
    if (!mkdtemp(folder)) return -1;
    snprintf(path, sizeof path, "%s/s.parquet", folder);
    return 0;
}

static int teardown(void **state)
{
    unlink(path);
    return rmdir(folder);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rows_are_found_from_anywhere),
        cmocka_unit_test(columns_have_their_types),
        cmocka_unit_test(the_codec_has_a_printable_name),
        cmocka_unit_test(sources_end),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
