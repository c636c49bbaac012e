/* unigram.h - T5's tokenizer: the segmentation of a text into pieces with the highest total score
 * (unigram language model). [TTT 3.1] [Kudo 2018, arXiv 1804.10959] [spec images-and-text 5] */
#ifndef PL_UNIGRAM_H
#define PL_UNIGRAM_H

#include "ref/base.h"

#define UNIGRAM_EXTRA_IDS 100 /* <extra_id_99> .. <extra_id_0>, in this order, follow the pieces */

/* Two programs read the same file and differ on rare texts. The reference run used the first. */
enum unigram_rules {
    /* <pad>, </s>, <unk>, <extra_id_N> spelled out in a text are those ids; normalization by
     * grapheme clusters; words end at every white space */
    UNIGRAM_TRANSFORMERS,
    /* no special tokens in the text; longest keys; scores summed in float32 */
    UNIGRAM_SENTENCEPIECE
};

/* Immutable after opening: any number of threads may share it. */
struct unigram;

/* From a file, or from bytes, which are copied (err calls them `name`). On error *u is NULL and err
 * names the file and the position. */
int pl_unigram_open(struct unigram **u, const char *path, struct pl_err *err);
int pl_unigram_read(struct unigram **u, const void *data, size_t bytes, const char *name,
                    struct pl_err *err);
void pl_unigram_close(struct unigram *u);

int pl_unigram_size(const struct unigram *u); /* pieces and extra ids: ids are below it */

/* A piece's id, or -1; includes special tokens. */
int pl_unigram_find(const struct unigram *u, const char *piece, size_t n);

/* Encodes n bytes of text. *count is the number of ids, of which the first `capacity` are stored;
 * so truncation is a small capacity. No end token is added. Invalid bytes become U+FFFD. PL_OK or
 * PL_ENOMEM. */
int pl_unigram_encode(int32_t *ids, size_t capacity, size_t *count, const struct unigram *u,
                      const char *text, size_t n, enum unigram_rules rules);

/* The normalized text before segmentation: without special tokens, words not yet marked
 * (transformers), or the whole text with marks (sentencepiece). The caller frees *out, which is
 * zero-terminated. */
int pl_unigram_normalize(char **out, size_t *bytes, const struct unigram *u, const char *text,
                         size_t n, enum unigram_rules rules);

/* The text of ids, with special tokens spelled out; the caller frees *out, which is
 * zero-terminated. PL_EUSE for an id outside the vocabulary. */
int pl_unigram_decode(char **out, size_t *bytes, const struct unigram *u, const int32_t *ids,
                      size_t n);

#endif
