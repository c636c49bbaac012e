/* reversible.h - the stack: two streams, each block adding to one what it reads from the other, so
 * that the backward pass can take every block off again instead of having stored its input.
 * [TTT 2.1, 3.1] [RevNet: Gomez et al. 2017] [Reformer: Kitaev et al. 2020, section 3]
 *
 *   a <- a + s_f Attn(b)        going back:   b <- b - s_g Feed(a)
 *   b <- b + s_g Feed(a)                      a <- a - s_f Attn(b) */
#ifndef PL_REVERSIBLE_H
#define PL_REVERSIBLE_H

#include "branch.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Three ways to the same gradients; M positions, L blocks, in floats a position and unit of
 * width. */
enum pl_activations {
    PL_REVERSIBLE, /* nothing a block: inputs are rebuilt from outputs (the run) */
    PL_RECOMPUTED, /* 2 a block: both streams; exact inputs, the same operations */
    PL_STORED      /* 18 a block: all that backward needs; a quarter fewer operations */
};

/* One stack with its workspace; the lower half is allocated by pl_stack_reserve. */
struct pl_stack {
    struct pl_blocks blocks;
    enum pl_activations mode;
    int training; /* 0: no room for backward passes */

    int room; /* positions B n that fit */
    float *arena;
    size_t arena_floats;
    float **a, **b; /* (L+1) the streams before block l, which in the reversible mode are all one */
    struct pl_attention_saved *attn; /* (L) likewise */
    struct pl_ffn_saved *feed;
    struct pl_branch_scratch scratch;
    float *da, *db;
};

/* Room for M positions. Keeps what is there if it suffices; PL_ENOMEM leaves none. */
int pl_stack_reserve(struct pl_stack *s, int M, enum pl_activations mode, int training);
/* The workspace alone, and everything. */
void pl_stack_release(struct pl_stack *s);
void pl_stack_clear(struct pl_stack *s);

/* Where the input x (B,n,D) goes before pl_stack_begin makes both streams of it, and where
 * pl_stack_end leaves the output (a + b) / 2. */
float *pl_stack_input(const struct pl_stack *s);
float *pl_stack_output(const struct pl_stack *s);
/* (M,D) for the caller between pl_stack_end and the next pass. */
float *pl_stack_spare(const struct pl_stack *s);

/* A forward pass by hand: begin, block 0 to L-1, end. With keep 1 backward may follow; with 0
 * the streams are a[0] and b[L] throughout and no mode costs more than the reversible one. */
int pl_stack_begin(struct pl_stack *s, int B, int n, int keep);
int pl_stack_block(struct pl_stack *s, int l, int B, int n, int keep);
int pl_stack_end(struct pl_stack *s, int B, int n, int keep);
int pl_stack_forward(struct pl_stack *s, int B, int n, int keep);

/* From the output's gradient in s->da to the input's, in s->da too. Adds to the parameters'. In the
 * reversible mode the streams are the rebuilt inputs afterwards. */
int pl_stack_backward(struct pl_stack *s, int B, int n);

#ifdef __cplusplus
}
#endif
#endif
