/* workspace.h - the buffers of a stack of blocks (ref/model/reversible.h). [TTT 2.1, memory] */
#ifndef PL_WORKSPACE_H
#define PL_WORKSPACE_H

#include "../ref/model/reversible.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Buffers for M positions in this mode; training 1: for backward passes too. Those that are there
 * are used if they suffice. PL_ENOMEM leaves none. */
int pl_stack_reserve(struct pl_stack *s, int M, enum pl_activations mode, int training);
/* Frees the buffers alone; frees everything. */
void pl_stack_release(struct pl_stack *s);
void pl_stack_clear(struct pl_stack *s);

#ifdef __cplusplus
}
#endif
#endif
