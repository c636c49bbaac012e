/* golden_tokenizer.h - rows of strings and ids as the tokenizers' golden files store them: flat,
 * with one offset more than rows. Shared by the tokenizers' replays. */
#ifndef PL_GOLDEN_TOKENIZER_H
#define PL_GOLDEN_TOKENIZER_H

#include "test/conform/golden/golden.h"

struct rows {
    const char *bytes; /* strings: inside the file; NULL for ids */
    int32_t *ids;      /* ids; NULL for strings */
    int32_t *offset;   /* row r is [offset[r], offset[r + 1]) */
    size_t count;
};

/* The rows of NAME.bytes or of NAME, checked; a golden_fail line and nonzero if there are none. */
int rows_strings(struct rows *rows, struct golden *g, const struct st_file *f, const char *name);
int rows_ids(struct rows *rows, struct golden *g, const struct st_file *f, const char *name);
void rows_clear(struct rows *rows);

/* 1 if `<area's folder>/<stem>/<name>`, a tokenizer's own file, exists. */
int golden_has(const struct golden *g, const char *stem, const char *name);

/* Row-by-row comparisons give one line: the number of rows, or the first difference. */
struct bpe;
struct unigram;
struct token_replay {
    struct golden *g;
    struct bpe *b; /* whichever the file belongs to */
    struct unigram *u;
    char what[96], first[200];
    size_t rows, wrong;
};
void token_begin(struct token_replay *r, const char *what);
void token_end(struct token_replay *r);
__attribute__((format(printf, 2, 3))) void token_differs(struct token_replay *r, const char *format,
                                                         ...);

/* One kind of tokenizer each: like an area, 0 if the file is not theirs. */
golden_area_fn golden_t5, golden_bpe;

#endif
