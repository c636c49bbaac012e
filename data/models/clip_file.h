/* clip_file.h - CLIP from a checkpoint. The file has no configuration: sizes follow from the
 * tensors' shapes. */
#ifndef PL_CLIP_FILE_H
#define PL_CLIP_FILE_H

#include "ref/model/clip.h"

/* Opens a model from any file that pl_weights_open reads, such as the published ViT-B-32.pt; close
 * it with pl_clip_close. be is borrowed. */
int pl_clip_open(struct pl_clip_model *m, const char *path, const struct pl_backend *be,
                 struct pl_err *err);

#endif
