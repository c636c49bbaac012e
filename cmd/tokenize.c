/* tokenize.c - `potluck tokenize`: lines of text to ids and back. */
#include "cmd.h"
#include "../data/unigram.h"

#include <errno.h>
#include <getopt.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char usage[] =
    "usage: potluck tokenize --model FILE [--decode] [--max N] [--sentencepiece] < LINES\n"
    "\n"
    "Prints the ids of every line of standard input, as the run's T5 tokenizer gives them.\n"
    "\n"
    "  --model FILE     a spiece.model\n"
    "  --decode         the other way: a line of ids becomes text\n"
    "  --max N          cut to N ids (the run: 256; default: no limit)\n"
    "  --sentencepiece  follow sentencepiece where it differs from transformers\n";

struct ids {
    int32_t *at;
    size_t n, room;
};

static int reserve(struct ids *ids, size_t n)
{
    int32_t *more;
    if (n <= ids->room) return PL_OK;
    if (!(more = realloc(ids->at, 2 * n * sizeof *more))) return PL_ENOMEM;
    ids->at = more;
    ids->room = 2 * n;
    return PL_OK;
}

static int encode(struct ids *ids, const struct unigram *u, const char *line, size_t n, size_t max,
                  enum unigram_rules rules)
{
    int rc = unigram_encode(ids->at, ids->room, &ids->n, u, line, n, rules);
    if (!rc && ids->n > ids->room) { /* only now known: once more with room */
        if ((rc = reserve(ids, ids->n))) return rc;
        rc = unigram_encode(ids->at, ids->room, &ids->n, u, line, n, rules);
    }
    if (rc) return rc;
    if (ids->n > max) ids->n = max;
    for (size_t i = 0; i < ids->n; i++) printf(i ? " %d" : "%d", ids->at[i]);
    putchar('\n');
    return PL_OK;
}

static int decode(struct ids *ids, const struct unigram *u, const char *line, struct pl_err *err)
{
    char *text, *end;
    size_t bytes;
    int rc;
    ids->n = 0;
    for (const char *at = line; ; at = end) {
        long id;
        errno = 0;
        id = strtol(at, &end, 10);
        if (end == at) break;
        if (errno || id < 0 || id >= unigram_size(u))
            return pl_fail(err, PL_EUSE, "id '%.*s' is not below %d",
                           (int)strcspn(at + strspn(at, " \t"), " \t"), at + strspn(at, " \t"),
                           unigram_size(u));
        if ((rc = reserve(ids, ids->n + 1))) return pl_fail(err, rc, "out of memory");
        ids->at[ids->n++] = (int32_t)id;
    }
    end += strspn(end, " \t\r");
    if (*end) return pl_fail(err, PL_EUSE, "'%.20s' is not an id", end);
    if ((rc = unigram_decode(&text, &bytes, u, ids->at, ids->n)))
        return pl_fail(err, rc, "%s", pl_status_name(rc));
    fwrite(text, 1, bytes, stdout);
    putchar('\n');
    free(text);
    return PL_OK;
}

int cmd_tokenize(int argc, char **argv)
{
    static const struct option options[] = {
        { "model", required_argument, NULL, 'm' },
        { "decode", no_argument, NULL, 'd' },
        { "max", required_argument, NULL, 'n' },
        { "sentencepiece", no_argument, NULL, 's' },
        { "help", no_argument, NULL, 'h' },
        { 0 },
    };
    const char *model = NULL;
    enum unigram_rules rules = UNIGRAM_TRANSFORMERS;
    int64_t max = INT_MAX;
    int back = 0, rc = 0, c;
    struct unigram *u;
    struct ids ids = { 0 };
    struct pl_err err;
    char *line = NULL;
    size_t room = 0, number = 0;
    ssize_t n;
    while ((c = getopt_long(argc, argv, "h", options, NULL)) != -1) {
        switch (c) {
        case 'm': model = optarg; break;
        case 'd': back = 1; break;
        case 's': rules = UNIGRAM_SENTENCEPIECE; break;
        case 'n':
            if (cmd_integer(&max, "tokenize", "--max", optarg, 1, INT_MAX)) return 2;
            break;
        case 'h': fputs(usage, stdout); return 0;
        default: fputs(usage, stderr); return 2;
        }
    }
    if (!model || optind < argc) {
        fputs(usage, stderr);
        return 2;
    }
    if (unigram_open(&u, model, &err)) {
        fprintf(stderr, "potluck tokenize: %s\n", err.text);
        return 1;
    }
    while (!rc && (n = getline(&line, &room, stdin)) >= 0) {
        number++;
        if (n && line[n - 1] == '\n') line[--n] = 0;
        pl_fail(&err, 0, "out of memory");
        rc = back ? decode(&ids, u, line, &err)
                  : encode(&ids, u, line, (size_t)n, (size_t)max, rules);
        if (rc) fprintf(stderr, "potluck tokenize: line %zu: %s\n", number, err.text);
    }
    if (!rc && ferror(stdin)) {
        fprintf(stderr, "potluck tokenize: standard input: %s\n", strerror(errno));
        rc = PL_EIO;
    }
    free(line);
    free(ids.at);
    unigram_close(u);
    return rc != 0;
}
