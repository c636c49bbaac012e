/* gemm_bf16_cpu.c - the tests of gemm_bf16.c on the CPU's own instructions, where it has them. */
#if (defined(__x86_64__) || defined(__aarch64__)) && defined(__GNUC__)
#define ON_THE_INSTRUCTIONS
#endif
#include "gemm_bf16.c"
