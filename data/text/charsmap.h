/* charsmap.h - SentencePiece's precompiled character map: the Unicode normalization of a
 * spiece.model, as a double-array trie. [spec images-and-text 5.2] */
#ifndef PL_CHARSMAP_H
#define PL_CHARSMAP_H

#include "ref/base.h"

/* A growing text. All zero is empty; free .at when done. */
struct charsmap_text {
    char *at;
    size_t n, capacity;
};
int pl_charsmap_append(struct charsmap_text *t, const char *bytes, size_t n); /* PL_OK, PL_ENOMEM */

/* All zero is the empty map. */
struct charsmap {
    const uint8_t *units; /* little-endian 32-bit each; borrowed */
    uint32_t count;
    const char *pool; /* zero-terminated strings; borrowed */
    uint32_t pool_bytes;
    uint8_t plain[128]; /* 1: this ASCII character maps to itself and is a whole cluster */
};

/* Checks a map, which must outlive *m; an empty one is the empty map. PL_EFORMAT with a message
 * that names `file`. */
int pl_charsmap_init(struct charsmap *m, const void *blob, size_t bytes, const char *file,
                     struct pl_err *err);

/* The shortest (or longest) key that is a prefix of `text`: returns its length, and its
 * zero-terminated value; 0 if there is none. */
size_t pl_charsmap_find(const struct charsmap *m, const char *text, size_t n, int longest,
                        const char **value);

/* Appends the normalized text to *out. The first works by grapheme clusters, as transformers'
 * tokenizer does; the second takes the longest key everywhere, as sentencepiece does. Each invalid
 * byte becomes U+FFFD: before the map in the first, without the map in the second. */
int pl_charsmap_by_cluster(const struct charsmap *m, const char *text, size_t n,
                           struct charsmap_text *out);
int pl_charsmap_by_longest(const struct charsmap *m, const char *text, size_t n,
                           struct charsmap_text *out);

#endif
