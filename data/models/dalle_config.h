/* dalle_config.h - a transformer's configuration as JSON: for --config FILE and for checkpoints.
 * The keys are those of the reference run's recorded configurations. */
#ifndef PL_DATA_DALLE_CONFIG_H
#define PL_DATA_DALLE_CONFIG_H

#include "ref/model/dalle_config.h"

#include <jansson.h>

/* Keys:
 *   base               "run", "middle", "small", "demo": provides absent values; without it T, F,
 *                      dim, depth, heads, dim_head, text_tokens and image_tokens are required
 *   name               at most 31 characters
 *   T F                text tokens; side of the image token grid
 *   dim depth heads dim_head text_tokens image_tokens pad loss_img_weight
 *   attn_types         one kind per block: "full", "axial_row", "axial_col", "conv5", "conv3d2", or
 *                      "conv_like" with the next two; by default the reference run's pattern
 *   conv_kernel        5; conv_dilation 1
 *   shared_ids         one string per block: equal strings share a layer; by default the reference
 *                      run's groups
 *   untied             true: no two blocks share a layer
 *   share_input_output_emb  false: separate input embeddings
 * `strict` refuses every other key, to catch spelling errors; otherwise they are ignored, but
 * reversible, rotary_emb, shift_tokens must not be false in either case. `source` names the file in
 * messages. PL_OK, PL_EFORMAT or PL_EUSE. */
int pl_dalle_config_from_json(struct pl_dalle_config *c, const json_t *root, int strict,
                              const char *source, struct pl_err *err);
int pl_dalle_config_read(struct pl_dalle_config *c, const char *path, struct pl_err *err);
/* Finds a built-in configuration by name, or reads a file (any name with a '.' or a '/'). */
int pl_dalle_config_find(struct pl_dalle_config *c, const char *name_or_path, struct pl_err *err);

/* All keys but base; pl_dalle_config_from_json restores the same configuration. NULL: no memory.
 * The caller decrefs. */
json_t *pl_dalle_config_to_json(const struct pl_dalle_config *c);

#endif
