/* isa.h - which instruction set the vector code runs on: chosen once, at run time.
 *
 * Vector code is written once, in files named *_simd.inc, over the few operations of simd.h. A .c
 * file names its lanes file and includes foreach_isa.inc, which compiles it for every set:
 *
 *     #define SIMD_FILE "norm_simd.inc"
 *     #include "foreach_isa.inc"
 *
 * and then picks from what came out: struct norm_ops *ops = norm_ops[isa_chosen()]. */
#ifndef PL_FAST_ISA_H
#define PL_FAST_ISA_H

enum isa {
    ISA_PLAIN,  /* 4 floats: what the compiler makes of them, on any machine */
    ISA_AVX2,   /* 8, with fused multiply-add */
    ISA_AVX512, /* 16 */
    ISA_COUNT
};

/* The best that this machine has. PL_FAST_ISA=plain or avx2 in the environment takes a lesser one,
 * so that every path can be tested on one machine. Read once. */
enum isa isa_chosen(void);
/* 0 if PL_FAST_ISA names none of them. */
int isa_env_is_valid(void);
const char *isa_name(enum isa isa);

#endif
