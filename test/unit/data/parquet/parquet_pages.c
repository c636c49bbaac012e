/* parquet_pages.c - pages and footers made by hand at the boundary of every rule: the last value that
 * fits, the first that does not. Buffers end at an inaccessible page.
 * One long file: its pages are made by the same few writers. */
#include "data/files/buffer.h"
#include "data/parquet/page_header.h"
#include "data/parquet/parquet_read.h"
#include "data/parquet/rle.h"
#include "test/unit/data/exact_bytes.h"
#include "test/unit/unit.h"

#include <zlib.h>

static struct pl_err err;

/* --- runs and bit-packed groups -------------------------------------------------------------- */

/* The statuses and values of a stream of runs; the first failure ends it. */
static int read_runs(const void *data, size_t bytes, int width, uint32_t *x, int n)
{
    uint8_t *copy = exact_copy(data, bytes);
    struct rle_in in;
    int read = 0;
    pl_rle_init(&in, copy, bytes, width);
    while (read < n && pl_rle_next(&in, &x[read]) == PL_OK) read++;
    exact_free(copy, bytes);
    return read;
}

/* A run's value takes (width + 7) / 8 bytes: not one more, and it is refused if one is missing. */
static void runs_of_every_width(void **state)
{
    for (int width = 0; width <= 32; width++) {
        uint8_t bytes[16] = { 3 << 1, 0xA1, 0xB2, 0xC3, 0xD4, 0xE5, 0xF6 };
        uint32_t want = 0, x[8];
        int n = (width + 7) / 8;
        for (int i = 0; i < n; i++) want |= (uint32_t)bytes[1 + i] << 8 * i;
        bytes[1 + n] = 1 << 1; /* the next run, whose value is 7 */
        bytes[2 + n] = 7;
        memset(bytes + 3 + n, 0, 3);
        assert_int_equal(read_runs(bytes, (size_t)(1 + n), width, x, 8), 3);
        for (int i = 0; i < 3; i++) assert_int_equal(x[i], want);
        if (n) assert_int_equal(read_runs(bytes, (size_t)n, width, x, 8), 0);
        assert_int_equal(read_runs(bytes, (size_t)(2 + 2 * n), width, x, 8), 4);
        if (n) assert_int_equal(x[3], 7);
    }
}

/* Groups of 8 values, least significant bits first; each value is checked against the bits. */
static void packed_groups_of_every_width(void **state)
{
    for (int width = 0; width <= 32; width++) {
        uint8_t bytes[1 + 2 * 32] = { 2 << 1 | 1 };
        size_t n = 1 + 2 * (size_t)width;
        uint32_t x[16];
        for (size_t i = 1; i < n; i++) bytes[i] = (uint8_t)(i * 151 + 83);
        assert_int_equal(read_runs(bytes, n, width, x, 16), 16);
        for (int i = 0; i < 16; i++) {
            uint32_t want = 0;
            for (int b = 0; b < width; b++) {
                int at = i * width + b;
                want |= (uint32_t)(bytes[1 + at / 8] >> at % 8 & 1) << b;
            }
            assert_int_equal(x[i], want);
        }
        if (width) assert_true(read_runs(bytes, n - 1, width, x, 16) < 16);
    }
}

static void headers_of_runs(void **state)
{
    static const uint8_t longest[] = { 0x82, 0x80, 0x80, 0x80, 0x80, 0x00, 9 }; /* 2, six bytes */
    static const uint8_t longer[] = { 0x82, 0x80, 0x80, 0x80, 0x80, 0x80, 0x00, 9 };
    static const uint8_t empty[] = { 0, 5, 1 << 1, 6 }; /* a run of no values is passed over */
    uint32_t x[4];
    assert_int_equal(read_runs(longest, sizeof longest, 8, x, 4), 1);
    assert_int_equal(x[0], 9);
    assert_int_equal(read_runs(longer, sizeof longer, 8, x, 4), 0);
    assert_int_equal(read_runs(empty, sizeof empty, 8, x, 4), 1);
    assert_int_equal(x[0], 6);
    assert_int_equal(read_runs(longest, 3, 8, x, 4), 0); /* its header is cut off */
}

/* --- Thrift ---------------------------------------------------------------------------------- */

static void lists_of_every_length(void **state)
{
    for (size_t n = 0; n < 40; n++) {
        struct pl_buffer b = { 0 };
        struct thrift_field f = { 0 };
        int last = 0, type;
        pl_thrift_put_list(&b, &last, 3, THRIFT_I32, n);
        for (size_t i = 0; i < n; i++) pl_thrift_put_varint(&b, i << 1);
        pl_thrift_put_stop(&b);
        uint8_t *copy = exact_copy(b.data, b.bytes);
        struct thrift_in in = { .p = copy, .end = copy + b.bytes };
        assert_true(pl_thrift_next(&in, &f));
        assert_int_equal(f.id, 3);
        assert_int_equal(pl_thrift_list(&in, &f, &type), n);
        assert_int_equal(type, THRIFT_I32);
        for (size_t i = 0; i < n; i++) {
            struct thrift_field element = { 0, THRIFT_I32 };
            assert_int_equal(pl_thrift_integer(&in, &element), i);
        }
        assert_false(pl_thrift_next(&in, &f));
        assert_false(in.bad);
        exact_free(copy, b.bytes);
        pl_buffer_clear(&b);
    }
}

/* Ids that rise by 1 to 15 take one byte; those that rise by more, stay or fall are written out. */
static void fields_of_every_step(void **state)
{
    for (int from = 1; from <= 40; from += 13)
        for (int to = 1; to <= 60; to++) {
            struct pl_buffer b = { 0 };
            struct thrift_field f = { 0 };
            int last = 0;
            pl_thrift_put_i32(&b, &last, from, -7);
            size_t one = b.bytes;
            pl_thrift_put_i64(&b, &last, to, INT64_MIN + to);
            assert_int_equal(last, to);
            int is_short = to > from && to - from < 16;
            assert_int_equal(b.bytes - one, (is_short ? 1 : 2) + 10);
            struct thrift_in in = { .p = b.data, .end = b.data + b.bytes };
            assert_true(pl_thrift_next(&in, &f));
            assert_int_equal(f.id, from);
            assert_int_equal(pl_thrift_integer(&in, &f), -7);
            assert_true(pl_thrift_next(&in, &f));
            assert_int_equal(f.id, to);
            assert_true(pl_thrift_integer(&in, &f) == INT64_MIN + to);
            pl_buffer_clear(&b);
        }
}

static int skips(const void *data, size_t bytes, int type, size_t *left)
{
    uint8_t *copy = exact_copy(data, bytes);
    struct thrift_in in = { .p = copy, .end = copy + bytes };
    pl_thrift_skip(&in, type);
    *left = (size_t)(in.end - in.p);
    exact_free(copy, bytes);
    return !in.bad;
}

/* A value of each type is passed over whole, and refused if its last byte is missing. */
static void values_are_passed_over(void **state)
{
    static const struct {
        int type;
        size_t n;
        uint8_t bytes[24];
    } cases[] = {
        { THRIFT_TRUE, 0, { 0 } },
        { THRIFT_FALSE, 0, { 0 } },
        { THRIFT_BYTE, 1, { 200 } },
        { THRIFT_I16, 2, { 0x80, 1 } },
        { THRIFT_I32, 5, { 0xFF, 0xFF, 0xFF, 0xFF, 0x0F } },
        { THRIFT_I64, 10, { 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 1 } },
        { THRIFT_DOUBLE, 8, { 1, 2, 3, 4, 5, 6, 7, 8 } },
        { THRIFT_BINARY, 4, { 3, 'a', 'b', 'c' } },
        { THRIFT_LIST, 4, { 3 << 4 | THRIFT_BYTE, 1, 2, 3 } },
        { THRIFT_SET, 3, { 2 << 4 | THRIFT_TRUE, 1, 2 } },
        { THRIFT_LIST, 5, { 2 << 4 | THRIFT_BINARY, 0, 2, 'x', 'y' } },
        { THRIFT_MAP, 1, { 0 } },
        { THRIFT_MAP, 6, { 2, THRIFT_BYTE << 4 | THRIFT_I16, 1, 2, 3, 4 } },
        { THRIFT_STRUCT, 1, { 0 } },
        { THRIFT_STRUCT, 5, { 1 << 4 | THRIFT_TRUE, 1 << 4 | THRIFT_BYTE, 9, 0x11, 0 } },
        { THRIFT_STRUCT, 5, { 1 << 4 | THRIFT_LIST, 1 << 4 | THRIFT_STRUCT, 0x11, 0, 0 } },
    };
    size_t left;
    for (size_t i = 0; i < PL_COUNT(cases); i++) {
        uint8_t longer[32];
        memcpy(longer, cases[i].bytes, cases[i].n);
        longer[cases[i].n] = 0x55;
        assert_true(skips(longer, cases[i].n + 1, cases[i].type, &left));
        assert_int_equal(left, 1);
        assert_true(skips(cases[i].bytes, cases[i].n, cases[i].type, &left));
        for (size_t n = 0; n < cases[i].n; n++)
            assert_false(skips(cases[i].bytes, n, cases[i].type, &left));
    }
    assert_false(skips("\x55", 1, 0, &left));
    assert_false(skips("\x55", 1, 13, &left));
}

/* Values nest at most 32 deep: lists, structs and maps alike. */
static void nesting_has_a_limit(void **state)
{
    uint8_t lists[80], structs[160], maps[400];
    size_t left;
    for (int depth = 1; depth < 80; depth++) {
        memset(lists, 1 << 4 | THRIFT_LIST, (size_t)depth);
        lists[depth - 1] = THRIFT_BYTE; /* the innermost is empty */
        assert_int_equal(skips(lists, (size_t)depth, THRIFT_LIST, &left), depth <= 33);
        memset(structs, 1 << 4 | THRIFT_STRUCT, (size_t)depth);
        memset(structs + depth, 0, (size_t)depth + 1);
        assert_int_equal(skips(structs, 2 * (size_t)depth + 1, THRIFT_STRUCT, &left), depth <= 32);
        for (int i = 0; i < depth; i++)
            memcpy(maps + 3 * i, (uint8_t[]){ 1, THRIFT_BYTE << 4 | THRIFT_MAP, 9 }, 3);
        maps[3 * depth] = 0;
        assert_int_equal(skips(maps, 3 * (size_t)depth + 1, THRIFT_MAP, &left), depth <= 32);
    }
}

static void integers_have_ten_bytes(void **state)
{
    uint8_t bytes[12];
    size_t left;
    memset(bytes, 0x80, sizeof bytes);
    bytes[9] = 1;
    assert_true(skips(bytes, 10, THRIFT_I64, &left));
    bytes[9] = 0x80;
    bytes[10] = 0;
    assert_false(skips(bytes, 11, THRIFT_I64, &left));
}

/* --- files of one column --------------------------------------------------------------------- */

struct page {
    int type, encoding, definition_encoding;
    int64_t values, packed, unpacked, definition_bytes, repetition_bytes; /* -1: as they are */
    const void *data;
    size_t bytes;
};

struct table {
    enum parquet_type type;
    int optional, length;
    int converted;              /* the older name of its logical type, and one more; 0: none */
    size_t wrong_crc;           /* of this page, counted from 1 */
    int64_t rows, chunk_values; /* -1: as many as rows */
    int64_t begin, chunk_bytes; /* where its pages lie; 0: where they do */
    int has_dictionary;         /* the chunk names where its dictionary lies */
    int64_t dictionary;
    const char *elsewhere; /* the file of the column chunk; NULL: this one */
    size_t pages;
    struct page page[6];
};

static void put_page(struct pl_buffer *b, const struct page *g, int wrong_crc)
{
    int last = 0, inner = 0, is_v2 = g->type == PAGE_DATA_V2;
    int64_t size = (int64_t)g->bytes;
    pl_thrift_put_i32(b, &last, 1, g->type);
    pl_thrift_put_i64(b, &last, 2, g->unpacked == -1 ? size : g->unpacked);
    pl_thrift_put_i64(b, &last, 3, g->packed == -1 ? size : g->packed);
    pl_thrift_put_i32(b, &last, 4,
                      (int32_t)((uint32_t)crc32(0, g->data, (uInt)g->bytes) + (uint32_t)wrong_crc));
    pl_thrift_put_field(b, &last, is_v2 ? 8 : g->type == PAGE_DICTIONARY ? 7 : 5, THRIFT_STRUCT);
    pl_thrift_put_i64(b, &inner, 1, g->values);
    if (is_v2) {
        pl_thrift_put_i32(b, &inner, 4, g->encoding);
        pl_thrift_put_i64(b, &inner, 5, g->definition_bytes == -1 ? 0 : g->definition_bytes);
        pl_thrift_put_i64(b, &inner, 6, g->repetition_bytes == -1 ? 0 : g->repetition_bytes);
    } else {
        pl_thrift_put_i32(b, &inner, 2, g->encoding);
        if (g->type == PAGE_DATA)
            pl_thrift_put_i32(b, &inner, 3, g->definition_encoding ? g->definition_encoding : RLE);
    }
    pl_thrift_put_stop(b);
    pl_thrift_put_stop(b);
    pl_buffer_add(b, g->data, g->bytes);
}

static void put_file(struct pl_buffer *b, const struct table *t)
{
    int last = 0, group = 0, chunk = 0, meta = 0, root = 0, leaf = 0;
    pl_buffer_add(b, "PAR1", 4);
    for (size_t i = 0; i < t->pages; i++) put_page(b, &t->page[i], t->wrong_crc == i + 1);
    size_t end = b->bytes;
    pl_thrift_put_i32(b, &last, 1, 1);
    pl_thrift_put_list(b, &last, 2, THRIFT_STRUCT, 2);
    pl_thrift_put_string(b, &root, 4, "schema");
    pl_thrift_put_i32(b, &root, 5, 1);
    pl_thrift_put_stop(b);
    pl_thrift_put_i32(b, &leaf, 1, (int32_t)t->type);
    if (t->length) pl_thrift_put_i32(b, &leaf, 2, t->length);
    pl_thrift_put_i32(b, &leaf, 3, t->optional);
    pl_thrift_put_string(b, &leaf, 4, "x");
    if (t->converted) pl_thrift_put_i32(b, &leaf, 6, t->converted - 1);
    pl_thrift_put_stop(b);
    pl_thrift_put_i64(b, &last, 3, t->rows);
    pl_thrift_put_list(b, &last, 4, THRIFT_STRUCT, 1);
    pl_thrift_put_list(b, &group, 1, THRIFT_STRUCT, 1);
    if (t->elsewhere) pl_thrift_put_string(b, &chunk, 1, t->elsewhere);
    pl_thrift_put_field(b, &chunk, 3, THRIFT_STRUCT);
    pl_thrift_put_i32(b, &meta, 4, PL_CODEC_NONE);
    pl_thrift_put_i64(b, &meta, 5, t->chunk_values == -1 ? t->rows : t->chunk_values);
    pl_thrift_put_i64(b, &meta, 7, t->chunk_bytes ? t->chunk_bytes : (int64_t)end - 4);
    pl_thrift_put_i64(b, &meta, 9, t->begin ? t->begin : 4);
    if (t->has_dictionary) pl_thrift_put_i64(b, &meta, 11, t->dictionary);
    pl_thrift_put_stop(b);
    pl_thrift_put_stop(b);
    pl_thrift_put_i64(b, &group, 3, t->rows);
    pl_thrift_put_stop(b);
    pl_thrift_put_stop(b);
    pl_buffer_le32(b, (uint32_t)(b->bytes - end));
    pl_buffer_add(b, "PAR1", 4);
}

struct value {
    int null;
    int64_t integer;
    char bytes[16];
    size_t length;
};

/* Reads a table's rows; the status that ended it (PL_ENOTFOUND: the last row), and *n rows before. */
static int read_table(const struct table *t, uint64_t skip, struct value *v, size_t *n)
{
    struct pl_buffer b = { 0 };
    struct pl_source *source;
    struct parquet *p;
    struct parquet_cursor *c;
    struct parquet_value got;
    put_file(&b, t);
    uint8_t *copy = exact_copy(b.data, b.bytes);
    *n = 0;
    err.text[0] = 0;
    assert_int_equal(pl_source_memory(&source, "test", copy, b.bytes, &err), PL_OK);
    int rc = pl_parquet_open(&p, source, &err);
    if (!rc) {
        assert_int_equal(pl_parquet_cursor_open(&c, p, 0, 0, &err), PL_OK);
        rc = pl_parquet_cursor_skip(c, skip, &err);
        while (!rc && !(rc = pl_parquet_cursor_next(c, &got, &err))) {
            v[*n] = (struct value){ .null = got.null, .integer = got.integer };
            v[*n].length = got.length;
            assert_true(got.length <= sizeof v->bytes);
            if (got.length) memcpy(v[*n].bytes, got.bytes, got.length);
            ++*n;
        }
        pl_parquet_cursor_close(c);
    }
    pl_parquet_close(p);
    pl_source_close(source);
    exact_free(copy, b.bytes);
    pl_buffer_clear(&b);
    return rc;
}

#define PAGE(kind, count, code, text) \
    { \
        .type = kind, .encoding = code, .values = count, .packed = -1, .unpacked = -1, \
        .definition_bytes = -1, .repetition_bytes = -1, .data = text, .bytes = sizeof(text) - 1 \
    }
#define TABLE(of_type, count, ...) \
    { \
        .type = of_type, .rows = count, .chunk_values = -1, \
        .pages = sizeof((struct page[]){ __VA_ARGS__ }) / sizeof(struct page), .page = { \
            __VA_ARGS__ \
        } \
    }

static struct value v[64];
static size_t rows;

static void check_message(const char *part)
{
    if (!strstr(err.text, part)) fail_msg("\"%s\" says nothing of \"%s\"", err.text, part);
}

/* A value may be as long as the rest of the page, and not one byte more: bytes after the page in
 * the reader's buffer are not part of it. */
static void values_end_with_the_page(void **state)
{
    struct table t = TABLE(PARQUET_BYTES, 2, PAGE(PAGE_DATA, 2, PLAIN, "\1\0\0\0a\3\0\0\0bcd"));
    assert_int_equal(read_table(&t, 0, v, &rows), PL_ENOTFOUND);
    assert_int_equal(rows, 2);
    assert_memory_equal(v[1].bytes, "bcd", 3);
    for (size_t cut = 1; cut <= 11; cut++) {
        struct table shorter = t;
        shorter.page[0].bytes -= cut;
        assert_int_equal(read_table(&shorter, 0, v, &rows), PL_EFORMAT);
        assert_int_equal(rows, cut <= 7);
        check_message("beyond the page");
    }
}

static void fixed_values_end_with_the_page(void **state)
{
    static const struct {
        enum parquet_type type;
        int length, bytes;
    } types[] = { { PARQUET_INT32, 0, 4 },  { PARQUET_INT64, 0, 8 },  { PARQUET_FLOAT, 0, 4 },
                  { PARQUET_DOUBLE, 0, 8 }, { PARQUET_INT96, 0, 12 }, { PARQUET_FIXED, 5, 5 } };
    for (size_t i = 0; i < PL_COUNT(types); i++) {
        struct table t =
            TABLE(types[i].type, 2,
                  PAGE(PAGE_DATA, 2, PLAIN,
                       "\1\2\3\4\5\6\7\10\11\12\13\14\15\16\17\20\21\22\23\24\25\26\27\30"));
        t.length = types[i].length;
        t.page[0].bytes = 2 * (size_t)types[i].bytes;
        assert_int_equal(read_table(&t, 0, v, &rows), PL_ENOTFOUND);
        assert_int_equal(rows, 2);
        assert_int_equal(v[1].length, types[i].bytes);
        assert_memory_equal(v[1].bytes, (const char *)t.page[0].data + types[i].bytes,
                            (size_t)types[i].bytes);
        t.page[0].bytes--;
        assert_int_equal(read_table(&t, 0, v, &rows), PL_EFORMAT);
        assert_int_equal(rows, 1);
    }
}

static void booleans_end_with_the_page(void **state)
{
    struct table plain = TABLE(PARQUET_BOOLEAN, 9, PAGE(PAGE_DATA, 9, PLAIN, "\xA5\1"));
    struct table runs = TABLE(PARQUET_BOOLEAN, 9, PAGE(PAGE_DATA, 9, RLE, "\2\0\0\0\22\1"));
    assert_int_equal(read_table(&plain, 0, v, &rows), PL_ENOTFOUND);
    for (int i = 0; i < 9; i++) assert_int_equal(v[i].integer, i < 8 ? 0xA5 >> i & 1 : 1);
    plain.page[0].bytes--;
    assert_int_equal(read_table(&plain, 0, v, &rows), PL_EFORMAT);
    assert_int_equal(rows, 8);
    assert_int_equal(read_table(&runs, 0, v, &rows), PL_ENOTFOUND);
    for (int i = 0; i < 9; i++) assert_int_equal(v[i].integer, 1);
    for (size_t n = 0; n < 6; n++) {
        runs.page[0].bytes = n;
        assert_int_equal(read_table(&runs, 0, v, &rows), PL_EFORMAT);
        check_message("booleans extend beyond the page");
    }
}

/* Two entries; indices of one bit. */
#define DICTIONARY PAGE(PAGE_DICTIONARY, 2, PLAIN, "\2\0\0\0no\3\0\0\0yes")

static void dictionaries(void **state)
{
    struct table t = TABLE(PARQUET_BYTES, 4, DICTIONARY,
                           PAGE(PAGE_DATA, 4, RLE_DICTIONARY, "\1\3\6"));
    struct table last = TABLE(PARQUET_BYTES, 1, DICTIONARY,
                              PAGE(PAGE_DATA, 1, PLAIN_DICTIONARY, "\2\2\1"));
    struct table twice = TABLE(PARQUET_BYTES, 1, DICTIONARY, DICTIONARY,
                               PAGE(PAGE_DATA, 1, RLE_DICTIONARY, "\1\2\1"));
    struct table none = TABLE(PARQUET_BYTES, 1, PAGE(PAGE_DATA, 1, RLE_DICTIONARY, "\1\2\1"));
    struct table empty = TABLE(PARQUET_BYTES, 1, DICTIONARY,
                               PAGE(PAGE_DATA, 1, RLE_DICTIONARY, ""));
    assert_int_equal(read_table(&t, 0, v, &rows), PL_ENOTFOUND);
    for (int i = 0; i < 4; i++) {
        assert_int_equal(v[i].length, i == 1 || i == 2 ? 3 : 2);
        assert_memory_equal(v[i].bytes, i == 1 || i == 2 ? "yes" : "no", v[i].length);
    }
    assert_int_equal(read_table(&last, 0, v, &rows), PL_ENOTFOUND);
    assert_memory_equal(v[0].bytes, "yes", 3);
    last.page[1].data = "\2\2\2"; /* an index that equals the number of entries */
    assert_int_equal(read_table(&last, 0, v, &rows), PL_EFORMAT);
    check_message("index 2 of 2");
    assert_int_equal(read_table(&twice, 0, v, &rows), PL_EFORMAT);
    check_message("a second dictionary");
    assert_int_equal(read_table(&none, 0, v, &rows), PL_EFORMAT);
    check_message("no dictionary");
    assert_int_equal(read_table(&empty, 0, v, &rows), PL_EFORMAT);
    for (size_t cut = 1; cut <= 13; cut++) { /* entries end with their page, too */
        struct table shorter = t;
        shorter.page[0].bytes = 13 - cut;
        assert_int_equal(read_table(&shorter, 0, v, &rows), PL_EFORMAT);
        check_message(cut > 11 ? "entries in" : "beyond the page");
    }
}

/* Indices of 32 bits are the widest. */
static void widths_of_indices(void **state)
{
    char data[] = "\0\2\1\0\0\0";
    struct table t = TABLE(PARQUET_BYTES, 1, DICTIONARY,
                           PAGE(PAGE_DATA, 1, RLE_DICTIONARY, "\1\2\1"));
    for (int width = 1; width < 256; width++) {
        data[0] = (char)width;
        t.page[1].data = data;
        t.page[1].bytes = 2 + (size_t)((width < 32 ? width : 32) + 7) / 8;
        assert_int_equal(read_table(&t, 0, v, &rows), width <= 32 ? PL_ENOTFOUND : PL_EFORMAT);
        assert_int_equal(rows, width <= 32);
    }
}

static void dictionaries_of_other_kinds(void **state)
{
    struct table t = TABLE(PARQUET_BYTES, 1, DICTIONARY,
                           PAGE(PAGE_DATA, 1, RLE_DICTIONARY, "\1\2\1"));
    static const int64_t counts[] = { -1, 14, INT64_MAX };
    t.page[0].encoding = PLAIN_DICTIONARY;
    assert_int_equal(read_table(&t, 0, v, &rows), PL_ENOTFOUND);
    t.page[0].encoding = RLE_DICTIONARY;
    assert_int_equal(read_table(&t, 0, v, &rows), PL_EFORMAT);
    check_message("a dictionary in encoding 8");
    t.page[0].encoding = PLAIN;
    for (size_t i = 0; i < PL_COUNT(counts); i++) {
        t.page[0].values = counts[i];
        assert_int_equal(read_table(&t, 0, v, &rows), PL_EFORMAT);
        check_message("dictionary entries in 13 bytes");
    }
    t.page[0].values = 2;
    t.type = PARQUET_BOOLEAN;
    assert_int_equal(read_table(&t, 0, v, &rows), PL_EFORMAT);
    check_message("a dictionary of booleans");
}

/* Version 1: a length of 4 bytes, then the levels. 1 0 1: the second row is null. */
static void levels_of_version_1(void **state)
{
    struct table t = TABLE(PARQUET_INT32, 3,
                           PAGE(PAGE_DATA, 3, PLAIN, "\2\0\0\0\3\5\1\0\0\0\2\0\0\0"));
    t.optional = 1;
    assert_int_equal(read_table(&t, 0, v, &rows), PL_ENOTFOUND);
    assert_int_equal(rows, 3);
    assert_true(!v[0].null && v[1].null && !v[2].null && v[0].integer == 1 && v[2].integer == 2);
    t.page[0].definition_encoding = BIT_PACKED;
    assert_int_equal(read_table(&t, 0, v, &rows), PL_EFORMAT);
    check_message("deprecated");
    t.page[0].definition_encoding = PLAIN_DICTIONARY;
    assert_int_equal(read_table(&t, 0, v, &rows), PL_EFORMAT);
    check_message("levels in encoding 2");
    t.page[0].definition_encoding = RLE;
    for (size_t n = 0; n < 6; n++) {
        t.page[0].bytes = n;
        assert_int_equal(read_table(&t, 0, v, &rows), PL_EFORMAT);
        check_message("levels extend beyond the page");
    }
    t.page[0].bytes = 6; /* all the levels, and no value */
    assert_int_equal(read_table(&t, 0, v, &rows), PL_EFORMAT);
    check_message("a value extends");
    t.page[0].data = "\1\0\0\0\4\1\0\0\0\2\0\0\0";
    t.page[0].bytes = 13; /* a run of two levels without its value */
    assert_int_equal(read_table(&t, 0, v, &rows), PL_EFORMAT);
    check_message("definition level");
}

/* Version 2: levels stand before the compressed part, their length in the header. */
static void levels_of_version_2(void **state)
{
    struct table t = TABLE(PARQUET_INT32, 3, PAGE(PAGE_DATA_V2, 3, PLAIN, "\3\5\1\0\0\0\2\0\0\0"));
    static const int64_t wrong[] = { -2, 11, INT64_MAX };
    t.optional = 1;
    t.page[0].definition_bytes = 2;
    assert_int_equal(read_table(&t, 0, v, &rows), PL_ENOTFOUND);
    assert_int_equal(rows, 3);
    assert_true(!v[0].null && v[1].null && !v[2].null && v[0].integer == 1 && v[2].integer == 2);
    t.page[0].repetition_bytes = 1;
    assert_int_equal(read_table(&t, 0, v, &rows), PL_EFORMAT);
    check_message("1 and 2 bytes of levels");
    t.page[0].repetition_bytes = 0;
    for (size_t i = 0; i < PL_COUNT(wrong); i++) {
        t.page[0].definition_bytes = wrong[i];
        assert_int_equal(read_table(&t, 0, v, &rows), PL_EFORMAT);
        check_message("bytes of levels");
    }
    t.page[0].definition_bytes = 10; /* the whole page: no values are left */
    assert_int_equal(read_table(&t, 0, v, &rows), PL_EFORMAT);
    t.page[0].definition_bytes = 2;
    t.page[0].unpacked = 1; /* shorter than its levels */
    assert_int_equal(read_table(&t, 0, v, &rows), PL_EFORMAT);
}

static void pages_and_rows(void **state)
{
    struct table t = TABLE(PARQUET_INT32, 5, PAGE(PAGE_DATA, 2, PLAIN, "\1\0\0\0\2\0\0\0"),
                           PAGE(PAGE_DATA, 0, PLAIN, ""), PAGE(PAGE_INDEX, 77, PLAIN, "index"),
                           PAGE(PAGE_DATA, 1, PLAIN, "\3\0\0\0"),
                           PAGE(PAGE_DATA, 2, PLAIN, "\4\0\0\0\5\0\0\0"));
    for (uint64_t skip = 0; skip <= 7; skip++) {
        assert_int_equal(read_table(&t, skip, v, &rows), PL_ENOTFOUND);
        assert_int_equal(rows, skip < 5 ? 5 - skip : 0);
        for (size_t i = 0; i < rows; i++) assert_int_equal(v[i].integer, skip + i + 1);
    }
    struct table more = t;
    more.page[4].values = 3; /* rows that the group does not have */
    for (uint64_t skip = 0; skip <= 5; skip++) {
        assert_int_equal(read_table(&more, skip, v, &rows), PL_EFORMAT);
        check_message("3 rows where 2 are left");
    }
    more.page[4].values = -1;
    assert_int_equal(read_table(&more, 0, v, &rows), PL_EFORMAT);
    struct table fewer = t;
    fewer.page[4].values = 1;
    assert_int_equal(read_table(&fewer, 0, v, &rows), PL_EFORMAT);
    assert_int_equal(rows, 4);
    check_message("1 rows missing");
    t.wrong_crc = 1;
    for (uint64_t skip = 0; skip <= 2;
         skip++) { /* a page that is passed over whole is not opened */
        assert_int_equal(read_table(&t, skip, v, &rows), skip == 2 ? PL_ENOTFOUND : PL_EFORMAT);
        if (skip < 2) check_message("checksum");
    }
    t.wrong_crc = 0;
    for (t.chunk_values = 4; t.chunk_values <= 6; t.chunk_values += 2) {
        assert_int_equal(read_table(&t, 0, v, &rows), PL_EFORMAT);
        check_message("more or fewer values");
    }
    t.chunk_values = -1;
    t.elsewhere = "other.parquet";
    assert_int_equal(read_table(&t, 0, v, &rows), PL_EFORMAT);
    check_message("a column stored in another file");
}

/* A page's sizes: those of the bytes, no more than the chunk has left, never beyond the limit. */
static void sizes_of_pages(void **state)
{
    static const int64_t wrong[] = { -2, 9, PARQUET_PAGE_MAX, (int64_t)PARQUET_PAGE_MAX + 1,
                                     INT64_MAX };
    struct table t = TABLE(PARQUET_INT32, 2, PAGE(PAGE_DATA, 2, PLAIN, "\1\0\0\0\2\0\0\0"));
    for (size_t i = 0; i < PL_COUNT(wrong); i++) {
        int beyond = wrong[i] < 0 || wrong[i] > PARQUET_PAGE_MAX;
        struct table packed = t, unpacked = t;
        packed.page[0].packed = wrong[i];
        assert_int_equal(read_table(&packed, 0, v, &rows), beyond ? PL_ELIMIT : PL_EFORMAT);
        if (!beyond) check_message("8 are left in the column chunk");
        unpacked.page[0].unpacked = wrong[i];
        if (wrong[i] != PARQUET_PAGE_MAX)
            assert_int_equal(read_table(&unpacked, 0, v, &rows), beyond ? PL_ELIMIT : PL_EFORMAT);
    }
    t.page[0].encoding = 5;
    assert_int_equal(read_table(&t, 0, v, &rows), PL_EFORMAT);
    check_message("values in encoding 5");
    t.page[0].encoding = RLE; /* of booleans alone */
    assert_int_equal(read_table(&t, 0, v, &rows), PL_EFORMAT);
    check_message("values in encoding 3");
}

/* --- schemas --------------------------------------------------------------------------------- */

/* The only column, an integer, of a table without rows. */
static void put_leaf(struct pl_buffer *b, int *last)
{
    int of = 0;
    pl_thrift_put_i32(b, &of, 1, PARQUET_INT32);
    pl_thrift_put_i32(b, &of, 3, 0);
    pl_thrift_put_string(b, &of, 4, "x");
    pl_thrift_put_stop(b);
    pl_thrift_put_i64(b, last, 3, 0);
    pl_thrift_put_list(b, last, 4, THRIFT_STRUCT, 0);
}

struct opened {
    struct parquet *p;
    struct pl_source *source;
    uint8_t *copy;
    size_t bytes;
};

/* Ends the footer that b holds, frees b, and opens the file. */
static int open_footer(struct opened *o, struct pl_buffer *b)
{
    pl_thrift_put_stop(b);
    pl_buffer_le32(b, (uint32_t)(b->bytes - 4));
    pl_buffer_add(b, "PAR1", 4);
    o->copy = exact_copy(b->data, o->bytes = b->bytes);
    pl_buffer_clear(b);
    assert_int_equal(pl_source_memory(&o->source, "test", o->copy, o->bytes, &err), PL_OK);
    return pl_parquet_open(&o->p, o->source, &err);
}

static void close_opened(struct opened *o)
{
    pl_parquet_close(o->p);
    pl_source_close(o->source);
    exact_free(o->copy, o->bytes);
}

/* A column below `depth` groups, each the only child of the one above. */
static int open_schema(int depth, int children_of_last)
{
    struct pl_buffer b = { 0 };
    struct opened o;
    int last = 0;
    pl_buffer_add(&b, "PAR1", 4);
    pl_thrift_put_list(&b, &last, 2, THRIFT_STRUCT, (size_t)depth + 1);
    for (int i = 0; i < depth; i++) {
        int of = 0;
        pl_thrift_put_string(&b, &of, 4, "g");
        pl_thrift_put_i32(&b, &of, 5, i == depth - 1 ? children_of_last : 1);
        pl_thrift_put_stop(&b);
    }
    put_leaf(&b, &last);
    int rc = open_footer(&o, &b);
    if (!rc) assert_int_equal(o.p->columns, 1);
    if (!rc) assert_int_equal(o.p->column[0].nested, depth > 1);
    close_opened(&o);
    return rc;
}

/* Opens a table without reading it. *bytes: of its file. text may be NULL. */
static int open_table(const struct table *t, int64_t *bytes, int *nested, int *text)
{
    struct pl_buffer b = { 0 };
    struct pl_source *source;
    struct parquet *p;
    put_file(&b, t);
    assert_int_equal(pl_source_memory(&source, "test", b.data, b.bytes, &err), PL_OK);
    int rc = pl_parquet_open(&p, source, &err);
    if (!rc) *nested = p->column[0].nested;
    if (!rc && text) *text = p->column[0].text;
    *bytes = (int64_t)b.bytes;
    pl_parquet_close(p);
    pl_source_close(source);
    pl_buffer_clear(&b);
    return rc;
}

/* A chunk's pages lie behind the first magic and before the end of the file. One without values has
 * no pages, wherever its offset points. */
static void chunks_lie_within_the_file(void **state)
{
    static const char zeros[200];
    struct table far = TABLE(PARQUET_INT32, 1, PAGE(PAGE_DATA, 50, PLAIN, zeros));
    int64_t size, same;
    int nested;
    far.begin = far.chunk_bytes = 100; /* numbers of two bytes, as those below */
    (void)open_table(&far, &size, &nested, NULL);
    const struct {
        int64_t begin, bytes, values;
        int rc;
    } cases[] = { { 70, size - 70, 1, PL_OK }, { 70, size - 69, 1, PL_EFORMAT },
                  { size, 64, 1, PL_EFORMAT }, { size + 1, 64, 1, PL_EFORMAT },
                  { 4, 64, 1, PL_OK },         { 3, 64, 1, PL_EFORMAT },
                  { -70, 64, 1, PL_EFORMAT },  { 64, -70, 1, PL_EFORMAT },
                  { 64, 64, -2, PL_EFORMAT },  { 3, -70, 0, PL_OK } };
    for (size_t i = 0; i < PL_COUNT(cases); i++) {
        far.begin = cases[i].begin;
        far.chunk_bytes = cases[i].bytes;
        far.chunk_values = cases[i].values;
        far.rows = cases[i].values == 0 ? 0 : 1;
        if (open_table(&far, &same, &nested, NULL) != cases[i].rc)
            fail_msg("case %zu: %s", i, err.text);
        if (cases[i].rc) check_message("a column chunk outside the file");
        if (i < 4) assert_int_equal(same, size);
    }
}

/* A dictionary in front of the values is where the chunk begins. Some writers say 0 for none, and an
 * offset behind the values has no meaning. */
static void chunks_begin_with_their_dictionary(void **state)
{
    static const struct {
        int64_t offset;
        int rc;
    } cases[] = { { 4, PL_ENOTFOUND }, { 0, PL_ENOTFOUND },         { -5, PL_ENOTFOUND },
                  { 5, PL_ENOTFOUND }, { INT64_MAX, PL_ENOTFOUND }, { 3, PL_EFORMAT },
                  { 1, PL_EFORMAT } };
    struct table t = TABLE(PARQUET_INT32, 1, PAGE(PAGE_DATA, 1, PLAIN, "\7\0\0\0"));
    t.has_dictionary = 1;
    for (size_t i = 0; i < PL_COUNT(cases); i++) {
        t.dictionary = cases[i].offset;
        if (read_table(&t, 0, v, &rows) != cases[i].rc) fail_msg("case %zu: %s", i, err.text);
        assert_int_equal(rows, cases[i].rc == PL_ENOTFOUND);
        if (rows) assert_int_equal(v[0].integer, 7);
        else check_message("a column chunk outside the file");
    }
    /* The values' own offset is passed over, then: the pages follow the dictionary. */
    t.begin = 6;
    t.dictionary = 4;
    assert_int_equal(read_table(&t, 0, v, &rows), PL_ENOTFOUND);
    assert_int_equal(rows, 1);
}

/* A footer with this many lists of key-value metadata, each of `count` empty entries of a type. */
static int open_metas(int lists, size_t count, int type)
{
    struct pl_buffer b = { 0 };
    struct opened o;
    int last = 0, root = 0;
    pl_buffer_add(&b, "PAR1", 4);
    pl_thrift_put_list(&b, &last, 2, THRIFT_STRUCT, 2);
    pl_thrift_put_string(&b, &root, 4, "schema");
    pl_thrift_put_i32(&b, &root, 5, 1);
    pl_thrift_put_stop(&b);
    put_leaf(&b, &last);
    for (; lists; lists--) {
        pl_thrift_put_list(&b, &last, 5, type, count);
        for (size_t i = 0; i < count; i++) pl_thrift_put_stop(&b);
    }
    int rc = open_footer(&o, &b);
    if (!rc) assert_int_equal(o.p->metas, count);
    close_opened(&o);
    return rc;
}

static void metadata_has_a_limit(void **state)
{
    assert_int_equal(open_metas(1, 0, THRIFT_STRUCT), PL_OK);
    assert_int_equal(open_metas(1, 0, THRIFT_I64), PL_OK);
    assert_int_equal(open_metas(1, 4096, THRIFT_STRUCT), PL_OK);
    assert_int_equal(open_metas(1, 4097, THRIFT_STRUCT), PL_EFORMAT);
    assert_int_equal(open_metas(1, 1, THRIFT_I64), PL_EFORMAT);
    assert_int_equal(open_metas(2, 1, THRIFT_STRUCT), PL_EFORMAT);
    check_message("key-value metadata listed twice");
}

/* Files of before 2018 name a text by its converted type alone: 0 is UTF8, 1 is MAP. */
static void texts_of_older_files(void **state)
{
    struct table t = TABLE(PARQUET_BYTES, 1, PAGE(PAGE_DATA, 1, PLAIN, "\1\0\0\0x"));
    int64_t size;
    int nested, text;
    for (t.converted = 0; t.converted < 3; t.converted++) {
        assert_int_equal(open_table(&t, &size, &nested, &text), PL_OK);
        assert_int_equal(text, t.converted == 1);
    }
}

/* Repeated columns are there, but cannot be read; there is no fourth kind. */
static void kinds_of_repetition(void **state)
{
    struct table t = TABLE(PARQUET_INT32, 1, PAGE(PAGE_DATA, 1, PLAIN, "\1\0\0\0"));
    int64_t size;
    int nested;
    for (t.optional = 0; t.optional < 3; t.optional++) {
        assert_int_equal(open_table(&t, &size, &nested, NULL), PL_OK);
        assert_int_equal(nested, t.optional == 2);
    }
    assert_int_equal(open_table(&t, &size, &nested, NULL), PL_EFORMAT);
    t.optional = -1;
    assert_int_equal(open_table(&t, &size, &nested, NULL), PL_EFORMAT);
}

/* Groups nest at most 32 deep, and every element is somebody's child. */
static void schemas_have_a_depth(void **state)
{
    for (int depth = 1; depth < 60; depth++)
        assert_int_equal(open_schema(depth, 1), depth <= 32 ? PL_OK : PL_EFORMAT);
    assert_int_equal(open_schema(1, 0), PL_EFORMAT);
    check_message("no parent counts");
    assert_int_equal(open_schema(1, 2), PL_EFORMAT);
    check_message("inconsistent numbers of children");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(runs_of_every_width),
        cmocka_unit_test(packed_groups_of_every_width),
        cmocka_unit_test(headers_of_runs),
        cmocka_unit_test(lists_of_every_length),
        cmocka_unit_test(fields_of_every_step),
        cmocka_unit_test(values_are_passed_over),
        cmocka_unit_test(nesting_has_a_limit),
        cmocka_unit_test(integers_have_ten_bytes),
        cmocka_unit_test(values_end_with_the_page),
        cmocka_unit_test(fixed_values_end_with_the_page),
        cmocka_unit_test(booleans_end_with_the_page),
        cmocka_unit_test(dictionaries),
        cmocka_unit_test(widths_of_indices),
        cmocka_unit_test(dictionaries_of_other_kinds),
        cmocka_unit_test(levels_of_version_1),
        cmocka_unit_test(levels_of_version_2),
        cmocka_unit_test(pages_and_rows),
        cmocka_unit_test(sizes_of_pages),
        cmocka_unit_test(schemas_have_a_depth),
        cmocka_unit_test(chunks_lie_within_the_file),
        cmocka_unit_test(chunks_begin_with_their_dictionary),
        cmocka_unit_test(metadata_has_a_limit),
        cmocka_unit_test(kinds_of_repetition),
        cmocka_unit_test(texts_of_older_files),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
