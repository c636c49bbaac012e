/* corpus.c - streams of text: windows without gaps, held-out documents, resuming, and damaged
 * files. */
#include "data/text/corpus.h"
#include "data/files/file.h"
#include "test/unit/unit.h"

#include <unistd.h>
#include <zlib.h>

static char folder[] = "/tmp/potluck-corpus-XXXXXX", a[80], b[80];
static struct pl_err err;

static int bytes(int32_t *ids, size_t capacity, size_t *count, const void *tokenizer,
                 const char *text, size_t n)
{
    *count = n;
    for (size_t i = 0; i < n && i < capacity; i++) ids[i] = (unsigned char)text[i];
    return PL_OK;
}

static int setup(void **state)
{
    if (!mkdtemp(folder)) return -1;
    snprintf(a, sizeof a, "%s/a.json", folder);
    snprintf(b, sizeof b, "%s/b.txt", folder);
    return 0;
}

static int teardown(void **state)
{
    unlink(a);
    unlink(b);
    return rmdir(folder);
}

static void write_text(const char *path, const char *text)
{
    assert_int_equal(pl_file_write(path, text, strlen(text), &err), PL_OK);
}

static void write_gzip(const char *path, const char *text, size_t leave_out)
{
    gzFile z = gzopen(path, "wb");
    void *data;
    size_t n;
    assert_non_null(z);
    assert_int_equal(gzwrite(z, text, (unsigned)strlen(text)), (int)strlen(text));
    assert_int_equal(gzclose(z), Z_OK);
    if (!leave_out) return;
    assert_int_equal(pl_file_read(&data, &n, path, 1 << 20, &err), PL_OK);
    assert_int_equal(pl_file_write(path, data, n - leave_out, &err), PL_OK);
    free(data);
}

static struct corpus_options with(const char *const *path, size_t paths, int window)
{
    return (struct corpus_options){
        .path = path, .paths = paths, .encode = bytes, .end = '|', .window = window, .buffer = 1
    };
}

/* The first n windows as text. */
static void expect(const struct corpus_options *o, int windows, const char *text)
{
    struct corpus *c;
    int32_t ids[64];
    char got[256] = "";
    size_t at = 0;
    assert_int_equal(pl_corpus_open(&c, o, &err), PL_OK);
    for (int i = 0; i < windows; i++) {
        assert_int_equal(pl_corpus_next(c, ids, &err), PL_OK);
        for (int k = 0; k < o->window; k++) got[at++] = (char)ids[k];
    }
    pl_corpus_close(c);
    assert_string_equal(got, text);
}

static void fails(const char *path, int status, const char *words)
{
    const char *list[] = { path };
    struct corpus_options o = with(list, 1, 4);
    struct corpus *c;
    int32_t ids[4];
    int rc;
    assert_int_equal(pl_corpus_open(&c, &o, &err), PL_OK);
    while (!(rc = pl_corpus_next(c, ids, &err))) continue;
    assert_int_equal(rc, status);
    if (!strstr(err.text, words)) fail_msg("'%s' says nothing of '%s'", err.text, words);
    assert_int_equal(pl_corpus_next(c, ids, &err), status); /* it stays */
    pl_corpus_close(c);
}

static void windows_without_gaps(void **state)
{
    const char *list[] = { a };
    struct corpus_options o = with(list, 1, 4);
    write_text(a, "{\"text\": \"abc\", \"url\": 1}\n\n{\"text\":\"\"}\r\n{\"text\": \"d\\nefg\"}");
    expect(&o, 5, "abc|d\nefg|abc|d\nefg|"); /* an empty document has no end; then the next pass */
}

static void a_gzip_file(void **state)
{
    char path[100];
    const char *list[] = { path };
    struct corpus_options o = with(list, 1, 5);
    snprintf(path, sizeof path, "%s/c.jsonl.gz", folder);
    write_gzip(path, "{\"text\": \"one\"}\n{\"text\": \"two\"}\n", 0);
    expect(&o, 1, "one|t");
    write_gzip(path, "{\"text\": \"one\"}\n{\"text\": \"two\"}\n", 6);
    fails(path, PL_EFORMAT, "c.jsonl.gz: cannot read");
    unlink(path);
}

static void pages_of_plain_text(void **state)
{
    const char *list[] = { b };
    struct corpus_options o = with(list, 1, 1);
    struct corpus *c;
    char text[8000];
    int32_t id;
    int ends = 0;
    memset(text, 'x', sizeof text);
    for (size_t i = 499; i < sizeof text; i += 500) text[i] = '\n'; /* lines of 500, */
    text[2499] = text[2498] = text[4999] = text[4998] = '\n';       /* an empty one now and then */
    text[7999] = 0;
    write_text(b, text);
    assert_int_equal(pl_corpus_open(&c, &o, &err), PL_OK);
    for (int i = 0; i < 7999 + 3; i++) {
        assert_int_equal(pl_corpus_next(c, &id, &err), PL_OK);
        ends += id == '|';
    }
    assert_int_equal(pl_corpus_counts(c).documents, 3);
    assert_int_equal(ends, 3);
    pl_corpus_close(c);
}

static void every_third_is_held_out(void **state)
{
    const char *list[] = { a };
    struct corpus_options o = with(list, 1, 2);
    write_text(a, "{\"text\":\"a\"}\n{\"text\":\"b\"}\n{\"text\":\"c\"}\n{\"text\":\"d\"}\n{"
                  "\"text\":\"e\"}\n{\"text\":\"f\"}\n");
    o.every = 3;
    expect(&o, 5, "a|b|d|e|a|");
    o.held_out = 1;
    expect(&o, 3, "c|f|c|");
}

static void resumed_corpus_is_the_same(void **state)
{
    const char *list[] = { a, b };
    struct corpus_options o = with(list, 2, 3);
    struct corpus *c, *d;
    int32_t x[3], y[3];
    write_text(a, "{\"text\":\"one two three four\"}\n{\"text\":\"five six seven\"}\n");
    write_text(b, "a quite different text\n\nin two parts\n");
    o.buffer = 4;
    o.seed = 9;
    assert_int_equal(pl_corpus_open(&c, &o, &err), PL_OK);
    assert_int_equal(pl_corpus_open(&d, &o, &err), PL_OK);
    for (int i = 0; i < 50; i++) assert_int_equal(pl_corpus_next(c, x, &err), PL_OK);
    assert_int_equal(pl_corpus_skip(d, 50, &err), PL_OK);
    for (int i = 0; i < 50; i++) {
        assert_int_equal(pl_corpus_next(c, x, &err), PL_OK);
        assert_int_equal(pl_corpus_next(d, y, &err), PL_OK);
        assert_memory_equal(x, y, sizeof x);
    }
    assert_true(pl_corpus_counts(c).passes > 2);
    pl_corpus_close(c);
    pl_corpus_close(d);
}

/* A buffer that is not stated holds CORPUS_BUFFER windows: the same are drawn. */
static void usual_buffer(void **state)
{
    const char *list[] = { a };
    struct corpus_options usual = with(list, 1, 3), stated = usual;
    struct corpus *c, *d;
    int32_t x[3], y[3];
    write_text(a, "{\"text\":\"one two three four\"}\n{\"text\":\"five six seven\"}\n");
    usual.buffer = 0;
    stated.buffer = CORPUS_BUFFER;
    assert_int_equal(pl_corpus_open(&c, &usual, &err), PL_OK);
    assert_int_equal(pl_corpus_open(&d, &stated, &err), PL_OK);
    for (int i = 0; i < 50; i++) {
        assert_int_equal(pl_corpus_next(c, x, &err), PL_OK);
        assert_int_equal(pl_corpus_next(d, y, &err), PL_OK);
        assert_memory_equal(x, y, sizeof x);
    }
    pl_corpus_close(c);
    pl_corpus_close(d);
}

static void damaged_files(void **state)
{
    const char *list[] = { a };
    struct corpus_options o = with(list, 1, 100);
    struct corpus *c;
    int32_t ids[100];
    write_text(a, "{\"text\": \"abcdefgh\"}\n{\"text\": 5}\n");
    fails(a, PL_EFORMAT, "line 2: not an object with a string \"text\"");
    write_text(a, "{\"text\": \"abcdefgh\"}\n{\"text\": \"");
    fails(a, PL_EFORMAT, "line 2: not JSON");
    write_text(a, "[\"text\"]\n");
    fails(a, PL_EFORMAT, "line 1: not an object");
    write_text(a, "{\"text\": \"short\"}\n");
    assert_int_equal(pl_corpus_open(&c, &o, &err), PL_OK);
    assert_int_equal(pl_corpus_next(c, ids, &err), PL_ENOTFOUND);
    pl_corpus_close(c);
    assert_int_equal(pl_file_write(b, "text\0and more", 13, &err), PL_OK);
    fails(b, PL_EFORMAT, "not a text file");
    write_text(b, "");
    fails(b, PL_ENOTFOUND, "less than one window");
    list[0] = "/nowhere/c4.json.gz";
    assert_int_equal(pl_corpus_open(&c, &o, &err), PL_EIO);
    assert_null(c);
    o.window = 0;
    list[0] = a;
    assert_int_equal(pl_corpus_open(&c, &o, &err), PL_EUSE);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(windows_without_gaps),
        cmocka_unit_test(a_gzip_file),
        cmocka_unit_test(pages_of_plain_text),
        cmocka_unit_test(every_third_is_held_out),
        cmocka_unit_test(resumed_corpus_is_the_same),
        cmocka_unit_test(damaged_files),
        cmocka_unit_test(usual_buffer),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
