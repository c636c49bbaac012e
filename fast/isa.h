/* isa.h - which instruction set the vector code runs on: chosen once, at run time.
 *
 * Vector code is written once, in files named *_simd.inc, with the few operations of simd.h. A .c
 * file names its SIMD file and includes foreach_isa.inc, which compiles it for every instruction
 * set:
 *
 *     #define SIMD_FILE "norm_simd.inc"
 *     #include "foreach_isa.inc"
 *
 * and then selects a copy: struct norm_ops *ops = norm_ops[isa_chosen()]. */
#ifndef PL_FAST_ISA_H
#define PL_FAST_ISA_H

enum isa {
    ISA_PLAIN,  /* 4 floats, plain C on any machine */
    ISA_AVX2,   /* 8 floats, fused multiply-add */
    ISA_AVX512, /* 16 floats */
    ISA_COUNT
};

/* The best set of this machine. PL_FAST_ISA=plain or avx2 in the environment selects a lesser one,
 * so that every path can be tested on one machine. Read once. */
enum isa isa_chosen(void);
/* 0 if PL_FAST_ISA is set to something else. */
int isa_env_is_valid(void);
const char *isa_name(enum isa isa);

#endif
