/* bpe.h - byte-level byte-pair encoding (BPE): the tokenizers of CLIP and GPT-2, from their
 * published files. [Sennrich et al. 2016] [GPT-2: Radford et al. 2019, 2.2] [spec images-and-text
 * 3, 4, 6] */
#ifndef PL_BPE_H
#define PL_BPE_H

#include "ref/base.h"

/* Immutable after opening: any number of threads may share it. */
struct bpe;

/* CLIP's merge list, "bpe_simple_vocab_16e6.txt", gzipped or not. On error *b is NULL and err names
 * the file and the line. */
int pl_bpe_open_clip(struct bpe **b, const char *merges, struct pl_err *err);
/* GPT-2's vocab.json and merges.txt. */
int pl_bpe_open_gpt2(struct bpe **b, const char *vocab, const char *merges, struct pl_err *err);
void pl_bpe_close(struct bpe *b);

int pl_bpe_size(const struct bpe *b); /* all ids are below it */
int pl_bpe_is_clip(const struct bpe *b);
int pl_bpe_end(const struct bpe *b); /* CLIP's 49407, GPT-2's 50256; -1 if there is none */

/* Encodes n bytes of text; *count is the number of ids, of which the first `capacity` are stored.
 * CLIP's text is cleaned first (clean.h). No start or end is added. PL_OK, PL_ENOMEM or
 * PL_ELIMIT. */
int pl_bpe_encode(int32_t *ids, size_t capacity, size_t *count, const struct bpe *b,
                  const char *text, size_t n);

/* A row of CLIP's text tower: start, ids, end, zeros up to `length` (77). *cut, if not NULL, is 1
 * if the text was too long: the last id is then the end. */
int pl_bpe_clip_row(int32_t *row, int length, int *cut, const struct bpe *b, const char *text,
                    size_t n);

/* The text of ids, as bytes, which are not always valid UTF-8 if the ids are part of a text. CLIP's
 * words are followed by a space. The caller frees *out, which is zero-terminated. PL_EUSE for an id
 * out of range. */
int pl_bpe_decode(char **out, size_t *bytes, const struct bpe *b, const int32_t *ids, size_t n);

#endif
