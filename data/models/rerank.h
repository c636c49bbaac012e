/* rerank.h - which of many pictures go best with a caption: CLIP from its published files, from
 * pixels and text to scores. [TTT 3.4] [spec images-and-text 2.4] */
#ifndef PL_RERANK_H
#define PL_RERANK_H

#include "ref/model/clip.h"
#include "data/text/bpe.h"
#include "data/images/image.h"

#define RERANK_VOCAB "bpe_simple_vocab_16e6.txt.gz" /* as it was published */

struct pl_rerank {
    struct pl_clip_model clip;
    struct bpe *bpe;
};

/* weights: ViT-B-32.pt, or any file that pl_weights_open reads. vocab: the merge list; NULL: the
 * one beside the weights. be is borrowed. */
int pl_rerank_open(struct pl_rerank *r, const struct pl_backend *be, const char *weights,
                   const char *vocab, struct pl_err *err);
void pl_rerank_close(struct pl_rerank *r);

/* score (n): exp(scale) * cosine for each picture, a few at a time. The pictures' sizes may
 * differ. *cut, if given, is 1 where the caption had more tokens than CLIP reads. */
int pl_rerank_score(struct pl_rerank *r, float *score, int *cut, const char *caption,
                    const struct pl_image *images, int n, struct pl_err *err);

#endif
