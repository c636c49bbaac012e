/* parquet.c - tables written and read back; files of pyarrow; and damaged files, each
 * refused with a status and a sentence. */
#include "data/files/file.h"
#include "data/parquet/parquet_read.h"
#include "data/parquet/parquet_write.h"
#include "data/parquet/rle.h"
#include "data/parquet/thrift.h"
#include "test/unit/unit.h"

#include <dirent.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

static char folder[] = "/tmp/potluck-parquet-XXXXXX";
static char path[80];
static struct pl_err err;

static int setup(void **state)
{
    if (!mkdtemp(folder)) return -1;
    snprintf(path, sizeof path, "%s/table.parquet", folder);
    return 0;
}

static int teardown(void **state)
{
    unlink(path);
    return rmdir(folder); /* fails if a temporary file was left behind */
}

/* --- a small table that has everything ----------------------------------------------------- */

enum { TEXT, BINARY, I32, I64, REAL, COLUMNS };

static const struct parquet_column columns[COLUMNS] = {
    { .name = (char *)"text", .type = PARQUET_BYTES, .text = 1, .optional = 1 },
    { .name = (char *)"binary", .type = PARQUET_BYTES },
    { .name = (char *)"i32", .type = PARQUET_INT32, .optional = 1 },
    { .name = (char *)"i64", .type = PARQUET_INT64 },
    { .name = (char *)"real", .type = PARQUET_DOUBLE, .optional = 1 },
};

/* Row r's values; their bytes are in `text`. */
static void make_row(struct parquet_value v[COLUMNS], int r, char text[64])
{
    memset(v, 0, COLUMNS * sizeof *v);
    snprintf(text, 64, "row %d", r * 7);
    v[TEXT] = (struct parquet_value){ .null = r % 3 == 0,
                                      .bytes = (uint8_t *)text,
                                      .length = strlen(text) };
    v[BINARY].bytes = (uint8_t *)text;
    v[BINARY].length = (size_t)(r % 5);
    v[I32].null = 1;
    v[I64].integer = r % 2 ? INT64_MIN + r : INT64_MAX - r;
    v[REAL].real = r / 3.0;
}

static int write_table(const char *where, int rows, const struct parquet_options *options)
{
    struct parquet_writer *w;
    int rc = pl_parquet_writer_open(&w, where, columns, COLUMNS, options, &err);
    if (rc) return rc;
    rc = pl_parquet_writer_meta(w, "comment", "of a test", &err);
    for (int r = 0; !rc && r < rows; r++) {
        struct parquet_value v[COLUMNS];
        char text[64];
        make_row(v, r, text);
        rc = pl_parquet_writer_row(w, v, &err);
    }
    if (!rc) return pl_parquet_writer_close(w, &err);
    pl_parquet_writer_discard(w);
    return rc;
}

static void check_value(const struct parquet_value *got, const struct parquet_value *want,
                        int column)
{
    assert_int_equal(got->null, want->null);
    if (got->null) return;
    if (column == TEXT || column == BINARY) {
        assert_int_equal(got->length, want->length);
        assert_memory_equal(got->bytes, want->bytes, want->length);
    } else if (column == REAL) assert_true(got->real == want->real);
    else assert_int_equal(got->integer, want->integer);
}

/* Reads everything, skipping `skip` rows after each one read; the status of the first failure. */
static int read_all(struct pl_source *source, int skip, int check)
{
    struct parquet *p;
    int rc = pl_parquet_open(&p, source, &err);
    if (rc) return rc;
    if (check) {
        assert_int_equal(p->columns, COLUMNS);
        assert_string_equal(pl_parquet_meta(p, "comment"), "of a test");
        for (int c = 0; c < COLUMNS; c++) {
            assert_int_equal(p->column[c].type, columns[c].type);
            assert_int_equal(p->column[c].text, columns[c].text);
            assert_int_equal(p->column[c].optional, columns[c].optional);
            assert_int_equal(p->column[c].nested, 0);
        }
    }
    for (size_t c = 0; !rc && c < p->columns; c++) {
        uint64_t first = 0;
        for (size_t g = 0; !rc && g < p->groups; first += p->group[g++].rows) {
            struct parquet_cursor *cursor;
            if ((rc = pl_parquet_cursor_open(&cursor, p, g, c, &err))) break;
            for (uint64_t r = 0; !rc; r += 1 + (uint64_t)skip) {
                struct parquet_value got, want[COLUMNS];
                char text[64];
                rc = pl_parquet_cursor_next(cursor, &got, &err);
                if (!rc && check) {
                    make_row(want, (int)(first + r), text);
                    check_value(&got, &want[c], (int)c);
                }
                if (rc == PL_ENOTFOUND && check) assert_true(r >= p->group[g].rows);
                if (!rc) rc = pl_parquet_cursor_skip(cursor, (uint64_t)skip, &err);
            }
            if (rc == PL_ENOTFOUND) rc = PL_OK;
            pl_parquet_cursor_close(cursor);
        }
    }
    pl_parquet_close(p);
    return rc;
}

static void what_was_written_is_read(void **state)
{
    static const enum pl_codec codecs[] = { PL_CODEC_NONE, PL_CODEC_SNAPPY, PL_CODEC_GZIP,
                                            PL_CODEC_BROTLI, PL_CODEC_ZSTD };
    static const int rows[] = { 0, 1, 9, 1000 };
    for (size_t c = 0; c < PL_COUNT(codecs); c++)
        for (size_t n = 0; n < PL_COUNT(rows); n++)
            for (size_t group = 0; group < 300; group += 150)
                for (int skip = 0; skip < 200; skip += 66) {
                    const struct parquet_options o = { codecs[c], 5, group, 512 };
                    struct pl_source *source;
                    assert_int_equal(write_table(path, rows[n], &o), PL_OK);
                    assert_int_equal(pl_source_file(&source, path, &err), PL_OK);
                    assert_int_equal(read_all(source, skip, 1), PL_OK);
                    pl_source_close(source);
                }
}

/* Row r of the files of test/interop/parquet.py --make. */
static void check_known(const char *name, const struct parquet_value *v, uint64_t r)
{
    char caption[32];
    if (!strcmp(name, "number")) assert_int_equal(v->integer, r * r);
    else if (!strcmp(name, "quarter")) assert_true(v->real == (double)r / 4);
    else if (!strcmp(name, "flag")) {
        assert_int_equal(v->null, r % 5 == 1);
        if (!v->null) assert_int_equal(v->integer, r % 3 == 0);
    } else if (!strcmp(name, "caption")) {
        assert_int_equal(v->null, r % 7 == 3);
        snprintf(caption, sizeof caption, "caption %d", (int)(r % 10));
        if (!v->null) assert_int_equal(v->length, strlen(caption));
        if (!v->null) assert_memory_equal(v->bytes, caption, v->length);
    } else {
        assert_string_equal(name, "code");
        assert_int_equal(v->length, 8);
        for (unsigned k = 0; k < 8; k++) assert_int_equal(v->bytes[k], (r * k) % 256);
    }
}

static void check_known_file(const char *file, int skip)
{
    struct pl_source *source;
    struct parquet *p;
    int read = 0;
    assert_int_equal(pl_source_file(&source, file, &err), PL_OK);
    assert_int_equal(pl_parquet_open(&p, source, &err), PL_OK);
    assert_int_equal(p->rows, 200);
    assert_int_equal(p->groups, 3);
    assert_int_equal(pl_parquet_find(p, "nested"), -1);
    for (size_t c = 0; c < p->columns; c++) {
        uint64_t first = 0;
        for (size_t g = 0; g < p->groups; first += p->group[g++].rows) {
            struct parquet_cursor *cursor;
            struct parquet_value v;
            int rc = pl_parquet_cursor_open(&cursor, p, g, c, &err);
            assert_int_equal(rc, p->column[c].nested ? PL_EFORMAT : PL_OK);
            for (uint64_t r = 0; !rc && !pl_parquet_cursor_next(cursor, &v, &err);
                 r += 1 + (uint64_t)skip, read++) {
                check_known(p->column[c].name, &v, first + r);
                assert_int_equal(pl_parquet_cursor_skip(cursor, (uint64_t)skip, &err), PL_OK);
            }
            pl_parquet_cursor_close(cursor);
        }
    }
    if (!skip) assert_int_equal(read, 5 * 200);
    pl_parquet_close(p);
    pl_source_close(source);
}

static void files_of_pyarrow(void **state)
{
    static const char where[] = "test/interop/pyarrow";
    struct dirent **entry;
    int n = scandir(where, &entry, NULL, alphasort), files = 0;
    for (int i = 0; i < n; i++) {
        char file[400];
        snprintf(file, sizeof file, "%s/%s", where, entry[i]->d_name);
        if (strstr(file, ".parquet"))
            for (int skip = 0; skip < 3; skip++, files++) check_known_file(file, skip);
        free(entry[i]);
    }
    free(entry);
    assert_true(files >= 15);
}

/* --- damage -------------------------------------------------------------------------------- */

static uint8_t *small_file(size_t *bytes, enum pl_codec codec)
{
    const struct parquet_options o = { codec, 5, 10, 64 };
    void *data;
    assert_int_equal(write_table(path, 25, &o), PL_OK);
    assert_int_equal(pl_file_read(&data, bytes, path, 1 << 20, &err), PL_OK);
    return data;
}

static int read_bytes(const uint8_t *data, size_t bytes)
{
    /* Exactly sized, so that an address sanitizer sees a step outside. */
    uint8_t *copy = malloc(bytes ? bytes : 1);
    struct pl_source *source;
    int rc;
    memcpy(copy, data, bytes);
    assert_int_equal(pl_source_memory(&source, "test", copy, bytes, &err), PL_OK);
    err.text[0] = 0;
    rc = read_all(source, 0, 0);
    pl_source_close(source);
    free(copy);
    return rc;
}

static void truncation_at_every_byte(void **state)
{
    size_t bytes;
    uint8_t *data = small_file(&bytes, PL_CODEC_BROTLI);
    assert_int_equal(read_bytes(data, bytes), PL_OK);
    for (size_t n = 0; n < bytes; n++) {
        assert_int_not_equal(read_bytes(data, n), PL_OK);
        assert_int_equal(strncmp(err.text, "test: ", 6), 0);
    }
    free(data);
}

/* A flipped byte is detected by a checksum or a length, or it changed something that is not read;
 * it never causes a crash. */
static void every_byte_flipped(void **state)
{
    static const uint8_t flips[] = { 0x01, 0x80, 0xff };
    for (int codec = 0; codec <= PL_CODEC_BROTLI; codec += PL_CODEC_BROTLI) {
        size_t bytes;
        uint8_t *data = small_file(&bytes, (enum pl_codec)codec);
        for (size_t i = 0; i < bytes; i++)
            for (size_t k = 0; k < PL_COUNT(flips); k++) {
                data[i] ^= flips[k];
                if (read_bytes(data, bytes)) assert_int_equal(strncmp(err.text, "test: ", 6), 0);
                data[i] ^= flips[k];
            }
        free(data);
    }
}

static void put_le32(uint8_t *p, uint32_t x)
{
    for (int i = 0; i < 4; i++) p[i] = (uint8_t)(x >> 8 * i);
}

static void a_footer_longer_than_the_file(void **state)
{
    static const uint32_t sizes[] = { 0,          1,         7, 1000000, PARQUET_FOOTER_MAX + 1,
                                      0x7fffffff, 0xffffffff };
    size_t bytes;
    uint8_t *data = small_file(&bytes, PL_CODEC_NONE);
    for (size_t i = 0; i < PL_COUNT(sizes); i++) {
        put_le32(data + bytes - 8, sizes[i]);
        assert_int_not_equal(read_bytes(data, bytes), PL_OK);
    }
    memcpy(data + bytes - 4, "PARE", 4);
    assert_int_equal(read_bytes(data, bytes), PL_EFORMAT);
    assert_non_null(strstr(err.text, "encrypted"));
    free(data);
}

/* Reading memory limits itself: a page that claims 200 MB in a file of 200 bytes is refused before
 * anything that large is filled, one beyond the limit before it is allocated. */
static void a_page_that_claims_too_much(void **state)
{
    const struct parquet_options o = { PL_CODEC_NONE, 0, 0, 0 };
    static const int64_t claims[] = { 200 << 20, (int64_t)PARQUET_PAGE_MAX + 1,
                                      INT32_MAX, -1,
                                      INT64_MAX, INT64_MIN };
    size_t bytes;
    void *data;
    assert_int_equal(write_table(path, 3, &o), PL_OK);
    assert_int_equal(pl_file_read(&data, &bytes, path, 1 << 20, &err), PL_OK);
    for (size_t i = 0; i < PL_COUNT(claims); i++) {
        struct pl_buffer b = { 0 };
        int last = 0;
        pl_thrift_put_i32(&b, &last, 1, 0);
        pl_thrift_put_i64(&b, &last, 2, claims[i]);
        pl_thrift_put_i64(&b, &last, 3, claims[i]);
        pl_thrift_put_stop(&b);
        memcpy((uint8_t *)data + 4, b.data, b.bytes); /* over the first page's header */
        assert_int_not_equal(read_bytes(data, bytes), PL_OK);
        pl_buffer_clear(&b);
    }
    free(data);
}

static void levels_that_run_out(void **state)
{
    static const uint8_t packed[] = { 3 << 1 | 1, 0xff, 0x0f }; /* 24 bits promised, 16 there */
    static const uint8_t run[] = { 5 << 1, 9, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80 };
    struct rle_in in;
    uint32_t x;
    pl_rle_init(&in, packed, sizeof packed, 1);
    for (int i = 0; i < 16; i++) {
        assert_int_equal(pl_rle_next(&in, &x), PL_OK);
        assert_int_equal(x, i < 12);
    }
    assert_int_equal(pl_rle_next(&in, &x), PL_EFORMAT);
    pl_rle_init(&in, run, sizeof run, 4);
    for (int i = 0; i < 5; i++) {
        assert_int_equal(pl_rle_next(&in, &x), PL_OK);
        assert_int_equal(x, 9);
    }
    assert_int_equal(pl_rle_next(&in, &x), PL_EFORMAT); /* a header of more than 64 bits */
    pl_rle_init(&in, NULL, 0, 0);
    assert_int_equal(pl_rle_next(&in, &x), PL_EFORMAT);
}

/* --- failures of the system ---------------------------------------------------------------- */

/* A limit on a file's size stands in for a full disk: no partial file may be left, and an existing
 * one is unchanged. */
static void a_full_disk_leaves_the_old_file(void **state)
{
    const struct parquet_options o = { PL_CODEC_NONE, 0, 100, 512 };
    struct rlimit before, small;
    struct stat was, is;
    assert_int_equal(write_table(path, 3, &o), PL_OK);
    assert_int_equal(stat(path, &was), 0);
    signal(SIGXFSZ, SIG_IGN);
    getrlimit(RLIMIT_FSIZE, &before);
    small = before;
    for (rlim_t limit = 0; limit < 20000; limit += 1777) {
        small.rlim_cur = limit;
        setrlimit(RLIMIT_FSIZE, &small);
        assert_int_equal(write_table(path, 1000, &o), PL_EIO);
        assert_non_null(strstr(err.text, path));
        assert_int_equal(stat(path, &is), 0);
        assert_int_equal(was.st_ino, is.st_ino);
        assert_int_equal(was.st_size, is.st_size);
    }
    setrlimit(RLIMIT_FSIZE, &before);
    assert_int_equal(write_table("/nowhere/at/all.parquet", 3, &o), PL_EIO);
}

/* The footer names the program that wrote the file, as the format asks for: readers work around errors
 * of writers by it. */
static void the_writer_is_named(void **state)
{
    const struct parquet_options o = { PL_CODEC_NONE, 0, 100, 512 };
    void *data;
    size_t n;
    assert_int_equal(write_table(path, 1, &o), PL_OK);
    assert_int_equal(pl_file_read(&data, &n, path, 1 << 20, &err), PL_OK);
    assert_non_null(memmem(data, n, "potluck version ", 16));
    free(data);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_was_written_is_read),
        cmocka_unit_test(files_of_pyarrow),
        cmocka_unit_test(truncation_at_every_byte),
        cmocka_unit_test(every_byte_flipped),
        cmocka_unit_test(a_footer_longer_than_the_file),
        cmocka_unit_test(a_page_that_claims_too_much),
        cmocka_unit_test(levels_that_run_out),
        cmocka_unit_test(a_full_disk_leaves_the_old_file),
        cmocka_unit_test(the_writer_is_named),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
