/* rerank.h - CLIP reranking: which of many pictures match a caption best, from pixels and text to
 * scores. [TTT 3.4] [spec images-and-text 2.4] */
#ifndef PL_RERANK_H
#define PL_RERANK_H

#include "ref/model/clip.h"
#include "data/text/bpe.h"
#include "data/images/image.h"

#define RERANK_VOCAB "bpe_simple_vocab_16e6.txt.gz" /* as published */

struct pl_rerank {
    struct pl_clip_model clip;
    struct bpe *bpe;
};

/* weights: ViT-B-32.pt, or any file that pl_weights_open reads. vocab: the merge list; NULL: the
 * one in the folder of the weights. be is borrowed. */
int pl_rerank_open(struct pl_rerank *r, const struct pl_backend *be, const char *weights,
                   const char *vocab, struct pl_err *err);
void pl_rerank_close(struct pl_rerank *r);

/* score (n) = exp(scale) * cosine similarity of the caption and each picture. Pictures may differ
 * in size. *cut, if not NULL, is 1 if the caption has more tokens than CLIP reads. */
int pl_rerank_score(struct pl_rerank *r, float *score, int *cut, const char *caption,
                    const struct pl_image *images, int n, struct pl_err *err);

#endif
