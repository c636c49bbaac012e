/* charsmap.c - the character map of a tokenizer: texts that end within one of its keys, and what it
 * makes of whole texts by the rules of both programs. */
#include "data/text/spiece.h"
#include "data/text/charsmap.h"
#include "test/unit/data/exact_bytes.h"
#include "spiece_bytes.h"

/* A key of the map that a text only begins with is not found, and no byte behind the text is read. */
static void texts_end_within_a_key(void **state)
{
    static const char *const texts[] = { "\xE2\x91", "\xE2", "b\xE2\x91", "bA\xE2\x91", "bb\xE2" };
    static struct bytes b;
    struct spiece_model m;
    struct charsmap map;
    b.n = 0;
    add_pieces(&b);
    add_map(&b);
    assert_int_equal(pl_spiece_read(&m, b.at, b.n, "model", NULL), PL_OK);
    assert_int_equal(pl_charsmap_init(&map, m.map, m.map_bytes, "model", NULL), PL_OK);
    for (size_t i = 0; i < PL_COUNT(texts); i++)
        for (int longest = 0; longest <= 1; longest++) {
            struct charsmap_text out = { 0 };
            size_t n = strlen(texts[i]);
            uint8_t *exact = exact_copy(texts[i], n);
            assert_int_equal((longest ? pl_charsmap_by_longest
                                      : pl_charsmap_by_cluster)(&map, (char *)exact, n, &out),
                             PL_OK);
            assert_true(out.n >= 3);
            assert_memory_equal(out.at + out.n - 3, "\xEF\xBF\xBD", 3);
            free(out.at);
            exact_free(exact, n);
        }
    pl_spiece_clear(&m);
}

/* What sentencepiece's own normalizer gives, with its marks for spaces, and transformers' without. */
static void normalized_texts(void **state)
{
    static const struct {
        enum unigram_rules rules;
        const char *text, *want;
    } cases[] = {
        { UNIGRAM_TRANSFORMERS, "Ab  A", "ab  a" },
        { UNIGRAM_TRANSFORMERS, "", "" },
        { UNIGRAM_SENTENCEPIECE, " Ab  A ",
          "\xE2\x96\x81"
          "ab\xE2\x96\x81"
          "a" },
    };
    struct unigram *u = model(1);
    for (size_t i = 0; i < PL_COUNT(cases); i++) {
        char *out;
        size_t n;
        assert_int_equal(pl_unigram_normalize(&out, &n, u, cases[i].text, strlen(cases[i].text),
                                              cases[i].rules),
                         PL_OK);
        assert_string_equal(out, cases[i].want);
        assert_int_equal(n, strlen(cases[i].want));
        free(out);
    }
    pl_unigram_close(u);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(texts_end_within_a_key),
        cmocka_unit_test(normalized_texts),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
