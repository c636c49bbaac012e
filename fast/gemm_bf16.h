/* gemm_bf16.h - GEMM with operands in bfloat16 and sums in float32, on all threads. Operands are
 * rounded while they are packed, or are bfloat16 already. A feed-forward layer's gate can be
 * computed from a tile's sums: then its hidden values z never go through memory. */
#ifndef PL_FAST_GEMM_BF16_H
#define PL_FAST_GEMM_BF16_H

#include "fast.h"

/* One of x and half is not NULL. */
struct fast_bf16_matrix {
    const float *x;
    const uint16_t *half;
    int ld;
};

/* GEGLU at the end of a tile: M rows of z = (u, g), C channels each, a multiple of 16, and
 * h = u gelu(g).
 *
 *   dh NULL, dz NULL   z is the GEMM: h, and z if not NULL, are written
 *   dh                 z is the GEMM: h and dz, and sums += dz's columns
 *   dz alone           dh is the GEMM, z was saved: the same */
struct fast_bf16_gate {
    int C;
    float *z;           /* (M,2C) */
    const uint16_t *dh; /* (M,C) */
    uint16_t *h, *dz;   /* (M,C), (M,2C) */
    float *sums;        /* (2C) */
};

/* c (m,n) = op(A) op(B) over k terms, + bias (n) if not NULL, or with `add` + c. ta, tb: the
 * operand is stored transposed. In place of c the result may be rounded (n a multiple of 16), or go
 * through a gate; then k <= FAST_BF16_TERMS. */
#define FAST_BF16_TERMS 1024
struct fast_bf16_gemm {
    int ta, tb, m, n, k;
    struct fast_bf16_matrix a, b;
    const float *bias;
    int add;
    float *c;
    int ldc; /* 0: n */
    uint16_t *rounded;
    const struct fast_bf16_gate *gate;
};

/* Requires fast_has_bf16(). PL_OK or PL_ENOMEM. */
int fast_bf16_multiply(const struct fast_bf16_gemm *g);

/* The same by AMX. Requires isa_has_amx(). */
int fast_amx_multiply(const struct fast_bf16_gemm *g);

/* 1 if results may be rounded and gated: AVX512-BF16 and AMX. */
int fast_bf16_has_gate(void);

#endif
