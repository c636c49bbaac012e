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
    ISA_AVX2,   /* x86-64: 8 floats, fused multiply-add */
    ISA_AVX512, /* x86-64: 16 floats */
    ISA_NEON,   /* aarch64: 4 floats, 32 registers, fused multiply-add */
    ISA_RVV,    /* riscv64 with vectors 1.0: 8 floats in a group of two registers */
    ISA_COUNT
};

/* The compilers that have riscv64's vectors as GNU C vectors, for single functions: clang. */
#if defined(__riscv) && __riscv_xlen == 64 && defined(__clang_major__) && __clang_major__ >= 18
#define FAST_HAS_RVV 1
#else
#define FAST_HAS_RVV 0
#endif

/* The best set of this machine. PL_FAST_ISA in the environment (plain, avx2, ...) limits it, so
 * that every path can be tested on one machine. Read once. */
enum isa isa_chosen(void);
/* 0 if PL_FAST_ISA is set to something else. */
int isa_env_is_valid(void);
const char *isa_name(enum isa isa);
/* 1 if this CPU has AMX-BF16, on top of ISA_AVX512, and the system lets the process use it. */
int isa_has_amx(void);

#endif
