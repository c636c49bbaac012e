/* torch.h - PyTorch checkpoints: names and tensors of torch.save's two formats and of TorchScript
 * archives; and writing the newer format. [spec images-and-text 7.2 to 7.5] */
#ifndef PL_TORCH_H
#define PL_TORCH_H

#include "data/files/safetensors.h"

/* 1 if a file that begins with these bytes is for pl_torch_open. Open gives the weights as an
 * st_file (NULL on error; pl_safetensors_close frees it); save writes one, complete or not at
 * all. */
int pl_torch_begins(const void *head, size_t bytes);
int pl_torch_open(struct st_file **f, const char *path, struct pl_err *err);
int pl_torch_save(const struct st_file *f, const char *path, struct pl_err *err);

/* The archive member with our metadata: a JSON object of strings. */
#define TORCH_METADATA "extra/potluck.json"

#endif
