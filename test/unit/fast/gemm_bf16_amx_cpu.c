/* gemm_bf16_amx_cpu.c - the same on the CPU's own AMX, where it has one. */
#define ON_AMX
#if defined(__x86_64__) && defined(__GNUC__)
#define ON_THE_INSTRUCTIONS
#endif
#include "gemm_bf16.c"
