/* options_help.c - --help, and the list that shells complete from, printed from a command's
 * table. */
#include "options.h"

#include <string.h>

#define WIDTH 96       /* of a line: two of Debian's terminals are 80, all others wider */
#define HELP_COLUMN 25 /* where the sentences about options begin */

struct printer {
    FILE *out;
    size_t indent, column; /* of lines; of the next character in this one */
};

static void end_line(struct printer *p)
{
    if (p->column) fputc('\n', p->out);
    p->column = 0;
}

/* Words separated by single spaces, in lines of at most WIDTH; n bytes of text. */
static void wrap(struct printer *p, const char *text, size_t n)
{
    for (size_t at = 0; at < n;) {
        size_t length = 0;
        while (at < n && (text[at] == ' ' || text[at] == '\n')) at++;
        while (at + length < n && text[at + length] != ' ' && text[at + length] != '\n') length++;
        if (!length) break;
        if (p->column > p->indent && p->column + 1 + length > WIDTH) end_line(p);
        if (p->column < p->indent) {
            fprintf(p->out, "%*s", (int)(p->indent - p->column), "");
            p->column = p->indent;
        } else if (p->column > p->indent) {
            fputc(' ', p->out);
            p->column++;
        }
        fwrite(text + at, 1, length, p->out);
        p->column += length;
        at += length;
    }
}

/* Paragraphs are separated by empty lines; a line that begins with a space is printed as it
 * stands. */
static void print_text(FILE *out, const char *text)
{
    struct printer p = { .out = out };
    while (*text) {
        size_t n = strcspn(text, "\n");
        if (n && *text != ' ') wrap(&p, text, n);
        else {
            end_line(&p);
            fprintf(out, "%.*s\n", (int)n, text);
        }
        text += n + (text[n] == '\n');
    }
    end_line(&p);
}

static int is_end(const struct option_row *row)
{
    return !row->name && !row->help && !row->to.rows;
}

/* " (a, b or c; default: b)" */
static void print_values(struct printer *p, const struct option_row *row)
{
    int is_name = (row->to.kind == OPTION_NAME || row->to.kind == OPTION_CHOICE) &&
                  !strchr(row->help, '\n'); /* a list has the names */
    char word[80];
    int n;
    for (size_t i = 0; is_name && row->to.names[i]; i++) {
        const char *const *name = row->to.names + i;
        const char *end = !name[1] ? row->initial ? ";" : ")" : name[2] ? "," : "";
        n = snprintf(word, sizeof word, "%s%s%s", i ? "" : "(", *name, end);
        if (i && !name[1]) wrap(p, "or", 2);
        wrap(p, word, (size_t)n);
    }
    if (!row->initial) return;
    n = snprintf(word, sizeof word, "%sdefault: %s)", is_name ? "" : "(", row->initial);
    wrap(p, word, (size_t)n);
}

static void print_option(FILE *out, const struct option_row *row)
{
    struct printer p = { .out = out, .indent = HELP_COLUMN };
    size_t n = strcspn(row->help, "\n");
    p.column = (size_t)fprintf(out, "  --%s%s%s", row->name, row->argument ? " " : "",
                               row->argument ? row->argument : "");
    if (p.column + 2 > HELP_COLUMN) end_line(&p);
    wrap(&p, row->help, n);
    print_values(&p, row);
    end_line(&p);
    for (const char *item = row->help + n; *item; item += n) {
        item += strlen("\n- ");
        n = strcspn(item, "\n");
        p.indent = HELP_COLUMN;
        wrap(&p, "-", 1);
        p.indent += 2;
        wrap(&p, item, n);
        end_line(&p);
    }
}

static void print_rows(FILE *out, const struct option_row *rows)
{
    for (; rows && !is_end(rows); rows++)
        if (rows->to.kind == OPTION_TABLE) print_rows(out, rows->to.rows);
        else if (!rows->name) fprintf(out, "\n%s:\n", rows->help);
        else if (rows->help) print_option(out, rows);
}

void options_help(FILE *out, const struct command *c)
{
    const char *line = c->synopsis;
    for (size_t n; *line; line += n + (line[n] == '\n')) {
        n = strcspn(line, "\n");
        fprintf(out, "%s potluck %s %.*s\n", line == c->synopsis ? "usage:" : "      ", c->name,
                (int)n, line);
    }
    fputc('\n', out);
    print_text(out, c->about);
    if (c->rows) fputc('\n', out);
    print_rows(out, c->rows);
    if (c->notes) {
        fputc('\n', out);
        print_text(out, c->notes);
    }
}

static void list_rows(FILE *out, const struct option_row *rows)
{
    for (; rows && !is_end(rows); rows++) {
        const char *const *names = rows->to.names;
        if (rows->to.kind == OPTION_TABLE) list_rows(out, rows->to.rows);
        if (!rows->name || !rows->help) continue;
        fprintf(out, "--%s\t", rows->name);
        for (size_t i = 0; names && names[i]; i++) fprintf(out, "%s%s", i ? " " : "", names[i]);
        if (rows->to.kind == OPTION_PATH || rows->to.is_path) fputs(names ? " FILE" : "FILE", out);
        fprintf(out, "\t%.*s\n", (int)strcspn(rows->help, "\n"), rows->help);
    }
}

void options_list(FILE *out, const struct command *c) { list_rows(out, c->rows); }
