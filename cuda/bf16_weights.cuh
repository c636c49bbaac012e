/* bf16_weights.cuh - registers parameters, and keeps their working copy in bfloat16. */
#ifndef PL_CUDA_BF16_WEIGHTS_CUH
#define PL_CUDA_BF16_WEIGHTS_CUH

#include <stddef.h>
#include <stdint.h>

/* Registers master (n) as parameters until it is freed. */
int cuda_weights(const float *master, size_t n);
/* Every operation that writes to memory that may hold parameters calls this first. */
void cuda_written(const void *p, size_t bytes);
/* To be called before any p is freed: cuda_on_free. */
void cuda_weights_freed(const void *p);

/* The current values of W in bfloat16. NULL: W is not a parameter, or there is no memory for it. */
const uint16_t *cuda_weights_bf16(int *rc, const float *W);

#endif
