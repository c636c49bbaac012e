/* golden_quant.h - the area quant: code books and block-wise codes in golden_quant.c, compressed
 * messages in golden_messages.c. */
#ifndef PL_GOLDEN_QUANT_H
#define PL_GOLDEN_QUANT_H

#include "test/conform/golden/golden.h"
#include "ref/small.h"

/* The tensor "stem.what", or NULL. */
const struct st_tensor *quant_sibling(const struct st_file *f, const char *stem, const char *what);

/* compress_METHOD with compress_inputs; 0: an unknown method. */
int quant_compress(struct golden *g, const char *path, const char *stem);
void quant_inputs(struct golden *g, const char *path);
void quant_streaming(struct golden *g, const char *path);
void quant_adaptive(struct golden *g);

#endif
