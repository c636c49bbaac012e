/* pickle.c - Python's pickles as plain data: what each opcode says, and every way in which a pickle
 * can be wrong. */
#include "data/torch/pickle.h"
#include "test/unit/data/exact_bytes.h"
#include "test/unit/unit.h"

static struct pl_err err;

static int try_pickle(const void *bytes, size_t n)
{
    struct pickle *p = pl_pickle_new();
    const struct pickle_value *v;
    int rc = pl_pickle_read(p, &v, NULL, bytes, n, "p", &err);
    pl_pickle_free(p);
    return rc;
}
#define TRY(text) try_pickle(text, sizeof(text) - 1)

static void values_are_what_python_wrote(void **state)
{
    /* pickle.dumps({"a": (1, -2, 2**40, 2**70, 0.5, True, None), "b": [300, b"xy"]}, 2), by hand */
    static const char text[] =
        "\x80\x02}q\x00(X\x01\0\0\0a(K\x01J\xfe\xff\xff\xff\x8a\x06\0\0\0\0\0\x01"
        "\x8a\x09\0\0\0\0\0\0\0\0\x40G?\xe0\0\0\0\0\0\0\x88NtX\x01\0\0\0b](M\x2c\x01"
        "C\x02xyeu.rest";
    struct pickle *p = pl_pickle_new();
    const struct pickle_value *v, *a, *b;
    size_t used;
    assert_int_equal(pl_pickle_read(p, &v, &used, text, sizeof text - 1, "p", &err), PL_OK);
    assert_int_equal(used, sizeof text - 1 - 4);
    a = pl_pickle_get(v, "a");
    b = pl_pickle_get(v, "b");
    assert_int_equal(a->kind, PICKLE_TUPLE);
    assert_int_equal(a->count, 7);
    assert_int_equal(a->item[0]->integer, 1);
    assert_int_equal(a->item[1]->integer, -2);
    assert_int_equal(a->item[2]->integer, 1LL << 40);
    assert_true(a->item[3]->wide);
    assert_true(a->item[4]->real == 0.5);
    assert_int_equal(a->item[5]->kind, PICKLE_BOOL);
    assert_int_equal(a->item[6]->kind, PICKLE_NONE);
    assert_int_equal(b->count, 2);
    assert_int_equal(b->item[0]->integer, 300);
    assert_int_equal(b->item[1]->kind, PICKLE_BYTES);
    assert_null(pl_pickle_get(v, "c"));
    pl_pickle_free(p);
}

/* The same value by each opcode that can say it: Python 2's, those of a short length, of 4 and of 8
 * bytes, of a frame, of a memo that numbers itself, of sets. */
static void every_way_to_say_it(void **state)
{
    static const struct {
        const char *text;
        size_t n;
        enum pickle_kind kind;
        const char *content; /* of a text or of bytes */
    } cases[] = {
#define CASE(s, kind, content) { s, sizeof(s) - 1, kind, content }
        CASE("U\x02xy.", PICKLE_TEXT, "xy"),
        CASE("T\x02\0\0\0xy.", PICKLE_TEXT, "xy"),
        CASE("X\x02\0\0\0xy.", PICKLE_TEXT, "xy"),
        CASE("\x8c\x02xy.", PICKLE_TEXT, "xy"),
        CASE("\x8d\x02\0\0\0\0\0\0\0xy.", PICKLE_TEXT, "xy"),
        CASE("C\x02xy.", PICKLE_BYTES, "xy"),
        CASE("B\x02\0\0\0xy.", PICKLE_BYTES, "xy"),
        CASE("\x8e\x02\0\0\0\0\0\0\0xy.", PICKLE_BYTES, "xy"),
        CASE("\x80\x04\x95\x05\0\0\0\0\0\0\0\x8c\x02xy.", PICKLE_TEXT, "xy"),
        CASE("\x8c\x02xy\x94N0h\0.", PICKLE_TEXT, "xy"),        /* MEMOIZE: place 0 */
        CASE("N\x94\x8c\x02xy\x94N0h\x01.", PICKLE_TEXT, "xy"), /* then place 1 */
        CASE("I01\n.", PICKLE_BOOL, NULL),
        CASE("I12\n.", PICKLE_INT, NULL),
        CASE("L12L\n.", PICKLE_INT, NULL),
        CASE("F0.5\n.", PICKLE_FLOAT, NULL),
        CASE("(KKKLt.", PICKLE_TUPLE, NULL),
        CASE("(KKKLl.", PICKLE_LIST, NULL),
        CASE("(KKKLd.", PICKLE_DICT, NULL),
        CASE("\x8f(KKKL\x90.", PICKLE_SET, NULL),
        CASE("(KKKL\x91.", PICKLE_SET, NULL),
    };
    for (size_t i = 0; i < PL_COUNT(cases); i++) {
        struct pickle *p = pl_pickle_new();
        const struct pickle_value *v;
        uint8_t *exact = exact_copy(cases[i].text, cases[i].n);
        size_t used;
        if (pl_pickle_read(p, &v, &used, exact, cases[i].n, "p", &err))
            fail_msg("pickle %zu: %s", i, err.text);
        assert_int_equal(used, cases[i].n);
        assert_int_equal(v->kind, cases[i].kind);
        if (cases[i].content) {
            assert_int_equal(v->bytes, strlen(cases[i].content));
            assert_memory_equal(v->text, cases[i].content, v->bytes);
        } else if (v->kind == PICKLE_FLOAT) assert_true(v->real == 0.5);
        else if (v->kind == PICKLE_BOOL || v->kind == PICKLE_INT)
            assert_int_equal(v->integer, v->kind == PICKLE_BOOL ? 1 : 12);
        else {
            assert_int_equal(v->count, 2);
            assert_int_equal(v->item[0]->integer, 'K');
            assert_int_equal(v->item[1]->integer, 'L');
        }
        exact_free(exact, cases[i].n);
        for (size_t n = 0; n < cases[i].n; n++) { /* each prefix ends at an inaccessible page */
            exact = exact_copy(cases[i].text, n);
            assert_int_not_equal(pl_pickle_read(p, &v, NULL, exact, n, "p", &err), PL_OK);
            exact_free(exact, n);
        }
        pl_pickle_free(p);
    }
}

/* A number of more than 64 bits is wide; one of too many characters is refused. */
static void written_numbers(void **state)
{
    static const char wide[] = "L99999999999999999999L\n.", most[] = "L9223372036854775807L\n.";
    struct pickle *p = pl_pickle_new();
    const struct pickle_value *v;
    char text[PICKLE_NUMBER_MAX + 4];
    assert_int_equal(pl_pickle_read(p, &v, NULL, wide, sizeof wide - 1, "p", &err), PL_OK);
    assert_true(v->wide && v->integer == 0);
    assert_int_equal(pl_pickle_read(p, &v, NULL, most, sizeof most - 1, "p", &err), PL_OK);
    assert_true(!v->wide && v->integer == INT64_MAX);
    pl_pickle_free(p);
    for (size_t n = PICKLE_NUMBER_MAX; n <= PICKLE_NUMBER_MAX + 1; n++) {
        memset(text, '0', sizeof text);
        text[0] = 'F';
        memcpy(text + 1 + n, "\n.", 2);
        assert_int_equal(try_pickle(text, n + 3), n > PICKLE_NUMBER_MAX ? PL_ELIMIT : PL_OK);
    }
}

static void hostile_pickles_are_refused_by_name(void **state)
{
    assert_int_equal(TRY("cos\nsystem\n(X\x02\0\0\0lstR."), PL_EFORMAT);
    assert_non_null(strstr(err.text, "os.system"));
    assert_int_equal(TRY("\x80\x04\x8c\x08"
                         "builtins\x8c\x04"
                         "eval\x93."),
                     PL_EFORMAT);
    assert_non_null(strstr(err.text, "builtins.eval"));
    assert_int_equal(TRY("(X\x02\0\0\0lsios\nsystem\n."), PL_EFORMAT);
    assert_non_null(strstr(err.text, "INST"));
    assert_int_equal(TRY("\x82\x01."), PL_EFORMAT);
    assert_non_null(strstr(err.text, "EXT1"));
    assert_int_equal(TRY("\xff."), PL_EFORMAT);
    assert_int_equal(TRY("\x80\x09."), PL_EFORMAT);
}

static void broken_pickles_are_refused(void **state)
{
    static const struct {
        const char *text;
        size_t n;
    } broken[] = {
#define BROKEN(s) { s, sizeof(s) - 1 }
        BROKEN(""),
        BROKEN("."),
        BROKEN("("),
        BROKEN("(."),
        BROKEN("t."),
        BROKEN("K"),
        BROKEN("N"),
        BROKEN("h\x05."),
        BROKEN("Nq\0h\x05."), /* a place in the memo that was never filled */
        BROKEN("Nq\0h\xff."),
        BROKEN("q\0."),
        BROKEN("NNs."),
        BROKEN("}Ns."),
        BROKEN("}(Nu."),
        BROKEN("]Na"),
        BROKEN("Na."),
        BROKEN("X\xff\xff\xff\xffg."),
        BROKEN("\x8d\xff\xff\xff\xff\xff\xff\xff\xff."),
        BROKEN("\x8b\xff\xff\xff\xff."),
        BROKEN("Nr\xff\xff\xff\x7f."),
        BROKEN("I12"),
        BROKEN("Ix\n."),
        BROKEN("Fhalf\n."),
        BROKEN("N)R."),
        BROKEN("ccollections\nOrderedDict\nNR."),
        BROKEN("Nb."),
        BROKEN("NNb."),
        BROKEN("Q."),
        BROKEN("NN\x93."),
        BROKEN("\x87."),
        BROKEN("1."),
        BROKEN("0."),
        BROKEN("ccollections\nOrderedDict\n]Na\x85R."),
    };
    for (size_t i = 0; i < PL_COUNT(broken); i++)
        if (try_pickle(broken[i].text, broken[i].n) == PL_OK) fail_msg("pickle %zu was read", i);
}

/* A list of 2^16 values, copied by each of 2^16 calls: 2^35 bytes without a limit. */
static void copies_of_copies_stop(void **state)
{
    size_t items = 1 << 16, calls = 1 << 16, n = 0;
    char *text = malloc(items * 4 + calls * 20 + 100);
    n += (size_t)sprintf(text + n, "ccollections\nOrderedDict\nq%c", 1);
    n += (size_t)sprintf(text + n, "](");
    for (size_t i = 0; i < items; i++) n += (size_t)sprintf(text + n, "NN\x86");
    n += (size_t)sprintf(text + n, "e\x85q%c", 2);
    for (size_t i = 0; i < calls; i++) n += (size_t)sprintf(text + n, "h%ch%cR", 1, 2);
    text[n++] = '.';
    assert_int_not_equal(try_pickle(text, n), PL_OK);
    free(text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(values_are_what_python_wrote),
        cmocka_unit_test(every_way_to_say_it),
        cmocka_unit_test(written_numbers),
        cmocka_unit_test(hostile_pickles_are_refused_by_name),
        cmocka_unit_test(broken_pickles_are_refused),
        cmocka_unit_test(copies_of_copies_stop),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
