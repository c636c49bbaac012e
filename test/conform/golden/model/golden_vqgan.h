/* golden_vqgan.h - the parts of golden/vqgan: one file each. */
#ifndef PL_GOLDEN_VQGAN_H
#define PL_GOLDEN_VQGAN_H

#include "test/conform/golden/golden.h"
#include "ref/model/vqgan.h"

/* relative to a tensor's largest value, from the README of the golden values */
#define VQGAN_BLOCKS 2e-5
#define VQGAN_MODEL 1e-4  /* whole networks, and gradients by the largest one of the file */
#define VQGAN_MARGIN 1e-3 /* codes whose best two scores are closer may differ */

/* The model that the file's configuration describes, with weights from the sibling STEM.weights
 * file or from the counter. 0 after a golden_fail line. */
int vqgan_golden_model(struct golden *g, struct pl_vqgan *m, const struct st_file *f,
                       const json_t *config, const char *stem, int with_grad);

void vqgan_golden_blocks(struct golden *g, const struct st_file *f);
void vqgan_golden_io(struct golden *g, const struct st_file *f, const json_t *config,
                     const char *stem);
void vqgan_golden_train(struct golden *g, const struct st_file *f, const json_t *config,
                        const char *stem);
void vqgan_golden_quantizers(struct golden *g, const struct st_file *f, const json_t *config);

#endif
