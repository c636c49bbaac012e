/* clean.h - a caption as CLIP's tokenizer cleans it before it looks for words: damage of the web
 * mended, entities resolved, white space joined, lower case. [spec images-and-text 4.1]
 *
 * The original's guess at wrongly decoded text ("Ã©" for "é") is left out, as the specification
 * allows: such a text passes as it stands. */
#ifndef PL_CLEAN_H
#define PL_CLEAN_H

#include "ref/base.h"

#define CLEAN_BYTES_MAX (1 << 20) /* of a caption; 77 ids are made of it */

/* *out is UTF-8 with a zero behind it, the caller frees it. Bytes that are no UTF-8 pass as U+FFFD.
 * PL_ELIMIT: the text is longer than the limit, or has entities inside entities without end. */
int pl_clean_text(char **out, size_t *bytes, const char *text, size_t n);

#endif
