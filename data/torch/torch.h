/* torch.h - PyTorch's checkpoints: names and tensors of the two kinds of file that torch.save
 * writes, and of TorchScript archives; and writing the newer kind. [spec images-and-text 7.2 to
 * 7.5] */
#ifndef PL_TORCH_H
#define PL_TORCH_H

#include "data/files/safetensors.h"

/* 1 if a file with these first bytes is for pl_torch_open. */
int pl_torch_begins(const void *head, size_t bytes);
int pl_torch_open(struct st_file **f, const char *path, struct pl_err *err);
int pl_torch_save(const struct st_file *f, const char *path, struct pl_err *err);

/* The member with our remarks: a JSON object of texts. */
#define TORCH_REMARKS "extra/potluck.json"

#endif
