/* prenorm_internal.h - the functions of prenorm.c, one block, for prenorm_stack.c. */
#ifndef PL_PRENORM_INTERNAL_H
#define PL_PRENORM_INTERNAL_H

#include "prenorm.h"

/* Passes a value of block l to the caller's watch function, if there is one. */
void prenorm_show(const struct pl_prenorm *s, int l, const char *what, const float *at, size_t n);

/* m->y = attention branch of x (B,n,D), without the residual sum. */
int prenorm_attention(const struct pl_prenorm *s, int l, const struct pl_prenorm_made *m,
                      const float *x, int B, int n, const uint8_t *key_mask);
/* m->y = proj(act(fc(ln_2(x)))), the feed-forward branch of x (M,D). */
int prenorm_ffn(const struct pl_prenorm *s, int l, const struct pl_prenorm_made *m, const float *x,
                int M);
/* A whole block for backward: m->middle and m->y, whose sum is its output. */
int prenorm_block(const struct pl_prenorm *s, int l, const struct pl_prenorm_made *m,
                  const float *x, int B, int n, const uint8_t *key_mask);
/* dx (M,D): from the gradient of block l's output to that of its input x. d (M,D) and wide
 * (M, max(hidden, 3D)) are scratch. */
int prenorm_block_backward(const struct pl_prenorm *s, int l, const struct pl_prenorm_made *m,
                           float *dx, const float *x, float *d, float *wide, int B, int n,
                           const uint8_t *key_mask);

#endif
