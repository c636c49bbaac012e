/* options.c - the parser: every command's line is read against its table, and every mistake gets
 * the same kind of sentence. getopt_long is not used because it knows neither values nor ranges,
 * and its own complaints cannot say what was expected. */
#include "options.h"

#include <assert.h>
#include <errno.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define NAME_MAX_BYTES 64 /* of an option as typed; our longest has 21 */
#define NAMES_TEXT 400    /* of all names that a choice has */

/* --- values ----------------------------------------------------------------------------------- */

int option_integer(int64_t *out, const char *text, int64_t min, int64_t max, struct pl_err *err)
{
    char *end;
    long long x;
    errno = 0;
    x = strtoll(text, &end, 10);
    if (errno || end == text || *end || x < min || x > max)
        return pl_fail(err, PL_EUSE, "'%.80s' is not a whole number from %lld to %lld", text,
                       (long long)min, (long long)max);
    *out = x;
    return PL_OK;
}

static int read_real(double *out, const char *text, double min, double max, const char *unit,
                     struct pl_err *err)
{
    char *end;
    double x;
    x = strtod(text, &end);
    if (end == text || *end || !isfinite(x) || x < min || x > max)
        return pl_fail(err, PL_EUSE, "'%.80s' is not a number%s from %g to %g", text, unit, min,
                       max);
    *out = x;
    return PL_OK;
}

int option_real(double *out, const char *text, double min, double max, struct pl_err *err)
{
    return read_real(out, text, min, max, "", err);
}

/* The index of a name; PL_EUSE with all of them in err. */
static int find_name(const char *const *names, const char *text, struct pl_err *err)
{
    char all[NAMES_TEXT] = "";
    size_t used = 0, count = 0;
    for (; names[count]; count++)
        if (!strcmp(names[count], text)) return (int)count;
    if (count == 2)
        return pl_fail(err, PL_EUSE, "'%.40s' is neither %s nor %s", text, names[0], names[1]);
    for (size_t i = 0; i < count && used < sizeof all; i++)
        used += (size_t)snprintf(all + used, sizeof all - used, "%s%s", i ? ", " : "", names[i]);
    return pl_fail(err, PL_EUSE, "'%.40s' is not one of %s", text, all);
}

static void store_integer(void *at, size_t bytes, int64_t x)
{
    int narrow = (int)x;
    if (bytes == sizeof narrow) memcpy(at, &narrow, bytes);
    else memcpy(at, &x, bytes);
}

static int store(const struct option_row *row, void *options, const char *text, struct pl_err *err)
{
    const struct option_target *to = &row->to;
    void *at = (char *)options + to->at;
    struct option_list *list = at;
    int64_t integer = 1;
    int rc = to->check ? to->check(text, err) : PL_OK;
    if (rc) return rc;
    switch (to->kind) {
    case OPTION_FLAG: *(int *)at = 1; return PL_OK;
    case OPTION_INTEGER:
        rc = option_integer(&integer, text, to->min, to->max, err);
        if (!rc) store_integer(at, to->bytes, integer);
        return rc;
    case OPTION_REAL: return read_real(at, text, to->low, to->high, "", err);
    case OPTION_SECONDS: return read_real(at, text, to->low, to->high, " of seconds", err);
    case OPTION_PATH:
        if (!*text) return pl_fail(err, PL_EUSE, "the name is empty");
        *(const char **)at = text;
        return PL_OK;
    case OPTION_NAME:
        if ((rc = find_name(to->names, text, err)) < 0) return rc;
        *(const char **)at = text;
        return PL_OK;
    case OPTION_TEXT: *(const char **)at = text; return PL_OK;
    case OPTION_CHOICE:
        if ((rc = find_name(to->names, text, err)) < 0) return rc;
        store_integer(at, to->bytes, rc);
        return PL_OK;
    case OPTION_LIST:
        if (list->count == OPTION_LIST_MAX)
            return pl_fail(err, PL_EUSE, "'%.80s' is one too many: at most %d of them", text,
                           OPTION_LIST_MAX);
        list->item[list->count++] = text;
        return PL_OK;
    case OPTION_CALL: return to->take(options, row->name, text, err);
    case OPTION_HEADING:
    case OPTION_TABLE: break;
    }
    return PL_OK;
}

/* --- names ------------------------------------------------------------------------------------ */

/* Rows of nested tables count as the command's own. Calls `visit` for each option with the struct
 * that it belongs to; ends early when that returns something else than 0. */
typedef int visit_fn(void *context, const struct option_row *row, void *options);
static int each_option(const struct option_row *rows, void *options, visit_fn *visit, void *context)
{
    int rc = 0;
    for (; rows && (rows->name || rows->help || rows->to.rows) && !rc; rows++) {
        if (rows->to.kind == OPTION_TABLE)
            rc = each_option(rows->to.rows, options ? (char *)options + rows->to.at : NULL, visit,
                             context);
        else if (rows->name) rc = visit(context, rows, options);
    }
    return rc;
}

static int store_initial(void *context, const struct option_row *row, void *options)
{
    struct pl_err *err = context;
    return row->initial ? store(row, options, row->initial, err) : PL_OK;
}

/* Python's parsers write an option's words with either sign between them. */
static int same(char a, char b) { return a == b || (a == '_' && b == '-'); }

struct search {
    const char *typed;
    size_t length;
    const struct option_row *row, *second; /* the best match; another one as good */
    void *options;
    int exact, distance;
};

static int match(void *context, const struct option_row *row, void *options)
{
    struct search *s = context;
    size_t n = 0;
    while (n < s->length && row->name[n] && same(s->typed[n], row->name[n])) n++;
    if (n < s->length || (!row->help && row->name[n]))
        return 0; /* an old name is not abbreviated */
    if (s->row && !s->second) s->second = row;
    if (!s->row || !row->name[n]) {
        s->row = row;
        s->options = options;
    }
    s->exact = !row->name[n];
    return s->exact;
}

/* How many letters have to be added, removed or replaced to make one name of the other.
 * (Levenshtein distance) */
static int edit_distance(const char *a, size_t n, const char *b)
{
    int row[NAME_MAX_BYTES + 1], m = (int)strlen(b);
    assert(m <= NAME_MAX_BYTES);
    for (int j = 0; j <= m; j++) row[j] = j;
    for (size_t i = 0; i < n; i++) {
        int diagonal = row[0];
        row[0] = (int)i + 1;
        for (int j = 1; j <= m; j++) {
            int replaced = diagonal + !same(a[i], b[j - 1]);
            int other = row[j] < row[j - 1] ? row[j] + 1 : row[j - 1] + 1;
            diagonal = row[j];
            row[j] = replaced < other ? replaced : other;
        }
    }
    return row[m];
}

static int closer(void *context, const struct option_row *row, void *options)
{
    struct search *s = context;
    int distance = edit_distance(s->typed, s->length, row->name);
    if (!row->help || distance >= s->distance) return 0;
    s->distance = distance;
    s->row = row;
    return 0;
}

/* Every command has it, and no table. */
static const struct option_row help_row = { .name = "help", .help = "explains the command" };

static char complaint[sizeof(struct pl_err)];

int command_failed(const char *name, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    vsnprintf(complaint, sizeof complaint, format, args);
    va_end(args);
    fprintf(stderr, "potluck %s: %s\n", name, complaint);
    return 1;
}

const char *command_complaint(void) { return complaint; }

/* "--stesp=5" as typed. PL_EUSE with a line that may name a similar option. */
static int find_option(struct search *s, const struct command *c, void *options, const char *typed)
{
    *s = (struct search){ .typed = typed + 2, .length = strcspn(typed + 2, "=") };
    each_option(c->rows, options, match, s);
    if (s->row && (s->exact || !s->second)) return PL_OK;
    if (s->row) {
        command_failed(c->name, "option '--%.*s' is ambiguous: --%s, --%s", (int)s->length,
                       s->typed, s->row->name, s->second->name);
        return PL_EUSE;
    }
    s->distance = s->length < 6 ? 3 : 4; /* more would be another word */
    if (s->length <= NAME_MAX_BYTES) {
        closer(s, &help_row, NULL);
        each_option(c->rows, NULL, closer, s);
    }
    if (s->row)
        command_failed(c->name, "unrecognized option '%.80s'; did you mean --%s?", typed,
                       s->row->name);
    else
        command_failed(c->name, "unrecognized option '%.80s' ('potluck %s --help' lists them)",
                       typed, c->name);
    return PL_EUSE;
}

int options_ask_json(const struct command *c, int argc, char *const *argv)
{
    for (int i = 1; i < argc && strcmp(argv[i], "--"); i++) {
        struct search s = { .typed = argv[i] + 2, .length = strlen(argv[i]) - 2 };
        if (strncmp(argv[i], "--", 2)) continue;
        each_option(c->rows, NULL, match, &s);
        if (s.row && (s.exact || !s.second) && !strcmp(s.row->name, "json") && !s.row->argument)
            return 1;
    }
    return 0;
}

int command_status(int rc) { return rc == PL_EUSE ? 2 : rc != PL_OK; }

int command_misused(const char *name, const char *format, ...)
{
    char what[256];
    va_list args;
    va_start(args, format);
    vsnprintf(what, sizeof what, format, args);
    va_end(args);
    command_failed(name, "%s (see 'potluck %s --help')", what, name);
    return PL_EUSE;
}

const char *option_similar(const char *typed, const char *const *names)
{
    const char *similar = NULL;
    const size_t n = strlen(typed);
    int least = n < 3 ? (int)n : 3; /* more would be another word */
    for (; *names; names++) {
        int distance = edit_distance(typed, n, *names);
        if (distance < least) least = distance, similar = *names;
    }
    return similar;
}

int command_verb(const char *name, const char *const *verbs, const char *typed)
{
    const char *similar = typed ? option_similar(typed, verbs) : NULL;
    char all[NAMES_TEXT] = "";
    size_t used = 0, count = 0;
    for (; verbs[count]; count++)
        if (typed && !strcmp(typed, verbs[count])) return (int)count;
    for (size_t i = 0; i < count && used < sizeof all; i++)
        used += (size_t)snprintf(all + used, sizeof all - used, "%s%s",
                                 !i              ? ""
                                 : i < count - 1 ? ", "
                                                 : " or ",
                                 verbs[i]);
    if (!typed) return command_misused(name, "%s comes first", all);
    if (similar) return command_misused(name, "'%.60s': did you mean %s?", typed, similar);
    return command_misused(name, "'%.60s': %s comes first", typed, all);
}

/* --- the command line ------------------------------------------------------------------------- */

/* One option, and its value behind '=' or in the next word. */
static int take_option(const struct command *c, void *options, char **argv, int argc, int *at)
{
    const char *equals = strchr(argv[*at], '='), *value = equals ? equals + 1 : NULL;
    struct search s;
    struct pl_err err = { "" };
    int rc = find_option(&s, c, options, argv[*at]);
    if (rc) return rc;
    if (!s.row->argument && value)
        rc = pl_fail(&err, PL_EUSE, "it takes no value, and '%.80s' was given", value);
    else if (s.row->argument && !value && *at + 1 >= argc)
        rc = pl_fail(&err, PL_EUSE, "its value is missing; expected --%s %s", s.row->name,
                     s.row->argument);
    else {
        if (s.row->argument && !value) value = argv[++*at];
        rc = store(s.row, s.options, value, &err);
    }
    if (rc) command_failed(c->name, "--%s: %s", s.row->name, err.text);
    return rc;
}

/* A minus sign before digits is a number's. */
static int is_word(const char *text)
{
    return text[0] != '-' || !text[1] || strchr("0123456789.", text[1]);
}

int options_parse(const struct command *c, void *options, int argc, char **argv, int *words,
                  int *status)
{
    struct pl_err err = { "" };
    int rc = each_option(c->rows, options, store_initial, &err);
    assert(!rc); /* a default that its own row refuses */
    return options_override(c, options, argc, argv, words, status);
}

int options_override(const struct command *c, void *options, int argc, char **argv, int *words,
                     int *status)
{
    int rc = PL_OK, found = 0, ended = 0;
    for (int i = 1; i < argc && !rc; i++) {
        char *text = argv[i];
        if (ended || is_word(text)) {
            argv[1 + found++] = text; /* at most where it was read */
            if (!words) rc = command_misused(c->name, OPTIONS_STRAY, text);
        } else if (!strcmp(text, "--")) {
            ended = 1;
        } else if (!strcmp(text, "-h") || !strcmp(text, "--help")) {
            options_help(stdout, c);
            *status = 0;
            return 1;
        } else if (text[1] != '-') {
            rc = command_misused(c->name, "unrecognized option '%.60s'", text);
        } else rc = take_option(c, options, argv, argc, &i);
    }
    if (words) *words = found;
    *status = command_status(rc);
    return rc != PL_OK;
}
