/* loss.h - output layer and cross-entropy in one, per segment of positions and columns, so that
 * no backend need store logits for all positions. [TTT 3.1] [DALL-E 2.2: 1/8 text, 7/8 image] */
#ifndef PL_LOSS_H
#define PL_LOSS_H

#include "base.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Positions row0..row1-1 of every sequence choose among columns col0..col1-1; the others are
 * masked away. `weight` scales this segment's mean in the total. */
struct pl_loss_segment {
    int row0, row1, col0, col1;
    float weight;
};
#define PL_LOSS_SEGMENTS 4 /* text and image need two */

/* logits = x W^T + b, then -log softmax at the label, averaged over B and the segment's
 * positions.
 *   loss    (segments)  HOST memory: each segment's unweighted mean
 *   logp    (B,S)       log-probability of each label, 0 without a label; NULL: not wanted
 *   dx      (B,S,D)     gradient of sum weight * mean, overwritten; NULL: forward only, and then
 *                       dW and db are not touched
 *   dW, db  (V,D), (V)  added to
 *   x       (B,S,D)     W (V,D)   b (V)   label (B,S): in its segment's columns, or -1: the
 *                       position does not count, in the mean neither
 * Segments cover 0..S-1 without overlap. Tolerance: loss 1e-6 relative, gradients as in
 * linear.h. */
typedef int pl_loss_fn(double *loss, float *logp, float *dx, float *dW, float *db, const float *x,
                       const float *W, const float *b, const int32_t *label,
                       const struct pl_loss_segment *segment, int segments, int B, int S, int D,
                       int V);

pl_loss_fn ref_loss, fast_loss, cuda_loss;

#ifdef __cplusplus
}
#endif
#endif
