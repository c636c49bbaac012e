/* reversible.h - the stack of blocks: two streams; each branch computes from one and adds to the
 * other. The backward pass subtracts the same values again, so inputs need not be stored. [TTT 2.1,
 * 3.1] [RevNet: Gomez et al. 2017] [Reformer: Kitaev et al. 2020, section 3] */
#ifndef PL_REVERSIBLE_H
#define PL_REVERSIBLE_H

#include "branch.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Three ways to the same gradients. */
enum pl_activations {
    PL_REVERSIBLE, /* saves nothing in a block: inputs are rebuilt (the reference run) */
    PL_RECOMPUTED, /* saves both streams, 2 tensors of (M,D) a block; branches run again */
    PL_STORED      /* saves all, 18 tensors of (M,D) a block; a quarter fewer operations */
};

/* The blocks and their buffers, which runtime/workspace.h allocates. M = B n positions. */
struct pl_stack {
    struct pl_blocks blocks;
    enum pl_activations mode;
    int training; /* 0: no buffers for backward passes */

    int capacity; /* positions that fit */
    float *arena; /* all of the following */
    size_t arena_floats;
    float **a, **b; /* (L+1) the streams before block l; reversible: L+1 times the same buffer */
    struct pl_attention_saved *attn; /* (L); reversible: L times the same buffers, so with ffn */
    struct pl_ffn_saved *ffn;
    struct pl_branch_scratch scratch;
    float *da, *db; /* (M,D) the streams' gradients */
};

/* (M,D) where the input x goes before pl_stack_begin makes both streams of it, and where
 * pl_stack_end leaves the output (a + b) / 2. */
float *pl_stack_input(const struct pl_stack *s);
float *pl_stack_output(const struct pl_stack *s);
/* (M,D) for the caller between pl_stack_end and the next pass. */
float *pl_stack_spare(const struct pl_stack *s);

/* All blocks. save 1: keep the values that backward needs. save 0: inference, one buffer for each
 * stream. */
int pl_stack_forward(struct pl_stack *s, int B, int n, int save);
/* The same by hand, for the KV cache: begin, block 0 to L-1, end. */
int pl_stack_begin(struct pl_stack *s, int B, int n, int save);
int pl_stack_block(struct pl_stack *s, int l, int B, int n, int save);
int pl_stack_end(struct pl_stack *s, int B, int n, int save);

/* s->da: in, the gradient dy of the output; out, the gradient dx of the input. The gradients of the
 * parameters are added to. Afterwards, in the reversible mode, the streams hold the rebuilt
 * inputs. */
int pl_stack_backward(struct pl_stack *s, int B, int n);

#ifdef __cplusplus
}
#endif
#endif
