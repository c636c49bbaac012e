/* dalle_config.h - a transformer's sizes as JSON: what --config FILE reads and checkpoints carry.
 * The keys are those that the original's recorded configurations use. */
#ifndef PL_DATA_DALLE_CONFIG_H
#define PL_DATA_DALLE_CONFIG_H

#include "ref/model/dalle_config.h"

#include <jansson.h>

/* Keys:
 *   base               "run", "middle", "small", "demo": where absent values come from; without it T, F,
 *                      dim, depth, heads, dim_head, text_tokens and image_tokens must be there
 *   name               at most 31 characters
 *   T F                text tokens; side of the code grid
 *   dim depth heads dim_head text_tokens image_tokens pad loss_img_weight
 *   attn_types         one kind a block: "full", "axial_row", "axial_col", "conv5", "conv3d2", or
 *                      "conv_like" with the next two; without it the run's pattern
 *   conv_kernel        5; conv_dilation 1
 *   shared_ids         one string a block: equal strings share a layer; without it the run's groups
 *   untied             true: no two blocks share
 *   share_input_output_emb  false: input tables of their own
 * `strict` refuses every other key, so that a slip of the pen is found; without it they are passed
 * over, and reversible, rotary_emb, shift_tokens must not be false in either case. `source` names
 * the file in the sentence. */
int pl_dalle_config_from_json(struct pl_dalle_config *c, const json_t *root, int strict,
                              const char *source, struct pl_err *err);
int pl_dalle_config_read(struct pl_dalle_config *c, const char *path, struct pl_err *err);
/* A name of a built-in configuration, or the path of a file (anything with a '.' or a '/'). */
int pl_dalle_config_find(struct pl_dalle_config *c, const char *name_or_path, struct pl_err *err);

/* All keys but base; what from_json makes the same configuration of. NULL: no memory. */
json_t *pl_dalle_config_to_json(const struct pl_dalle_config *c);

#endif
