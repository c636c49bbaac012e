/* bpe.h - byte-level pair encoding: CLIP's and GPT-2's tokenizers from their published files.
 * [Sennrich et al. 2016] [GPT-2: Radford et al. 2019, 2.2] [spec images-and-text 3, 4, 6] */
#ifndef PL_BPE_H
#define PL_BPE_H

#include "ref/base.h"

#define BPE_CLIP_CONTEXT 77 /* ids of a caption, with the two at its ends */

/* Never changes once read: any number of threads may share it. */
struct bpe;

/* CLIP's merge list, "bpe_simple_vocab_16e6.txt", gzipped or not. On error *b is NULL and err names
 * the file and the line. */
int pl_bpe_open_clip(struct bpe **b, const char *merges, struct pl_err *err);
/* GPT-2's vocab.json and merges.txt. */
int pl_bpe_open_gpt2(struct bpe **b, const char *vocab, const char *merges, struct pl_err *err);
void pl_bpe_close(struct bpe *b);

int pl_bpe_size(const struct bpe *b); /* ids are below it */
int pl_bpe_is_clip(const struct bpe *b);
int pl_bpe_start(const struct bpe *b); /* CLIP's 49406; GPT-2 has none: -1 */
int pl_bpe_end(const struct bpe *b);   /* CLIP's 49407, GPT-2's 50256; -1 if there is none */

/* The ids of n bytes of text; *count is how many there are, the first `room` of them are stored.
 * CLIP's text is cleaned first (clean.h). No start or end is added. PL_OK, PL_ENOMEM or
 * PL_ELIMIT. */
int pl_bpe_encode(int32_t *ids, size_t room, size_t *count, const struct bpe *b, const char *text,
                  size_t n);

/* A row as CLIP's text tower wants it: start, ids, end, zeros to `length` (77). *cut, if given, is
 * 1 where the text was too long: the row's last id is the end then. */
int pl_bpe_clip_row(int32_t *row, int length, int *cut, const struct bpe *b, const char *text,
                    size_t n);

/* The text of ids: bytes, which need not be UTF-8 if they are part of a text. A space follows
 * CLIP's words. The caller frees *out, which ends with a zero byte. PL_EUSE for an id outside. */
int pl_bpe_decode(char **out, size_t *bytes, const struct bpe *b, const int32_t *ids, size_t n);

#endif
