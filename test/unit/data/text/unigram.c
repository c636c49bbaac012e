/* unigram.c - T5's tokenizer on a model written here by hand: splits, both programs' rules, and the
 * errors for broken files. */
#include "data/text/spiece.h"
#include "data/text/charsmap.h"
#include "data/text/unigram.h"
#include "test/unit/data/exact_bytes.h"
#include "spiece_bytes.h"

static void expect(const struct unigram *u, const char *text, enum unigram_rules rules,
                   const int32_t *want, size_t n)
{
    int32_t got[64];
    size_t count;
    assert_int_equal(pl_unigram_encode(got, 64, &count, u, text, strlen(text), rules), PL_OK);
    assert_int_equal(count, n);
    if (n) assert_memory_equal(got, want, n * sizeof *want);
}
#define EXPECT(u, text, rules, ...) \
    expect(u, text, rules, (const int32_t[]){ __VA_ARGS__ }, sizeof((int32_t[]){ __VA_ARGS__ }) / 4)

/* --- splits ----------------------------------------------------------------------------------- */

static void best_split(void **state)
{
    struct unigram *u = model(0);
    EXPECT(u, "a", UNIGRAM_TRANSFORMERS, MARK_A); /* -3 against -3.5 */
    EXPECT(u, "b", UNIGRAM_TRANSFORMERS, MARK, B);
    EXPECT(u, "ba b", UNIGRAM_TRANSFORMERS, MARK, B, A, MARK, B);
    EXPECT(u, "bab", UNIGRAM_TRANSFORMERS, MARK, B, AB);   /* tie: the longer, found first, stays */
    EXPECT(u, "babc", UNIGRAM_TRANSFORMERS, MARK, B, ABC); /* no piece "c": unknown costs more */
    EXPECT(u, "bcc", UNIGRAM_TRANSFORMERS, MARK, B, UNK);  /* two unknown characters, one id */
    EXPECT(u, "c c", UNIGRAM_TRANSFORMERS, MARK, UNK, MARK, UNK);
    EXPECT(u, "c c", UNIGRAM_SENTENCEPIECE, MARK, UNK, MARK, UNK);
    EXPECT(u, "\xE2\x82\xAC\xF0\x9F\x98\x80", UNIGRAM_TRANSFORMERS, MARK, UNK);
    expect(u, "", UNIGRAM_TRANSFORMERS, NULL, 0);
    expect(u, " \t ", UNIGRAM_TRANSFORMERS, NULL, 0);
    expect(u, "   ", UNIGRAM_SENTENCEPIECE, NULL, 0);
    pl_unigram_close(u);
}

static void specials(void **state)
{
    struct unigram *u = model(0);
    EXPECT(u, "</s>", UNIGRAM_TRANSFORMERS, END);
    EXPECT(u, "a<pad>b", UNIGRAM_TRANSFORMERS, MARK_A, PAD, MARK, B);
    EXPECT(u, "<extra_id_0><extra_id_99>", UNIGRAM_TRANSFORMERS, SIZE + 99, SIZE);
    EXPECT(u, "<extra_id_100>", UNIGRAM_TRANSFORMERS, MARK, UNK, A, UNK); /* the a of "extra" */
    EXPECT(u, "<unk>c", UNIGRAM_TRANSFORMERS, UNK, MARK, UNK);
    EXPECT(u, "</s>", UNIGRAM_SENTENCEPIECE, MARK, UNK);
    pl_unigram_close(u);
}

static void character_map(void **state)
{
    struct unigram *u = model(1);
    EXPECT(u, "A", UNIGRAM_TRANSFORMERS, MARK_A);
    EXPECT(u, "\xE2\x91\xA0", UNIGRAM_TRANSFORMERS, MARK, B);
    /* circled one and an accent: five bytes, one cluster, the accent is lost, in the first only */
    EXPECT(u, "\xE2\x91\xA0\xCC\x81", UNIGRAM_TRANSFORMERS, MARK, B);
    EXPECT(u, "\xE2\x91\xA0\xCC\x81", UNIGRAM_SENTENCEPIECE, MARK, B, UNK);
    /* with two accents it has seven bytes and goes by characters */
    EXPECT(u, "\xE2\x91\xA0\xCC\x81\xCC\x81", UNIGRAM_TRANSFORMERS, MARK, B, UNK);
    pl_unigram_close(u);
}

static void white_space(void **state)
{
    struct unigram *u = model(0);
    EXPECT(u,
           " b\xC2\x85"
           "b\xE2\x80\x83\r\nb\xE3\x80\x80",
           UNIGRAM_TRANSFORMERS, MARK, B, MARK, B, MARK, B);
    EXPECT(u, "  b   b ", UNIGRAM_SENTENCEPIECE, MARK, B, MARK, B);
    EXPECT(u,
           "b\xC2\x85"
           "b",
           UNIGRAM_SENTENCEPIECE, MARK, B, UNK, B);
    pl_unigram_close(u);
}

static void invalid_bytes(void **state)
{
    struct unigram *u = model(0);
    EXPECT(u, "b\xFF\xC3", UNIGRAM_TRANSFORMERS, MARK, B, UNK);
    EXPECT(u,
           "\xED\xA0\x80"
           "b\xE2\x96",
           UNIGRAM_SENTENCEPIECE, MARK, UNK, B, UNK);
    pl_unigram_close(u);
}

/* Each invalid byte becomes U+FFFD and nothing else, whichever way the text is normalized. */
static void replacements(void **state)
{
    static const char text[] = "a\xFF\xC3z", want[] = "a\xEF\xBF\xBD\xEF\xBF\xBDz";
    const struct charsmap empty = { 0 };
    for (int longest = 0; longest < 2; longest++) {
        struct charsmap_text out = { 0 };
        assert_int_equal((longest ? pl_charsmap_by_longest
                                  : pl_charsmap_by_cluster)(&empty, text, sizeof text - 1, &out),
                         PL_OK);
        assert_int_equal(out.n, sizeof want - 1);
        assert_memory_equal(out.at, want, out.n);
        free(out.at);
    }
}

static void cut(void **state)
{
    struct unigram *u = model(0);
    int32_t ids[4] = { -7, -7, -7, -7 };
    size_t count;
    assert_int_equal(pl_unigram_encode(ids, 3, &count, u, "b b b", 5, UNIGRAM_TRANSFORMERS), PL_OK);
    assert_int_equal(count, 6);
    assert_int_equal(ids[2], MARK);
    assert_int_equal(ids[3], -7);
    assert_int_equal(pl_unigram_encode(NULL, 0, &count, u, "b b b", 5, UNIGRAM_TRANSFORMERS),
                     PL_OK);
    assert_int_equal(count, 6);
    pl_unigram_close(u);
}

static void decode(void **state)
{
    struct unigram *u = model(0);
    const int32_t ids[] = { MARK_A, AB, MARK, B, END, SIZE + 98 },
                  outside = SIZE + UNIGRAM_EXTRA_IDS;
    char *text;
    size_t n;
    assert_int_equal(pl_unigram_decode(&text, &n, u, ids, 6), PL_OK);
    assert_string_equal(text, "aab b</s><extra_id_1>");
    assert_int_equal(n, strlen(text));
    free(text);
    assert_int_equal(pl_unigram_decode(&text, &n, u, ids, 0), PL_OK);
    assert_string_equal(text, "");
    free(text);
    assert_int_equal(pl_unigram_decode(&text, &n, u, &outside, 1), PL_EUSE);
    assert_null(text);
    pl_unigram_close(u);
}

/* --- refusals --------------------------------------------------------------------------------- */

static void refuse(const struct bytes *b, const char *because)
{
    struct unigram *u;
    struct pl_err err = { "" };
    uint8_t *copy = exact_copy(b->at, b->n);
    assert_true(pl_unigram_read(&u, copy, b->n, "bad.model", &err) < 0);
    assert_null(u);
    exact_free(copy, b->n);
    assert_non_null(strstr(err.text, "bad.model"));
    if (!strstr(err.text, because)) fail_msg("'%s' does not say '%s'", err.text, because);
}

static void every_prefix(void **state)
{
    static struct bytes b;
    struct unigram *u;
    b.n = 0;
    add_pieces(&b);
    add_map(&b);
    for (size_t n = 0; n < b.n; n++) { /* cut between two pieces it may still be a model */
        struct pl_err err = { "" };
        uint8_t *copy = exact_copy(b.at, n);
        if (pl_unigram_read(&u, copy, n, "cut", &err)) assert_non_null(strstr(err.text, "cut"));
        pl_unigram_close(u);
        exact_free(copy, n);
    }
}

static void every_type_is_read(void **state)
{
    static struct bytes b;
    struct unigram *u;
    b.n = 0;
    add_pieces(&b);
    add_piece(&b, "c", -1, SPIECE_USER);
    add_piece(&b, "d", -1, SPIECE_UNUSED);
    add_piece(&b, "e", -1, SPIECE_BYTE);
    assert_int_equal(pl_unigram_read(&u, b.at, b.n, "types", NULL), PL_OK);
    pl_unigram_close(u);
}

static void refusals(void **state)
{
    static struct bytes b;
    b.n = 0;
    refuse(&b, "without pieces");
    add_piece(&b, "a", -1, 1);
    refuse(&b, "no piece of type unknown");
    add_piece(&b, "<unk>", 0, 2);
    add_piece(&b, "a", -2, 1);
    refuse(&b, "pieces 0 and 2 are the same");

    b.n = 0;
    add_piece(&b, "<unk>", 0, 2);
    add_piece(&b, "<unknown>", 0, 2);
    refuse(&b, "second unknown");

    b.n = 0;
    add_piece(&b, "<unk>", 0.0f / 0.0f, 2);
    refuse(&b, "score");
    b.n = 0;
    add_piece(&b, "<unk>", -1e38f, 2); /* two of them would be minus infinity */
    refuse(&b, "score");

    b.n = 0;
    add_piece(&b, "\xC3", 0, 2);
    refuse(&b, "not UTF-8");

    b.n = 0;
    add_piece(&b, "<unk>", 0, 7);
    refuse(&b, "type");
    b.n = 0;
    add_piece(&b, "<unk>", 0, 0);
    refuse(&b, "type");

    b.n = 0;
    add_pieces(&b);
    add_field(&b, 2, "\x18\x02", 2); /* byte-pair encoding */
    refuse(&b, "not a unigram model");

    b.n = 0;
    add_pieces(&b);
    add_field(&b, 3,
              "\x12\x03"
              "abc",
              5);
    refuse(&b, "character map");

    for (int value = 0; value < 3; value++) { /* one unit, and a pool of "\u00e9" */
        static const uint32_t values[3] = { 0x80000001u, 0x80000003u, 0x80000000u };
        struct bytes map = { .n = 0 }, section = { .n = 0 };
        add(&map, "\4\0\0\0", 4);
        add(&map, &values[value], 4);
        add(&map, value == 2 ? "\xA9\xC3" : "\xC3\xA9", 3);
        add_field(&section, 2, map.at, map.n);
        b.n = 0;
        add_pieces(&b);
        add_field(&b, 3, section.at, section.n);
        refuse(&b, "character map");
    }

    b.n = 0;
    add_pieces(&b);
    add(&b, "\x0A\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xFF\x01", 11); /* a length of 2^64 - 1 */
    refuse(&b, "no protocol buffer");
}

/* A field of each kind behind a whole model, cut before its last byte; numbers of more than 64
 * bits. */
static void fields_that_do_not_fit(void **state)
{
    static const struct {
        const char *bytes;
        size_t n;
        int good;
    } cases[] = {
#define FIELD(text, good) { text, sizeof(text) - 1, good }
        FIELD("\x98\x06\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xFF\x01", 1),
        FIELD("\x98\x06\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xFF\x02", 0),
        FIELD("\x98\x06\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xFF\x81\x00", 0),
        FIELD("\x98\x06\x80", 0),
        FIELD("\x98", 0),
        FIELD("\x9A\x06\x02xy", 1),
        FIELD("\x9A\x06\x03xy", 0),
        FIELD("\x9A\x06\x00", 1),
        /* 2^64 - 12, which would lead back to this field */
        FIELD("\x9A\x06\xF4\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xFF\x01", 0),
        FIELD("\x9A\x06", 0),
        FIELD("\x9D\x06wxyz", 1),
        FIELD("\x9D\x06wxy", 0),
        FIELD("\x99\x06stuvwxyz", 1),
        FIELD("\x99\x06stuvwxy", 0),
        FIELD("\x9B\x06", 0),                 /* a group */
        FIELD("\x02\x00", 0),                 /* field 0 */
        FIELD("\xFA\xFF\xFF\xFF\x0F\x00", 1), /* the largest number of a field */
        FIELD("\x82\x80\x80\x80\x10\x00", 0),
    };
    static struct bytes b;
    for (size_t i = 0; i < PL_COUNT(cases); i++) {
        struct unigram *u;
        b.n = 0;
        add_pieces(&b);
        add(&b, cases[i].bytes, cases[i].n);
        if (!cases[i].good) {
            refuse(&b, "no protocol buffer");
            continue;
        }
        uint8_t *copy = exact_copy(b.at, b.n);
        assert_int_equal(pl_unigram_read(&u, copy, b.n, "model", NULL), PL_OK);
        pl_unigram_close(u);
        exact_free(copy, b.n);
    }
}

/* The fields of a piece, of the trainer's section and of the normaliser's: each of its wire type, and
 * none cut by the end of what holds it. */
static void fields_within_sections(void **state)
{
    static const struct {
        unsigned section;
        const char *bytes;
        size_t n;
        const char *because;
    } cases[] = {
#define WITHIN(section, text, because) { section, text, sizeof(text) - 1, because }
        WITHIN(1, "\x0A\x01z\x15\x00\x00\x00", "piece's fields do not fit"),
        WITHIN(1, "\x0A\x01z\x18", "piece's fields do not fit"),
        WITHIN(1, "\x0A\x02z", "piece's fields do not fit"),
        WITHIN(1, "\x08\x01", "piece's field has the wrong wire type"),
        WITHIN(1, "\x0A\x01z\x10\x01", "piece's field has the wrong wire type"),
        WITHIN(1, "\x0A\x01z\x1D\x01\x00\x00\x00", "piece's field has the wrong wire type"),
        WITHIN(1, "", "an empty piece"),
        WITHIN(1, "\x0A\x00", "an empty piece"),
        WITHIN(2, "\x18", "trainer's fields do not fit"),
        WITHIN(2, "\x1A\x00", "not a unigram model"),
        WITHIN(3, "\x18", "normaliser's fields do not fit"),
        WITHIN(3, "\x10\x01", "normaliser's field has the wrong wire type"),
        WITHIN(3, "\x1A\x00", "normaliser's field has the wrong wire type"),
        WITHIN(3, "\x22\x00", "normaliser's field has the wrong wire type"),
        WITHIN(3, "\x2A\x00", "normaliser's field has the wrong wire type"),
    };
    static struct bytes b;
    for (size_t i = 0; i < PL_COUNT(cases); i++) {
        b.n = 0;
        add_pieces(&b);
        add_field(&b, cases[i].section, cases[i].bytes, cases[i].n);
        refuse(&b, cases[i].because);
    }
    for (char section = 1; section <= 3; section++) { /* as a number, not as bytes */
        b.n = 0;
        add_pieces(&b);
        add(&b, &(char){ (char)(section << 3) }, 1);
        add(&b, "\x01", 1);
        refuse(&b, "a section has the wrong wire type");
    }
}

/* A piece has at most 512 bytes. */
static void pieces_have_a_length(void **state)
{
    for (size_t n = 511; n <= 513; n++) {
        static struct bytes b;
        char text[514] = { 0 };
        struct unigram *u;
        memset(text, 'z', n);
        b.n = 0;
        add_pieces(&b);
        add_piece(&b, text, -1, SPIECE_NORMAL);
        if (n > 512) {
            refuse(&b, "a piece above 512 bytes");
            continue;
        }
        assert_int_equal(pl_unigram_read(&u, b.at, b.n, "model", NULL), PL_OK);
        pl_unigram_close(u);
    }
}

/* An unknown character costs 10 more than the least likely piece, here "bc". */
static void unknown_character_has_a_cost(void **state)
{
    for (int score = 9; score <= 11; score += 2) { /* of "b": it outweighs the price, or not */
        struct bytes b = { .n = 0 };
        struct unigram *u;
        add_piece(&b, "<unk>", 0, 2);
        add_piece(&b, "\xE2\x96\x81", -1, 1);
        add_piece(&b, "b", (float)score, 1);
        add_piece(&b, "bc", -3, 1);
        assert_int_equal(pl_unigram_read(&u, b.at, b.n, "model", NULL), PL_OK);
        for (int rules = UNIGRAM_TRANSFORMERS; rules <= UNIGRAM_SENTENCEPIECE; rules++) {
            if (score < 10) EXPECT(u, "bc", (enum unigram_rules)rules, 1, 3);
            else EXPECT(u, "bc", (enum unigram_rules)rules, 1, 2, 0);
        }
        pl_unigram_close(u);
    }
}

/* sentencepiece sums scores in single precision: behind -2^24 neither -0.3 nor -1 counts, and of
 * equal splits the longer piece stays. transformers sums in double precision. */
static void scores_are_rounded(void **state)
{
    struct bytes b = { .n = 0 };
    struct unigram *u;
    add_piece(&b, "<unk>", 0, 2);
    add_piece(&b, "\xE2\x96\x81", -16777216, 1);
    add_piece(&b, "b", -0.3f, 1);
    add_piece(&b, "bb", -1, 1);
    assert_int_equal(pl_unigram_read(&u, b.at, b.n, "model", NULL), PL_OK);
    EXPECT(u, "bb", UNIGRAM_SENTENCEPIECE, 1, 3);
    EXPECT(u, "bb", UNIGRAM_TRANSFORMERS, 1, 2, 2);
    pl_unigram_close(u);
}

/* The price of an unknown character is rounded by sentencepiece alone: to a float32, -0.1 - 10 is 4e-7
 * lower, and "bc" lies between. */
static void the_price_is_rounded(void **state)
{
    struct bytes b = { .n = 0 };
    struct unigram *u;
    add_piece(&b, "<unk>", 0, 2);
    add_piece(&b, "\xE2\x96\x81", 0, 1);
    add_piece(&b, "b", 10.000001f, 1);
    add_piece(&b, "bc", -0.0999992f, 1);
    add_piece(&b, "d", -0.1f, 1);
    assert_int_equal(pl_unigram_read(&u, b.at, b.n, "model", NULL), PL_OK);
    EXPECT(u, "bc", UNIGRAM_SENTENCEPIECE, 1, 3);
    EXPECT(u, "bc", UNIGRAM_TRANSFORMERS, 1, 2, 0);
    pl_unigram_close(u);
}

static void unknown_fields(void **state)
{
    static struct bytes b;
    struct unigram *u;
    b.n = 0;
    add_field(&b, 99, "whatever", 8);
    add_varint(&b, 100 << 3 | 0), add_varint(&b, UINT64_MAX);
    add_varint(&b, 101 << 3 | 5), add(&b, "1234", 4);
    add_varint(&b, 102 << 3 | 1), add(&b, "12345678", 8);
    add_pieces(&b);
    assert_int_equal(pl_unigram_read(&u, b.at, b.n, "model", NULL), PL_OK);
    assert_int_equal(pl_unigram_find(u, "abc", 3), ABC);
    assert_int_equal(pl_unigram_find(u, "abcd", 4), -1);
    assert_int_equal(pl_unigram_find(u, "<extra_id_99>", 13), SIZE);
    pl_unigram_close(u);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(best_split),
        cmocka_unit_test(specials),
        cmocka_unit_test(character_map),
        cmocka_unit_test(white_space),
        cmocka_unit_test(invalid_bytes),
        cmocka_unit_test(replacements),
        cmocka_unit_test(cut),
        cmocka_unit_test(decode),
        cmocka_unit_test(every_prefix),
        cmocka_unit_test(every_type_is_read),
        cmocka_unit_test(refusals),
        cmocka_unit_test(unknown_fields),
        cmocka_unit_test(fields_that_do_not_fit),
        cmocka_unit_test(fields_within_sections),
        cmocka_unit_test(pieces_have_a_length),
        cmocka_unit_test(unknown_character_has_a_cost),
        cmocka_unit_test(scores_are_rounded),
        cmocka_unit_test(the_price_is_rounded),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
