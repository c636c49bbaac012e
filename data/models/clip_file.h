/* clip_file.h - CLIP from a checkpoint: sizes are read from the tensors' shapes. */
#ifndef PL_CLIP_FILE_H
#define PL_CLIP_FILE_H

#include "ref/model/clip.h"
#include "data/files/safetensors.h"

/* Sizes of the model whose tensors are in `f`; err names what is missing or does not fit. */
int pl_clip_config_find(struct pl_clip_config *config, const struct st_file *f, struct pl_err *err);
/* From any file that pl_weights_open reads, the published ViT-B-32.pt among them. */
int pl_clip_open(struct pl_clip_model *m, const char *path, const struct pl_backend *be,
                 struct pl_err *err);

#endif
