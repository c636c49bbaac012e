/* pickle.c - Python's pickles as plain data: what each opcode says, and every way in which a pickle
 * can be wrong. */
#include "data/torch/pickle.h"
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
        cmocka_unit_test(hostile_pickles_are_refused_by_name),
        cmocka_unit_test(broken_pickles_are_refused),
        cmocka_unit_test(copies_of_copies_stop),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
