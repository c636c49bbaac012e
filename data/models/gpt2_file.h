/* gpt2_file.h - GPT-2 checkpoints: from the hub or a training program, and back. */
#ifndef PL_GPT2_FILE_H
#define PL_GPT2_FILE_H

#include "ref/model/gpt2.h"
#include "checkpoint.h"

#include <jansson.h>

/* Parses {"n_layer", "n_head", "n_embd", "vocab_size", "n_positions"[, "n_inner"]}, the hub's
 * config.json, and our own key "n_group", the number of layer sets that blocks share. */
int pl_gpt2_config_parse(struct pl_gpt2_config *config, const json_t *json, const char *where,
                         struct pl_err *err);
/* Infers the sizes from the tensors' shapes. The number of heads does not show in them: `heads`, or
 * width / 64 (as in every published model) if that is 0. */
int pl_gpt2_config_find(struct pl_gpt2_config *config, const struct st_file *f, int heads,
                        struct pl_err *err);

/* The parameter for a file's tensor, with or without "transformer." in front; -1: none.
 * h.I.attn.bias and masked_bias are masks, and lm_head.weight repeats wte. */
long pl_gpt2_find(const struct pl_params *params, const char *name);

/* Loads every parameter; err names the first one missing. */
int pl_gpt2_load(struct pl_gpt2 *m, const struct st_file *f, struct pl_err *err);
/* Opens a model from any file that pl_weights_open reads. The configuration comes from the metadata
 * "config" or a config.json in the same folder, otherwise from the shapes. */
int pl_gpt2_open(struct pl_gpt2 *m, const char *path, const struct pl_backend *be, int with_grad,
                 struct pl_err *err);
/* Writes a safetensors file under the training program's names ("transformer." in front), complete
 * or not at all. The optimizer and the progress (either may be NULL) are saved as in
 * checkpoint.h. */
int pl_gpt2_save(const struct pl_gpt2 *m, struct pl_optimizer *optimizer, json_t *training,
                 const char *path, struct pl_err *err);
/* Writes a folder that transformers' from_pretrained opens: config.json and model.safetensors.
 * `end` is the id of the end-of-text token, -1: none. Shared layers are written once per block. */
int pl_gpt2_export(const struct pl_gpt2 *m, int end, const char *folder, struct pl_err *err);

#endif
