/* charsmap.h - SentencePiece's precompiled character map: the Unicode normalisation that a
 * spiece.model brings along, as a double-array trie. [spec images-and-text 5.2] */
#ifndef PL_CHARSMAP_H
#define PL_CHARSMAP_H

#include "ref/base.h"

/* A text that grows. All zero is an empty one; free .at when done. */
struct charsmap_text {
    char *at;
    size_t n, room;
};
int pl_charsmap_append(struct charsmap_text *t, const char *bytes, size_t n); /* PL_OK, PL_ENOMEM */

/* All zero maps nothing. */
struct charsmap {
    const uint8_t *units; /* little-endian 32-bit each; borrowed */
    uint32_t count;
    const char *pool; /* zero-ended strings, the last byte is zero; borrowed */
    uint32_t pool_bytes;
    uint8_t plain[128]; /* 1: this ASCII character stands for itself and for a whole cluster */
};

/* Checks a blob, which must outlive *m; no bytes at all mean the empty map. err names `file`. */
int pl_charsmap_init(struct charsmap *m, const void *blob, size_t bytes, const char *file,
                     struct pl_err *err);

/* The shortest (or longest) key that `text` begins with: its length in bytes, with its
 * zero-ended value; 0 if there is none. */
size_t pl_charsmap_find(const struct charsmap *m, const char *text, size_t n, int longest,
                        const char **value);

/* Appends the normalised text to *out. The first goes by grapheme clusters, as transformers'
 * tokenizer does; the second takes the longest key everywhere, as sentencepiece does. Bytes that
 * are no UTF-8 become U+FFFD each: before the map in the first, past the map in the second. */
int pl_charsmap_by_cluster(const struct charsmap *m, const char *text, size_t n,
                           struct charsmap_text *out);
int pl_charsmap_by_longest(const struct charsmap *m, const char *text, size_t n,
                           struct charsmap_text *out);

#endif
