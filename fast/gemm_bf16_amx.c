/* gemm_bf16_amx.c - GEMM with operands rounded to bfloat16 and sums in float32, by AMX-BF16 of
 * Intel's processors: registers of 16 x 16 sums, one instruction for 8,192 multiply-adds. Such a
 * GEMM waits for memory and for packing more than for products. */
#include "gemm_bf16.h"

#if (defined(__x86_64__) && defined(__GNUC__)) || defined(FAST_BF16_PLAIN)
#define BF16_TILE_FILE "gemm_bf16_amx.inc"
#include "gemm_bf16_loops.inc"

int fast_amx_multiply(const struct fast_bf16_gemm *g) { return multiply_all(g); }
#else
int fast_amx_multiply(const struct fast_bf16_gemm *g) { return g ? PL_EDEVICE : PL_EUSE; }
#endif
