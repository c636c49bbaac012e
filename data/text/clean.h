/* clean.h - cleans a caption as CLIP's tokenizer does before splitting words (ftfy): repairs
 * damaged text, resolves entities, joins white space, lower case. [spec images-and-text 4.1]
 *
 * ftfy's guess at wrongly decoded text ("Ã©" for "é") is omitted, as the specification allows: such
 * text is unchanged. */
#ifndef PL_CLEAN_H
#define PL_CLEAN_H

#include "ref/base.h"

#define CLEAN_BYTES_MAX (1 << 20) /* of a caption, which becomes 77 ids */

/* *out is zero-terminated UTF-8; the caller frees it. Invalid bytes become U+FFFD. PL_ELIMIT: the
 * text exceeds the limit, or nests entities in entities without end. */
int pl_clean_text(char **out, size_t *bytes, const char *text, size_t n);

#endif
