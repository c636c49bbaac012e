/* tokenize.c - `potluck tokenize`: lines of text to ids and back. */
#include "cmd.h"
#include "data/text/bpe.h"
#include "data/text/code_points.h"
#include "data/text/unigram.h"
#include "ref/small.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

/* One of the two. */
struct tokenizer {
    struct unigram *unigram;
    enum unigram_rules rules;
    struct bpe *bpe;
};

struct ids {
    int32_t *at;
    size_t n, capacity;
};

static int open_gpt2(struct tokenizer *t, const char *path, int is_folder, struct pl_err *err)
{
    const char *slash = strrchr(path, '/');
    char *folder = is_folder ? strdup(path)
                   : slash   ? strndup(path, (size_t)(slash - path) + 1)
                             : strdup(".");
    char *vocab = !folder ? NULL : is_folder ? pl_path_join(folder, "vocab.json") : strdup(path);
    char *merges = folder ? pl_path_join(folder, "merges.txt") : NULL;
    int rc = vocab && merges ? pl_bpe_open_gpt2(&t->bpe, vocab, merges, err)
                             : pl_fail(err, PL_ENOMEM, "out of memory");
    free(folder);
    free(vocab);
    free(merges);
    return rc;
}

static int open_tokenizer(struct tokenizer *t, const char *path, struct pl_err *err)
{
    struct stat st;
    int is_folder = !stat(path, &st) && S_ISDIR(st.st_mode);
    if (is_folder || pl_ends_with(path, ".json")) return open_gpt2(t, path, is_folder, err);
    if (pl_ends_with(path, ".txt") || pl_ends_with(path, ".txt.gz"))
        return pl_bpe_open_clip(&t->bpe, path, err);
    return pl_unigram_open(&t->unigram, path, err);
}

static int size_of(const struct tokenizer *t)
{
    return t->bpe ? pl_bpe_size(t->bpe) : pl_unigram_size(t->unigram);
}

static int reserve(struct ids *ids, size_t n)
{
    return pl_grow_by(&ids->at, 0, n, &ids->capacity, n);
}

static int encode_once(struct ids *ids, const struct tokenizer *t, const char *line, size_t n)
{
    return t->bpe
               ? pl_bpe_encode(ids->at, ids->capacity, &ids->n, t->bpe, line, n)
               : pl_unigram_encode(ids->at, ids->capacity, &ids->n, t->unigram, line, n, t->rules);
}

static int encode(struct ids *ids, const struct tokenizer *t, const char *line, size_t n,
                  size_t max, size_t row, struct pl_err *err)
{
    int rc;
    if (row) {
        if (!(rc = reserve(ids, row)))
            rc = pl_bpe_clip_row(ids->at, (int)row, NULL, t->bpe, line, n);
        ids->n = row;
    } else if (!(rc = encode_once(ids, t, line, n)) &&
               ids->n > ids->capacity) { /* only now known */
        if (!(rc = reserve(ids, ids->n))) rc = encode_once(ids, t, line, n);
    }
    if (rc)
        return pl_fail(err, rc, "%s",
                       rc == PL_ELIMIT ? "the text is too long" : pl_status_name(rc));
    if (ids->n > max) ids->n = max;
    for (size_t i = 0; i < ids->n; i++) printf(i ? " %d" : "%d", ids->at[i]);
    putchar('\n');
    return PL_OK;
}

/* Encoding continues, as in the tokenizers' own libraries; the line's author gets a warning. */
static void note_no_utf8(const char *line, size_t n, size_t number)
{
    int32_t c = 0;
    for (size_t at = 0; at < n && c >= 0;) {
        size_t used = pl_code_points_first(&c, line + at, n - at);
        if (c < 0)
            fprintf(stderr,
                    "potluck tokenize: line %zu: byte %zu is not UTF-8; it and others pass as "
                    "U+FFFD\n",
                    number, at + 1);
        at += used;
    }
}

static int decode(struct ids *ids, const struct tokenizer *t, const char *line, struct pl_err *err)
{
    char *text, *end;
    size_t bytes;
    int rc;
    ids->n = 0;
    for (const char *at = line;; at = end) {
        long id;
        errno = 0;
        id = strtol(at, &end, 10);
        if (end == at) break;
        if (errno || id < 0 || id >= size_of(t))
            return pl_fail(err, PL_EUSE, "id '%.*s' is not below %d",
                           (int)strcspn(at + strspn(at, " \t"), " \t"), at + strspn(at, " \t"),
                           size_of(t));
        if ((rc = reserve(ids, ids->n + 1))) return pl_fail(err, rc, "out of memory");
        ids->at[ids->n++] = (int32_t)id;
    }
    end += strspn(end, " \t\r");
    if (*end) return pl_fail(err, PL_EUSE, "'%.20s' is not an id", end);
    rc = t->bpe ? pl_bpe_decode(&text, &bytes, t->bpe, ids->at, ids->n)
                : pl_unigram_decode(&text, &bytes, t->unigram, ids->at, ids->n);
    if (rc) return pl_fail(err, rc, "%s", pl_status_name(rc));
    fwrite(text, 1, bytes, stdout);
    putchar('\n');
    free(text);
    return PL_OK;
}

struct tokenize_options {
    const char *model;
    int decode, sentencepiece;
    int64_t max, row;
};

#define OPTIONS struct tokenize_options
static const struct option_row rows[] = {
    { "model", "FILE", NULL, OPT_PATH(model),
      "the tokenizer: spiece.model for T5, which the reference run uses; merges as .txt or "
      ".txt.gz (bpe_simple_vocab_16e6.txt.gz) for CLIP; vocab.json, or a folder with it, next "
      "to merges.txt for GPT-2" },
    { "decode", NULL, NULL, OPT_FLAG(decode), "read ids and print text" },
    { "max", "N", NULL, OPT_INTEGER(max, 1, INT_MAX),
      "truncate to N ids; the reference run: 256 (default: no limit)" },
    { "row", "N", NULL, OPT_INTEGER(row, 2, 1 << 20),
      "CLIP: print N ids per line (77 for its text encoder) with start, end and padding" },
    { "sentencepiece", NULL, NULL, OPT_FLAG(sentencepiece),
      "T5: follow sentencepiece where it differs from transformers" },
    { 0 },
};

static int run_tokenize(int argc, char **argv)
{
    struct tokenize_options o = { .max = INT_MAX };
    struct tokenizer t = { .bpe = NULL };
    struct ids ids = { 0 };
    struct pl_err err;
    char *line = NULL;
    size_t capacity = 0, number = 0;
    ssize_t n;
    int rc;
    if (options_parse(&command_tokenize, &o, argc, argv, NULL, &rc)) return rc;
    t.rules = o.sentencepiece ? UNIGRAM_SENTENCEPIECE : UNIGRAM_TRANSFORMERS;
    if (!o.model) {
        command_misused("tokenize", "--model is needed");
        return 2;
    }
    if (open_tokenizer(&t, o.model, &err)) { return command_failed("tokenize", "%s", err.text); }
    if (o.row && (!t.bpe || !pl_bpe_is_clip(t.bpe))) {
        command_failed("tokenize", "--row is for CLIP tokenizers only");
        rc = PL_EUSE;
    }
    while (!rc && (n = getline(&line, &capacity, stdin)) >= 0) {
        number++;
        if (n && line[n - 1] == '\n') line[--n] = 0;
        if (!o.decode) note_no_utf8(line, (size_t)n, number);
        rc = o.decode ? decode(&ids, &t, line, &err)
                      : encode(&ids, &t, line, (size_t)n, (size_t)o.max, (size_t)o.row, &err);
        if (rc) command_failed("tokenize", "line %zu: %s", number, err.text);
    }
    if (!rc && !feof(stdin)) { /* an error, or no memory for a line */
        command_failed("tokenize", "standard input: %s", strerror(errno));
        rc = PL_EIO;
    }
    free(line);
    free(ids.at);
    pl_unigram_close(t.unigram);
    pl_bpe_close(t.bpe);
    return rc != 0;
}

const struct command command_tokenize = {
    .name = "tokenize",
    .summary = "convert text to token ids and back: T5, CLIP, GPT-2",
    .synopsis = "--model FILE [--decode] [--max N] [--row N] [--sentencepiece] < LINES",
    .about = "Prints the token ids of every line of standard input.",
    .rows = rows,
    .run = run_tokenize,
};
