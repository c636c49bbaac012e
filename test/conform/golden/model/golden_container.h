/* golden_container.h - the same tensors in every kind of file that users have them in. */
#ifndef PL_GOLDEN_CONTAINER_H
#define PL_GOLDEN_CONTAINER_H

#include "test/conform/golden/golden.h"

/* A safetensors file must open. Any other file must contain every tensor, with its type, shape and
 * bytes, of a safetensors file in its folder: the one with the longest name that is a prefix of its
 * own up to a '_' or '.' (container_mixed.safetensors for "container_mixed_legacy",
 * container.safetensors for "container_lightning"). It may contain more. */
void golden_container(struct golden *g, const char *path, const char *stem);

#endif
