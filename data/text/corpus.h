/* corpus.h - windows of token ids out of files of text that are read as they are needed: JSON
 * lines, as C4 ships them, or plain text, either one gzipped or not. [TTT 2.1, 2.3] [C4: Raffel et
 * al. 2020, 2.2] */
#ifndef PL_CORPUS_H
#define PL_CORPUS_H

#include "ref/base.h"

#define CORPUS_LINE_MAX (64u << 20) /* bytes of a JSON line; C4's longest is about one MB */
#define CORPUS_WINDOW_MAX (1 << 20) /* ids; GPT-2's are 1024 */
#define CORPUS_BUFFER 256           /* windows that are shuffled with each other */
#define CORPUS_BUFFER_MAX (1 << 16)

/* The first `room` ids of n bytes of text, *count in all; never more than n. Fits pl_bpe_encode. */
typedef int corpus_encode_fn(int32_t *ids, size_t room, size_t *count, const void *tokenizer,
                             const char *text, size_t n);

/* A document is a line's "text" (file names ending in .json, .jsonl or .ndjson, and any of these
 * with .gz), or a page of a plain file: whole paragraphs of 2 KiB or a little more together. */
struct corpus_options {
    const char *const *path; /* copied */
    size_t paths;
    corpus_encode_fn *encode;
    const void *tokenizer; /* borrowed */
    int32_t end;           /* the id after each document */
    int window;            /* ids; documents follow each other without gaps */
    size_t buffer;         /* 0: CORPUS_BUFFER; 1: in the order of the files */
    uint64_t seed;         /* of the order of files in each pass, and of windows in the buffer */
    int every;             /* every so many-th document of a file is held out; 0: none */
    int held_out;          /* 1: only what is held out */
};

struct corpus;

/* On error *c is NULL. Files are opened when their turn comes, but have to be there. */
int pl_corpus_open(struct corpus **c, const struct corpus_options *options, struct pl_err *err);
void pl_corpus_close(struct corpus *c);

/* The next window; passes over the files without end. PL_ENOTFOUND: a whole pass held less than one
 * window; errors of files name the file and the line. An error stays. */
int pl_corpus_next(struct corpus *c, int32_t *window, struct pl_err *err);
/* As if so many had been asked for: how a training goes on where it was, as it was. */
int pl_corpus_skip(struct corpus *c, uint64_t windows, struct pl_err *err);

struct pl_corpus_counts {
    uint64_t documents, ids, windows, passes; /* read so far; windows: given */
};
struct pl_corpus_counts pl_corpus_counts(const struct corpus *c);

/* The text of a line of JSON, or NULL with a sentence that begins with `where`; free(). */
char *pl_corpus_line_text(size_t *bytes, const char *line, size_t n, const char *where,
                          struct pl_err *err);

#endif
