/* options.h - one table of options per command: the parser, --help, the manual pages and the
 * shells' completion read it.
 *
 *     #define OPTIONS struct train_options
 *     static const struct option_row rows[] = {
 *         { "steps", "N", "1000", OPT_INTEGER(steps, 1, 1000000000), "optimizer steps" },
 *         { "resume", NULL, NULL, OPT_FLAG(resume), "continue from the newest checkpoint" },
 *         { "iterations", "N", NULL, OPT_INTEGER(steps, 1, 1000000000), OPTION_OLD_NAME },
 *         { NULL, NULL, NULL, OPT_TABLE(compute, compute_rows), NULL },
 *         { 0 },
 *     };
 *
 * A row stores its value at an offset of the command's own struct. The macros check at compile time
 * that the field has the type that the row's kind writes. */
#ifndef PL_CMD_OPTIONS_H
#define PL_CMD_OPTIONS_H

#include "ref/base.h"

#include <stddef.h>
#include <stdio.h>

enum option_kind {
    OPTION_HEADING, /* no option: a heading above the rows that follow */
    OPTION_TABLE,   /* the rows of another table, for a struct inside of this one */
    OPTION_FLAG,    /* int: 1 if given */
    OPTION_INTEGER, /* any integer type, min to max */
    OPTION_REAL,    /* double, low to high */
    OPTION_SECONDS, /* the same, of time */
    OPTION_TEXT,    /* const char *: borrowed from argv, as the next two */
    OPTION_PATH,    /* a file or folder: not empty; shells complete it */
    OPTION_NAME,    /* one of `names` */
    OPTION_CHOICE,  /* int or enum: its index in `names` */
    OPTION_LIST,    /* struct option_list: may be repeated */
    OPTION_CALL     /* a function takes the text */
};

/* Takes an option's value (NULL: a flag) into the command's struct. On error err explains the
 * fault; a status other than PL_EUSE means that the command was not misused but failed. */
typedef int option_take_fn(void *options, const char *name, const char *value, struct pl_err *err);
/* Whether a text has the form that the option needs, an address for example: PL_OK, or PL_EUSE with
 * the expectation in err. Also for words that are no options. */
typedef int option_check_fn(const char *text, struct pl_err *err);

struct option_row {
    const char *name;     /* without the dashes; NULL: a heading or a table */
    const char *argument; /* the value's placeholder in the help; NULL: a flag */
    const char *initial;  /* the default: stored first, shown in the help; NULL: the caller's */
    struct option_target {
        enum option_kind kind;
        size_t at, bytes;
        int64_t min, max;
        double low, high;
        const char *const *names; /* ends with NULL; of texts and paths only suggestions */
        option_take_fn *take;
        option_check_fn *check; /* of a text or of a list's items; NULL: any */
        int is_path;            /* of a call: the value names a file */
        const struct option_row *rows;
    } to;
    /* One sentence, or more, then perhaps a list: each item begins with "\n- ". Of a heading: its
     * text. Or OPTION_OLD_NAME. */
    const char *help;
};

/* A row with this help is an alias, the former name of another row. Scripts go on working, while
 * --help, the manual and completion show the new name alone. It is never abbreviated. */
#define OPTION_OLD_NAME NULL

#define OPTIONS_STRAY "unexpected argument '%.60s'" /* for command_misused */
#define OPTION_LIST_MAX 64                          /* addresses and the like on one command line */
struct option_list {
    const char *item[OPTION_LIST_MAX];
    size_t count;
};

/* The offset of a field that must have this type: the compiler warns about another one. */
#define OPTION_AT(type, field) \
    (offsetof(OPTIONS, field) + 0 * sizeof(&((OPTIONS *)0)->field == (type *)0))

/* clang-format off */
#define OPTION_INTEGER_BYTES(field) _Generic(((OPTIONS *)0)->field, \
    int: sizeof(int), unsigned: sizeof(int), long: sizeof(long), unsigned long: sizeof(long))
#define OPTION_TO(its_kind, type, field) .kind = OPTION_##its_kind, .at = OPTION_AT(type, field)
#define OPTION_TO_INTEGER(its_kind, field) \
    .kind = OPTION_##its_kind, .at = offsetof(OPTIONS, field), .bytes = OPTION_INTEGER_BYTES(field)

#define OPT_HEADING                { .kind = OPTION_HEADING }
#define OPT_TABLE(field, its_rows) \
    { .kind = OPTION_TABLE, .at = offsetof(OPTIONS, field), .rows = its_rows }
#define OPT_FLAG(field)            { OPTION_TO(FLAG, int, field) }
#define OPT_INTEGER(field, lowest, highest) \
    { OPTION_TO_INTEGER(INTEGER, field), .min = lowest, .max = highest }
#define OPT_REAL(field, lowest, highest) \
    { OPTION_TO(REAL, double, field), .low = lowest, .high = highest }
#define OPT_SECONDS(field, lowest, highest) \
    { OPTION_TO(SECONDS, double, field), .low = lowest, .high = highest }
#define OPT_TEXT(field)             { OPTION_TO(TEXT, const char *, field) }
#define OPT_TEXT_CHECKED(field, function) \
    { OPTION_TO(TEXT, const char *, field), .check = function }
#define OPT_PATH(field)             { OPTION_TO(PATH, const char *, field) }
#define OPT_PATH_OR(field, offered) { OPTION_TO(PATH, const char *, field), .names = offered }
#define OPT_NAME(field, allowed)    { OPTION_TO(NAME, const char *, field), .names = allowed }
#define OPT_CHOICE(field, allowed)  { OPTION_TO_INTEGER(CHOICE, field), .names = allowed }
#define OPT_LIST(field)             { OPTION_TO(LIST, struct option_list, field) }
#define OPT_LIST_CHECKED(field, function) \
    { OPTION_TO(LIST, struct option_list, field), .check = function }
#define OPT_CALL(function)          { .kind = OPTION_CALL, .take = function }
#define OPT_CALL_OF(function, offered) \
    { .kind = OPTION_CALL, .take = function, .names = offered }
#define OPT_CALL_FILE(function)     { .kind = OPTION_CALL, .take = function, .is_path = 1 }
/* clang-format on */

struct command {
    const char *name, *summary;        /* "train"; one line for the list of commands */
    const char *synopsis;              /* a line for each form, without "potluck NAME" */
    const char *about;                 /* paragraphs above the options */
    const struct option_row *rows;     /* ends with { 0 }; NULL: no options but --help */
    const char *notes;                 /* paragraphs below the options; NULL: none */
    int (*run)(int argc, char **argv); /* argv[0] is ignored; the exit status */
};
/* In a paragraph lines are joined and wrapped; a line that begins with a space stays as it is. */

/* Reads argv[1..argc-1] into `options`, defaults first. Options may be abbreviated if the beginning
 * is unique; "--" ends them. Other words are moved to argv[1..*words]; with words NULL there must
 * be none.
 *
 * Returns 0 if the command continues. Otherwise it ends with *status: 0 after --help, 2 after a
 * misuse, 1 after another error of an OPTION_CALL; one line on stderr has named the option, its
 * value and the expectation. */
int options_parse(const struct command *c, void *options, int argc, char **argv, int *words,
                  int *status);
/* The same without the defaults: fields without an option on the command line keep their values. */
int options_override(const struct command *c, void *options, int argc, char **argv, int *words,
                     int *status);

/* Does the command line have the flag --json, in whatever form, even if it will be refused? */
int options_ask_json(const struct command *c, int argc, char *const *argv);

/* The exit status of every command: 0 done, 2 if the command line alone is at fault (PL_EUSE), 1 if
 * it was understood and failed. A file, a peer or a device that refuses is no misuse. */
int command_status(int rc);

/* How a command says why it fails: one line on stderr, "potluck NAME: the error". With --json the
 * last such line becomes an event, too, once the command has ended with a status other than 0.
 * Called on the command's own thread. Returns 1. */
int command_failed(const char *name, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* The same for options that do not go together; the line also says where to read more. Returns
 * PL_EUSE. */
int command_misused(const char *name, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* The last line of these two, or of options_parse, without "potluck NAME: "; "": none. */
const char *command_complaint(void);

/* The name that a user who typed this probably meant; NULL: none. names ends with NULL. */
const char *option_similar(const char *typed, const char *const *names);
/* The index of the verb that a command's first word names, as `get` in potluck dht get. Otherwise,
 * also with typed NULL, PL_EUSE after a line that names the verbs, or the one that was meant. */
int command_verb(const char *name, const char *const *verbs, const char *typed);

void options_help(FILE *out, const struct command *c);
/* For completion, a line for each option: its name, a tab, the values to offer ("FILE": file
 * names), a tab, its help. */
void options_list(FILE *out, const struct command *c);

/* A whole number or a real for an option_take_fn: err states the expectation. */
int option_integer(int64_t *out, const char *text, int64_t min, int64_t max, struct pl_err *err);
int option_real(double *out, const char *text, double min, double max, struct pl_err *err);

#endif
