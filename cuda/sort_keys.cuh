/* sort_keys.cuh - floats as integers of the same order, for median.cu and quantile8.cu. */
#ifndef PL_CUDA_SORT_KEYS_CUH
#define PL_CUDA_SORT_KEYS_CUH

#include <stdint.h>

/* A float's bits as an integer that orders like the float: -0 before 0, NaN last; and back. */
static inline __device__ uint32_t key_of(uint32_t bits)
{
    if ((bits & 0x7fffffff) > 0x7f800000) bits = 0x7fc00000;
    return bits >> 31 ? ~bits : bits | 0x80000000;
}

static inline __device__ uint32_t of_key(uint32_t key)
{
    return key >> 31 ? key & 0x7fffffff : ~key;
}

#endif
