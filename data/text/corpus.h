/* corpus.h - windows of token ids from text files, read as needed: JSON lines, as C4 ships them, or
 * plain text, gzipped or not. [TTT 2.1, 2.3] [C4: Raffel et al. 2020, 2.2] */
#ifndef PL_CORPUS_H
#define PL_CORPUS_H

#include "ref/base.h"

#define CORPUS_LINE_MAX (64u << 20) /* bytes of a JSON line; C4's longest is about one MB */
#define CORPUS_WINDOW_MAX (1 << 20) /* ids; GPT-2's are 1024 */
#define CORPUS_BUFFER 256           /* windows that are shuffled together */
#define CORPUS_BUFFER_MAX (1 << 16)

/* Encodes n bytes of text: stores the first `capacity` ids, sets *count to their number, at most n.
 * pl_bpe_encode has this type. */
typedef int corpus_encode_fn(int32_t *ids, size_t capacity, size_t *count, const void *tokenizer,
                             const char *text, size_t n);

/* A document is a line's "text" (file names ending in .json, .jsonl or .ndjson, also with .gz), or
 * a page of a plain file: whole paragraphs of together 2 KiB or a little more. */
struct corpus_options {
    const char *const *path; /* copied */
    size_t paths;
    corpus_encode_fn *encode;
    const void *tokenizer; /* borrowed */
    int32_t end;           /* the id after each document */
    int window;            /* ids; documents follow each other without padding */
    size_t buffer;         /* 0: CORPUS_BUFFER; 1: in file order */
    uint64_t seed;         /* for the order of files in each pass, and of windows in the buffer */
    int every;             /* every N-th document of a file is held out; 0: none */
    int held_out;          /* 1: only the held-out documents */
};

struct corpus;

/* On error *c is NULL. Files are opened when needed, but must exist now. */
int pl_corpus_open(struct corpus **c, const struct corpus_options *options, struct pl_err *err);
void pl_corpus_close(struct corpus *c);

/* The next window; repeats the files forever. PL_ENOTFOUND: a whole pass has less than one window.
 * Errors in files name the file and the line. After an error every later call returns it. */
int pl_corpus_next(struct corpus *c, int32_t *window, struct pl_err *err);
/* Skips windows, to resume a training run where it was. */
int pl_corpus_skip(struct corpus *c, uint64_t windows, struct pl_err *err);

struct pl_corpus_counts {
    uint64_t documents, ids, windows, passes; /* read so far; windows: given */
};
struct pl_corpus_counts pl_corpus_counts(const struct corpus *c);

#endif
