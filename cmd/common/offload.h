/* offload.h - optimizer state in a file. It is read once per step, so a tensor's moments are loaded
 * for its update and written back after it. For host memory only. [TTT 2.1, memory: offloading] */
#ifndef PL_CMD_OFFLOAD_H
#define PL_CMD_OFFLOAD_H

#include "ref/backend.h"

/* *be becomes a table for an optimizer alone: its memory is in an unnamed file of `folder`, which
 * ends with the program. The disk's space is taken at once, so that none of it can be missing
 * later. One at a time: a table's functions know no context. */
int offload_open(struct pl_backend *be, const struct pl_backend *base, const char *folder,
                 struct pl_err *err);
/* After the optimizer has been closed. */
void offload_close(void);

#endif
