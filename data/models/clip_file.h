/* clip_file.h - CLIP from a checkpoint. The file has no configuration: sizes follow from the
 * tensors' shapes. */
#ifndef PL_CLIP_FILE_H
#define PL_CLIP_FILE_H

#include "ref/model/clip.h"
#include "data/files/safetensors.h"

/* Infers the configuration from the tensors of `f`; PL_EFORMAT with a message if a tensor is
 * missing or does not fit. */
int pl_clip_config_find(struct pl_clip_config *config, const struct st_file *f, struct pl_err *err);
/* Opens a model from any file that pl_weights_open reads, such as the published ViT-B-32.pt; close
 * it with pl_clip_close. be is borrowed. */
int pl_clip_open(struct pl_clip_model *m, const char *path, const struct pl_backend *be,
                 struct pl_err *err);

#endif
