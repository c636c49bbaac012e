/* gpt2_file.h - GPT-2 from a checkpoint of the hub or of a training program, and back. */
#ifndef PL_GPT2_FILE_H
#define PL_GPT2_FILE_H

#include "ref/model/gpt2.h"
#include "checkpoint.h"

#include <jansson.h>

/* {"n_layer", "n_head", "n_embd", "vocab_size", "n_positions"[, "n_inner"]}: the hub's
 * config.json; and "n_group", our own: sets of layers that blocks share. */
int pl_gpt2_config_parse(struct pl_gpt2_config *config, const json_t *json, const char *where,
                         struct pl_err *err);
/* Sizes from the tensors' shapes; the number of heads is the one that cannot be seen: `heads`, or
 * width / 64 (every published size) if that is 0. */
int pl_gpt2_config_find(struct pl_gpt2_config *config, const struct st_file *f, int heads,
                        struct pl_err *err);

/* The parameter that a file's tensor belongs to, with or without "transformer." in front; -1: none.
 * The published files' h.I.attn.bias and masked_bias are masks, and lm_head.weight is wte again. */
long pl_gpt2_find(const struct pl_params *params, const char *name);

/* Fills every parameter, or says which is missing. */
int pl_gpt2_load(struct pl_gpt2 *m, const struct st_file *f, struct pl_err *err);
/* From any file that pl_weights_open reads; config as the file's remark "config" or a config.json
 * beside it has it, else from the shapes. */
int pl_gpt2_open(struct pl_gpt2 *m, const char *path, const struct pl_backend *be, int with_grad,
                 struct pl_err *err);
/* A safetensors file under the training program's names ("transformer." in front), whole or not at
 * all. With an optimizer and what else a training needs to go on (either may be NULL), see
 * checkpoint.h. */
int pl_gpt2_save(const struct pl_gpt2 *m, const char *path, struct pl_err *err);
int pl_gpt2_save_training(const struct pl_gpt2 *m, struct pl_optimizer *optimizer, json_t *training,
                          const char *path, struct pl_err *err);
/* A folder that the training program opens by its name: config.json and model.safetensors; `end`
 * is the id of a text's end, -1: none. It knows no shared layers: each block's are written out. */
int pl_gpt2_export(const struct pl_gpt2 *m, int end, const char *folder, struct pl_err *err);

#endif
