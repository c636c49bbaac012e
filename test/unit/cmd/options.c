/* options.c - the parser of command lines: every kind of option, its limits, and the sentence after
 * each mistake. */
#include "cmd/common/options.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>

struct inner {
    const char *path;
};
enum level { LOW, MIDDLE, HIGH };
struct values {
    int flag, level, narrow, called;
    enum level named_level;
    int64_t wide;
    double real, seconds;
    const char *text, *name;
    struct option_list list;
    struct inner inner;
};

static int take(void *options, const char *name, const char *value, struct pl_err *err)
{
    struct values *v = options;
    v->called++;
    if (!strcmp(value, "worn out")) return pl_fail(err, PL_EIO, "'%s' cannot be read", value);
    return strcmp(name, "call") || *value ? PL_OK : pl_fail(err, PL_EUSE, "nothing in it");
}

static const char *const levels[] = { "low", "middle", "high", NULL }, *const two[] = { "a", "b",
                                                                                        NULL };

#define OPTIONS struct inner
static const struct option_row inner_rows[] = {
    { "path", "FILE", NULL, OPT_PATH(path), "a file" },
    { 0 },
};
#undef OPTIONS
#define OPTIONS struct values
static const struct option_row rows[] = {
    { "flag", NULL, NULL, OPT_FLAG(flag), "a flag" },
    { "wide", "N", "7", OPT_INTEGER(wide, -5, INT64_MAX), "an integer" },
    { "narrow", "N", NULL, OPT_INTEGER(narrow, 0, 10), "an int" },
    { NULL, NULL, NULL, OPT_HEADING, "More" },
    { "real", "X", "0.5", OPT_REAL(real, 0, 1), "a real" },
    { "real-time", "SECONDS", NULL, OPT_SECONDS(seconds, 0.1, 60), "seconds" },
    { "text", "TEXT", NULL, OPT_TEXT(text), "a text" },
    { "name", "NAME", "a", OPT_NAME(name, two), "a name" },
    { "level", "LEVEL", "middle", OPT_CHOICE(level, levels), "a choice" },
    { "named-level", "LEVEL", NULL, OPT_CHOICE(named_level, levels), "an enum" },
    { "list", "ITEM", NULL, OPT_LIST(list), "a list" },
    { "call", "VALUE", NULL, OPT_CALL(take), "a function" },
    { "former", "N", NULL, OPT_INTEGER(narrow, 0, 10), OPTION_OLD_NAME }, /* of narrow */
    { NULL, NULL, NULL, OPT_TABLE(inner, inner_rows), NULL },
    { 0 },
};
static const struct command command = {
    .name = "try", .synopsis = "[OPTION ...]", .about = "Tries.", .rows = rows, .notes = "Last."
};

static struct values v;
static char *words[2 * OPTION_LIST_MAX + 4];
static int count, status;
static char said[4096]; /* on stderr or stdout */

/* What is written to a stream while the line is parsed ends in `said`. */
static int parse_to(FILE *stream, const char *const *line, int *found)
{
    FILE *file = tmpfile();
    int before = dup(fileno(stream)), ended;
    size_t n;
    assert_non_null(file);
    fflush(stream);
    dup2(fileno(file), fileno(stream));
    memset(&v, 0, sizeof v);
    words[0] = (char *)(uintptr_t) "try";
    for (count = 1; line[count - 1]; count++) words[count] = (char *)(uintptr_t)line[count - 1];
    words[count] = NULL;
    ended = options_parse(&command, &v, count, words, found, &status);
    fflush(stream);
    dup2(before, fileno(stream));
    close(before);
    rewind(file);
    n = fread(said, 1, sizeof said - 1, file);
    said[n] = 0;
    fclose(file);
    return ended;
}
#define PARSE(...) parse_to(stderr, (const char *const[]){ __VA_ARGS__, NULL }, NULL)

/* Refused as a misuse, in one line that is this. */
static void refused(const char *sentence)
{
    char want[600];
    snprintf(want, sizeof want, "potluck try: %s\n", sentence);
    assert_int_equal(status, 2);
    assert_string_equal(said, want);
}
#define REFUSED(sentence, ...) \
    do { \
        assert_int_equal(PARSE(__VA_ARGS__), 1); \
        refused(sentence); \
    } while (0)

static void test_values(void **state)
{
    (void)state;
    assert_int_equal(parse_to(stderr, (const char *const[]){ NULL }, NULL), 0);
    assert_int_equal(v.wide, 7); /* defaults are the rows' own */
    assert_true(v.real == 0.5);
    assert_string_equal(v.name, "a");
    assert_int_equal(v.level, 1);
    assert_int_equal(v.flag, 0);
    assert_int_equal(PARSE("--flag", "--wide", "-5", "--narrow=10", "--real", "1",
                           "--real-time=0.1", "--text", "", "--name=b", "--level", "high",
                           "--named-level=high", "--path", "x", "--call", "y"),
                     0);
    assert_int_equal(status, 0);
    assert_int_equal(v.flag, 1);
    assert_int_equal(v.wide, -5);
    assert_int_equal(v.narrow, 10);
    assert_true(v.real == 1 && v.seconds == 0.1);
    assert_string_equal(v.text, "");
    assert_string_equal(v.name, "b");
    assert_int_equal(v.level, 2);
    assert_int_equal(v.named_level, HIGH);
    assert_string_equal(v.inner.path, "x");
    assert_int_equal(v.called, 1);
    assert_int_equal(PARSE("--wide", "9223372036854775807"), 0);
    assert_int_equal(v.wide, INT64_MAX);
    assert_int_equal(PARSE("--text=--flag"), 0); /* a value may look like an option */
    assert_string_equal(v.text, "--flag");
    assert_int_equal(PARSE("--text", "--flag"), 0);
    assert_string_equal(v.text, "--flag");
    assert_int_equal(v.flag, 0);
    assert_int_equal(PARSE("--text=a=b"), 0);
    assert_string_equal(v.text, "a=b");
}

static void test_repeated(void **state)
{
    const char *many[2 * OPTION_LIST_MAX + 3] = { NULL };
    (void)state;
    assert_int_equal(PARSE("--narrow", "1", "--narrow", "2", "--list", "a", "--list=b", "--flag",
                           "--flag"),
                     0);
    assert_int_equal(v.narrow, 2); /* the last one counts */
    assert_int_equal(v.list.count, 2);
    assert_string_equal(v.list.item[1], "b");
    for (int i = 0; i < OPTION_LIST_MAX; i++) many[2 * i] = "--list", many[2 * i + 1] = "x";
    assert_int_equal(parse_to(stderr, many, NULL), 0);
    assert_int_equal(v.list.count, OPTION_LIST_MAX);
    many[2 * OPTION_LIST_MAX] = "--list=y";
    assert_int_equal(parse_to(stderr, many, NULL), 1);
    refused("--list: 'y' is one too many: at most 64 of them");
}

static void test_mistakes(void **state)
{
    (void)state;
    REFUSED("--narrow: '11' is not a whole number from 0 to 10", "--narrow", "11");
    REFUSED("--narrow: '-1' is not a whole number from 0 to 10", "--narrow", "-1");
    REFUSED("--narrow: '' is not a whole number from 0 to 10", "--narrow=");
    REFUSED("--narrow: '1x' is not a whole number from 0 to 10", "--narrow", "1x");
    REFUSED("--wide: '9223372036854775808' is not a whole number from -5 to 9223372036854775807",
            "--wide", "9223372036854775808");
    REFUSED("--real: '1.5' is not a number from 0 to 1", "--real", "1.5");
    REFUSED("--real: 'nan' is not a number from 0 to 1", "--real", "nan");
    REFUSED("--real-time: '0' is not a number of seconds from 0.1 to 60", "--real-time", "0");
    REFUSED("--name: 'c' is neither a nor b", "--name", "c");
    REFUSED("--level: 'hi' is none of low, middle, high", "--level", "hi");
    REFUSED("--path: the name is empty", "--path=");
    REFUSED("--flag: it takes no value, and '1' was given", "--flag=1");
    REFUSED("--narrow: its value is missing; expected --narrow N", "--narrow");
    REFUSED("--call: nothing in it", "--call=");
    assert_int_equal(PARSE("--call", "worn out"), 1);
    assert_int_equal(status, 1); /* not misused, but failed */
    assert_string_equal(said, "potluck try: --call: 'worn out' cannot be read\n");
}

static void test_names(void **state)
{
    char junk[200];
    (void)state;
    assert_int_equal(PARSE("--narr", "3", "--te=x"), 0); /* as much of a name as is only one's */
    assert_int_equal(v.narrow, 3);
    assert_int_equal(PARSE("--real", "1"), 0); /* a whole name, though another begins so */
    assert_int_equal(PARSE("--real_time", "1"), 0);
    assert_true(v.seconds == 1);
    REFUSED("option '--na' is ambiguous: --narrow, --name", "--na", "3");
    REFUSED("unrecognized option '--narow=3'; did you mean --narrow?", "--narow=3");
    REFUSED("unrecognized option '--levle'; did you mean --level?", "--levle", "high");
    REFUSED("unrecognized option '--pth'; did you mean --path?", "--pth"); /* a nested table's */
    REFUSED("unrecognized option '--zzzzzzzzzzzz' ('potluck try --help' lists them)",
            "--zzzzzzzzzzzz");
    REFUSED("unrecognized option '-x' (see 'potluck try --help')", "-x");
    memset(junk, 'x', sizeof junk - 1);
    junk[0] = junk[1] = '-';
    junk[sizeof junk - 1] = 0;
    assert_int_equal(PARSE(junk), 1);
    assert_int_equal(status, 2);
    assert_true(strlen(said) < 200);
}

static void test_words(void **state)
{
    const char *const line[] = { "one", "--flag", "-3", "-", "--", "--wide", NULL };
    int found;
    (void)state;
    assert_int_equal(parse_to(stderr, line, &found), 0);
    assert_int_equal(found, 4);
    assert_string_equal(words[1], "one");
    assert_string_equal(words[2], "-3");
    assert_string_equal(words[3], "-");
    assert_string_equal(words[4], "--wide");
    assert_int_equal(v.flag, 1);
    REFUSED("unexpected argument 'one' (see 'potluck try --help')", "--flag", "one");
}

static void test_help(void **state)
{
    (void)state;
    assert_int_equal(parse_to(stdout, (const char *const[]){ "--flag", "--help", "--wrong", NULL },
                              NULL),
                     1);
    assert_int_equal(status, 0);
    assert_string_equal(said,
                        "usage: potluck try [OPTION ...]\n"
                        "\n"
                        "Tries.\n"
                        "\n"
                        "  --flag                 a flag\n"
                        "  --wide N               an integer (default: 7)\n"
                        "  --narrow N             an int\n"
                        "\n"
                        "More:\n"
                        "  --real X               a real (default: 0.5)\n"
                        "  --real-time SECONDS    seconds\n"
                        "  --text TEXT            a text\n"
                        "  --name NAME            a name (a or b; default: a)\n"
                        "  --level LEVEL          a choice (low, middle or high; default: middle)\n"
                        "  --named-level LEVEL    an enum (low, middle or high)\n"
                        "  --list ITEM            a list\n"
                        "  --call VALUE           a function\n"
                        "  --path FILE            a file\n"
                        "\n"
                        "Last.\n");
}

/* Taken in full, but neither abbreviated nor suggested nor listed (test_help). */
static void test_old_name(void **state)
{
    const char *const line[] = { "--narrow=3", "--former", "4", NULL };
    FILE *out = tmpfile();
    (void)state;
    assert_int_equal(parse_to(stderr, line, NULL), 0);
    assert_int_equal(v.narrow, 4);
    REFUSED("--former: '11' is not a whole number from 0 to 10", "--former", "11");
    REFUSED("unrecognized option '--form' ('potluck try --help' lists them)", "--form", "4");
    assert_non_null(out);
    options_list(out, &command);
    rewind(out);
    while (fgets(said, sizeof said, out)) assert_null(strstr(said, "former"));
    fclose(out);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_values),   cmocka_unit_test(test_repeated),
        cmocka_unit_test(test_mistakes), cmocka_unit_test(test_names),
        cmocka_unit_test(test_words),    cmocka_unit_test(test_help),
        cmocka_unit_test(test_old_name),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
