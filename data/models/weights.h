/* weights.h - tensors out of whatever file a model was published in: safetensors, PyTorch's zip,
 * its older stream, TorchScript. [spec images-and-text 7] */
#ifndef PL_WEIGHTS_H
#define PL_WEIGHTS_H

#include "data/files/safetensors.h"

/* Recognises the kind by the first bytes. Tensors lie in the mapped file as they are stored; only
 * those with strides of their own are copied. A training checkpoint gives the weights in it,
 * without "module." that a wrapper may have put before all names; f->kind says what it was. */
int pl_weights_open(struct st_file **f, const char *path, struct pl_err *err);

/* Every tensor and remark of `f` into a new file of the kind that its name's ending says:
 * .safetensors, or .pt .pth .bin .ckpt (PyTorch's zip, which torch.load(weights_only=True) reads;
 * the remarks are in its member extra/potluck.json). Whole or not at all. */
int pl_weights_save(const struct st_file *f, const char *path, struct pl_err *err);

#endif
