/* bpe_words.h - pre-tokenization of CLIP and GPT-2: where words end. Their regular expressions as
 * code. */
#ifndef PL_BPE_WORDS_H
#define PL_BPE_WORDS_H

#include "ref/base.h"

/* Finds the next word of `text` from *at on and moves *at past it: *begin is its start, the result
 * its length; 0: no more words. CLIP drops white space; GPT-2's words cover the whole text. [spec
 * images-and-text 4.2, 6] */
size_t pl_bpe_word_clip(size_t *begin, size_t *at, const char *text, size_t n);
size_t pl_bpe_word_gpt2(size_t *begin, size_t *at, const char *text, size_t n);

#endif
