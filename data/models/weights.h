/* weights.h - tensors from any published file of weights: safetensors, PyTorch's zip, its older
 * stream, TorchScript. [spec images-and-text 7] */
#ifndef PL_WEIGHTS_H
#define PL_WEIGHTS_H

#include "data/files/safetensors.h"

/* Recognizes the kind by the first bytes. Tensors stay in the mapped file; only those with
 * non-contiguous strides are copied. Of a training checkpoint, the weights in it; "module." before
 * all names is removed; f->kind names the kind of file. On error *f is NULL. Close with
 * pl_safetensors_close. */
int pl_weights_open(struct st_file **f, const char *path, struct pl_err *err);

/* Saves every tensor and metadata entry of `f` in the format of the file name's ending:
 * .safetensors, or .pt .pth .bin .ckpt (PyTorch's zip, readable with torch.load(weights_only=True);
 * metadata in its member extra/potluck.json). Complete or not at all. */
int pl_weights_save(const struct st_file *f, const char *path, struct pl_err *err);

#endif
