/* unigram.h - T5's tokenizer: the split of a text into pieces whose scores sum to the most.
 * [TTT 3.1] [Kudo 2018, arXiv 1804.10959] [spec images-and-text 5] */
#ifndef PL_UNIGRAM_H
#define PL_UNIGRAM_H

#include "ref/base.h"

#define UNIGRAM_EXTRA_IDS 100 /* <extra_id_99> .. <extra_id_0>, in this order, follow the pieces */

/* Two programs read the same file and differ on rare texts. The run used the first. */
enum unigram_rules {
    UNIGRAM_TRANSFORMERS, /* <pad>, </s>, <unk>, <extra_id_N> spelt out in a text are those ids;
                           * normalised by grapheme clusters; words split at every white space */
    UNIGRAM_SENTENCEPIECE /* no specials in the text; longest keys; scores summed in float32 */
};

/* Never changes once read: any number of threads may share it. */
struct unigram;

/* From a file, or from bytes that are no longer needed afterwards (err calls them `name`). On error
 * *u is NULL and err names the file and the place. */
int pl_unigram_open(struct unigram **u, const char *path, struct pl_err *err);
int pl_unigram_read(struct unigram **u, const void *data, size_t bytes, const char *name,
                    struct pl_err *err);
void pl_unigram_close(struct unigram *u);

int pl_unigram_size(const struct unigram *u); /* pieces and extra ids: ids are below it */

/* A piece's id, or -1; specials included. */
int pl_unigram_find(const struct unigram *u, const char *piece, size_t n);

/* The ids of n bytes of text. *count is how many there are; the first `room` of them are stored, so
 * that cutting to a maximal length is giving that much room. No end token is added. Bytes that are
 * no UTF-8 pass as U+FFFD. PL_OK or PL_ENOMEM. */
int pl_unigram_encode(int32_t *ids, size_t room, size_t *count, const struct unigram *u,
                      const char *text, size_t n, enum unigram_rules rules);

/* The text as the split sees it: without specials, words not yet marked (transformers), or the
 * whole with its marks (sentencepiece). The caller frees *out, which ends with a zero byte. */
int pl_unigram_normalize(char **out, size_t *bytes, const struct unigram *u, const char *text,
                         size_t n, enum unigram_rules rules);

/* The text of ids, specials spelt out; the caller frees *out, which ends with a zero byte.
 * PL_EUSE for an id outside the vocabulary. */
int pl_unigram_decode(char **out, size_t *bytes, const struct unigram *u, const int32_t *ids,
                      size_t n);

#endif
