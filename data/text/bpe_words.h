/* bpe_words.h - where words end, for CLIP and for GPT-2: their regular expressions as code. */
#ifndef PL_BPE_WORDS_H
#define PL_BPE_WORDS_H

#include "ref/base.h"

/* The next word of `text` from *at on, moved past it: *begin and its length. 0: no more. CLIP drops
 * white space; GPT-2's words are all of the text. [spec images-and-text 4.2, 6] */
size_t pl_bpe_word_clip(size_t *begin, size_t *at, const char *text, size_t n);
size_t pl_bpe_word_gpt2(size_t *begin, size_t *at, const char *text, size_t n);

#endif
