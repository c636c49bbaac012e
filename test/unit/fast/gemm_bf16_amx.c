/* gemm_bf16_amx.c - the tests of gemm_bf16.c with AMX's packing and tiles, by their definition. */
#define ON_AMX
#include "gemm_bf16.c"
