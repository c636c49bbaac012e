/* golden_container.h - the same tensors in every kind of file that users have them in. */
#ifndef PL_GOLDEN_CONTAINER_H
#define PL_GOLDEN_CONTAINER_H

#include "golden.h"

/* A safetensors file must open. Any other must hold what the safetensors file beside it does that
 * has the longest beginning of its name, up to a '_' or '.', as its own ("container_mixed_legacy"
 * answers to container_mixed.safetensors, "container_lightning" to container.safetensors): each
 * tensor with its type, shape and bytes. It may hold more. */
void golden_container(struct golden *g, const char *path, const char *stem);

#endif
