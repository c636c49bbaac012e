/* embed.h - rows of a table, and their gradients. The reference run's one matrix serves text ids,
 * image codes and, as a linear layer, the logits. [TTT 3.1, tied embeddings] */
#ifndef PL_EMBED_H
#define PL_EMBED_H

#include "base.h"

#ifdef __cplusplus
extern "C" {
#endif

/* y (M,D) = table[ids[m]];  ids (M) in 0..rows-1: the caller has checked them. Exact. */
typedef int pl_embed_fn(float *y, const float *table, const int32_t *ids, int M, int D, int rows);
/* dtable (rows,D)[ids[m]] += dy[m], in rising order of m for every row. Exact given that order. */
typedef int pl_embed_backward_fn(float *dtable, const float *dy, const int32_t *ids, int M, int D,
                                 int rows);

pl_embed_fn ref_embed, fast_embed, cuda_embed;
pl_embed_backward_fn ref_embed_backward, fast_embed_backward, cuda_embed_backward;

#ifdef __cplusplus
}
#endif
#endif
