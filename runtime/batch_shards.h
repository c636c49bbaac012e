/* batch_shards.h - what dalle.c and dalle_lanes.c do for each other. */
#ifndef PL_BATCH_SHARDS_H
#define PL_BATCH_SHARDS_H

#include "../ref/model/dalle.h"

/* Forward and backward of B sequences of a batch of which they are `share`; adds their part to the
 * gradients and to *loss. The ids have been checked. */
int pl_dalle_step_part(struct pl_dalle *m, const int32_t *text, const int32_t *codes, int B,
                       double share, double scale, struct pl_dalle_loss *loss);
void pl_dalle_release_ids(struct pl_dalle *m);

/* The same of a whole batch in `lanes` parts, at most PL_SHARDS_MAX and B, side by side. */
int pl_dalle_step_sharded(struct pl_dalle *m, const int32_t *text, const int32_t *codes, int B,
                           int lanes, double scale, struct pl_dalle_loss *loss);
void pl_dalle_release_shards(struct pl_dalle *m);

#endif
